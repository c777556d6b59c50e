//! Connections whose other end has not authenticated yet. All of them are read concurrently, so that a
//! silent one cannot keep a node out.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::Protocol;
use super::attempt::{Attempt, Progress, Proven};
use super::connection::Connection;
use super::handshake::{self, Keys};
use super::listen::Listener;
use super::stranger::{Fault, Stranger};
use crate::verbs::rail::Side;

/// How many connections are accepted before the pending ones are read again.
const AT_ONCE: usize = 16;

pub(crate) struct PendingConnections {
    protocol: &'static Protocol,
    /// How long each of this node's messages may take.
    longest: Duration,
    /// The most pending connections at a time.
    most: usize,
    /// Oldest first.
    list: Vec<Attempt>,
}

impl PendingConnections {
    pub(crate) fn new(protocol: &'static Protocol, longest: Duration, most: usize) -> PendingConnections {
        PendingConnections { protocol, longest, most, list: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the descriptors to poll. A pending connection whose key is not known yet is omitted: the
    /// other end may not send anything more for now.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter(|guest| !guest.is_deferred()).map(Attempt::fd)
    }

    /// Returns when the first pending connection times out.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.list.iter().map(|guest| guest.until).min()
    }

    /// Accepts the connections that have arrived by now. Their handshakes must finish by `end`, but each gets
    /// a minimum time. `tell` receives the invalid peers and their addresses.
    ///
    /// # Errors
    /// No node can connect any more.
    pub(crate) fn accept(
        &mut self,
        listener: &Listener,
        end: Instant,
        tell: &mut dyn FnMut(&str, Stranger),
    ) -> anyhow::Result<()> {
        for _ in 0..AT_ONCE {
            match listener.accept() {
                Ok((stream, from)) => self.take(stream, from, end, tell)?,
                // A connection that was closed before it was accepted does not count.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // No descriptors are left, so the oldest pending connection makes room.
                Err(_) if !self.list.is_empty() => self.push_out(tell),
                Err(error) => anyhow::bail!("cannot listen on {} any longer: {error}", listener.own),
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        end: Instant,
        tell: &mut dyn FnMut(&str, Stranger),
    ) -> anyhow::Result<()> {
        // A dual-stack listener reports an IPv4 address as an IPv4-mapped IPv6 address.
        let from = match from.ip().to_canonical() {
            IpAddr::V4(address) => SocketAddr::from((address, from.port())),
            IpAddr::V6(_) => from,
        };
        let Ok(connection) = Connection::new(stream, from.to_string(), self.protocol) else { return Ok(()) };
        let guest = Attempt::new(connection, Side::Second, "", self.longest, handshake::patience(end))?;
        if self.list.len() == self.most {
            self.push_out(tell);
        }
        self.list.push(guest);
        Ok(())
    }

    /// Reads everything that has arrived on the pending connections. Returns the nodes that have authenticated.
    pub(crate) fn hear(&mut self, keys: &Keys, tell: &mut dyn FnMut(&str, Stranger)) -> Vec<Proven> {
        let mut proven = Vec::new();
        for guest in std::mem::take(&mut self.list) {
            let address = guest.address().to_owned();
            match guest.go_on(keys) {
                Ok(Progress::Pending(guest)) => self.list.push(guest),
                Ok(Progress::Proven(node)) => proven.push(node),
                Err(stranger) => tell(&address, stranger),
            }
        }
        proven
    }

    /// Closes the oldest connection, which had the most time to authenticate. A greeting alone proves
    /// nothing.
    fn push_out(&mut self, tell: &mut dyn FnMut(&str, Stranger)) {
        let guest = self.list.remove(0);
        let address = guest.address();
        let why =
            format!("{address} was rejected, because too many others connected before it proved anything");
        tell(address, Stranger { fault: Fault::Evicted, why });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::preflight::meet::message::MEETING;

    /// A scanner that keeps connections open must not keep out a node of the job that has just come.
    #[test]
    fn the_oldest_connection_makes_room_for_a_new_one() {
        let listener = Listener::on_port(0).unwrap();
        let mut pending = PendingConnections::new(&MEETING, Duration::from_secs(1), 2);
        let end = Instant::now() + Duration::from_secs(60);
        let mut told = Vec::new();
        let callers = [(); 4].map(|()| {
            let caller = TcpStream::connect((Ipv4Addr::LOCALHOST, listener.own.port())).unwrap();
            let from = caller.local_addr().unwrap().to_string();
            let is_there =
                |pending: &PendingConnections| pending.list.iter().any(|guest| guest.address() == from);
            while !is_there(&pending) {
                assert!(Instant::now() < end, "it is not kept: {told:?}");
                pending.accept(&listener, end, &mut |_, stranger| told.push(stranger.why)).unwrap();
            }
            (caller, from)
        });
        let [first, second, ..] = &callers;
        let why = " was rejected, because too many others connected before it proved anything";
        assert_eq!(told, [&first.1, &second.1].map(|from| format!("{from}{why}")));
    }
}
