//! Which signals were sent to the command.

use crate::sys::signals;

/// A set of signals: bit n-1 for signal n.
#[derive(Clone, Copy, Default)]
pub(super) struct SignalSet(u64);

impl SignalSet {
    pub(super) fn add(&mut self, signal: i32) {
        self.0 |= 1 << (signal - 1);
    }

    pub(super) fn has(self, signal: i32) -> bool {
        self.0 & (1 << (signal - 1)) != 0
    }

    pub(super) fn signals(self) -> impl Iterator<Item = i32> {
        (1..=signals::LARGEST).filter(move |signal| self.has(*signal))
    }
}
