//! A look right after something has happened to the job's devices or interfaces, and not only after the interval.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};

use super::WatchedPort;
use crate::facts::Reader;
use crate::facts::events::Events;

/// There is at most one such look in this time, and what is not about the job is taken no more often.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct News {
    events: Events,
    looks: Looks,
}

/// When to look because of events. Pure.
#[derive(Default)]
struct Looks {
    next: Option<Look>,
    /// Until when nothing is listened to.
    deaf_until: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// Some of what follows an event takes a moment, such as a GID that moves, so that there is another look.
    is_second: bool,
}

impl Looks {
    fn listens(&self, now: Instant) -> bool {
        self.next.is_none() && self.deaf_until.is_none_or(|until| now >= until)
    }

    /// Something has happened. `is_ours`: it may be about the job.
    fn take(&mut self, now: Instant, is_ours: bool) {
        match is_ours {
            true => self.next = Some(Look { at: now, is_second: false }),
            false => self.deaf_until = Some(now + PAUSE),
        }
    }

    /// A look begins. Returns whether something has happened since the last one.
    fn begin(&mut self, now: Instant) -> bool {
        let Some(look) = self.next.take() else { return false };
        if !look.is_second {
            self.next = Some(Look { at: now + PAUSE, is_second: true });
        }
        self.deaf_until = Some(now + PAUSE);
        true
    }
}

impl News {
    pub(super) fn listen(ports: &[WatchedPort]) -> News {
        let ports = ports.iter().map(|port| (port.rail.hca.as_str(), port.rail.port, port.gid.as_ref()));
        News { events: Events::listen(&Reader::new(Path::new("/")), ports), looks: Looks::default() }
    }

    /// Takes what has happened by now, and returns when to look next, if that would be at `next` otherwise.
    pub(super) fn next_look(&mut self, now: Instant, next: Instant) -> Instant {
        if self.looks.listens(now)
            && let (true, is_ours) = self.events.take()
        {
            self.looks.take(now, is_ours);
        }
        self.looks.next.map_or(next, |look| look.at.min(next))
    }

    /// Returns what to wait for, and when to listen again.
    pub(super) fn awaited(&self, now: Instant) -> (impl Iterator<Item = PollFd<'_>>, Option<Instant>) {
        let listens = self.looks.listens(now);
        let fds = self.events.fds().filter(move |_| listens).map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        (fds, self.looks.deaf_until.filter(|until| now < *until))
    }

    /// Call this when a look begins. Returns whether something has happened since the last one.
    pub(super) fn begin_look(&mut self, now: Instant) -> bool {
        self.looks.begin(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_looks_after_an_event_and_no_more_than_one_a_second() {
        let start = Instant::now();
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        let mut looks = Looks::default();
        assert!(looks.listens(at(0)) && !looks.begin(at(0)), "at rest");
        looks.take(at(1), true);
        assert_eq!(looks.next.map(|look| look.at), Some(at(1)));
        assert!(looks.begin(at(1)) && !looks.listens(at(5)));
        assert_eq!(looks.next.map(|look| look.at), Some(at(11)));
        assert!(looks.begin(at(11)) && looks.next.is_none());
        assert!(!looks.listens(at(20)) && looks.listens(at(21)));
        // What is not about the job does not wake it up all the time.
        looks.take(at(21), false);
        assert!(looks.next.is_none() && !looks.listens(at(30)) && looks.listens(at(31)));
    }
}
