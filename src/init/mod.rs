//! PID 1: fork, forward, reap, exit. Nothing else.
//!
//! All preparation happens in the child, which then becomes the command. PID 1
//! reads no configuration, no hardware and no file, so whatever goes wrong in
//! the preparation, this loop stays small and alive. It has one timer, for the
//! deadline of the preparation, and no thread.

mod link;
mod supervisor;
mod terminal;

pub use link::{Link, Terms};
pub use supervisor::supervise;
