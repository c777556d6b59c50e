//! PID 1: it forks, forwards, reaps, and exits, and does nothing else.
//!
//! All preparation happens in the child, which then becomes the command. PID 1 reads no configuration and
//! no hardware, so whatever goes wrong in the preparation, this loop stays small and keeps running. It has
//! no threads, and no timers other than its deadlines. With `--supervise`, the same code supervises a
//! command outside a container.
//!
//! `stages` contains the sequence from the fork to the exit code: `preparing`, then `supervisor`, which
//! waits and reaps with `forwarding`, then `stopping`, and `end`.

mod end;
mod execed;
mod forwarding;
mod link;
mod message;
mod note;
mod orders;
mod preparing;
mod sealed;
mod signal_map;
mod spawn;
mod stages;
mod stopping;
mod supervisor;
mod survivors;
mod terminal;
mod watcher;

pub(crate) use link::Link;
#[cfg(any(test, fuzzing))]
pub(crate) use message::fuzz;
pub(crate) use note::HandoffMemory;
pub(crate) use orders::{
    DEFAULT_PREPARE_TIMEOUT, Enforcing, FailureOrders, Orders, Refusal, Supervision, Voice,
};
pub(crate) use preparing::{IN_PLACE, WITH_WHAT_WAS_DECIDED};
pub(crate) use signal_map::{Remap, Rewrite};
pub(crate) use stages::{Alone, supervise};
pub(crate) use supervisor::{AccountOutcome, AtEnd, Left, Tasks};
