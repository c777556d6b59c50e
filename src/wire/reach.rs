//! Connects to another node, and proves to it that this node belongs to the job.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::connection::Connection;
use super::handshake::{self, Handshake, Step, one_key};
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

/// A failed connection: why, as a value and as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Unreached {
    pub why: ConnectFailure,
    text: String,
}

impl From<std::io::Error> for Unreached {
    fn from(error: std::io::Error) -> Unreached {
        let why = match error.kind() {
            ErrorKind::ConnectionRefused => ConnectFailure::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => ConnectFailure::NoRoute,
            ErrorKind::TimedOut => ConnectFailure::TimedOut,
            _ => ConnectFailure::Other,
        };
        Unreached { why, text: error.to_string() }
    }
}

/// Why an attempt to reach a node failed.
#[derive(Debug, thiserror::Error)]
pub enum Miss {
    #[error("{0}")]
    Unresolved(String),
    #[error("cannot reach {0}: {1}")]
    Unreached(Address, Unreached),
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
            Miss::Unreached(_, why) => why.why,
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
    prove(connection, protocol, "", token, longest, end).map_err(|stranger| match stranger.fault {
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
) -> Result<Connection, Unreached> {
    let mut last = None;
    for socket in sockets {
        let connected =
            TcpStream::connect_timeout(socket, patience).and_then(|stream| match is_itself(&stream) {
                true => Err(ErrorKind::ConnectionRefused.into()),
                false => Connection::new(stream, name.to_owned(), protocol),
            });
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) => last = Some(error),
        }
    }
    let nowhere = || Unreached { why: ConnectFailure::NoAddress, text: "the name has no address".to_owned() };
    Err(last.map_or_else(nowhere, Unreached::from))
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
    mut connection: Connection,
    protocol: &'static Protocol,
    identity: &str,
    token: &[u8],
    longest: Duration,
    end: Instant,
) -> Result<(Channel, Duration), Stranger> {
    let address = connection.address().to_owned();
    let handshake = Handshake::new(protocol, Side::First, identity, longest, address);
    let mut handshake = handshake.map_err(|why| Stranger { fault: Fault::NotOurs, why: why.to_string() })?;
    let until = Instant::now() + handshake::patience(end);
    let left = || until.saturating_duration_since(Instant::now());
    connection.send(handshake.greeting(), left())?;
    loop {
        let line = connection.line(handshake::LONGEST, left())?;
        match handshake.hear(&line, &one_key(token))? {
            Step::Send(line) => connection.send(&line, left())?,
            // This cannot happen: this side knows the key from the start.
            Step::Later => {}
            Step::Proven(_, session, patience) => return Ok((Channel::new(connection, session), patience)),
        }
    }
}
