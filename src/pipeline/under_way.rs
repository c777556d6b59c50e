//! What a start records for processes that enter meanwhile, from its first test until its state can be found.

use std::cell::Cell;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::config::Config;
use crate::state::{StateDir, phase};

/// The start that this process prepares. Dropping this value removes the record.
#[derive(Debug)]
pub struct UnderWay {
    place: StateDir,
    longest: Duration,
    /// The process that prepares. Its child that takes part in the preflight records for it; further ones, such as the
    /// one that takes part at node 0, record nothing.
    process: Pid,
    /// When the start last recorded something; `None` if it has not.
    last: Cell<Option<Instant>>,
}

/// The shortest time between two records: the terminal's line changes more often than other processes ask.
const BETWEEN_PHASES: Duration = Duration::from_secs(1);

impl UnderWay {
    /// Returns a record that is still empty. A start without a test records nothing at all: it is done in a
    /// moment, its process shows that it is under way, and a state directory that hangs must not keep it from
    /// deciding.
    pub(super) fn of(config: &Config) -> UnderWay {
        UnderWay {
            place: config.state_dir.clone(),
            longest: config.longest_preparation(),
            process: Pid::this(),
            last: Cell::new(None),
        }
    }

    pub(super) fn is_now(&self, text: &str) {
        if [Pid::this(), Pid::parent()].contains(&self.process) {
            self.last.set(Some(Instant::now()));
            phase::leave(&self.place, self.process.as_raw(), text, self.longest);
        }
    }

    /// Does the same as [`UnderWay::is_now`], unless something was recorded a moment ago.
    pub(super) fn is_by_now(&self, text: impl Fn() -> String) {
        if self.last.get().is_none_or(|last| last.elapsed() >= BETWEEN_PHASES) {
            self.is_now(&text());
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.last.get().is_some() && self.process == Pid::this() {
            phase::remove(&self.place, self.process.as_raw());
        }
    }
}
