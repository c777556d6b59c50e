//! Functions that several suites share.
#![allow(dead_code)]

pub mod clock;
pub mod crowd;
pub mod docker;
pub mod executable;
pub mod faults;
pub mod golden;
pub mod hang;
pub mod namespace;
pub mod nccl;
pub mod nodes;
pub mod one_hca;
mod paths;
pub mod port;
pub mod process;
pub mod rails;
pub mod ras;
pub mod refused_call;
pub mod running;
pub mod screen;
pub mod signal_states;
pub mod slow_cable;
pub mod vm;

use std::time::{Duration, Instant};

pub use paths::{binary, is_all_wanted, repository};

/// Longer than any step takes on a busy machine, in an emulator too: a step that takes longer hangs.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// Prints that a test cannot run here, and why. In CI the test fails instead, because nothing may be skipped
/// there.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped in CI: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Checks repeatedly until there is a result, for events that cannot be waited for.
pub fn poll_until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    match poll_for(DEADLINE, look) {
        Some(seen) => seen,
        None => panic!("this did not happen within {DEADLINE:?}: {what}"),
    }
}

/// Does the same as [`poll_until`], but only for this time, and then returns `None`.
pub fn poll_for<T>(time: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + time;
    loop {
        let began = Instant::now();
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() > until {
            return None;
        }
        // A look that starts programs must not take the processor from what it waits for.
        let pause = (4 * began.elapsed()).clamp(Duration::from_millis(2), Duration::from_millis(500));
        std::thread::sleep(pause);
    }
}

/// Returns the value of a field of a status file in /proc.
pub fn status_field<'a>(status: &'a str, field: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).map(str::trim)
}
