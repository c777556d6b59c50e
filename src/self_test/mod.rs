//! Proving limits, image and fabric before the job starts.
//!
//! A check judges facts, or what a process of its own tried on a device; it never
//! changes anything. What comes out is a [`report::Report`], the same for people, for
//! programs and for `compare`.

use std::time::Instant;

use serde::{Deserialize, Serialize};

pub mod brief;
pub mod check;
pub mod collect;
pub mod compare;
mod evidence;
pub mod finder;
pub mod gate;
pub mod isolate;
pub mod judge;
pub mod kinds;
mod launcher;
pub mod lines;
pub mod obstacle;
pub mod pair;
pub mod quick;
pub mod report;
pub mod verbs;
pub mod whole;

/// What a self-test at start-up is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Off,
    /// To say what does not pass.
    Warn,
    /// To refuse to start where a check fails.
    Enforce,
}

/// Microseconds since then.
pub fn took_us(since: Instant) -> u64 {
    since.elapsed().as_micros().try_into().unwrap_or(u64::MAX)
}
