//! What the test of two nodes has found.

use super::message::Moved;

/// What came of a pair of rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What the port works with, here and there, in bytes.
    pub mtu: [Option<u32>; 2],
    pub mine: Moved,
    pub theirs: Moved,
    /// Why it was not tried.
    pub left_out: Option<String>,
}
