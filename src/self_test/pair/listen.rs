//! Waits for the other node, and handles all other connections meanwhile.

use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

use super::message::PROTOCOL;
use crate::wire::Channel;
use crate::wire::attempt::Proven;
use crate::wire::connection::timeout;
use crate::wire::guests::PendingConnections;
use crate::wire::handshake::one_key;
use crate::wire::listen::Listener;
use crate::wire::stranger::Strangers;

/// The most connections whose other ends have not authenticated yet.
const MOST: usize = 64;

/// Returns the first node that authenticates, and how long its messages may take; `None` if the time is
/// over.
///
/// # Errors
/// No peer can connect any more.
pub(super) fn first(
    listener: &Listener,
    token: &str,
    longest: Duration,
    end: Instant,
    strangers: &mut Strangers,
) -> anyhow::Result<Option<(Channel, Duration)>> {
    let mut guests = PendingConnections::new(&PROTOCOL, longest, MOST);
    let key = one_key(token.as_bytes());
    loop {
        let tell = &mut |_: &str, stranger| strangers.add(stranger);
        if let Some(Proven { channel, patience, .. }) = guests.hear(&key, tell).into_iter().next() {
            return Ok(Some((channel, patience)));
        }
        let is_open = Instant::now() < end;
        if is_open {
            guests.accept(listener, end, &mut |_, stranger| strangers.add(stranger))?;
        } else if guests.is_empty() {
            return Ok(None);
        }
        sleep(listener, &guests, is_open.then_some(end));
    }
}

/// Waits until a peer connects or sends something, or a connection's time is over.
fn sleep(listener: &Listener, guests: &PendingConnections, end: Option<Instant>) {
    let until = guests.until().into_iter().chain(end).min();
    let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
    let fds = guests.fds().chain(end.map(|_| listener.fd()));
    let mut fds: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // EINTR is harmless: the caller looks again.
    let _ = poll(&mut fds, timeout(left));
}
