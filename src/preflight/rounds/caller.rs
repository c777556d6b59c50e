//! A node that calls this one.

use std::time::Instant;

use crate::preflight::call::SILENT;
use crate::preflight::message::Call;
use crate::wire::Channel;
use crate::wire::stranger::Stranger;

/// Somebody who has proven to be ours.
pub struct Caller {
    pub channel: Channel,
    pub call: Option<Call>,
    since: Instant,
    /// When it hears that this node is busy.
    pub next: Instant,
}

impl Caller {
    pub fn new(channel: Channel) -> Caller {
        let now = Instant::now();
        Caller { channel, call: None, since: now, next: now }
    }

    /// Whether it has said what it wants.
    ///
    /// # Errors
    /// It has said something else, nothing for too long, or it has gone.
    pub fn hear(&mut self) -> Result<bool, Stranger> {
        match self.channel.receive_if_there(1024)? {
            Some(call) if self.call.is_none() => self.call = Some(call),
            Some(Call::Ready { .. } | Call::Asks { .. }) => return Err(self.channel.unexpected("a call")),
            None => {}
        }
        if self.call.is_none() && self.since.elapsed() > SILENT {
            return Err(self.channel.connection().silent(SILENT));
        }
        Ok(self.call.is_some())
    }
}
