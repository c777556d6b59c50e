//! System calls that the kernel refuses, as with a sandbox's seccomp filter or a kernel that does not support
//! them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

use super::hang::filter;

/// Makes each of these calls fail with this error in the program.
pub fn refuse(command: &mut Command, calls: &[libc::c_long], errno: i32) {
    let mut filter = filter(calls, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned());
    // SAFETY: two system calls, with a program that the closure owns.
    unsafe {
        command.pre_exec(move || {
            let length = u16::try_from(filter.len()).unwrap_or(u16::MAX);
            let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            match libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
}
