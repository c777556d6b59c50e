//! A socket on which a node waits for connections from other nodes.

use std::io::{Error, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen, setsockopt, socket,
};

use super::address::Address;

/// The length of the kernel's accept queue, as far as net.core.somaxconn allows.
const BACKLOG: i32 = 4096;

pub struct Listener {
    listener: TcpListener,
    /// The local address as the kernel knows it.
    pub own: SocketAddr,
}

/// Why a node cannot listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}: {why}")]
    Unresolved { address: Address, why: String },
    /// Another process listens there.
    #[error("cannot listen on {address}: {error}")]
    InUse { address: Address, error: Error },
    #[error("cannot listen on {address}: {error}")]
    Failed { address: Address, error: Error },
}

impl Listener {
    /// Listens on an address; on all local addresses if it names no host.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn at(address: &Address, until: Instant) -> Result<Listener, ListenError> {
        let failed = |error: Error| match error.kind() {
            ErrorKind::AddrInUse => ListenError::InUse { address: address.clone(), error },
            _ => ListenError::Failed { address: address.clone(), error },
        };
        let listener = match address.is_empty() {
            true => every_address(address.port),
            false => {
                let sockets = address.sockets(until);
                let sockets =
                    sockets.map_err(|why| ListenError::Unresolved { address: address.clone(), why })?;
                TcpListener::bind(sockets.as_slice())
            }
        };
        let listener = listener.and_then(Listener::of);
        listener.map_err(failed)
    }

    /// Listens on a port at all local addresses. With 0, the kernel chooses the port.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn on_port(port: u16) -> Result<Listener, Error> {
        every_address(port).and_then(Listener::of)
    }

    fn of(listener: TcpListener) -> Result<Listener, Error> {
        listener.set_nonblocking(true)?;
        let own = listener.local_addr()?;
        Ok(Listener { listener, own })
    }

    /// Returns the next connection that has arrived by now.
    ///
    /// # Errors
    /// As for accept(2); `WouldBlock` if there is none.
    pub fn accept(&self) -> Result<(TcpStream, SocketAddr), Error> {
        self.listener.accept()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Raises the limit of open files, so that each of so many nodes may have one; as far as the hard limit goes. Returns
/// the limit before, if it was raised.
pub fn allow_connections(nodes: u32) -> Option<(rlim_t, rlim_t)> {
    // Connections that have proven nothing, children, and what this process had before.
    let wanted = rlim_t::from(nodes) + 1024;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_ok();
    raised.then_some((soft, hard))
}

/// Listens on IPv6 and IPv4, whatever `net.ipv6.bindv6only` says; on IPv4 alone if there is no
/// IPv6.
fn every_address(port: u16) -> Result<TcpListener, Error> {
    let both = || -> nix::Result<TcpListener> {
        let fd = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&fd, Ipv6V6Only, &false)?;
        setsockopt(&fd, ReuseAddr, &true)?;
        let any = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
        bind(fd.as_raw_fd(), &any)?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        Ok(TcpListener::from(fd))
    };
    match both() {
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) => TcpListener::bind(("0.0.0.0", port)),
        other => other.map_err(Error::from),
    }
}
