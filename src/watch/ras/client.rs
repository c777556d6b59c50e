//! Queries the RAS server of a process on this host. The client needs no thread, and finishes by its
//! deadline, whatever the server does.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

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

/// Why there is no answer.
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
}

/// Queries the server at an address in the form of NCCL_RAS_ADDR.
///
/// # Errors
/// No answer arrived in time, or it is not from RAS.
pub(crate) fn ask(address: &str, until: Instant) -> Result<Answer, Failure> {
    let sockets = sockets(address, until)?;
    loop {
        let mut last = Failure::Refused;
        for socket in &sockets {
            match exchange(*socket, until) {
                Ok(bytes) => return protocol::read(&bytes).map_err(Failure::Unreadable),
                Err(failure) => last = failure,
            }
            // An IPv4 server does not listen at the IPv6 address of the same name, and vice versa.
            if last != Failure::Refused {
                break;
            }
        }
        if last != Failure::Silent {
            return Err(last);
        }
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
    address.sockets(until).map_err(|why| Failure::Address(why.to_string()))
}

/// Sends the question, and returns everything that arrives until the server closes the connection.
fn exchange(socket: SocketAddr, until: Instant) -> Result<Vec<u8>, Failure> {
    let greeted_until = until.min(Instant::now() + GREETING);
    let stream = TcpStream::connect_timeout(&socket, left(until)?).map_err(|error| failed(&error))?;
    stream.set_nonblocking(true).map_err(|error| failed(&error))?;
    send(&stream, &protocol::question(PATIENCE.min(left(until)? / 3)), until)?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match (&stream).read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let end = if bytes.is_empty() { greeted_until } else { until };
                let late = |_| if end < until { Failure::Silent } else { Failure::TooLate };
                wait(&stream, PollFlags::POLLIN, end).map_err(late)?;
            }
            Err(error) => return Err(failed(&error)),
        }
        if bytes.len() > LONGEST {
            return Err(Failure::TooLong);
        }
        // This does not wait forever for a server that sends without end.
        left(until)?;
    }
}

fn send(stream: &TcpStream, mut bytes: &[u8], until: Instant) -> Result<(), Failure> {
    let mut stream = stream;
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(stream, PollFlags::POLLOUT, until)?,
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}

fn wait(stream: &TcpStream, what: PollFlags, until: Instant) -> Result<(), Failure> {
    // EINTR is harmless: the caller tries again.
    let _ = poll(&mut [PollFd::new(stream.as_fd(), what)], timeout(left(until)?));
    Ok(())
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
