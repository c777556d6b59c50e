//! Starting programs without what the test process itself has inherited.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

use super::binary;

/// The program with arguments and an environment of its own: neither a
/// configuration nor a variable of the machine that runs the test counts.
pub fn rdma_init<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    program(binary(), arguments)
}

/// The same for any program.
pub fn program<A: AsRef<OsStr>>(path: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(path);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    // Not of this machine.
    command.env("RDMA_INIT_STATE_DIR", "").env("RDMA_INIT_WRITE_NCCL_CONF", "false");
    command.args(arguments);
    from_scratch(&mut command);
    command
}

/// Keeps from a program what the process that runs the tests may have inherited
/// itself: open descriptors, and signals that are ignored.
pub fn from_scratch(command: &mut Command) {
    // SAFETY: system calls with constants; both are async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for signal in 1..=64 {
                let default = [0u64; 4];
                libc::syscall(libc::SYS_rt_sigaction, signal, &default, 0, 8);
            }
            Ok(())
        });
    }
}

/// Closes some of the standard descriptors before the program starts.
pub fn close(command: &mut Command, numbers: Vec<i32>) {
    // SAFETY: close is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for number in &numbers {
                libc::close(*number);
            }
            Ok(())
        });
    }
}
