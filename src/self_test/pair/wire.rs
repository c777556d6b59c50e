//! The connection of two nodes: messages with a bound in size and in time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::message::Message;
use crate::json;
use crate::report::style::visible;

/// Bytes: more than a node with a hundred rails has to say.
const LONGEST: usize = 256 * 1024;

/// So much is shown of what is no message.
const SHOWN: usize = 60;

/// For the kernel to take a message that the other node does not read.
const SENDING: Duration = Duration::from_secs(10);

pub struct Wire {
    stream: TcpStream,
    address: String,
    /// What has come and was not asked for yet.
    came: Vec<u8>,
    has_heard: bool,
    is_gone: bool,
}

impl Wire {
    pub fn new(stream: TcpStream, address: String) -> Wire {
        // Without these a message would come later, or never; which is noticed.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(SENDING));
        Wire { stream, address, came: Vec::new(), has_heard: false, is_gone: false }
    }

    /// Whether the other end has closed it before it said anything.
    pub fn is_gone_unheard(&self) -> bool {
        self.is_gone && !self.has_heard
    }

    /// Whom it leads to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// # Errors
    /// In words.
    pub fn send(&mut self, message: &Message) -> Result<(), String> {
        let mut line = Vec::new();
        let sent = json::write_line(&mut line, message).and_then(|()| self.stream.write_all(&line));
        sent.map_err(|error| self.broken(&error))
    }

    /// Waits for the next message, but no longer than that.
    ///
    /// # Errors
    /// In words, with what came instead.
    pub fn receive(&mut self, patience: Duration) -> Result<Message, String> {
        let end = Instant::now() + patience;
        let mut buffer = [0; 4096];
        loop {
            if let Some(line) = self.line() {
                return json::read(&line).map_err(|_| self.not_ours(&line));
            }
            if self.came.len() > LONGEST {
                return Err(self.not_ours(&self.came));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.silent(patience));
            }
            let _ = self.stream.set_read_timeout(Some(left));
            match self.stream.read(&mut buffer) {
                Ok(0) if self.came.is_empty() => {
                    self.is_gone = true;
                    return Err(format!("{} has closed the connection.", self.address));
                }
                Ok(0) if self.came.starts_with(b"{") => {
                    return Err(format!(
                        "{} has closed the connection in the middle of a message.",
                        self.address
                    ));
                }
                Ok(0) => return Err(self.not_ours(&self.came)),
                Ok(length) => {
                    self.has_heard = true;
                    self.came.extend_from_slice(buffer.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    /// A message that comes at the wrong time.
    pub fn unexpected(&self, message: &Message) -> String {
        format!("{} does not keep to the protocol: it sent {} too early.", self.address, message.kind())
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = memchr::memchr(b'\n', &self.came)?;
        let rest = self.came.split_off(end + 1);
        Some(std::mem::replace(&mut self.came, rest))
    }

    fn not_ours(&self, bytes: &[u8]) -> String {
        let start = bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default().trim_ascii_end();
        let start = visible(&String::from_utf8_lossy(start));
        format!("{} is no rdma-init self-test, or another version: it sent \"{start}\".", self.address)
    }

    fn silent(&self, patience: Duration) -> String {
        let what = if self.came.is_empty() { "nothing" } else { "no whole message" };
        let seconds = patience.as_secs_f32();
        format!("{} has sent {what} for {seconds:.0} s.", self.address)
    }

    fn broken(&mut self, error: &std::io::Error) -> String {
        self.is_gone = true;
        match error.kind() {
            // The same, with something that it had not read.
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("{} has closed the connection.", self.address)
            }
            _ => format!("the connection to {} broke: {error}.", self.address),
        }
    }
}
