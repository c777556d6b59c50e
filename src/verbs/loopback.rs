//! Two queue pairs of one port, connected to each other.

use std::time::Instant;

use super::completions::Completions;
use super::failure::Failure;
use super::link::{Link, MESSAGE, PATIENCE, VERIFIED};
use super::memory::Region;
use super::queue_pair::QueuePair;
use super::work::{Part, Request, receive, send};

/// Both ends of the loopback, ready to send.
pub(crate) struct Loopback<'a> {
    pub completions: &'a Completions<'a>,
    pub near: &'a QueuePair<'a>,
    pub far: &'a QueuePair<'a>,
    pub region: &'a Region<'a>,
}

impl Loopback<'_> {
    /// Returns both ends' parts: the near end uses the first half of the region, the far end the second
    /// half.
    fn parts(&self, length: usize) -> (Part<'_>, Part<'_>) {
        let half = self.region.size() / 2;
        let length = length.min(half) as u32;
        let part = |offset| Part { region: self.region, offset, length };
        (part(0), part(half))
    }

    fn link(&self) -> Link<'_> {
        Link { completions: self.completions, pair: self.near }
    }

    /// Sends a message to the far end, and verifies what it receives.
    ///
    /// # Errors
    /// As for [`Completions::next`], or [`Failure::OtherData`] if the data that arrived is not what was
    /// sent.
    pub(crate) fn send_and_receive(&self) -> Result<(), Failure> {
        self.transfer(0x5a, Request::Send)
    }

    /// Writes data from the near end into the far end's memory, and verifies it there.
    ///
    /// # Errors
    /// As for [`Loopback::send_and_receive`].
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let (_, to) = self.parts(VERIFIED);
        self.transfer(0xa5, Request::Write { to: to.place(), told: true })
    }

    fn transfer(&self, salt: u8, what: Request) -> Result<(), Failure> {
        let (from, to) = self.parts(VERIFIED);
        from.fill(salt)?;
        to.clear()?;
        receive(self.far, to)?;
        send(self.near, from, what)?;
        self.completions.several(2, Instant::now() + PATIENCE)?;
        to.verify(salt)
    }

    /// Measures the latency, as [`Link::latency`] does.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn latency(&self) -> Result<u64, Failure> {
        let (from, to) = self.parts(VERIFIED);
        self.link().latency(from, to.place())
    }

    /// Measures the bandwidth, as [`Link::bandwidth`] does.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn bandwidth(&self) -> Result<u64, Failure> {
        let (from, to) = self.parts(MESSAGE);
        self.link().bandwidth(from, to.place())
    }
}
