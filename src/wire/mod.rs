//! How nodes talk: TCP connections whose ends prove that they have the same token, and lines of
//! JSON that no attacker in between can make, change, repeat or leave out.
//!
//! Every message has a bound in size and in time. The self-test of two nodes and the preflight of
//! a job use this, each with a [`Protocol`] of its own.

pub(crate) mod address;
pub(crate) mod attempt;
pub(crate) mod channel;
pub mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod guests;
pub(crate) mod handshake;
pub mod listen;
pub mod reach;
pub(crate) mod session;
pub mod stranger;

pub use address::{Address, AddressError};
pub use channel::Channel;
pub use guests::AcceptError;

/// What two ends have to have in common before they understand each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The version of everything that follows the greeting. Keys depend on it, so what is said
    /// in one protocol means nothing in another.
    pub schema: &'static str,
    /// What the other end runs, for sentences: `self-test`.
    pub command: &'static str,
}
