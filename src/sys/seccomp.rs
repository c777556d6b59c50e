//! Refuses system calls that a process of ours with one task never makes: a seccomp filter for the processes that run a
//! provider's code, or that look at ports while the job runs.
//!
//! This is not a list of what such a process may do: providers differ, and the next release of one may need more. It is
//! a list of calls that an intruder needs next: to execute a program, to trace another process, to enter another
//! namespace, to mount, and to reach the parts of the kernel with the most errors. It is not a sandbox: a process can
//! still open the files of its user, such as /proc/PID/mem, and clone(2) can make namespaces.

use std::mem::offset_of;

use nix::libc::{self, c_long, sock_filter};
use nix::sys::prctl::set_no_new_privs;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// From here on, calls are those of x86-64's x32, which have the numbers of all others once more.
const X32: u32 = 0x4000_0000;

macro_rules! calls {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

const NEVER: [c_long; 58] = calls! {
    SYS_execve SYS_execveat
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_pidfd_getfd SYS_kcmp SYS_perf_event_open
    SYS_unshare SYS_setns
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_move_mount SYS_open_tree SYS_mount_setattr
    SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick
    SYS_name_to_handle_at SYS_open_by_handle_at SYS_mknodat
    SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups
    SYS_setfsuid SYS_setfsgid
    SYS_bpf SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
    SYS_keyctl SYS_add_key SYS_request_key
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_kexec_file_load
    SYS_reboot SYS_swapon SYS_swapoff SYS_acct SYS_syslog
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex
    SYS_sethostname SYS_setdomainname SYS_personality
};

/// Refuses these calls with EPERM, in this thread and in what it forks, for the rest of their lives. If the kernel or a
/// sandbox lets no filter be installed, everything stays as it is.
pub(crate) fn refuse_what_is_never_called() {
    // A process without CAP_SYS_ADMIN may filter only itself, so it must not execute what would gain rights.
    if set_no_new_privs().is_err() {
        return;
    }
    let mut program = program();
    let Ok(len) = u16::try_from(program.len()) else { return };
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // Without the flag, kernels before 5.16 slow down the whole process, in case that it runs a script of a stranger.
    // SAFETY: the program outlives the call, which reads it, and changes this thread alone.
    unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        );
    }
}

fn program() -> Vec<sock_filter> {
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let mut program = vec![
        load(offset_of!(libc::seccomp_data, arch)),
        // The numbers of calls are those of this architecture.
        sock_filter { jt: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, ARCHITECTURE) },
        answer(true),
        load(offset_of!(libc::seccomp_data, nr)),
    ];
    program.extend(choice(&runs()));
    program
}

/// Returns the numbers from which on calls are refused, or are not, in their order.
fn runs() -> Vec<(u32, bool)> {
    let mut refused = NEVER.map(|call| call as u32);
    refused.sort_unstable();
    let mut runs = vec![(0, false)];
    for call in refused {
        // The number before this one may be refused as well.
        if runs.last() == Some(&(call, false)) {
            runs.pop();
        } else {
            runs.push((call, true));
        }
        runs.push((call + 1, false));
    }
    runs.push((X32, true));
    runs
}

/// Returns the statements that find the run of a number by halves. To install a filter, the kernel runs it for every
/// number, which takes most of the time: seven times as long if the numbers are compared one by one.
fn choice(runs: &[(u32, bool)]) -> Vec<sock_filter> {
    match runs {
        [] => Vec::new(),
        [(_, is_refused)] => vec![answer(*is_refused)],
        _ => {
            let (low, high) = runs.split_at(runs.len() / 2);
            let from = high.first().map_or(0, |(from, _)| *from);
            let (low, high) = (choice(low), choice(high));
            let at_least = statement(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, from);
            let first = sock_filter { jt: low.len() as u8, ..at_least };
            [vec![first], low, high].concat()
        }
    }
}

fn answer(is_refused: bool) -> sock_filter {
    let answer = match is_refused {
        true => libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned(),
        false => libc::SECCOMP_RET_ALLOW,
    };
    statement(libc::BPF_RET | libc::BPF_K, answer)
}

/// A statement that, if it is a comparison, goes on with the next one.
const fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;
    use nix::unistd::getpid;

    use super::*;

    /// Runs the program for a call, as the kernel does.
    fn verdict(program: &[sock_filter], call: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let statement = program[at];
            at += 1;
            let jumps = |holds| usize::from(if holds { statement.jt } else { statement.jf });
            match u32::from(statement.code) & (0x07 | 0xf0) {
                libc::BPF_RET => return statement.k,
                code if code & 0x07 == libc::BPF_LD => {
                    loaded = if statement.k == 0 { call } else { ARCHITECTURE };
                }
                code if code == libc::BPF_JMP | libc::BPF_JEQ => at += jumps(loaded == statement.k),
                code if code == libc::BPF_JMP | libc::BPF_JGE => at += jumps(loaded >= statement.k),
                code => panic!("{code:#x}"),
            }
        }
    }

    #[test]
    fn every_number_gets_its_answer() {
        let program = program();
        assert!(program.len() < 255, "a jump has eight bits");
        for call in (0..1000).chain([X32 - 1, X32, X32 + 39, u32::MAX]) {
            let is_refused = call >= X32 || NEVER.contains(&c_long::from(call));
            assert_eq!(verdict(&program, call) == libc::SECCOMP_RET_ALLOW, !is_refused, "{call}");
        }
    }

    /// Returns the answer to a call without a single valid argument, which changes nothing even without the filter.
    fn called(call: c_long) -> Result<c_long, Errno> {
        // SAFETY: the kernel takes no pointer here for one of this process.
        Errno::result(unsafe { libc::syscall(call, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) })
    }

    #[test]
    fn what_is_never_called_is_refused_and_all_else_goes_on() {
        let (refused, goes_on) = std::thread::spawn(|| {
            refuse_what_is_never_called();
            let goes_on = std::fs::read("/proc/self/status").is_ok()
                && std::net::TcpListener::bind("127.0.0.1:0").is_ok()
                && std::thread::spawn(getpid).join().is_ok();
            (NEVER.map(called), goes_on)
        })
        .join()
        .unwrap();
        assert_eq!(refused, [Err(Errno::EPERM); NEVER.len()]);
        assert!(goes_on);
    }

    /// A kernel without x32 does not know the number.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_numbers_of_another_interface_are_no_way_round() {
        let called = std::thread::spawn(|| {
            refuse_what_is_never_called();
            called(libc::SYS_getpid | c_long::from(X32))
        });
        assert_eq!(called.join().unwrap(), Err(Errno::EPERM));
    }
}
