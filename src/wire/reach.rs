//! Connects to another node, and proves to it that this one belongs to the job.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::Protocol;
use super::channel::Channel;
use super::connection::Connection;
use super::handshake::{self, Handshake, Step, one_key};
use super::stranger::{Fault, Stranger};
use crate::verbs::rail::Side;

/// Why there is no connection, as far as it tells what to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectFailure {
    NoAddress,
    Refused,
    NoRoute,
    TimedOut,
    Other,
}

/// No connection: why, and in words.
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

/// TCP can connect a socket to itself, if the port that the kernel has chosen for it is the one
/// to connect to.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(near), Ok(far)) if near == far)
}

/// Shakes hands as the side that speaks first, with the key of an identity; the identity is empty if the
/// key is the token. Gives the channel, and how long the messages of the
/// other node may take.
///
/// # Errors
/// The other end is not a node of ours, has gone, or says nothing.
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
            // Its own key is known to this side.
            Step::Later => {}
            Step::Proven(_, session, patience) => return Ok((Channel::new(connection, session), patience)),
        }
    }
}
