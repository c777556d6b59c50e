//! Tests limits, image and fabric before the job starts.
//!
//! A check judges facts, or what a separate process tried on a device; it never changes
//! anything. The result is a [`report::Report`], the same for people, for programs and for
//! `compare`.

use std::time::Instant;

pub mod check;
mod evidence;
pub mod gate;
pub(crate) mod isolate;
pub(crate) mod judge;
pub mod kinds;
pub mod known;
pub(crate) mod pair;
pub mod report;
pub(crate) mod run;
pub(crate) mod verbs;

/// Returns the microseconds since this time.
pub fn took_us(since: Instant) -> u64 {
    since.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
}
#[cfg(test)]
pub use evidence::tests::host;
