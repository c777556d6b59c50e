//! A connection whose ends have not both proven yet that they belong to the job, for a process that must not wait: each
//! call does what it can do now.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};

use super::Protocol;
use super::channel::Channel;
use super::connection::Connection;
use super::handshake::{self, Handshake, Keys, Step};
use super::stranger::Stranger;
use crate::verbs::rail::Side;

pub(crate) struct Attempt {
    connection: Connection,
    handshake: Handshake,
    /// The other end's greeting, while its key is not known.
    deferred: Option<Vec<u8>>,
    /// How long the connection and the handshake may take, and until when.
    patience: Duration,
    pub until: Instant,
}

/// How far an attempt is.
pub(crate) enum Progress {
    /// The other end has not answered yet.
    Pending(Attempt),
    /// Both ends have proven themselves.
    Proven(Proven),
}

/// A node that has authenticated.
pub(crate) struct Proven {
    pub channel: Channel,
    /// Which of several keys the first side proved to have; see [`IdentityKey`](handshake::IdentityKey).
    pub identity: String,
    /// How long each of the other node's messages may take.
    pub patience: Duration,
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
    ) -> anyhow::Result<Attempt> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Stream, flags, None)?;
        match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let connection = Connection::new(TcpStream::from(fd), to.to_string(), protocol)?;
        Ok(Attempt::new(connection, Side::First, "", longest, patience)?)
    }

    /// Begins the handshake as this side. The first side names an identity, which is empty if its key is the token.
    ///
    /// # Errors
    /// There is no random number.
    pub(super) fn new(
        mut connection: Connection,
        side: Side,
        identity: &str,
        longest: Duration,
        patience: Duration,
    ) -> Result<Attempt, Stranger> {
        let address = connection.address().to_owned();
        let handshake = Handshake::new(connection.protocol, side, identity, longest, address)?;
        if side == Side::First {
            connection.queue(handshake.greeting());
        }
        Ok(Attempt { connection, handshake, deferred: None, patience, until: Instant::now() + patience })
    }

    pub(super) fn address(&self) -> &str {
        self.connection.address()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    /// Returns whether to wait until the socket takes more.
    pub(crate) fn is_sending(&self) -> bool {
        self.connection.is_sending()
    }

    /// Returns whether the next line is here already, but its key is not.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    /// Sends and takes what it can. A socket that is not connected yet takes and has nothing.
    ///
    /// # Errors
    /// The other end cannot be reached, is not a node of ours, or does not answer in time.
    pub(crate) fn go_on(mut self, keys: &Keys) -> Result<Progress, Stranger> {
        self.connection.flush()?;
        while let Some(line) = self.next_line()? {
            // Whoever has sent a line has room for the answer, unless it has stopped reading.
            match self.handshake.hear(&line, keys) {
                Ok(Step::Send(line)) => self.connection.send(&line, Duration::ZERO)?,
                Ok(Step::Later) => {
                    self.deferred = Some(line);
                    break;
                }
                Ok(Step::Proven(line, session, patience)) => {
                    self.connection.send(&line, Duration::ZERO)?;
                    let identity = self.handshake.identity().to_owned();
                    let channel = Channel::new(self.connection, session);
                    return Ok(Progress::Proven(Proven { channel, identity, patience }));
                }
                Err(stranger) => return Err(self.dismiss(stranger)),
            }
        }
        if Instant::now() < self.until {
            return Ok(Progress::Pending(self));
        }
        Err(match self.deferred {
            Some(_) => self.dismiss(self.handshake.unknown()),
            None => self.connection.silent(self.patience),
        })
    }

    /// Returns the next line to handle, if it has arrived.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>, Stranger> {
        match self.deferred.take() {
            Some(line) => Ok(Some(line)),
            None => self.connection.line_if_there(handshake::LONGEST),
        }
    }

    /// Tells the other end why this node closes the connection.
    fn dismiss(&mut self, stranger: Stranger) -> Stranger {
        if let Some(last) = self.handshake.farewell(stranger.fault) {
            let _ = self.connection.send(&last, Duration::ZERO);
        }
        stranger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::guests::PendingConnections;
    use crate::wire::handshake::one_key;
    use crate::wire::listen::Listener;
    use crate::wire::stranger::Fault;

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
            attempt = match attempt.go_on(&one_key(token))? {
                Progress::Pending(attempt) => attempt,
                Progress::Proven(node) => {
                    assert!(proven.is_some(), "the other end has proven itself first");
                    return Ok(node.channel);
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
        assert_eq!(silent.go_on(&one_key(b"")).err().unwrap().fault, Fault::Silent);
        drop(listener);
        // The kernel may refuse at once.
        let mut refused = Attempt::begin(to, &PROTOCOL, SECOND, 60 * SECOND).map_err(|why| why.to_string());
        let why = loop {
            let progress =
                refused.and_then(|attempt| attempt.go_on(&one_key(b"")).map_err(|why| why.to_string()));
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
