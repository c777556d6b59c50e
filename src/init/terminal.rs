//! Handles the terminal of `docker run -it`, or of a shell that runs rdma-init.

use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{OFlag, open};
use nix::libc::{SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, setpgid, tcgetpgrp, tcsetpgrp};

use super::survivors::parent;
use crate::sys::signals;
use crate::sys::stdio::stdin;

/// Calls a function with the controlling terminal: standard input, or /dev/tty if standard input is
/// redirected. `None` without a terminal.
fn on_terminal<T>(act: impl FnOnce(BorrowedFd) -> T) -> Option<T> {
    let stdin = stdin();
    if tcgetpgrp(stdin).is_ok() {
        return Some(act(stdin));
    }
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let terminal = open("/dev/tty", flags, Mode::empty()).ok()?;
    Some(act(terminal.as_fd()))
}

/// Hands the foreground from one process group to another, if the first one has it.
///
/// Call it with SIGTTOU blocked: a background process may not touch the terminal.
pub(super) fn hand_over(from: Pid, to: Pid) -> bool {
    on_terminal(|terminal| tcgetpgrp(terminal) == Ok(from) && tcsetpgrp(terminal, to).is_ok()) == Some(true)
}

/// Returns whether a shell on this terminal controls this process and can resume it: the nearest ancestor outside the
/// process group is in the same session. The kernel says of other groups that they are orphaned
/// (`will_become_orphaned_pgrp` in kernel/exit.c), and the terminal does not stop them.
pub(super) fn is_job() -> bool {
    let (session, group) = (getsid(None), getpgrp());
    let mut ancestors = std::iter::successors(Some(getppid()), |pid| parent(pid.as_raw()).map(Pid::from_raw));
    let outside = ancestors.find(|pid| pid.as_raw() == 0 || getpgid(Some(*pid)) != Ok(group));
    on_terminal(|_| ()).is_some()
        && outside.is_some_and(|shell| shell.as_raw() != 0 && getsid(Some(shell)) == session)
}

/// Puts this child into its own process group, and into the foreground of the terminal if the group `from`
/// had it. The terminal then sends ^C only to the command, and not also to its init, which would forward it
/// a second time. A shell as the command gets job control.
///
/// Call it with SIGTTOU blocked.
pub(super) fn take_foreground(from: Pid) {
    if lead_group(Pid::from_raw(0)) {
        hand_over(from, getpgrp());
    }
}

/// Makes a process the leader of its own group. The parent calls this as well, so that the group exists
/// whichever of the two runs first.
pub(super) fn lead_group(pid: Pid) -> bool {
    setpgid(pid, pid).is_ok()
}

/// Continues a child and what it has started in its process group.
pub(super) fn resume(child: Pid) {
    let group = signals::kill(Pid::from_raw(-child.as_raw()), SIGCONT);
    let _ = group.or_else(|_| signals::kill(child, SIGCONT));
}

/// Handles job control when `signal` has stopped the child. After ^Z, the shell waits until the rest of the job has
/// stopped as well. If the child wants the terminal, and `fg` has put this process into the foreground, the child gets
/// the terminal. Returns whether the child runs again.
///
/// If no shell controls this process, as in `docker run -it`, no process could continue what the terminal has stopped.
/// Without an init, the kernel does not even stop such a process.
pub(super) fn handle_stop(child: Pid, signal: i32, is_forwarded: bool) -> bool {
    let own = getpgrp();
    let wants_terminal = [SIGTTIN, SIGTTOU].contains(&signal);
    let is_job = is_job();
    let resumes = if wants_terminal && hand_over(own, child) {
        true
    } else if is_job {
        if hand_over(child, own) || wants_terminal || signal == SIGTSTP {
            // This also stops the other members of a pipeline.
            let _ = signals::kill(Pid::from_raw(0), SIGSTOP);
        }
        false
    } else if wants_terminal {
        // Continued in the background, it would stop again at once.
        on_terminal(|terminal| tcsetpgrp(terminal, child).is_ok()) == Some(true)
    } else {
        signal == SIGTSTP && !is_forwarded && on_terminal(|_| ()).is_some()
    };
    if resumes {
        resume(child);
    }
    resumes
}
