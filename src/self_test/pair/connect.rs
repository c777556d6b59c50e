//! Connects to the other node, which may start later.

use std::time::{Duration, Instant};

use anyhow::bail;

use super::message::PROTOCOL;
use super::{Meeting, time};
use crate::wire::reach::{self, Miss};
use crate::wire::stranger::Stranger;
use crate::wire::{Address, Channel};

/// The pause between two attempts to reach a node that is not running yet.
const PAUSE: Duration = Duration::from_millis(200);

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
    // What answered at the address earlier.
    let mut before: Option<Stranger> = None;
    let token = meeting.token.as_bytes();
    loop {
        let miss = match reach::attempt(address, &PROTOCOL, token, meeting.extent.longest(), end) {
            Ok(proven) => return Ok(proven),
            Err(miss) => miss,
        };
        let is_over = Instant::now() + PAUSE >= end;
        let why = match miss {
            Miss::Wrong(stranger) => return Err(stranger.into()),
            Miss::Unanswered(stranger) if is_over => return Err(stranger.into()),
            Miss::Unanswered(stranger) => {
                if before.is_none() {
                    say(&format!("tries again: {stranger}."));
                }
                before = Some(stranger);
                std::thread::sleep(PAUSE);
                continue;
            }
            Miss::Unresolved(why) => why,
            Miss::Unreached(_, why) => why.to_string(),
        };
        if is_over {
            let before = before.map(|stranger| format!(". Before: {stranger}")).unwrap_or_default();
            bail!("cannot reach {address} within {}: {why}{before}", time(started.elapsed()));
        }
        if !is_said {
            say(&format!("cannot reach {address} yet, retrying: {why}"));
            is_said = true;
        }
        std::thread::sleep(PAUSE);
    }
}
