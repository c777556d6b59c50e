//! Queries the RAS server of a process on this host. The client needs no thread, never waits by itself, and finishes by
//! its deadline, whatever the server does.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect};

use super::answer::Answer;
use super::protocol::{self, LONGEST, Unreadable};
use crate::text::visible;
use crate::wire::Address;
use crate::wire::connection::timeout;

/// How long a server may wait for ranks that do not answer it. NCCL's own client has the same default. The
/// answer then arrives after at most twice that time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time within which a server answers, whatever the state of the job.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);

/// How long a server may take to greet; its thread does nothing else. All processes of a node listen at the
/// same address, and the kernel gives each connection to one of them, which may be a stopped one.
const GREETING: Duration = Duration::from_secs(1);

/// What follows if [`is_foreign`](super::own::is_foreign).
pub(crate) const MAY_BE_FOREIGN: &str = "a process outside this container answers, so the answer may be about another job. \
                                         Give each job its own port in NCCL_RAS_ADDR";

/// Why there is no answer, or none about this job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The address cannot be used, for this reason.
    Address(String),
    /// No process listens there.
    Refused,
    /// The process that got the question did not greet.
    Silent,
    /// No complete answer arrived before the deadline.
    TooLate,
    TooLong,
    /// The operating system reports this error.
    Broken(ErrorKind),
    Unreadable(Unreadable),
    /// Another job may have answered.
    MayBeForeign,
}

/// A question to the server at an address. It never waits: each call does what it can do now.
pub(crate) struct Query {
    sockets: Vec<SocketAddr>,
    /// Which of them is asked, and the exchange with it.
    place: usize,
    exchange: Exchange,
    until: Instant,
}

impl Query {
    /// Begins to ask at an address in the form of NCCL_RAS_ADDR. A name may take until `resolved` to resolve.
    ///
    /// # Errors
    /// The address cannot be used, or no process listens there.
    pub(crate) fn begin(address: &str, resolved: Instant, until: Instant) -> Result<Query, Failure> {
        let sockets = sockets(address, resolved.min(until))?;
        let (place, exchange) = first_open(&sockets, 0, until)?;
        Ok(Query { sockets, place, exchange, until })
    }

    /// Sends and takes what it can; `None` if the answer is not complete yet.
    pub(crate) fn go_on(&mut self) -> Option<Result<Answer, Failure>> {
        let next = match self.exchange.go_on(self.until)? {
            Ok(bytes) => return Some(protocol::read(&bytes).map_err(Failure::Unreadable)),
            // An IPv4 server does not listen at the IPv6 address of the same name, and vice versa.
            Err(Failure::Refused) => self.place + 1,
            // Another process may get the next connection.
            Err(Failure::Silent) => 0,
            Err(failure) => return Some(Err(failure)),
        };
        match first_open(&self.sockets, next, self.until) {
            Ok((place, exchange)) => (self.place, self.exchange) = (place, exchange),
            Err(failure) => return Some(Err(failure)),
        }
        None
    }

    /// Returns what to wait for before [`Query::go_on`].
    pub(crate) fn fd(&self) -> PollFd<'_> {
        self.exchange.fd()
    }

    /// Returns when to go on if nothing happens.
    pub(crate) fn wake_at(&self) -> Instant {
        self.exchange.patience(self.until)
    }
}

/// Begins an exchange at the first of these addresses, from `place` on, at which a process listens.
fn first_open(sockets: &[SocketAddr], place: usize, until: Instant) -> Result<(usize, Exchange), Failure> {
    for (place, socket) in sockets.iter().enumerate().skip(place) {
        match Exchange::begin(*socket, until) {
            Err(Failure::Refused) => {}
            begun => return Ok((place, begun?)),
        }
    }
    Err(Failure::Refused)
}

/// Queries the server at an address in the form of NCCL_RAS_ADDR, and waits for its answer.
///
/// # Errors
/// No answer arrived in time, or it is not from RAS.
pub(crate) fn ask(address: &str, until: Instant) -> Result<Answer, Failure> {
    let mut query = Query::begin(address, until, until)?;
    loop {
        if let Some(answer) = query.go_on() {
            return answer;
        }
        let left = query.wake_at().saturating_duration_since(Instant::now());
        // EINTR is harmless: the loop tries again.
        let _ = poll(&mut [query.fd()], timeout(left));
    }
}

fn sockets(text: &str, until: Instant) -> Result<Vec<SocketAddr>, Failure> {
    // NCCL accepts no address without a port (`ncclSocketGetAddrFromString`).
    let has_port =
        text.rsplit_once(':').is_some_and(|(host, _)| !host.starts_with('[') || host.ends_with(']'));
    if !has_port {
        return Err(Failure::Address("it has no port".to_owned()));
    }
    let address = text.parse::<Address>().map_err(|why| Failure::Address(why.to_string()))?;
    address.sockets(until).map_err(Failure::Address)
}

/// The question to one server, and what it has answered so far.
struct Exchange {
    stream: TcpStream,
    /// What is still to be sent.
    question: Vec<u8>,
    answer: Vec<u8>,
    greeted_until: Instant,
}

impl Exchange {
    fn begin(socket: SocketAddr, until: Instant) -> Result<Exchange, Failure> {
        let greeted_until = until.min(Instant::now() + GREETING);
        let question = protocol::question(PATIENCE.min(left(until)? / 3));
        let stream = begin_to_connect(socket).map_err(|error| failed(&error))?;
        Ok(Exchange { stream, question, answer: Vec::new(), greeted_until })
    }

    /// Returns everything that has come when the server has closed the connection; `None` before.
    fn go_on(&mut self, until: Instant) -> Option<Result<Vec<u8>, Failure>> {
        match self.exchange(until) {
            Ok(true) => Some(Ok(std::mem::take(&mut self.answer))),
            Ok(false) => None,
            Err(failure) => Some(Err(failure)),
        }
    }

    /// Returns whether the answer is complete.
    fn exchange(&mut self, until: Instant) -> Result<bool, Failure> {
        if !self.send()? {
            return self.late(until).map(|()| false);
        }
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(length) => self.answer.extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.late(until).map(|()| false);
                }
                Err(error) => return Err(failed(&error)),
            }
            if self.answer.len() > LONGEST {
                return Err(Failure::TooLong);
            }
            // This does not read forever from a server that sends without end.
            left(until)?;
        }
    }

    /// Returns whether the whole question is sent. A socket that is not connected yet takes nothing.
    fn send(&mut self) -> Result<bool, Failure> {
        while !self.question.is_empty() {
            match self.stream.write(&self.question) {
                Ok(length) => drop(self.question.drain(..length.min(self.question.len()))),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(true)
    }

    fn late(&self, until: Instant) -> Result<(), Failure> {
        match left(self.patience(until)) {
            Err(_) if self.patience(until) < until => Err(Failure::Silent),
            Err(late) => Err(match protocol::foreign(&self.answer) {
                Some(words) => Failure::Unreadable(Unreadable::Foreign(words)),
                None => late,
            }),
            Ok(_) => Ok(()),
        }
    }

    /// Returns until when it may take for something to come.
    fn patience(&self, until: Instant) -> Instant {
        if self.answer.is_empty() { self.greeted_until } else { until }
    }

    fn fd(&self) -> PollFd<'_> {
        let what = if self.question.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
        PollFd::new(self.stream.as_fd(), what)
    }
}

fn begin_to_connect(socket: SocketAddr) -> Result<TcpStream, std::io::Error> {
    let family = if socket.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = nix::sys::socket::socket(family, SockType::Stream, flags, None)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(socket)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd.into()),
        Err(error) => Err(error.into()),
    }
}

fn left(until: Instant) -> Result<Duration, Failure> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Failure::TooLate) } else { Ok(left) }
}

fn failed(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::ConnectionRefused => Failure::Refused,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Failure::TooLate,
        kind => Failure::Broken(kind),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Failure::Address(why) => write!(f, "the address cannot be used: {}", visible(why)),
            Failure::Refused => f.write_str("no process listens there"),
            Failure::Silent | Failure::TooLate => f.write_str("no answer came in time"),
            Failure::MayBeForeign => f.write_str(MAY_BE_FOREIGN),
            Failure::TooLong => write!(f, "the answer is longer than {LONGEST} bytes"),
            Failure::Broken(kind) => write!(f, "the connection failed: {kind}"),
            Failure::Unreadable(Unreadable::Foreign(words)) => {
                write!(f, "another program answers, with \"{words}\"")
            }
            Failure::Unreadable(Unreadable::Refused(words)) => {
                write!(f, "RAS rejects the request: {words}")
            }
            Failure::Unreadable(Unreadable::Cut) => f.write_str("the answer ends too early"),
            Failure::Unreadable(Unreadable::TooManyRanks) => {
                write!(f, "the answer lists more than {} ranks", protocol::MOST_RANKS)
            }
            Failure::Unreadable(Unreadable::Malformed(why)) => {
                write!(f, "the answer is not in RAS's format: {}", visible(why))
            }
        }
    }
}
