//! Counts, in tests, how often a name is compared with another one: a measure of how work grows
//! with its input that no busy machine changes.

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
