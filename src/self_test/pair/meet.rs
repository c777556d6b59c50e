//! Finding the other node.

use std::io::{Error, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen, setsockopt, socket,
};

use super::wire::Wire;

/// Of TCP; chosen where nobody else's default is.
const DEFAULT_PORT: u16 = 18516;

/// Between two tries to reach a node that is not there yet.
pub const PAUSE: Duration = Duration::from_millis(200);

/// For one try: a node that is off does not answer at all.
const TRY: Duration = Duration::from_secs(5);

/// Where a node is, or waits; an empty host is every address of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// `HOST`, `HOST:PORT`, `IPV6`, `[IPV6]:PORT`, `:PORT`.
///
/// # Errors
/// It is none of these.
impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("none"))),
            // Of an IPv6 address the last part is no port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let number = port.map_or(Ok(DEFAULT_PORT), str::parse);
        match number {
            Ok(port) if !text.is_empty() => Ok(Address { host: host.to_owned(), port }),
            _ => Err(format!(
                "{text:?} is no address: HOST:PORT, [IPV6]:PORT, or HOST alone for port {DEFAULT_PORT}"
            )),
        }
    }
}

/// Where another node is waited for.
pub struct Waiting {
    listener: TcpListener,
    /// This end, as the kernel knows it.
    pub own: SocketAddr,
}

impl Waiting {
    /// # Errors
    /// In words: the address cannot be used.
    pub fn at(address: &Address) -> Result<Waiting, String> {
        let failed = |error: Error| format!("cannot listen on {address}: {error}.");
        let listener = match address.host.is_empty() {
            true => every_address(address.port),
            false => TcpListener::bind((address.host.as_str(), address.port)),
        };
        let listener = listener.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?;
        Ok(Waiting { listener, own })
    }

    /// The next who comes; `None` when the time is over.
    ///
    /// # Errors
    /// In words: nobody can come any more.
    pub fn next(&self, end: Instant) -> Result<Option<Wire>, String> {
        let failed = |error: Error| format!("cannot listen on {} any longer: {error}.", self.own);
        loop {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    stream.set_nonblocking(false).map_err(failed)?;
                    return Ok(Some(Wire::new(stream, from.to_string())));
                }
                // Who has gone again before was none.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    // The rest of a millisecond is waited for, not spun.
                    let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
                    let mut fds = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
                    let _ = poll(&mut fds, timeout.unwrap_or(PollTimeout::MAX));
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Of IPv6 and IPv4, whatever `net.ipv6.bindv6only` says; of IPv4 alone where there is
/// no other.
fn every_address(port: u16) -> Result<TcpListener, Error> {
    let both = || -> nix::Result<TcpListener> {
        let fd = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, Ipv6V6Only, &false)?;
        setsockopt(&fd, ReuseAddr, &true)?;
        let any = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        bind(fd.as_raw_fd(), &any)?;
        listen(&fd, Backlog::new(8)?)?;
        Ok(TcpListener::from(fd))
    };
    match both() {
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => TcpListener::bind(("0.0.0.0", port)),
        other => other.map_err(Error::from),
    }
}

/// Goes to a node, which may come up later: up to that time.
///
/// # Errors
/// Why it cannot be reached.
pub fn connect(address: &Address, end: Instant, say: &mut dyn FnMut(&Error)) -> Result<Wire, Error> {
    loop {
        match once(address, end) {
            Ok(stream) => return Ok(Wire::new(stream, address.to_string())),
            Err(error) if Instant::now() + PAUSE >= end => return Err(error),
            Err(error) => say(&error),
        }
        std::thread::sleep(PAUSE);
    }
}

fn once(address: &Address, end: Instant) -> Result<TcpStream, Error> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    let host = if address.host.is_empty() { "localhost" } else { &address.host };
    for socket in (host, address.port).to_socket_addrs()? {
        let left = end.saturating_duration_since(Instant::now()).clamp(PAUSE, TRY);
        match TcpStream::connect_timeout(&socket, left) {
            Ok(stream) if is_itself(&stream) => last = ErrorKind::ConnectionRefused.into(),
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// TCP connects a socket to itself where it is told to, on a port of its own choice.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(near), Ok(far)) if near == far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        for (given, wanted) in [
            ("node2", "node2:18516"),
            ("node2:5", "node2:5"),
            (":5", ":5"),
            ("[::1]", "[::1]:18516"),
            ("[::1]:5", "[::1]:5"),
            ("::1", "[::1]:18516"),
            ("fe80::1%eth0", "[fe80::1%eth0]:18516"),
        ] {
            assert_eq!(given.parse::<Address>().unwrap().to_string(), wanted);
        }
        for wrong in ["", "node:port", "node:70000", "[::1]5", "node:", "[::1]:"] {
            assert!(wrong.parse::<Address>().unwrap_err().contains("is no address"), "{wrong}");
        }
    }
}
