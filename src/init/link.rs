//! The messages between PID 1 and the child that prepares.
//!
//! A pipe carries the orders to PID 1, and the message that the command could not be executed. It closes by
//! itself when the child execs. A one-time permit decides which process continues if the deadline and the
//! exec coincide: the command must start once, not twice. If the child is killed after it took the permit,
//! PID 1 asks the kernel whether the child had become the command (`execed`).

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::pipe2;

use super::message::InitMessage;
use super::note::HandoffMemory;
use super::orders::Orders;
use super::sealed::Sealed;

/// The child's side.
pub(crate) struct Link {
    started: Instant,
    pipe: std::fs::File,
    permit: Rc<Permit>,
    note: Option<Rc<HandoffMemory>>,
    state: Option<Rc<Sealed>>,
}

/// PID 1's side.
pub(super) struct Watch {
    pipe: std::fs::File,
    permit: Rc<Permit>,
    note: Option<Rc<HandoffMemory>>,
    state: Option<Rc<Sealed>>,
}

/// What PID 1 reads from the pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The child has become the command, or has ended.
    Closed,
    Told(InitMessage),
    /// There is nothing to read now.
    Nothing,
}

/// A permit to start the command. It can be taken once, by one of the two processes.
struct Permit(EventFd);

impl Permit {
    fn take(&self) -> bool {
        self.0.read() == Ok(1)
    }
}

/// Returns both ends. Each process drops the end that it does not use.
///
/// # Errors
/// EMFILE, ENFILE or ENOMEM.
pub(super) fn pair() -> Result<(Watch, Link), Errno> {
    let (mut watch, mut link) = pair_without_memory()?;
    watch.note = HandoffMemory::new().map(Rc::new);
    watch.state = Sealed::new().map(Rc::new);
    link.note.clone_from(&watch.note);
    link.state.clone_from(&watch.state);
    Ok((watch, link))
}

/// Returns both ends of a link without memory, for a child that has nothing to hand over.
///
/// # Errors
/// EMFILE, ENFILE or ENOMEM.
pub(super) fn pair_without_memory() -> Result<(Watch, Link), Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let permit = Rc::new(Permit(EventFd::from_value_and_flags(1, flags)?));
    let watch = Watch { pipe: read.into(), permit: Rc::clone(&permit), note: None, state: None };
    Ok((watch, Link { started: Instant::now(), pipe: write.into(), permit, note: None, state: None }))
}

impl Link {
    /// Sends PID 1 its orders; the latest ones apply.
    pub(crate) fn give(&self, orders: &Orders) {
        self.tell(&InitMessage::Orders(Box::new(*orders)));
    }

    /// Tells PID 1 that the command could not be executed.
    pub(crate) fn not_run(&self) {
        self.tell(&InitMessage::NotRun);
    }

    fn tell(&self, message: &InitMessage) {
        // The few messages fit into the pipe. If the supervisor is gone, no process needs them.
        let _ = (&self.pipe).write_all(&message.encode());
    }

    /// Saves the first look at the ports, which the account needs when the command has ended.
    pub(crate) fn leave_ports(&self, note: &[u8]) {
        if let Some(memory) = self.note.as_deref() {
            memory.leave_ports(note);
        }
    }

    /// Saves the decision. PID 1 starts the command with it if the preparation does not finish.
    pub(crate) fn leave_decision(&self, decision: &[u8]) {
        if let Some(memory) = self.note.as_deref() {
            memory.leave_decision(decision);
        }
    }

    /// Saves the state in memory that PID 1 keeps for processes that enter the container. They trust it
    /// only after it is sealed. Returns whether there is memory to seal.
    #[must_use]
    pub(crate) fn leave_state(&self, state: &[u8]) -> bool {
        !state.is_empty() && self.state.as_deref().is_some_and(|memory| memory.fill(state))
    }

    /// Seals the saved state, so that no process can change it.
    pub(crate) fn seal_state(&self) {
        if let Some(memory) = self.state.as_deref() {
            memory.seal();
        }
    }

    /// Returns whether this process may continue to exec. `false` if PID 1 has given up on it and will kill
    /// it.
    #[must_use]
    pub(crate) fn claim_exec(&self) -> bool {
        let may_exec = self.permit.take();
        if let Some(memory) = self.note.as_deref().filter(|_| may_exec) {
            memory.leave_prepared(self.started.elapsed());
        }
        may_exec
    }
}

impl Watch {
    /// Returns whether PID 1 may start the command in the child's place. `false` if the child is already
    /// about to exec.
    #[must_use]
    pub(super) fn claim_start(&self) -> bool {
        self.permit.take()
    }

    pub(super) fn read(&self) -> News {
        let mut bytes = [0; InitMessage::LENGTH];
        match (&self.pipe).read(&mut bytes) {
            Ok(0) => News::Closed,
            Ok(length) => bytes.get(..length).and_then(InitMessage::decode).map_or(News::Nothing, News::Told),
            Err(_) => News::Nothing,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Hands the child's note to the supervisor, which keeps it.
    pub(super) fn take_note(&mut self) -> Option<Rc<HandoffMemory>> {
        self.note.take()
    }

    /// Hands the child's state, which is for processes that enter, to the supervisor, which keeps it.
    pub(super) fn take_state(&mut self) -> Option<Rc<Sealed>> {
        self.state.take()
    }

    /// Returns the descriptors that PID 1 must keep open.
    pub(super) fn raw_fds(&self) -> [i32; 2] {
        [self.pipe.as_raw_fd(), self.permit.0.as_fd().as_raw_fd()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{Enforcing, FailureOrders, Refusal};

    #[test]
    fn only_one_side_gets_the_permit() {
        let (watch, link) = pair().unwrap();
        assert!(link.claim_exec());
        assert!(!watch.claim_start());
        assert!(watch.note.unwrap().prepared().is_some(), "it says when it execs");
        let (watch, link) = pair().unwrap();
        assert!(watch.claim_start());
        assert!(!link.claim_exec());
        assert_eq!(watch.note.unwrap().prepared(), None);
    }

    #[test]
    fn the_messages_arrive_and_then_the_end() {
        let (watch, link) = pair().unwrap();
        assert_eq!(watch.read(), News::Nothing);
        let orders = |refuse| Orders { terms: FailureOrders { deadline: None, refuse }, ..Orders::default() };
        let refusal = Some(Refusal { code: 121, asked_by: Enforcing::default() });
        link.give(&orders(None));
        link.give(&orders(refusal));
        link.not_run();
        drop(link);
        assert_eq!(watch.read(), News::Told(InitMessage::Orders(Box::new(orders(None)))));
        assert_eq!(watch.read(), News::Told(InitMessage::Orders(Box::new(orders(refusal)))));
        assert_eq!(watch.read(), News::Told(InitMessage::NotRun));
        assert_eq!(watch.read(), News::Closed);
    }
}
