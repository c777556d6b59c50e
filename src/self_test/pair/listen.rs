//! Waiting for the other node, and dealing with everybody else who comes meanwhile.

use std::io::{Error, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::sockopt::{Ipv6V6Only, ReuseAddr};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen, setsockopt, socket,
};

use super::address::Address;
use super::connection::{Connection, timeout};
use super::handshake::{self, Handshake, Step};
use super::stranger::{Fault, Stranger, Strangers};
use super::wire::Wire;
use crate::verbs::rail::Side;

/// The most connections whose other end has not proven anything yet.
const MOST: usize = 64;

/// The most connections that are accepted before the others are heard again.
const AT_ONCE: usize = 16;

/// The most connections that the kernel keeps for us, as far as net.core.somaxconn allows.
const BACKLOG: i32 = 128;

/// A socket on which another node is waited for.
pub struct Waiting {
    listener: TcpListener,
    /// The address of this end, as the kernel knows it.
    pub own: SocketAddr,
}

impl Waiting {
    /// # Errors
    /// A sentence: the address cannot be used.
    pub fn at(address: &Address, until: Instant) -> Result<Waiting, String> {
        let failed = |error: Error| format!("cannot listen on {address}: {error}.");
        let listener = match address.is_empty() {
            true => every_address(address.port),
            false => {
                let sockets = address.sockets(until);
                let sockets = sockets.map_err(|why| format!("cannot listen on {address}: {why}."))?;
                TcpListener::bind(sockets.as_slice())
            }
        };
        let listener = listener.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?;
        Ok(Waiting { listener, own })
    }

    /// The first node that proves to be ours, and how long its messages may take; `None` when
    /// the time is over. All connections are heard at once, so that nobody keeps the node out
    /// by saying nothing.
    ///
    /// # Errors
    /// A sentence: nobody can connect any more.
    pub fn first(
        &self,
        token: &str,
        longest: Duration,
        end: Instant,
        strangers: &mut Strangers,
    ) -> Result<Option<(Wire, Duration)>, String> {
        let mut guests: Vec<Guest> = Vec::new();
        loop {
            let mut index = 0;
            while let Some(guest) = guests.get_mut(index) {
                match guest.hear() {
                    Ok(None) => index += 1,
                    Ok(Some((session, patience))) => {
                        let connection = guests.swap_remove(index).connection;
                        return Ok(Some((Wire::new(connection, session), patience)));
                    }
                    Err(stranger) => {
                        guests.remove(index);
                        strangers.add(stranger);
                    }
                }
            }
            let is_open = Instant::now() < end;
            if is_open {
                self.accept(&mut guests, token, longest, end, strangers)?;
            } else if guests.is_empty() {
                return Ok(None);
            }
            self.sleep(&guests, is_open.then_some(end));
        }
    }

    /// Accepts the connections that have come by now.
    fn accept<'a>(
        &self,
        guests: &mut Vec<Guest<'a>>,
        token: &'a str,
        longest: Duration,
        end: Instant,
        strangers: &mut Strangers,
    ) -> Result<(), String> {
        for _ in 0..AT_ONCE {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    let from = from.to_string();
                    let Ok(connection) = Connection::new(stream, from.clone()) else { continue };
                    let handshake = Handshake::new(Side::Second, token, longest, from)?;
                    if guests.len() == MOST {
                        strangers.add(push_out(guests));
                    }
                    let patience = handshake::patience(end);
                    guests.push(Guest { connection, handshake, patience, until: Instant::now() + patience });
                }
                // A connection that was closed before it was accepted does not count.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // There are no more descriptors.
                Err(_) if !guests.is_empty() => strangers.add(push_out(guests)),
                Err(error) => return Err(format!("cannot listen on {} any longer: {error}.", self.own)),
            }
        }
        Ok(())
    }

    /// Waits until somebody connects or says something, or a guest's time is over.
    fn sleep(&self, guests: &[Guest], end: Option<Instant>) {
        let until = guests.iter().map(|guest| guest.until).chain(end).min();
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        let fds = guests.iter().map(|guest| guest.connection.fd());
        let fds = fds.chain(end.map(|_| self.listener.as_fd()));
        let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // An interruption is as good as an event: the caller looks again.
        let _ = poll(&mut fds, timeout(left));
    }
}

/// A connection whose other end has not yet proven to be ours.
struct Guest<'a> {
    connection: Connection,
    handshake: Handshake<'a>,
    patience: Duration,
    until: Instant,
}

impl Guest<'_> {
    /// Hears all that the other end has said by now.
    fn hear(&mut self) -> Result<Option<(super::session::Session, Duration)>, Stranger> {
        while let Some(line) = self.connection.line_if_there(handshake::LONGEST)? {
            // The connection's queue is empty, so a line that does not fit was not read by
            // anybody.
            match self.handshake.hear(&line) {
                Ok(Step::Send(line)) => self.connection.send(&line, Duration::ZERO)?,
                Ok(Step::Proven(line, session, patience)) => {
                    self.connection.send(&line, Duration::ZERO)?;
                    return Ok(Some((session, patience)));
                }
                Err(stranger) => {
                    if let Some(last) = self.handshake.farewell(stranger.fault) {
                        let _ = self.connection.send(&last, Duration::ZERO);
                    }
                    return Err(stranger);
                }
            }
        }
        if Instant::now() >= self.until {
            return Err(self.connection.silent(self.patience));
        }
        Ok(None)
    }
}

/// Closes the connection that is the oldest; one that has not even greeted goes first.
fn push_out(guests: &mut Vec<Guest>) -> Stranger {
    let index = guests.iter().position(|guest| !guest.handshake.has_greeted()).unwrap_or(0);
    let guest = guests.remove(index);
    let address = guest.connection.address();
    let why = format!("{address} was sent away, as too many others came before it proved anything.");
    Stranger { fault: Fault::PushedOut, why }
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
