//! The children of a preparation that may be taken over: they are ended before the command takes
//! the place of the preparation, because one that hangs in a driver keeps the device open.
//!
//! Nothing here allocates, so a signal handler may use it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use nix::libc;
use nix::unistd::Pid;

use super::fork::{Reaped, reap_child};
use super::signals;

/// The process numbers; 0 is a free place. A host has fewer ports to try; a child without a place
/// is left alone.
static KNOWN: [AtomicI32; 512] = [const { AtomicI32::new(0) }; 512];

/// Whether children are remembered at all. PID 1 touches none of this memory.
static REMEMBERED: AtomicBool = AtomicBool::new(false);

/// How often, and after which time, a child that was killed is checked: one whose device does
/// not answer may take much longer.
const LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(1);

/// From now on, children are remembered, or no longer.
pub(super) fn remember_all(yes: bool) {
    REMEMBERED.store(yes, Ordering::SeqCst);
}

/// A child was started.
pub(super) fn started(child: Pid) {
    if REMEMBERED.load(Ordering::SeqCst) {
        put(0, child.as_raw());
    }
}

/// A child was reaped, so its number may soon be that of another process.
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

/// Kills all of them, and reaps those that end soon.
pub(super) fn end() {
    let known = || {
        KNOWN.iter().map(|place| Pid::from_raw(place.load(Ordering::SeqCst))).filter(|pid| pid.as_raw() > 0)
    };
    for child in known() {
        let _ = signals::kill(child, libc::SIGKILL);
    }
    for _ in 0..LOOKS {
        // To reap one forgets it.
        for child in known() {
            if reap_child(child) == Reaped::Childless {
                reaped(child);
            }
        }
        if known().next().is_none() {
            return;
        }
        std::thread::sleep(LOOK);
    }
}
