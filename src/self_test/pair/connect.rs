//! Connects to the other node, which may start later.

use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::message::PROTOCOL;
use super::{Meeting, time};
use crate::wire::connection::Connection;
use crate::wire::stranger::{Fault, Stranger};
use crate::wire::{Address, Channel, reach};

/// The pause between two attempts to reach a node that is not running yet.
const PAUSE: Duration = Duration::from_millis(200);

/// The time for one attempt: a node that is off does not answer at all.
const TRY: Duration = Duration::from_secs(5);

/// Connects until a node has authenticated. Before that, a connection may be closed or stay silent, because
/// a proxy's node is not running yet, or because many others have connected to the node. If this happens, it
/// connects again.
///
/// # Errors
/// The node cannot be reached, or fails to authenticate.
pub(super) fn go_to(
    address: &Address,
    meeting: &Meeting,
    end: Instant,
    say: &dyn Fn(&str),
) -> anyhow::Result<(Channel, Duration)> {
    let started = Instant::now();
    let mut is_said = false;
    let mut before = None;
    loop {
        let reached = reach(address, end, &mut |why| {
            if !is_said {
                say(&format!("cannot reach {address} yet, retrying: {why}"));
                is_said = true;
            }
        });
        let connection = reached.map_err(|why| {
            // What answered at the address earlier.
            let before = before.take().map(|stranger: Stranger| format!(". Before: {stranger}"));
            let within = time(started.elapsed());
            anyhow!("cannot reach {address} within {within}: {why}{}", before.unwrap_or_default())
        })?;
        let token = meeting.token.as_bytes();
        match reach::prove(connection, &PROTOCOL, "", token, meeting.extent.longest(), end) {
            Ok(proven) => return Ok(proven),
            Err(stranger @ Stranger { fault: Fault::Gone | Fault::Silent, .. })
                if Instant::now() + PAUSE < end =>
            {
                if before.is_none() {
                    say(&format!("tries again: {stranger}."));
                }
                before = Some(stranger);
                std::thread::sleep(PAUSE);
            }
            Err(stranger) => return Err(stranger.into()),
        }
    }
}

/// # Errors
/// Why the address cannot be reached.
fn reach(address: &Address, end: Instant, say: &mut dyn FnMut(&str)) -> Result<Connection, String> {
    loop {
        match once(address, end) {
            Ok(connection) => return Ok(connection),
            Err(why) if Instant::now() + PAUSE >= end => return Err(why),
            Err(why) => say(&why),
        }
        std::thread::sleep(PAUSE);
    }
}

fn once(address: &Address, end: Instant) -> Result<Connection, String> {
    let left = end.saturating_duration_since(Instant::now()).clamp(PAUSE, TRY);
    let sockets = address.sockets(end)?;
    reach::connect(&sockets, left, &address.to_string(), &PROTOCOL).map_err(|why| why.to_string())
}
