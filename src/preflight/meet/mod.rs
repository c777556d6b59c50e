//! Node 0 and the other nodes: where they connect, what they send each other, and which nodes form a
//! pair in which round.

pub(super) mod listening;
pub mod message;
pub(super) mod missed;
pub mod node;
pub(crate) mod progress;
pub mod schedule;
pub mod times;
pub mod zero;
