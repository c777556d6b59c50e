//! An attempt to connect to another node and to prove to it that this one belongs to the job, for a process that
//! must not wait: each call does what it can do now.

use std::io::Error;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use super::Protocol;
use super::channel::Channel;
use super::connection::Connection;
use super::handshake::{self, Handshake, Step, one_key};
use super::stranger::{Fault, Stranger};
use crate::verbs::rail::Side;

pub(crate) struct Attempt {
    connection: Connection,
    handshake: Handshake,
    /// How long the connection and the handshake may take, and until when.
    patience: Duration,
    pub until: Instant,
}

/// How far an attempt is.
pub(crate) enum Progress {
    /// The other end has not answered yet.
    Pending(Attempt),
    /// Both ends have proven themselves.
    Proven(Channel),
}

impl Attempt {
    /// Begins to connect. `longest` is the time that each of our messages may take.
    ///
    /// # Errors
    /// There is no socket, no route, or no random number.
    pub(crate) fn begin(
        to: SocketAddr,
        protocol: &'static Protocol,
        longest: Duration,
        patience: Duration,
    ) -> Result<Attempt, Error> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Stream, flags, None)?;
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let mut connection = Connection::new(TcpStream::from(fd), to.to_string(), protocol)?;
        let handshake = Handshake::new(protocol, Side::First, "", longest, to.to_string());
        let handshake = handshake.map_err(Error::other)?;
        connection.queue(handshake.greeting());
        Ok(Attempt { connection, handshake, patience, until: Instant::now() + patience })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    /// Returns whether to wait until the socket takes more.
    pub(crate) fn is_sending(&self) -> bool {
        self.connection.is_sending()
    }

    /// Sends and takes what it can. A socket that is not connected yet takes and has nothing.
    ///
    /// # Errors
    /// The other end cannot be reached, is not a node of ours, or does not answer in time.
    pub(crate) fn go_on(mut self, token: &[u8]) -> Result<Progress, Stranger> {
        self.connection.flush()?;
        while let Some(line) = self.connection.line_if_there(handshake::LONGEST)? {
            match self.handshake.hear(&line, &one_key(token))? {
                Step::Send(line) => {
                    self.connection.queue(&line);
                    self.connection.flush()?;
                }
                // This side knows its own key.
                Step::Later => {}
                Step::Proven(_, session, _) => {
                    return Ok(Progress::Proven(Channel::new(self.connection, session)));
                }
            }
        }
        match Instant::now() < self.until {
            true => Ok(Progress::Pending(self)),
            false => Err(Stranger { fault: Fault::Silent, why: self.connection.silent(self.patience).why }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::guests::PendingConnections;
    use crate::wire::listen::Listener;

    const PROTOCOL: Protocol = Protocol { schema: "rdma-init/attempt/1", command: "attempt" };
    const SECOND: Duration = Duration::from_secs(1);

    /// Takes both ends as far as they get, without a wait of either.
    fn both(token: &'static [u8]) -> Result<Channel, Stranger> {
        let listener = Listener::on_port(0).unwrap();
        let to = SocketAddr::new([127, 0, 0, 1].into(), listener.own.port());
        let mut attempt = Attempt::begin(to, &PROTOCOL, SECOND, 5 * SECOND).unwrap();
        let mut guests = PendingConnections::new(&PROTOCOL, SECOND, 8);
        let mut proven = None;
        loop {
            guests.accept(&listener, Instant::now() + 5 * SECOND, &mut |_, _| {}).unwrap();
            proven = proven.or(guests.hear(&one_key(b"0123456789abcdef"), &mut |_, _| {}).pop());
            attempt = match attempt.go_on(token)? {
                Progress::Pending(attempt) => attempt,
                Progress::Proven(channel) => {
                    assert!(proven.is_some(), "the other end has proven itself first");
                    return Ok(channel);
                }
            };
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_attempt_ends_with_a_channel_only_with_the_same_token() {
        assert!(both(b"0123456789abcdef").is_ok());
        assert_eq!(both(b"0123456789abcdeg").err().unwrap().fault, Fault::Token);
    }

    #[test]
    fn a_closed_port_and_a_silent_one_end_an_attempt() {
        let listener = Listener::on_port(0).unwrap();
        let to = SocketAddr::new([127, 0, 0, 1].into(), listener.own.port());
        let silent = Attempt::begin(to, &PROTOCOL, SECOND, Duration::ZERO).unwrap();
        assert_eq!(silent.go_on(b"").err().unwrap().fault, Fault::Silent);
        drop(listener);
        // The kernel may refuse at once.
        let mut refused = Attempt::begin(to, &PROTOCOL, SECOND, 60 * SECOND).map_err(|why| why.to_string());
        let why = loop {
            let progress = refused.and_then(|attempt| attempt.go_on(b"").map_err(|why| why.to_string()));
            refused = match progress {
                Ok(Progress::Pending(attempt)) => Ok(attempt),
                Ok(Progress::Proven(_)) => panic!("no process listens there"),
                Err(why) => break why,
            };
            std::thread::yield_now();
        };
        assert!(why.contains("refused"), "{why}");
    }
}
