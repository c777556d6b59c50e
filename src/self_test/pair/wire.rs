//! The connection of two nodes that know each other. Each message that it gives is the other
//! node's next one, as that node sent it.

use std::time::Duration;

use super::connection::Connection;
use super::handshake::not_ours;
use super::message::Message;
use super::session::Session;
use crate::json;

/// In bytes; more than a node with a hundred rails has to say.
const LONGEST: usize = 256 * 1024;

/// The time for the kernel to take a message that the other node does not read.
const SENDING: Duration = Duration::from_secs(10);

pub struct Wire {
    connection: Connection,
    session: Session,
}

impl Wire {
    pub fn new(connection: Connection, session: Session) -> Wire {
        Wire { connection, session }
    }

    /// The address that the connection leads to.
    pub fn address(&self) -> &str {
        self.connection.address()
    }

    /// # Errors
    /// A sentence.
    pub fn send(&mut self, message: &Message) -> Result<(), String> {
        let line = self.session.seal(message);
        self.connection.send(&line, SENDING).map_err(|stranger| stranger.why)
    }

    /// Waits for the next message, but no longer than this.
    ///
    /// # Errors
    /// A sentence, with what came instead.
    pub fn receive(&mut self, patience: Duration) -> Result<Message, String> {
        let line = self.connection.line(LONGEST, patience).map_err(|stranger| stranger.why)?;
        let text = self.session.open(&line).ok_or_else(|| {
            format!(
                "what came from {} is not the other node's next message: somebody in between may have \
                 forged, changed, repeated or dropped a message.",
                self.address()
            )
        })?;
        json::read(text).map_err(|_| not_ours(self.address(), text).why)
    }

    /// The sentence about a message that comes at the wrong time.
    pub fn unexpected(&self, message: &Message) -> String {
        format!("{} does not keep to the protocol: it sent {} too early.", self.address(), message.kind())
    }

    /// The sentence about a message that says something impossible.
    pub fn wrong(&self, what: &str) -> String {
        format!("{} does not keep to the protocol: {what}.", self.address())
    }
}
