//! Starts the processes that become the command.

use nix::errno::Errno;
use nix::unistd::Pid;

use super::terminal;
use crate::sys::fork;
use crate::sys::signals::{Disposition, Inherited};

/// What is restored before the command is executed.
#[derive(Clone, Copy)]
pub(super) struct Inheritance {
    pub(super) inherited: Inherited,
    pub(super) sigchld: Disposition,
}

impl Inheritance {
    /// Restores these settings in the process that becomes the command.
    pub(super) fn restore(&self) {
        self.sigchld.restore();
        self.inherited.restore();
    }
}

/// Starts a child with the inherited settings, in its own process group. If the group `from` has the
/// foreground of the terminal, the child gets it.
pub(super) fn spawn(inheritance: &Inheritance, from: Pid, child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    let child = fork::spawn(|| {
        terminal::take_foreground(from);
        inheritance.restore();
        child()
    })?;
    terminal::lead_group(child);
    Ok(child)
}

/// Returns why no process can be started, as a sentence without a final period.
pub(super) fn cannot_start(what: &str, error: Errno) -> String {
    let advice = match error {
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS => "check whether a seccomp filter forbids it",
        _ => "the container's limit of processes or open files may be too low",
    };
    format!("cannot create {what} ({error:?}, {}; {advice})", error.desc())
}
