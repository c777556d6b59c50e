//! Whether the job moves data, and how fast, against what it moved before. Pure.

use std::time::Duration;

use super::track::{Change, Track, WatchedPort};
use crate::facts::port_sample::bytes_per_second;
use crate::facts::traffic::Traffic;
use crate::findings::traffic::{MANAGEMENT_TIME, PortTraffic, has_moved};

/// Less than one part in this many of the job's highest rate is no progress: a keepalive or IPoIB moves such amounts.
const PART_OF_CHATTER: u64 = 100_000;

/// The job's rate is compared over so much time in which data moves. Pauses do not count.
const STRETCH: Duration = Duration::from_secs(600);

/// So many slow stretches in a row last. Slow: below this part of the fastest one.
const SLOW_STRETCHES: u32 = 2;
const SLOW_PERCENT: u64 = 40;

#[derive(Default)]
pub(super) struct Pace {
    /// What the tracks have moved lately is since this time.
    since: Duration,
    /// The highest rate between two looks, in units a second: bytes, or packets or requests if no more is counted.
    highest: u64,
    /// When data last moved, and when the look before that was.
    pub moved_at: Duration,
    pub moved_from: Duration,
    pub has_moved: bool,
    stretch: (Duration, u64),
    fastest: u64,
    slow_stretches: u32,
}

/// How the rate of the job has changed for long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Speed {
    /// In units a second, now and in the fastest stretch.
    Slow {
        now: u64,
        fastest: u64,
    },
    AsBefore,
}

impl Pace {
    /// Takes what has moved since the last look. Returns which ports move data, without management packets and
    /// chatter; and the speed, if that is news.
    pub(super) fn look(
        &mut self,
        at: Duration,
        ports: &[WatchedPort],
        tracks: &mut [Track],
        changes: &[Change],
    ) -> (Vec<PortTraffic>, Option<Speed>) {
        for (track, change) in tracks.iter_mut().zip(changes) {
            track.lately = track.lately.plus(change.moved);
        }
        let time = at.saturating_sub(self.since);
        let lately = || tracks.iter().zip(ports).map(|(track, port)| track.traffic(port, track.lately));
        let seconds = time.as_secs().max(1);
        let amount = lately().map(|port| units(port.traffic)).fold(0, u64::saturating_add);
        let is_chatter = amount / seconds < self.highest / PART_OF_CHATTER;
        let moving: Vec<PortTraffic> = lately().filter(|port| !is_chatter && has_moved(port, time)).collect();
        if moving.is_empty() && time < MANAGEMENT_TIME {
            return (moving, None);
        }
        let since = std::mem::replace(&mut self.since, at);
        tracks.iter_mut().for_each(|track| track.lately = Traffic::default());
        if moving.is_empty() {
            return (moving, None);
        }
        // A counter that shows nonsense for once must not make all that follows look like chatter.
        let most: Option<u64> =
            tracks.iter().map(|track| bytes_per_second(track.last.rate.as_deref()?)).sum();
        let rate = most.map_or(amount / seconds, |most| (amount / seconds).min(most.saturating_mul(2)));
        self.highest = self.highest.max(rate);
        (self.moved_from, self.moved_at, self.has_moved) = (since, at, true);
        let speed = self.measure(time, amount);
        (moving, speed)
    }

    fn measure(&mut self, time: Duration, amount: u64) -> Option<Speed> {
        self.stretch = (self.stretch.0 + time, self.stretch.1.saturating_add(amount));
        let (time, amount) = self.stretch;
        if time < STRETCH {
            return None;
        }
        self.stretch = (Duration::ZERO, 0);
        let now = amount / time.as_secs().max(1);
        let is_slow = now < self.fastest / 100 * SLOW_PERCENT;
        let was_slow = self.slow_stretches >= SLOW_STRETCHES;
        self.slow_stretches = if is_slow { self.slow_stretches.saturating_add(1) } else { 0 };
        self.fastest = self.fastest.max(now);
        match (is_slow, was_slow) {
            (true, false) if self.slow_stretches == SLOW_STRETCHES => {
                Some(Speed::Slow { now, fastest: self.fastest })
            }
            (false, true) => Some(Speed::AsBefore),
            _ => None,
        }
    }

    /// Takes that nobody looked for so long: what moved meanwhile is not known.
    pub(super) fn miss(&mut self, time: Duration) {
        self.moved_at = self.moved_at.saturating_add(time);
        self.moved_from = self.moved_from.saturating_add(time);
    }
}

/// In bytes, or in packets or requests if no more is counted.
fn units(traffic: Traffic) -> u64 {
    let both = traffic.both();
    both.bytes.or(both.packets).or(traffic.requests).unwrap_or_default()
}
