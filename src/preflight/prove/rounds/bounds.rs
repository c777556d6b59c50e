//! The most that a node accepts from node 0, so that a node 0 that violates the protocol costs the
//! other nodes only bounded time and memory. Pure.

use crate::preflight::meet::message::Partner;
use crate::preflight::meet::schedule::{Extent, Schedule};

/// More rounds than the retries and the measurements of all nodes take.
const MORE: usize = 512;

/// In bytes: the longest text of a verdict. A long one takes a few thousand.
const LONGEST_TEXT: usize = 16 * 1024;

/// Returns how many pairs node 0 may assign to a node: one in each round of the largest schedule, and
/// some more.
pub(super) fn most_pairs(nodes: u32) -> usize {
    let schedule = Schedule { nodes, extent: Extent::Full };
    MORE.saturating_add(schedule.rounds() as usize)
}

/// Checks that a pair is possible in this job.
///
/// # Errors
/// What node 0 claims, as a clause.
pub(super) fn check(node: u32, nodes: u32, named: usize, with: &Partner) -> Result<(), String> {
    if with.node >= nodes {
        return Err(format!("it names node {} of {nodes}", with.node));
    }
    if with.node == node {
        return Err("it names this node as its own peer".to_owned());
    }
    match named >= most_pairs(nodes) {
        true => Err(format!("it names more than {named} pairs")),
        false => Ok(()),
    }
}

/// Returns the text, cut if it is too long.
pub(crate) fn bounded(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let end = (0..=LONGEST_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
    text
}
