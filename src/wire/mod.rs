//! How nodes communicate: over TCP connections whose ends prove that they have the same token, in lines of
//! JSON that no attacker between the nodes can forge, change, replay, or drop unnoticed.
//!
//! Every message is limited in size and in time. The self-test of two nodes and the preflight of a job both
//! use this, each with its own [`Protocol`].

pub(crate) mod address;
pub(crate) mod attempt;
pub(crate) mod channel;
pub mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod guests;
pub(crate) mod handshake;
pub(crate) mod hub;
pub mod listen;
pub mod reach;
pub(crate) mod session;
pub mod stranger;

pub use address::{Address, AddressError};
pub use channel::Channel;

/// What two ends must have in common to understand each other.
#[derive(Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The version of everything that follows the greeting. The keys depend on it, so messages of one
    /// protocol are invalid in another.
    pub schema: &'static str,
    /// The command that the other end runs, for messages: `self-test`.
    pub command: &'static str,
}
