//! A node that calls this one.

use std::time::Instant;

use crate::preflight::meet::message::{Call, CallId};
use crate::preflight::meet::times::SILENT;
use crate::wire::Channel;
use crate::wire::stranger::Stranger;

/// A node that has proven to be this node's peer in a round.
pub(super) struct Caller {
    pub channel: Channel,
    pub id: CallId,
    pub call: Option<Call>,
    since: Instant,
    /// When this node reports next that it is busy.
    pub next: Instant,
}

impl Caller {
    pub(super) fn new(channel: Channel, id: CallId) -> Caller {
        let now = Instant::now();
        Caller { channel, id, call: None, since: now, next: now }
    }

    /// Receives from the node. Returns whether it has sent what it wants.
    ///
    /// # Errors
    /// It sent something else, sent nothing for too long, or disconnected.
    pub(super) fn hear(&mut self) -> Result<bool, Stranger> {
        match self.channel.receive_if_there(1024)? {
            Some(call) if self.call.is_none() => self.call = Some(call),
            Some(Call::Ready | Call::Asks) => return Err(self.channel.unexpected("a call")),
            None => {}
        }
        if self.call.is_none() && self.since.elapsed() > SILENT {
            return Err(self.channel.connection().silent(SILENT));
        }
        Ok(self.call.is_some())
    }
}
