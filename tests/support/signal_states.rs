//! Signal masks and dispositions that a program may inherit.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::libc;

use super::status_field;

/// The signal state that a parent passes to the program.
#[derive(Debug, Clone, Copy)]
pub struct State {
    pub name: &'static str,
    /// Bit n-1 stands for signal n.
    pub blocked: u64,
    pub ignored: &'static [i32],
    /// This signal is sent to the process just before the exec, while it is blocked.
    pub pending: Option<i32>,
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals 32 and 33 belong to libc's threads, and a parent may have left them in any state (glibc 2.36's
/// posix_spawn leaves them ignored).
pub const STATES: &[State] = &[
    State { name: "nothing", blocked: 0, ignored: &[], pending: None },
    State {
        name: "blocked TTIN, ILL, TERM",
        blocked: bit(libc::SIGTTIN) | bit(libc::SIGILL) | bit(libc::SIGTERM),
        ignored: &[],
        pending: None,
    },
    State {
        name: "ignored TTOU, SEGV, INT",
        blocked: 0,
        ignored: &[libc::SIGTTOU, libc::SIGSEGV, libc::SIGINT],
        pending: None,
    },
    State { name: "ignored PIPE", blocked: 0, ignored: &[libc::SIGPIPE], pending: None },
    State { name: "blocked PIPE", blocked: bit(libc::SIGPIPE), ignored: &[], pending: None },
    State { name: "ignored CHLD", blocked: 0, ignored: &[libc::SIGCHLD], pending: None },
    State { name: "blocked CHLD", blocked: bit(libc::SIGCHLD), ignored: &[], pending: None },
    State { name: "blocked 63", blocked: bit(63), ignored: &[], pending: None },
    State { name: "ignored 63, 64", blocked: 0, ignored: &[63, 64], pending: None },
    State { name: "ignored 32, 33", blocked: 0, ignored: &[32, 33], pending: None },
    State { name: "blocked 32, 33", blocked: bit(32) | bit(33), ignored: &[], pending: None },
    State { name: "all blocked", blocked: u64::MAX, ignored: &[], pending: None },
    State {
        name: "blocked and ignored HUP, ALRM, WINCH, 40",
        blocked: bit(libc::SIGHUP) | bit(libc::SIGALRM) | bit(libc::SIGWINCH) | bit(40),
        ignored: &[libc::SIGHUP, libc::SIGALRM, libc::SIGWINCH, 40],
        pending: None,
    },
];

/// The kernel's own layout of sigaction. libc's functions refuse the signals that libc reserves for itself,
/// so the tests make the system call.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Starts the command in this state.
pub fn inherit(command: &mut Command, state: &State) {
    let state = *state;
    // SAFETY: the closure makes system calls only, with plain data that it owns.
    unsafe {
        command.pre_exec(move || {
            for signal in state.ignored {
                let ignore = KernelAction { handler: libc::SIG_IGN, flags: 0, restorer: 0, mask: 0 };
                libc::syscall(libc::SYS_rt_sigaction, *signal, &ignore, 0, 8);
            }
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &state.blocked, 0, 8);
            if let Some(signal) = state.pending {
                libc::syscall(libc::SYS_kill, libc::syscall(libc::SYS_getpid), signal);
            }
            Ok(())
        });
    }
}

/// Returns the lines of a status file that must be the same with and without the program.
pub fn shown(status: &str) -> String {
    let field = |name| status_field(status, name).unwrap_or("?");
    ["SigBlk", "SigIgn", "SigCgt"].map(|name| format!("{name} {}", field(name))).join(", ")
}
