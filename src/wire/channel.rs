//! An authenticated connection between two nodes. It delivers exactly the messages that the other node
//! sent, in the same order.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection::Connection;
use super::session::Session;
use super::stranger::{Fault, Stranger};
use crate::json;

/// In bytes; a node with a hundred rails sends less than this.
pub(crate) const LONGEST: usize = 256 * 1024;

/// How long the kernel may take to accept a message while the other node does not read.
const SENDING: Duration = Duration::from_secs(10);

pub struct Channel {
    connection: Connection,
    session: Session,
}

impl Channel {
    pub fn new(connection: Connection, session: Session) -> Channel {
        Channel { connection, session }
    }

    /// Returns the address of the other end.
    pub fn address(&self) -> &str {
        self.connection.address()
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    /// Waits until the kernel has accepted the message.
    ///
    /// # Errors
    /// As for [`Connection::send`].
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), Stranger> {
        let line = self.session.seal(message);
        self.connection.send(&line, SENDING)
    }

    /// Sends as [`Channel::send`] does, but without waiting: what the kernel does not accept yet is kept
    /// for [`Channel::flush`].
    ///
    /// # Errors
    /// As for [`Connection::flush`].
    pub fn queue(&mut self, message: &impl Serialize) -> Result<(), Stranger> {
        let line = self.session.seal(message);
        self.connection.queue(&line);
        self.connection.flush()
    }

    /// # Errors
    /// As for [`Connection::flush`].
    pub fn flush(&mut self) -> Result<(), Stranger> {
        self.connection.flush()
    }

    /// Waits for the next message, for at most this time.
    ///
    /// # Errors
    /// What arrived instead.
    pub fn receive<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T, Stranger> {
        let line = self.connection.line(LONGEST, patience)?;
        self.read(&line)
    }

    /// Returns the next message, if all of it has arrived.
    ///
    /// # Errors
    /// What arrived instead.
    pub fn receive_if_there<T: DeserializeOwned>(&mut self, longest: usize) -> Result<Option<T>, Stranger> {
        match self.connection.line_if_there(longest)? {
            Some(line) => self.read(&line).map(Some),
            None => Ok(None),
        }
    }

    fn read<T: DeserializeOwned>(&mut self, line: &[u8]) -> Result<T, Stranger> {
        let text = self.session.open(line).ok_or_else(|| Stranger {
            fault: Fault::NotOurs,
            why: format!(
                "the data from {} is not the other node's next message: a process in between may have \
                 forged, changed, repeated or dropped a message",
                self.connection.address()
            ),
        })?;
        json::read(text).map_err(|_| self.connection.not_ours(text))
    }

    /// Returns the error for a message that arrived too early.
    pub fn unexpected(&self, kind: &str) -> Stranger {
        self.wrong(&format!("it sent {kind} too early"))
    }

    /// Returns the error for a message with impossible content.
    pub fn wrong(&self, what: &str) -> Stranger {
        let why = format!("{} violates the protocol: {what}", self.address());
        Stranger { fault: Fault::NotOurs, why }
    }
}
