//! What PID 1 and the child that prepares tell each other.
//!
//! A pipe carries the configured deadline to PID 1 and closes by itself when
//! the child execs. A one-time permit decides who goes on when the deadline and
//! the exec fall together: the command must start once, not twice.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::pipe2;

/// The child's side.
pub struct Link {
    pipe: std::fs::File,
    permit: Rc<Permit>,
}

/// PID 1's side.
pub struct Watch {
    pipe: std::fs::File,
    permit: Rc<Permit>,
}

/// What holds for a preparation that does not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Counted from the start; `None` for no deadline.
    pub deadline: Option<Duration>,
    /// The code to refuse the command with; `None` to start it as it is.
    pub refuse: Option<i32>,
}

/// What PID 1 finds in the pipe.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The child has become the command, or is gone.
    Closed,
    Terms(Terms),
    /// Nothing that can be read now.
    Nothing,
}

/// Can be taken once, by one of the two processes.
struct Permit(EventFd);

impl Permit {
    fn take(&self) -> bool {
        self.0.read() == Ok(1)
    }
}

/// Both sides; each process drops the one that is not its own.
///
/// # Errors
/// EMFILE, ENFILE or ENOMEM.
pub fn pair() -> Result<(Watch, Link), Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let permit = Rc::new(Permit(EventFd::from_value_and_flags(1, flags)?));
    Ok((Watch { pipe: read.into(), permit: Rc::clone(&permit) }, Link { pipe: write.into(), permit }))
}

const NO_DEADLINE: u64 = u64::MAX;
const START: i32 = -1;

/// Bytes: the deadline in milliseconds and the code, each eight.
const MESSAGE: usize = 16;

impl Link {
    /// Tells PID 1.
    pub fn set_terms(&self, terms: Terms) {
        let deadline =
            terms.deadline.map_or(NO_DEADLINE, |d| d.as_millis().try_into().unwrap_or(u64::MAX - 1));
        let refuse = i64::from(terms.refuse.unwrap_or(START));
        let mut message = [0; MESSAGE];
        message[..8].copy_from_slice(&deadline.to_le_bytes());
        message[8..].copy_from_slice(&refuse.to_le_bytes());
        // A pipe that holds nothing else has room for it; were it gone, the
        // defaults would stand.
        let _ = (&self.pipe).write_all(&message);
    }

    /// Whether this process may go on to exec. `false` when PID 1 has given up
    /// on it, and will kill it.
    #[must_use]
    pub fn claim_exec(&self) -> bool {
        self.permit.take()
    }
}

impl Watch {
    /// Whether PID 1 may start the command in the child's place. `false` when
    /// the child is already on its way.
    #[must_use]
    pub fn claim_start(&self) -> bool {
        self.permit.take()
    }

    pub fn read(&self) -> News {
        let (mut deadline, mut refuse) = ([0; 8], [0; 8]);
        let mut message = [0; MESSAGE];
        match (&self.pipe).read(&mut message) {
            Ok(0) => News::Closed,
            Ok(MESSAGE) => {
                deadline.copy_from_slice(&message[..8]);
                refuse.copy_from_slice(&message[8..]);
                let millis = u64::from_le_bytes(deadline);
                let refuse = i32::try_from(i64::from_le_bytes(refuse)).unwrap_or(START);
                News::Terms(Terms {
                    deadline: (millis != NO_DEADLINE).then(|| Duration::from_millis(millis)),
                    refuse: (refuse != START).then_some(refuse),
                })
            }
            _ => News::Nothing,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// The descriptors that PID 1 has to keep open.
    pub fn raw_fds(&self) -> [i32; 2] {
        [self.pipe.as_raw_fd(), self.permit.0.as_fd().as_raw_fd()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_side_gets_the_permit() {
        let (watch, link) = pair().unwrap();
        assert!(link.claim_exec());
        assert!(!watch.claim_start());
        let (watch, link) = pair().unwrap();
        assert!(watch.claim_start());
        assert!(!link.claim_exec());
    }

    #[test]
    fn the_terms_arrive_and_then_the_end() {
        let (watch, link) = pair().unwrap();
        assert_eq!(watch.read(), News::Nothing);
        for terms in [
            Terms { deadline: Some(Duration::from_millis(1500)), refuse: Some(121) },
            Terms { deadline: None, refuse: None },
        ] {
            link.set_terms(terms);
            assert_eq!(watch.read(), News::Terms(terms));
        }
        drop(link);
        assert_eq!(watch.read(), News::Closed);
    }
}
