//! Handles the terminal of `docker run -it`, or of a shell that runs rdma-init.

use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{OFlag, open};
use nix::libc::{SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, setpgid, tcgetpgrp, tcsetpgrp};

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

/// Returns whether a shell on this terminal controls this process and can resume it: the parent is in the
/// same session, but in another process group.
pub(super) fn is_job() -> bool {
    let parent = getppid();
    on_terminal(|_| ()).is_some()
        && getsid(Some(parent)) == getsid(None)
        && getpgid(Some(parent)).is_ok_and(|group| group != getpgrp())
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

/// Handles job control when `signal` has stopped the command. After ^Z, the shell waits until the rest of
/// the job has stopped as well. If the command wants the terminal, and `fg` has put this process into the
/// foreground, the command gets the terminal.
pub(super) fn stop_along(child: Pid, signal: i32) {
    let own = getpgrp();
    let wants_terminal = [SIGTTIN, SIGTTOU].contains(&signal);
    if wants_terminal && hand_over(own, child) {
        let _ = signals::kill(child, SIGCONT);
    } else if is_job() && (hand_over(child, own) || wants_terminal || signal == SIGTSTP) {
        // This also stops the other members of a pipeline.
        let _ = signals::kill(Pid::from_raw(0), SIGSTOP);
    }
}
