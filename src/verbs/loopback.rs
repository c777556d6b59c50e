//! Two queue pairs of one port, connected to each other.

use std::time::{Duration, Instant};

use super::completions::Completions;
use super::failure::Failure;
use super::memory::Region;
use super::queue_pair::{DEPTH, QueuePair};
use super::work::{Part, Request, receive, send};
use crate::sorted;

/// Bytes that are compared: several packets of any MTU.
const VERIFIED: usize = 16 * 1024;

/// Bytes of each request when bandwidth is measured.
const MESSAGE: usize = 64 * 1024;

const ROUND_TRIPS: usize = 50;

/// For each of the two figures: soft-RoCE on a slow machine gets few messages done.
const MEASURED: Duration = Duration::from_millis(200);

/// A request that gets no answer fails within 2 s, see [`super::queue_pair`].
const PATIENCE: Duration = Duration::from_secs(3);

/// Both ends, ready to send.
pub struct Loopback<'a> {
    pub completions: &'a Completions<'a>,
    pub near: &'a QueuePair<'a>,
    pub far: &'a QueuePair<'a>,
    pub region: &'a Region<'a>,
}

impl Loopback<'_> {
    /// The first half of the region is the near end's, the second the far one's.
    fn parts(&self, length: usize) -> (Part<'_>, Part<'_>) {
        let half = self.region.size() / 2;
        let length = length.min(half) as u32;
        let part = |offset| Part { region: self.region, offset, length };
        (part(0), part(half))
    }

    /// A message that the far end receives, verified.
    ///
    /// # Errors
    /// As for [`Completions::next`], and where other data arrived.
    pub fn send_and_receive(&self) -> Result<(), Failure> {
        self.transfer(0x5a, Request::Send)
    }

    /// Data that the near end puts into the far end's memory, verified.
    ///
    /// # Errors
    /// As for [`Loopback::send_and_receive`].
    pub fn write(&self) -> Result<(), Failure> {
        let (_, to) = self.parts(VERIFIED);
        self.transfer(0xa5, Request::Write { to, told: true })
    }

    fn transfer(&self, salt: u8, what: Request) -> Result<(), Failure> {
        let (from, to) = self.parts(VERIFIED);
        let length = from.length as usize;
        // A length that no table of the device has, so that no packet looks like another.
        let data: Vec<u8> = (0..length).map(|n| (n % 251) as u8 ^ salt).collect();
        self.region.put(from.offset, &data)?;
        self.region.put(to.offset, &vec![0; length])?;
        receive(self.far, to)?;
        send(self.near, from, what)?;
        self.completions.several(2, Instant::now() + PATIENCE)?;
        if self.region.get(to.offset, length)? != data {
            return Err(Failure::because("other data arrived than was sent"));
        }
        Ok(())
    }

    /// The median of some round trips, in nanoseconds: a write of 8 bytes, until the
    /// far end's acknowledgement has come.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub fn latency(&self) -> Result<u64, Failure> {
        let (from, to) = self.parts(8);
        let end = Instant::now() + MEASURED;
        let mut times = Vec::with_capacity(ROUND_TRIPS);
        while times.is_empty() || times.len() < ROUND_TRIPS && Instant::now() < end {
            let start = Instant::now();
            send(self.near, from, Request::Write { to, told: false })?;
            self.completions.next(start + PATIENCE)?;
            times.push(start.elapsed());
        }
        sorted::by(&mut times, Ord::cmp);
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(median.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    /// Mbit/s of writes, measured for a short time.
    ///
    /// # Errors
    /// As for [`Completions::next`].
    pub fn bandwidth(&self) -> Result<u64, Failure> {
        let (from, to) = self.parts(MESSAGE);
        let start = Instant::now();
        let end = start + MEASURED;
        let (mut posted, mut completed) = (0u64, 0u64);
        loop {
            // Two for each that came back, so that a slow device is not left with many
            // when the time is up.
            let window = (completed + 1).min(u64::from(DEPTH));
            while posted - completed < window && Instant::now() < end {
                send(self.near, from, Request::Write { to, told: false })?;
                posted += 1;
            }
            if posted == completed {
                break;
            }
            self.completions.next(Instant::now() + PATIENCE)?;
            completed += 1;
        }
        let bits = completed * u64::from(from.length) * 8;
        let microseconds = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(bits / microseconds.max(1))
    }
}
