//! Parses the values of the commands' options. An error says what was expected: it is text, because only a
//! person reads it, and clap puts it behind the option and its value.

use std::time::Duration;

use crate::self_test::kinds;
use crate::verbs::port_test::LEAST_SIZE;

fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

const TIME: &str = "expected a time such as 500ms, 25s or 2m";

/// A time in which something can be done.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    duration(text).filter(|time| !time.is_zero()).ok_or_else(|| TIME.to_owned())
}

/// A time, which may be 0: not to wait.
pub(super) fn wait(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| TIME.to_owned())
}

/// The shortest time between two looks; drivers count no faster.
const SHORTEST: Duration = Duration::from_millis(10);

/// Returns the time between two looks.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text).ok_or_else(|| TIME.to_owned())?;
    if time < SHORTEST { Err(format!("expected {SHORTEST:?} or more")) } else { Ok(time) }
}

/// Returns how many nodes.
pub(super) fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number of at least 1".to_owned())
}

/// Returns how many bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = text.parse().ok().filter(|size| *size >= LEAST_SIZE);
    size.ok_or_else(|| format!("expected a number of bytes, at least {LEAST_SIZE}"))
}

/// Returns the id of a check of the self-test.
pub(super) fn check(text: &str) -> Result<String, String> {
    match kinds::find(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a check that `rdma-init self-test --list` shows".to_owned()),
    }
}
