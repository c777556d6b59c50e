//! The terminal of `docker run -it`.

use std::io::IsTerminal;

use nix::unistd::{Pid, getpgrp, setpgid, tcsetpgrp};

use crate::sys::stdio::stdin;

/// In the child: a process group of its own, in the foreground of the terminal
/// if there is one. The terminal then sends ^C to the command and not to PID 1
/// as well, which would forward it a second time; and a shell gets job control.
///
/// Call it with SIGTTOU blocked: a background process may not touch the terminal.
pub fn take_foreground() {
    if setpgid(Pid::from_raw(0), Pid::from_raw(0)).is_err() {
        return;
    }
    let stdin = stdin();
    if stdin.is_terminal() {
        // Not our controlling terminal (ENOTTY): then there is no foreground to take.
        let _ = tcsetpgrp(stdin, getpgrp());
    }
}
