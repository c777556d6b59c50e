//! Connecting to the other node, which may come up later.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::address::Address;
use super::connection::Connection;
use super::handshake::{self, Handshake, Step};
use super::stranger::{Fault, Stranger};
use super::wire::Wire;
use super::{Meeting, time};
use crate::verbs::rail::Side;

/// The pause between two tries to reach a node that is not there yet.
const PAUSE: Duration = Duration::from_millis(200);

/// The time for one try: a node that is off does not answer at all.
const TRY: Duration = Duration::from_secs(5);

/// Connects until a node has proven to be ours. A connection that is closed or stays silent
/// before that may lead to a proxy whose node is not up yet, or to a node to which many others
/// have come; so another one is made.
///
/// # Errors
/// A sentence: the node cannot be reached, or is not ours.
pub fn go_to(
    address: &Address,
    meeting: &Meeting,
    end: Instant,
    say: &dyn Fn(&str),
) -> Result<(Wire, Duration), String> {
    let started = Instant::now();
    let mut is_said = false;
    let mut before = None;
    loop {
        let reached = reach(address, end, &mut |why| {
            if !is_said {
                say(&format!("cannot reach {address} yet, and tries again: {why}"));
                is_said = true;
            }
        });
        let connection = reached.map_err(|why| {
            let before = before.as_ref().map_or(String::new(), |why| format!(" Before: {why}"));
            format!("cannot reach {address} within {}: {why}.{before}", time(started.elapsed()))
        })?;
        match prove(connection, meeting, end) {
            Ok(proven) => return Ok(proven),
            Err(Stranger { fault: Fault::Gone | Fault::Silent, why }) if Instant::now() + PAUSE < end => {
                if before.is_none() {
                    say(&format!("tries again: {why}"));
                }
                before = Some(why);
                std::thread::sleep(PAUSE);
            }
            Err(stranger) => return Err(stranger.why),
        }
    }
}

fn prove(mut connection: Connection, meeting: &Meeting, end: Instant) -> Result<(Wire, Duration), Stranger> {
    let address = connection.address().to_owned();
    let handshake = Handshake::new(Side::First, meeting.token, meeting.extent.longest(), address);
    let mut handshake = handshake.map_err(|why| Stranger { fault: Fault::NotOurs, why })?;
    let until = Instant::now() + handshake::patience(end);
    let left = || until.saturating_duration_since(Instant::now());
    connection.send(handshake.greeting(), left())?;
    loop {
        let line = connection.line(handshake::LONGEST, left())?;
        match handshake.hear(&line)? {
            Step::Send(line) => connection.send(&line, left())?,
            Step::Proven(_, session, patience) => return Ok((Wire::new(connection, session), patience)),
        }
    }
}

/// # Errors
/// Why the address cannot be reached.
fn reach(address: &Address, end: Instant, say: &mut dyn FnMut(&str)) -> Result<Connection, String> {
    loop {
        match once(address, end) {
            Ok(connection) => return Ok(connection),
            Err(why) if Instant::now() + PAUSE >= end => return Err(why),
            Err(why) => say(&why),
        }
        std::thread::sleep(PAUSE);
    }
}

fn once(address: &Address, end: Instant) -> Result<Connection, String> {
    let mut last = None;
    for socket in address.sockets(end)? {
        let left = end.saturating_duration_since(Instant::now()).clamp(PAUSE, TRY);
        let connected =
            TcpStream::connect_timeout(&socket, left).and_then(|stream| match is_itself(&stream) {
                true => Err(ErrorKind::ConnectionRefused.into()),
                false => Connection::new(stream, address.to_string()),
            });
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| "the name has no address".to_owned(), |error| error.to_string()))
}

/// TCP can connect a socket to itself, if the port that the kernel has chosen for it is the one
/// to connect to.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(near), Ok(far)) if near == far)
}
