//! What the test of two nodes has found.

use super::message::Moved;

/// The result for a pair of rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// In bytes: the MTU that the port works with, on this node and on the other one.
    pub mtu: [Option<u32>; 2],
    pub mine: Moved,
    pub theirs: Moved,
    /// Why the pair was not tried.
    pub left_out: Option<String>,
}
