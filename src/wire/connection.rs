//! A TCP connection that carries lines and limits their size and time.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Protocol;
use super::handshake::not_ours;
use super::stranger::{Fault, Stranger};

pub struct Connection {
    stream: TcpStream,
    address: String,
    pub(super) protocol: &'static Protocol,
    /// Bytes that have arrived but were not requested yet.
    came: Vec<u8>,
    /// Bytes that the kernel has not accepted yet.
    out: Vec<u8>,
}

impl Connection {
    /// # Errors
    /// The connection cannot be made non-blocking.
    pub fn new(
        stream: TcpStream,
        address: String,
        protocol: &'static Protocol,
    ) -> std::io::Result<Connection> {
        stream.set_nonblocking(true)?;
        // Without this option, messages would arrive slightly later.
        let _ = stream.set_nodelay(true);
        Ok(Connection { stream, address, protocol, came: Vec::new(), out: Vec::new() })
    }

    /// Returns the address of the other end.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the underlying socket, for a test node that violates the protocol.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns how many bytes have arrived and are kept, because their line is incomplete or was not
    /// requested yet.
    pub fn held(&self) -> usize {
        self.came.len()
    }

    /// Waits until the kernel has accepted what was queued and then the line, for at most this time.
    ///
    /// # Errors
    /// Why the line was not sent.
    pub fn send(&mut self, line: &[u8], patience: Duration) -> Result<(), Stranger> {
        let end = Instant::now() + patience;
        self.queue(line);
        loop {
            self.flush()?;
            if !self.is_sending() {
                return Ok(());
            }
            if !wait(self.fd(), PollFlags::POLLOUT, end) {
                let why = format!("{} does not accept data", self.address);
                return Err(Stranger { fault: Fault::Silent, why });
            }
        }
    }

    /// Queues a line for [`Connection::flush`].
    pub fn queue(&mut self, line: &[u8]) {
        self.out.extend_from_slice(line);
    }

    /// Returns whether the kernel has still not accepted everything that was queued.
    pub fn is_sending(&self) -> bool {
        !self.out.is_empty()
    }

    /// Sends as much of the queue as the kernel accepts now.
    ///
    /// # Errors
    /// The connection is closed or broken.
    pub fn flush(&mut self) -> Result<(), Stranger> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(length) => drop(self.out.drain(..length.min(self.out.len()))),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(())
    }

    /// Returns the addresses of both ends as the kernel knows them: this end first.
    ///
    /// # Errors
    /// The connection no longer exists.
    pub fn ends(&self) -> std::io::Result<[SocketAddr; 2]> {
        Ok([self.stream.local_addr()?, self.stream.peer_addr()?])
    }

    /// Waits for the next line, for at most this time.
    ///
    /// # Errors
    /// What arrived instead.
    pub fn line(&mut self, longest: usize, patience: Duration) -> Result<Vec<u8>, Stranger> {
        let end = Instant::now() + patience;
        loop {
            if let Some(line) = self.line_if_there(longest)? {
                return Ok(line);
            }
            if !wait(self.fd(), PollFlags::POLLIN, end) {
                return Err(self.silent(patience));
            }
        }
    }

    /// Returns the next line, if all of it has arrived.
    ///
    /// # Errors
    /// What arrived instead.
    pub fn line_if_there(&mut self, longest: usize) -> Result<Option<Vec<u8>>, Stranger> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.came) {
                let rest = self.came.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.came, rest)));
            }
            if self.came.len() > longest {
                return Err(self.not_ours(&self.came));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) if self.came.is_empty() => return Err(self.gone("")),
                Ok(0) if is_start_of_ours(&self.came) => return Err(self.gone(" in the middle of a message")),
                Ok(0) => return Err(self.not_ours(&self.came)),
                Ok(length) => self.came.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    /// Returns the error for bytes that no rdma-init node would send.
    pub fn not_ours(&self, bytes: &[u8]) -> Stranger {
        not_ours(self.protocol, &self.address, bytes)
    }

    pub fn silent(&self, patience: Duration) -> Stranger {
        let what = if self.came.is_empty() { "nothing" } else { "no whole message" };
        let why = format!("{} has sent {what} for {:.0} s", self.address, patience.as_secs_f32());
        Stranger { fault: Fault::Silent, why }
    }

    fn gone(&self, when: &str) -> Stranger {
        let why = format!("{} has closed the connection{when}", self.address);
        Stranger { fault: Fault::Gone, why }
    }

    fn broken(&self, error: &Error) -> Stranger {
        match error.kind() {
            // The other end closed the connection with unread data in it.
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => self.gone(""),
            _ => {
                let why = format!("the connection to {} broke: {error}", self.address);
                Stranger { fault: Fault::Gone, why }
            }
        }
    }
}

/// Returns whether these bytes can be the start of a greeting or of a code.
fn is_start_of_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(b"{") || bytes.iter().take(64).all(u8::is_ascii_hexdigit)
}

/// Returns whether time is left; waits for an event for at most that long.
pub(super) fn wait(fd: BorrowedFd, what: PollFlags, end: Instant) -> bool {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    // EINTR is harmless: the caller checks again.
    let _ = poll(&mut [PollFd::new(fd, what)], timeout(left));
    true
}

/// Returns the time for poll(2), rounded up, so that the caller does not spin during the last millisecond.
pub fn timeout(left: Duration) -> PollTimeout {
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::channel::channels;

    #[test]
    fn what_was_queued_goes_first() {
        let [mut near, mut far] = channels();
        let mut count = 0;
        while !near.connection().is_sending() {
            near.queue(&count).unwrap();
            count += 1;
        }
        let reader = std::thread::spawn(move || {
            (0..=count).all(|number| far.receive::<u32>(Duration::from_secs(60)) == Ok(number))
        });
        near.send(&count).unwrap();
        assert!(reader.join().unwrap());
    }
}
