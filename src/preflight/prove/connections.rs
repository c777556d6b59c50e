//! The connections of a pair that uses TCP. NCCL has every node listen and connect on each of its
//! interfaces, so each rail is connected both ways: each end listens there, and connects to the other.
//!
//! Both ends bind to the address of their interface. NCCL binds the socket that listens
//! (ncclSocketListen in src/misc/socket.cc of NCCL 2.27), but lets the kernel choose the address of the
//! socket that connects. This code binds that socket as well, so the answers show whether other nodes
//! reach the address.
//!
//! All of this is one process, which waits for all rails at once. Over the pair's channel, it receives
//! which connections the other end could not make, so it does not wait for those.

mod incoming;
mod outgoing;

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use incoming::Incoming;
use nix::poll::{PollFd, PollFlags, poll};
use outgoing::Outgoing;

use crate::libraries::nccl::interfaces::Endpoint;
use crate::preflight::meet::message::RailEndpoint;
use crate::sys::random;
use crate::wire::Channel;
use crate::wire::connection::timeout;
use crate::wire::stranger::Stranger;

/// What the connecting end sends first. The listening end sends it back, so that each end can tell the
/// other from an invalid peer.
pub(in crate::preflight) type Cookie = [u8; 16];

/// How long to try a connection. The kernel tries it after 0, 1 and 3 s.
pub(in crate::preflight) const TRY: Duration = Duration::from_secs(5);

/// A rail whose end listens.
pub(in crate::preflight) struct Listening {
    listener: TcpListener,
    cookie: Cookie,
    at: SocketAddr,
}

impl Listening {
    /// Listens on a port of this address that the kernel chooses.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(in crate::preflight) fn on(address: IpAddr) -> Result<Listening, String> {
        let mut cookie = Cookie::default();
        random::fill(&mut cookie).map_err(|error| format!("cannot get a random number: {error}"))?;
        let failed = |error| format!("cannot listen on {address}: {error}");
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        Ok(Listening { listener, cookie, at })
    }

    /// Returns what the other end needs to know to connect.
    pub(in crate::preflight) fn place(&self, name: &str) -> RailEndpoint {
        RailEndpoint {
            name: name.to_owned(),
            address: self.at.ip(),
            port: self.at.port(),
            cookie: self.cookie,
        }
    }
}

const NOT_TRIED: &str = "it was not tried";

/// The connections of one rail, or, as a clause, why there is none: the one that this end made, and the one that the
/// other end made.
pub(in crate::preflight) struct Connected {
    pub to: Result<Made, String>,
    pub from: Result<Made, String>,
}

/// A connection on which both ends have identified each other.
#[derive(Debug)]
pub(in crate::preflight) struct Made {
    pub stream: TcpStream,
    pub cookie: Cookie,
}

/// Connects all rails both ways. `ends` are the interfaces of this end, and `own` is where they listen.
/// `places` is where the other end's interfaces listen, or why one does not; `name` is the other node's
/// name.
///
/// # Errors
/// What arrived instead of the other end's message.
pub(in crate::preflight) fn all(
    channel: &mut Channel,
    ends: &[Endpoint],
    own: Vec<Result<Listening, String>>,
    places: Vec<Result<RailEndpoint, String>>,
    name: &str,
) -> Result<Vec<Connected>, Stranger> {
    let end = Instant::now() + TRY;
    let mut incoming: Vec<Incoming> = own.into_iter().map(Incoming::new).collect();
    let mut outgoing: Vec<Outgoing> = ends
        .iter()
        .zip(places)
        .map(|(end, place)| match place {
            Ok(place) => Outgoing::to(end, &place, name),
            Err(why) => Outgoing::Over(Err(why)),
        })
        .collect();
    let mut is_told = false;
    let others: Vec<Option<String>> = loop {
        incoming.iter_mut().for_each(Incoming::advance);
        outgoing = outgoing.into_iter().map(Outgoing::advance).collect();
        if Instant::now() >= end {
            outgoing = outgoing.into_iter().map(Outgoing::give_up).collect();
        }
        if !is_told && outgoing.iter().all(|one| matches!(one, Outgoing::Over(_))) {
            is_told = true;
            channel.send(&outgoing.iter().map(Outgoing::error).collect::<Vec<_>>())?;
        }
        // The other end gives up at about the same time as this one.
        let until = if is_told { end + TRY } else { end };
        if is_told && let Some(others) = channel.receive_if_there(crate::wire::channel::LONGEST)? {
            break others;
        }
        if Instant::now() >= end + TRY {
            return Err(channel.connection().silent(2 * TRY));
        }
        let fds = incoming.iter().flat_map(Incoming::fds).chain(outgoing.iter().filter_map(Outgoing::fd));
        let mut fds: Vec<PollFd> = fds.chain(is_told.then(|| readable(channel.fd()))).collect();
        // EINTR is harmless: the loop looks again.
        let _ = poll(&mut fds, timeout(until.saturating_duration_since(Instant::now())));
    };
    if others.len() != ends.len() {
        return Err(channel.wrong("it reports a different number of rails"));
    }
    let all = incoming.into_iter().zip(outgoing).zip(others);
    Ok(all
        .map(|((from, to), other)| Connected {
            to: match to {
                Outgoing::Over(result) => result,
                _ => Err(NOT_TRIED.to_owned()),
            },
            from: from.end(other.map(|why| format!("{name} says: {why}"))),
        })
        .collect())
}

fn readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::POLLIN)
}

/// Reads until this many bytes have arrived in all. Returns whether they have.
fn fill(stream: &mut TcpStream, received: &mut Vec<u8>, wanted: usize) -> io::Result<bool> {
    let mut buffer = Cookie::default();
    while let Some(rest) =
        buffer.get_mut(..wanted.saturating_sub(received.len())).filter(|rest| !rest.is_empty())
    {
        match stream.read(rest) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it was closed at once")),
            Ok(length) => received.extend_from_slice(rest.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
