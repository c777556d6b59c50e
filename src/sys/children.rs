//! Tracks the children of a preparation that may be taken over. They are killed before the command replaces
//! the preparation, because a child that hangs in a driver keeps the device open.
//!
//! This module allocates nothing, so a signal handler may use it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use nix::libc;
use nix::unistd::Pid;

use super::fork::{Reaped, reap_child};
use super::signals;

/// The process IDs; 0 marks a free place. No host has this many ports to try; a child without a place is not
/// tracked.
static KNOWN: [AtomicI32; 512] = [const { AtomicI32::new(0) }; 512];

/// Whether children are tracked at all. PID 1 touches none of this memory.
static REMEMBERED: AtomicBool = AtomicBool::new(false);

/// How often, and at which interval, to check for a killed child: one whose device does not answer may take
/// much longer to exit.
const LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(1);

/// Starts or stops tracking children.
pub(super) fn remember_all(yes: bool) {
    REMEMBERED.store(yes, Ordering::SeqCst);
}

/// Records that a child was started.
pub(super) fn started(child: Pid) {
    if REMEMBERED.load(Ordering::SeqCst) {
        put(0, child.as_raw());
    }
}

/// Records that a child was reaped: another process may soon have its ID.
pub(super) fn reaped(child: Pid) {
    if REMEMBERED.load(Ordering::SeqCst) {
        put(child.as_raw(), 0);
    }
}

fn put(before: i32, after: i32) {
    for place in &KNOWN {
        if place.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return;
        }
    }
}

/// Kills all tracked children, and reaps those that exit soon.
pub(super) fn end() {
    let known = || {
        KNOWN.iter().map(|place| Pid::from_raw(place.load(Ordering::SeqCst))).filter(|pid| pid.as_raw() > 0)
    };
    for child in known() {
        let _ = signals::kill(child, libc::SIGKILL);
    }
    for _ in 0..LOOKS {
        // Reaping a child also removes it from the list.
        for child in known() {
            if reap_child(child) == Reaped::NoSuchChild {
                reaped(child);
            }
        }
        if known().next().is_none() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}
