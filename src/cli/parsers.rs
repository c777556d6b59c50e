//! Parses the values of the commands' options. An error says what was expected: it is text, because only a
//! person reads it, and clap puts it after the option and its value.

use std::time::Duration;

use crate::self_test::kinds;
use crate::verbs::port_test::LEAST_SIZE;

fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

const TIME: &str = "expected a time such as 500ms, 25s or 2m";

/// Parses a time limit, which must not be 0.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration(text).filter(|time| !time.is_zero()).ok_or_else(|| TIME.to_owned())
}

/// Parses how long to wait; 0 means not to wait.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| TIME.to_owned())
}

/// The shortest interval between two readings; drivers do not update their counters faster.
const SHORTEST: Duration = Duration::from_millis(10);

/// Parses the interval between two readings.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text).ok_or_else(|| TIME.to_owned())?;
    if time < SHORTEST { Err(format!("expected {SHORTEST:?} or more")) } else { Ok(time) }
}

/// Parses the number of a process.
pub(super) fn process(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected the number of a process".to_owned())
}

/// Parses a number of nodes.
pub(super) fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number of at least 1".to_owned())
}

/// Parses a number of bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = text.parse().ok().filter(|size| *size >= LEAST_SIZE);
    size.ok_or_else(|| format!("expected a number of bytes, at least {LEAST_SIZE}"))
}

/// Parses the ID of a self-test check.
pub(super) fn check(text: &str) -> Result<String, String> {
    match kinds::find(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a check that `rdma-init self-test --list` shows".to_owned()),
    }
}
