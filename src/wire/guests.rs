//! Connections whose other end has not yet proven to be ours. All are heard at once, so that
//! nobody keeps a node out by saying nothing.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::Protocol;
use super::channel::Channel;
use super::connection::Connection;
use super::handshake::{self, Handshake, Step};
use super::listen::Listener;
use super::session::Session;
use super::stranger::{Fault, Stranger};
use crate::verbs::rail::Side;

/// The most connections that are accepted before the others are heard again.
const AT_ONCE: usize = 16;

pub struct Guests<'a> {
    protocol: &'static Protocol,
    token: &'a [u8],
    /// How long each of our messages may take.
    longest: Duration,
    /// The most guests at a time.
    most: usize,
    list: Vec<Guest<'a>>,
}

/// A node that has proven to be ours.
pub struct Proven {
    pub channel: Channel,
    /// How long each of its messages may take.
    pub patience: Duration,
}

impl<'a> Guests<'a> {
    pub fn new(protocol: &'static Protocol, token: &'a [u8], longest: Duration, most: usize) -> Guests<'a> {
        Guests { protocol, token, longest, most, list: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// What to poll for news of the guests.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().map(|guest| guest.connection.fd())
    }

    /// When the time of a guest is over.
    pub fn until(&self) -> Option<Instant> {
        self.list.iter().map(|guest| guest.until).min()
    }

    /// Accepts the connections that have come by now; nobody is waited for after `end`. Strangers
    /// are told to `tell`.
    ///
    /// # Errors
    /// A sentence: nobody can connect any more.
    pub fn accept(
        &mut self,
        listener: &Listener,
        end: Instant,
        tell: &mut dyn FnMut(Stranger),
    ) -> Result<(), String> {
        for _ in 0..AT_ONCE {
            match listener.accept() {
                Ok((stream, from)) => self.take(stream, from, end, tell)?,
                // A connection that was closed before it was accepted does not count.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // There are no more descriptors.
                Err(_) if !self.list.is_empty() => tell(self.push_out()),
                Err(error) => return Err(format!("cannot listen on {} any longer: {error}.", listener.own)),
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        end: Instant,
        tell: &mut dyn FnMut(Stranger),
    ) -> Result<(), String> {
        // A listener of both families shows an address of IPv4 as one of IPv6.
        let from = match from.ip().to_canonical() {
            IpAddr::V4(address) => SocketAddr::from((address, from.port())),
            IpAddr::V6(_) => from,
        };
        let from = from.to_string();
        let Ok(connection) = Connection::new(stream, from.clone(), self.protocol) else { return Ok(()) };
        let handshake = Handshake::new(self.protocol, Side::Second, self.token, self.longest, from)?;
        if self.list.len() == self.most {
            tell(self.push_out());
        }
        let patience = handshake::patience(end);
        self.list.push(Guest { connection, handshake, patience, until: Instant::now() + patience });
        Ok(())
    }

    /// Hears all that the guests have said by now: the first that has proven to be ours, if there
    /// is one. Call it until it gives none.
    pub fn hear(&mut self, tell: &mut dyn FnMut(Stranger)) -> Option<Proven> {
        let mut index = 0;
        while let Some(guest) = self.list.get_mut(index) {
            match guest.hear() {
                Ok(None) => index += 1,
                Ok(Some((session, patience))) => {
                    let connection = self.list.swap_remove(index).connection;
                    return Some(Proven { channel: Channel::new(connection, session), patience });
                }
                Err(stranger) => {
                    self.list.remove(index);
                    tell(stranger);
                }
            }
        }
        None
    }

    /// Closes the connection that is the oldest; one that has not even greeted goes first.
    fn push_out(&mut self) -> Stranger {
        let index = self.list.iter().position(|guest| !guest.handshake.has_greeted()).unwrap_or(0);
        let guest = self.list.remove(index);
        let address = guest.connection.address();
        let why = format!("{address} was sent away, as too many others came before it proved anything.");
        Stranger { fault: Fault::PushedOut, why }
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
    fn hear(&mut self) -> Result<Option<(Session, Duration)>, Stranger> {
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
