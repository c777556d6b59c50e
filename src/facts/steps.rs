//! Counts in tests how often one name is compared with another: a measure of how work grows with its input
//! that does not depend on how busy the machine is.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one comparison.
pub(crate) fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// Returns the number of comparisons that this thread makes in `work`.
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> u64 {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
