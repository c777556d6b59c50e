//! A connection that this end makes.

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
        what: String,
    },
    /// The cookie is on its way; what has come back of it.
    Greeting {
        stream: TcpStream,
        cookie: Cookie,
        what: String,
        received: Vec<u8>,
    },
    Over(Result<Made, String>),
}

impl Outgoing {
    pub(super) fn to(end: &Endpoint, place: &RailEndpoint, name: &str) -> Outgoing {
        let Endpoint { interface, address } = end;
        let to = SocketAddr::new(place.address, place.port);
        let what = format!("no connection from {interface} ({address}) to {name} {} at {to}", place.name);
        match start(*address, to) {
            Ok(stream) => Outgoing::Connecting { stream, cookie: place.cookie, what },
            Err(error) => Outgoing::Over(Err(format!("{what}: {}", told(&error)))),
        }
    }

    pub(super) fn advance(self) -> Outgoing {
        match self {
            Outgoing::Connecting { mut stream, cookie, what } => match is_connected(&stream) {
                Ok(false) => Outgoing::Connecting { stream, cookie, what },
                Err(error) => Outgoing::Over(Err(format!("{what}: {}", told(&error)))),
                // The kernel takes so few bytes at once.
                Ok(true) => match stream.write_all(&cookie) {
                    Ok(()) => Outgoing::Greeting { stream, cookie, what, received: Vec::new() }.advance(),
                    Err(error) => Outgoing::Over(Err(format!("{what}: {}", told(&error)))),
                },
            },
            Outgoing::Greeting { mut stream, cookie, what, mut received } => {
                match fill(&mut stream, &mut received, cookie.len()) {
                    Ok(false) => Outgoing::Greeting { stream, cookie, what, received },
                    Ok(true) if received == cookie => Outgoing::Over(Ok(Made { stream, cookie })),
                    Ok(true) => Outgoing::Over(Err(format!("{what}: another program answers there"))),
                    Err(error) => Outgoing::Over(Err(format!("{what}: {}", told(&error)))),
                }
            }
            over @ Outgoing::Over(_) => over,
        }
    }

    /// The time is up.
    pub(super) fn give_up(self) -> Outgoing {
        let why = match self {
            Outgoing::Connecting { what, .. } => format!("{what}: no answer for {} s", TRY.as_secs()),
            Outgoing::Greeting { what, .. } => {
                format!("{what}: it was established, but no data arrived for {} s", TRY.as_secs())
            }
            over @ Outgoing::Over(_) => return over,
        };
        Outgoing::Over(Err(why))
    }

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

/// Begins to connect.
fn start(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = TcpStream::from(socket::socket(family, SockType::Stream, flags, None)?);
    // NCCL also connects if the addresses are of two kinds: the interface may have one of the other kind.
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

fn told(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => format!("no answer for {} s", TRY.as_secs()),
        ErrorKind::AddrNotAvailable => "this node no longer has this address".to_owned(),
        _ => error.to_string(),
    }
}
