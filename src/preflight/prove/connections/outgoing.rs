//! A connection that this end makes.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use super::{Cookie, Made, TRY, fill, readable};
use crate::libraries::nccl::interfaces::Endpoint;
use crate::preflight::meet::message::RailEndpoint;

pub(super) enum Outgoing {
    Connecting {
        stream: TcpStream,
        cookie: Cookie,
        to: String,
    },
    /// This end has sent the cookie. `received` is what the other end has sent back so far.
    Greeting {
        stream: TcpStream,
        cookie: Cookie,
        to: String,
        received: Vec<u8>,
    },
    Over(Result<Made, String>),
}

impl Outgoing {
    pub(super) fn to(end: &Endpoint, place: &RailEndpoint, name: &str) -> Outgoing {
        let Endpoint { interface, address } = end;
        let at = SocketAddr::new(place.address, place.port);
        let to = format!("from {interface} ({address}) to {name} {} at {at}", place.name);
        match start(*address, at) {
            Ok(stream) => Outgoing::Connecting { stream, cookie: place.cookie, to },
            Err(error) => failed(to, describe(&error)),
        }
    }

    pub(super) fn advance(self) -> Outgoing {
        match self {
            Outgoing::Connecting { mut stream, cookie, to } => match is_connected(&stream) {
                Ok(false) => Outgoing::Connecting { stream, cookie, to },
                Err(error) => failed(to, describe(&error)),
                // The kernel always accepts so few bytes at once.
                Ok(true) => match stream.write_all(&cookie) {
                    Ok(()) => Outgoing::Greeting { stream, cookie, to, received: Vec::new() }.advance(),
                    Err(error) => failed(to, describe(&error)),
                },
            },
            Outgoing::Greeting { mut stream, cookie, to, mut received } => {
                match fill(&mut stream, &mut received, cookie.len()) {
                    Ok(false) => Outgoing::Greeting { stream, cookie, to, received },
                    Ok(true) if received == cookie => Outgoing::Over(Ok(Made { stream, cookie })),
                    Ok(true) => failed(to, "another program answers there"),
                    Err(error) => failed(to, describe(&error)),
                }
            }
            over @ Outgoing::Over(_) => over,
        }
    }

    /// Ends the attempt, because its time is over.
    pub(super) fn give_up(self) -> Outgoing {
        match self {
            Outgoing::Connecting { to, .. } => failed(to, no_answer()),
            Outgoing::Greeting { to, .. } => {
                failed(to, format!("it was established, but no data arrived for {} s", TRY.as_secs()))
            }
            over @ Outgoing::Over(_) => over,
        }
    }

    /// Returns why there is no connection, worded for the other node.
    pub(super) fn error(&self) -> Option<String> {
        match self {
            Outgoing::Over(Err(why)) => Some(why.clone()),
            _ => None,
        }
    }

    pub(super) fn fd(&self) -> Option<PollFd<'_>> {
        match self {
            Outgoing::Connecting { stream, .. } => Some(PollFd::new(stream.as_fd(), PollFlags::POLLOUT)),
            Outgoing::Greeting { stream, .. } => Some(readable(stream.as_fd())),
            Outgoing::Over(_) => None,
        }
    }
}

/// Ends an attempt; `to` names both ends.
fn failed(to: String, why: impl Display) -> Outgoing {
    Outgoing::Over(Err(format!("no connection {to}: {why}")))
}

fn no_answer() -> String {
    format!("no answer for {} s", TRY.as_secs())
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => no_answer(),
        ErrorKind::AddrNotAvailable => "this node no longer has this address".to_owned(),
        _ => error.to_string(),
    }
}

/// Starts to connect.
fn start(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = TcpStream::from(socket::socket(family, SockType::Stream, flags, None)?);
    // NCCL connects even if the two addresses are of different families: the interface may have one of
    // the other family.
    if from.is_ipv4() == to.is_ipv4() {
        socket::bind(stream.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
    }
    match socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(stream),
        Err(errno) => Err(errno.into()),
    }
}

fn is_connected(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}
