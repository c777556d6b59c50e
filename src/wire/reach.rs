//! Connects to another node, and proves to it that this node belongs to the job.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::attempt::{Attempt, Progress, Proven};
use super::channel::Channel;
use super::connection::{Connection, wait};
use super::handshake::{self, one_key};
use super::stranger::{Fault, Stranger};
use super::{Address, Protocol};
use crate::verbs::rail::Side;

/// The most and the least time for one attempt to connect: a node that is off does not answer at all.
const TRY: Duration = Duration::from_secs(5);
const LEAST_TRY: Duration = Duration::from_millis(200);

/// Why connecting failed, as far as this helps to find the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectFailure {
    NoAddress,
    Refused,
    NoRoute,
    TimedOut,
    Other,
    /// The node connected, but got no answer, or the connection ended.
    Unanswered,
}

/// Why an attempt to reach a node failed.
#[derive(Debug, thiserror::Error)]
pub enum Miss {
    #[error("{0}")]
    Unresolved(String),
    #[error("cannot reach {0}: {1}")]
    Unreached(Address, Error),
    #[error(transparent)]
    Unanswered(Stranger),
    /// The process that answers there is not the right one, so another attempt would fail, too.
    #[error(transparent)]
    Wrong(Stranger),
}

impl Miss {
    pub(crate) fn kind(&self) -> ConnectFailure {
        match self {
            Miss::Unresolved(_) => ConnectFailure::NoAddress,
            Miss::Unreached(_, error) => match error.kind() {
                ErrorKind::NotFound => ConnectFailure::NoAddress,
                ErrorKind::ConnectionRefused => ConnectFailure::Refused,
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => ConnectFailure::NoRoute,
                ErrorKind::TimedOut => ConnectFailure::TimedOut,
                _ => ConnectFailure::Other,
            },
            Miss::Unanswered(_) | Miss::Wrong(_) => ConnectFailure::Unanswered,
        }
    }
}

/// Tries once to connect to a node at an address, and to prove the token to it; until this time, but with a minimum
/// for each. Returns what [`prove`] does.
///
/// # Errors
/// Why it failed.
pub fn attempt(
    address: &Address,
    protocol: &'static Protocol,
    token: &[u8],
    longest: Duration,
    end: Instant,
) -> Result<(Channel, Duration), Miss> {
    let sockets = address.sockets(end).map_err(Miss::Unresolved)?;
    let left = end.saturating_duration_since(Instant::now()).clamp(LEAST_TRY, TRY);
    let connection = connect(&sockets, left, &address.to_string(), protocol);
    let connection = connection.map_err(|why| Miss::Unreached(address.clone(), why))?;
    prove(connection, "", token, longest, end).map_err(|stranger| match stranger.fault {
        Fault::Gone | Fault::Silent | Fault::Evicted => Miss::Unanswered(stranger),
        Fault::NotOurs | Fault::Unknown | Fault::Version | Fault::Token => Miss::Wrong(stranger),
    })
}

/// Connects to one of these addresses.
///
/// # Errors
/// Why none of them can be reached.
pub fn connect(
    sockets: &[SocketAddr],
    patience: Duration,
    name: &str,
    protocol: &'static Protocol,
) -> Result<Connection, Error> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for socket in sockets {
        let connected =
            TcpStream::connect_timeout(socket, patience).and_then(|stream| match is_itself(&stream) {
                true => Err(ErrorKind::ConnectionRefused.into()),
                false => Connection::new(stream, name.to_owned(), protocol),
            });
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns whether the socket is connected to itself. TCP allows this if the source port that the kernel
/// chose happens to be the port to connect to.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(near), Ok(far)) if near == far)
}

/// Performs the handshake as the first side, with the key of an identity; the identity is empty if the key
/// is the token. Returns the channel, and how long the other node may take for each message.
///
/// # Errors
/// The other end is not a node of this job, has disconnected, or sends nothing.
pub fn prove(
    connection: Connection,
    identity: &str,
    token: &[u8],
    longest: Duration,
    end: Instant,
) -> Result<(Channel, Duration), Stranger> {
    let mut attempt = Attempt::new(connection, Side::First, identity, longest, handshake::patience(end))?;
    loop {
        attempt = match attempt.go_on(&one_key(token))? {
            Progress::Proven(Proven { channel, patience, .. }) => return Ok((channel, patience)),
            Progress::Pending(attempt) => attempt,
        };
        let sends = if attempt.is_sending() { PollFlags::POLLOUT } else { PollFlags::empty() };
        wait(attempt.fd(), PollFlags::POLLIN | sends, attempt.until);
    }
}
