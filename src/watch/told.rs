//! What the watcher has warned of, besides what states and error counters show: for how long, and whether it is still
//! so. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::port_look::GidPlace;

/// For how long something was so. All times are since the start of the command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spell {
    /// Since when it is so.
    since: Option<Duration>,
    /// For how long it was so before.
    before: Duration,
}

impl Spell {
    /// `since`: since when it is so at this time; `None` if it is not.
    pub(crate) fn set(&mut self, at: Duration, since: Option<Duration>) {
        if let Some(began) = self.since.filter(|_| since.is_none()) {
            self.before = self.before.saturating_add(at.saturating_sub(began));
        }
        self.since = since;
    }

    pub(crate) fn is_so(self) -> bool {
        self.since.is_some()
    }

    /// Whether it is so, or ever was.
    pub(crate) fn ever(self) -> bool {
        self.is_so() || !self.before.is_zero()
    }

    /// For how long it was so until this time, all in all.
    pub(crate) fn until(self, end: Duration) -> Duration {
        self.before.saturating_add(self.since.map_or(Duration::ZERO, |since| end.saturating_sub(since)))
    }
}

/// What the watcher has warned of on a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortTold {
    /// The link was slower than at the start, and its last such rate, as the kernel writes it.
    pub slow: Spell,
    pub rate: String,
    /// The GID of the job was not at its index, and where it was last then.
    pub astray: Spell,
    pub place: Option<GidPlace>,
    /// The rail moved far less than the others.
    pub behind: Spell,
}

impl PortTold {
    pub(crate) fn is_empty(&self) -> bool {
        ![self.slow, self.astray, self.behind].into_iter().any(Spell::ever)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_in_which_it_was_so_are_added() {
        let seconds = Duration::from_secs;
        let mut spell = Spell::default();
        assert!(!spell.ever());
        spell.set(seconds(10), Some(seconds(8)));
        spell.set(seconds(20), Some(seconds(8)));
        assert_eq!((spell.is_so(), spell.until(seconds(25))), (true, seconds(17)));
        spell.set(seconds(30), None);
        spell.set(seconds(40), None);
        assert_eq!((spell.is_so(), spell.ever(), spell.until(seconds(99))), (false, true, seconds(22)));
        spell.set(seconds(50), Some(seconds(50)));
        assert_eq!(spell.until(seconds(53)), seconds(25));
    }
}
