//! Starting the processes that become the command.

use nix::errno::Errno;
use nix::unistd::Pid;

use super::orders::Orders;
use super::terminal;
use crate::exit;
use crate::log::Level;
use crate::sys::fork;
use crate::sys::signals::{Disposition, Inherited};

/// What the command gets back before it is executed.
#[derive(Clone, Copy)]
pub(super) struct Inheritance {
    pub(super) inherited: Inherited,
    pub(super) sigchld: Disposition,
}

/// Starts a child with what was inherited, in a process group of its own, and
/// in the foreground of the terminal if the group `from` has it.
pub(super) fn spawn(inheritance: &Inheritance, from: Pid, child: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    let child = fork::spawn(|| {
        terminal::take_foreground(from);
        inheritance.sigchld.restore();
        inheritance.inherited.restore();
        child()
    })?;
    terminal::lead_group(child);
    Ok(child)
}

pub(super) fn cannot_start(orders: &Orders, what: &str, error: Errno) -> i32 {
    orders.voice.say(
        Level::Error,
        &format!(
            "cannot create {what}: {error}. Is the container's limit of processes or open files too low?"
        ),
    );
    exit::FAILED
}
