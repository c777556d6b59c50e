//! Finding the other node.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::verbs;
use super::wire::Wire;
use super::{DEFAULT_PORT, microseconds};

/// Between two tries to reach a node that is not there yet.
const PAUSE: Duration = Duration::from_millis(200);

/// For one try: a node that is off does not answer at all.
const TRY: Duration = Duration::from_secs(5);

const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Waits for one node, and for no other.
///
/// # Errors
/// In words: the address cannot be used, or nobody came.
pub fn listen(address: &str, wait: Duration, say: &dyn Fn(&str)) -> Result<Wire, String> {
    let address = with_port(address);
    let failed = |error: Error| format!("cannot listen on {address}: {error}.");
    let listener = bind(&address).map_err(failed)?;
    let own = listener.local_addr().map_err(failed)?;
    say(&format!("waits for another node's self-test --peer on {own}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let end = Instant::now() + wait.min(LONGEST);
    loop {
        match listener.accept() {
            Ok((stream, from)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                return Ok(Wire::new(stream, from.to_string()));
            }
            // Who has gone again before was none.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(format!("no node has come to {own} within {}.", time(wait)));
                }
                let timeout =
                    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
                let _ = poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], timeout);
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

fn time(time: Duration) -> String {
    verbs::time(microseconds(time))
}

fn bind(address: &str) -> Result<TcpListener, Error> {
    TcpListener::bind(address).or_else(|error| match (address.strip_prefix("[::]:"), error.raw_os_error()) {
        // A node without IPv6.
        (Some(port), Some(errno))
            if errno == Errno::EAFNOSUPPORT as i32 || errno == Errno::EADDRNOTAVAIL as i32 =>
        {
            TcpListener::bind(format!("0.0.0.0:{port}"))
        }
        _ => Err(error),
    })
}

/// Goes to a node, which may come up later.
///
/// # Errors
/// In words: it has no address, or cannot be reached.
pub fn connect(address: &str, wait: Duration, say: &dyn Fn(&str)) -> Result<Wire, String> {
    let address = with_port(address);
    let end = Instant::now() + wait.min(LONGEST);
    let mut is_said = false;
    loop {
        let error = match once(&address, end) {
            Ok(stream) => return Ok(Wire::new(stream, address)),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::InvalidInput || Instant::now() + PAUSE >= end {
            return Err(format!("cannot reach {address} within {}: {error}.", time(wait)));
        }
        if !is_said {
            say(&format!("tries to reach {address}: {error}"));
            is_said = true;
        }
        std::thread::sleep(PAUSE);
    }
}

fn once(address: &str, end: Instant) -> Result<TcpStream, Error> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for socket in address.to_socket_addrs()? {
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
    let ends: (Result<SocketAddr, Error>, _) = (stream.local_addr(), stream.peer_addr());
    matches!(ends, (Ok(near), Ok(far)) if near == far)
}

/// `HOST`, `HOST:PORT`, `:PORT`.
fn with_port(address: &str) -> String {
    let is_bare_ipv6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    match address.rsplit_once(':') {
        _ if is_bare_ipv6 => format!("[{address}]:{DEFAULT_PORT}"),
        Some(("", port)) => format!("[::]:{port}"),
        Some((_, port)) if !port.ends_with(']') => address.to_owned(),
        _ => format!("{address}:{DEFAULT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_be_left_out() {
        for (given, wanted) in [
            ("node2", "node2:18516"),
            ("node2:5", "node2:5"),
            (":5", "[::]:5"),
            ("[::1]", "[::1]:18516"),
            ("[::1]:5", "[::1]:5"),
            ("::1", "[::1]:18516"),
        ] {
            assert_eq!(with_port(given), wanted);
        }
    }
}
