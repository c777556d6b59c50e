//! Measures and verifies how a connected queue pair reads and writes the memory of the other
//! end.

use std::time::{Duration, Instant};

use super::completions::{Completion, Completions};
use super::failure::Failure;
use super::queue_pair::{DEPTH, QueuePair};
use super::work::{Part, RemoteAddress, Request, send};

/// The number of bytes to compare. They fill several packets at any MTU.
pub(crate) const VERIFIED: usize = 16 * 1024;

/// The size in bytes of each request when bandwidth is measured.
pub(crate) const MESSAGE: usize = 64 * 1024;

const ROUND_TRIPS: usize = 50;

/// How long to measure each of the two figures. Soft-RoCE on a slow machine completes only a few
/// messages in this time.
pub(crate) const MEASURED: Duration = Duration::from_millis(200);

/// How long to wait for a completion. A request that gets no answer fails within 2 s; see
/// [`super::queue_pair`].
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Link<'a> {
    pub completions: &'a Completions<'a>,
    pub pair: &'a QueuePair<'a>,
}

impl Link<'_> {
    /// Sends a request, and waits until it is complete.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn send(&self, from: Part, what: Request) -> Result<(), Failure> {
        send(self.pair, from, what)?;
        self.completions.next(Instant::now() + PATIENCE).map(drop)
    }

    /// Returns the median of several round trips, in nanoseconds. A round trip starts with a write of 8
    /// bytes and ends with the far end's acknowledgement.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn latency(&self, from: Part, to: RemoteAddress) -> Result<u64, Failure> {
        let from = Part { length: from.length.min(8), ..from };
        let end = Instant::now() + MEASURED;
        let mut times = Vec::with_capacity(ROUND_TRIPS);
        while times.is_empty() || times.len() < ROUND_TRIPS && Instant::now() < end {
            let start = Instant::now();
            self.send(from, Request::Write { to, told: false })?;
            times.push(start.elapsed());
        }
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(median.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    /// Returns the bandwidth of writes in Mbit/s, measured for a short time.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn bandwidth(&self, from: Part, to: RemoteAddress) -> Result<u64, Failure> {
        Ok(self.load(from, to, MEASURED)?.0)
    }

    /// Returns the bandwidth of writes in Mbit/s, measured over this time, and the number of messages
    /// from the other end that arrived meanwhile.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub(crate) fn load(
        &self,
        from: Part,
        to: RemoteAddress,
        time: Duration,
    ) -> Result<(u64, usize), Failure> {
        let start = Instant::now();
        let end = start + time;
        let (mut posted, mut completed, mut received) = (0u64, 0u64, 0usize);
        loop {
            // The window grows by one with each completion, so that a slow device does not have many
            // outstanding requests when the time is up.
            let window = (completed + 1).min(u64::from(DEPTH));
            while posted - completed < window && Instant::now() < end {
                send(self.pair, from, Request::Write { to, told: false })?;
                posted += 1;
            }
            if posted == completed {
                break;
            }
            match self.completions.next(Instant::now() + PATIENCE)? {
                Completion::Sent => completed += 1,
                Completion::Received => received += 1,
            }
        }
        let bits = completed * u64::from(from.length) * 8;
        let microseconds = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok((bits / microseconds.max(1), received))
    }
}
