//! An authenticated connection between two nodes. It delivers exactly the messages that the other node
//! sent, in the same order.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};
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

    /// Lets a machine that is off, or a network that is gone, end a quiet connection after about three minutes.
    pub(crate) fn keep_alive(&self) {
        let stream = self.connection.stream();
        let _ = setsockopt(stream, KeepAlive, &true);
        let _ = setsockopt(stream, TcpKeepIdle, &120);
        let _ = setsockopt(stream, TcpKeepInterval, &20);
        let _ = setsockopt(stream, TcpKeepCount, &3);
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

/// Returns the two ends of an authenticated connection: that of the node which was called, and the caller's.
#[cfg(test)]
pub(crate) fn channels() -> [Channel; 2] {
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    channels_over([near, far].map(|stream| std::net::TcpStream::from(std::os::fd::OwnedFd::from(stream))))
}

/// The same, over these two ends.
#[cfg(test)]
pub(crate) fn channels_over(streams: [std::net::TcpStream; 2]) -> [Channel; 2] {
    use crate::verbs::rail::Side;
    use crate::wire::Protocol;

    const PROTOCOL: Protocol = Protocol { schema: "rdma-init/channels/1", command: "channels" };
    let mut sides = [Side::Second, Side::First].into_iter();
    streams.map(|stream| {
        let connection = Connection::new(stream, "node 0".to_owned(), &PROTOCOL).unwrap();
        let session =
            Session::new(PROTOCOL.schema, b"a token", sides.next().unwrap(), [b"first\n", b"second\n"]);
        Channel::new(connection, session)
    })
}
