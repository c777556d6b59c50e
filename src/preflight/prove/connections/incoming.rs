//! Connections that arrive at a rail's listener.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::poll::PollFd;

use super::{Listening, Made, fill, readable};

/// The most connections to one listener whose other ends have not sent the whole cookie yet.
const MOST: usize = 8;

pub(super) enum Incoming {
    /// The connections in the list have not sent the whole cookie yet.
    Waiting(Listening, Vec<(TcpStream, Vec<u8>)>),
    Over(Result<Made, String>),
}

impl Incoming {
    pub(super) fn new(listening: Result<Listening, String>) -> Incoming {
        match listening {
            Ok(listening) => Incoming::Waiting(listening, Vec::new()),
            Err(why) => Incoming::Over(Err(why)),
        }
    }

    pub(super) fn advance(&mut self) {
        let Incoming::Waiting(Listening { listener, cookie, at }, said) = self else { return };
        let found = loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    // Another process may open connections, keep them open and send nothing.
                    if said.len() >= MOST {
                        said.remove(0);
                    }
                    if stream.set_nonblocking(true).is_ok() {
                        said.push((stream, Vec::new()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error) => break Some(Err(format!("cannot listen on {at} any longer: {error}"))),
            }
        };
        let mut index = 0;
        let found = found.or_else(|| {
            while let Some((stream, received)) = said.get_mut(index) {
                match fill(stream, received, cookie.len()) {
                    Ok(false) => index += 1,
                    // It may have been another process that tried this port.
                    Err(_) => drop(said.remove(index)),
                    Ok(true) if received != cookie => drop(said.remove(index)),
                    Ok(true) => {
                        let (mut stream, received) = said.remove(index);
                        if stream.write_all(&received).is_ok() {
                            return Some(Ok(Made { stream, cookie: *cookie }));
                        }
                    }
                }
            }
            None
        });
        if let Some(found) = found {
            *self = Incoming::Over(found);
        }
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let (listener, said) = match self {
            Incoming::Waiting(listening, said) => (Some(listening.listener.as_fd()), said.as_slice()),
            Incoming::Over(_) => (None, [].as_slice()),
        };
        listener.into_iter().chain(said.iter().map(|(stream, _)| stream.as_fd())).map(readable)
    }

    /// Returns the result, once the other end has reported that it connected, or why it could not.
    pub(super) fn end(self, why: Option<String>) -> Result<Made, String> {
        match (self, why) {
            (Incoming::Over(Ok(_)), Some(why)) => Err(why),
            (Incoming::Over(result), _) => result,
            (Incoming::Waiting(..), Some(why)) => Err(why),
            (Incoming::Waiting(Listening { at, .. }, _), None) => {
                Err(format!("no connection arrived at {at}"))
            }
        }
    }
}
