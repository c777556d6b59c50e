//! Which nodes, links and parts of the job are faulty. Pure: what the pairs have said in, faults out.
//!
//! On each rail, the nodes that reach each other, directly or over others, are an island ([`layer`]), unless
//! they do so through a node or two alone ([`bridge`]). The main island has more than half of the nodes. A
//! node that is an island by itself, and has failed with several of the main one, is faulty; an island of
//! several nodes is cut off, as by a switch. Within an island, a node that fails far more often than its
//! partners is faulty ([`odd`]), as far as chance does not explain it ([`chance`]); else it is the way
//! between two nodes, or what carries many ways. So a node is not blamed for being paired with a faulty one.

mod again;
mod bridge;
mod chance;
mod found;
mod layer;
mod odd;
mod uneven;
mod unreached;
mod within;

use std::collections::BTreeMap;

pub use again::{MOST_TIMES, rounds as next_rounds};
use found::{At, Count, Found};
use layer::layers;

use crate::preflight::judge::evidence::{Evidence, Gone};
use crate::preflight::who::addresses::Duplicate;

/// What is faulty.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub what: What,
    pub place: Place,
    /// Why, in a clause of one of the nodes; may be empty.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The node is not there.
    Gone { node: u32, how: Gone },
    /// Two nodes came with this index: names and addresses. Neither is believed more than the other.
    Contested { node: u32, nodes: [String; 2] },
    /// The node is connected, but has not reported so many of its pairs.
    Owes { node: u32, owed: usize, of: usize },
    /// The time was over before all pairs were tried, and no node is known to have kept the others.
    Unfinished { tried: usize, scheduled: usize },
    /// So many of the nodes joined, with node 0, and no other one reached it within this time, in words: that
    /// says more of node 0 than of them.
    Unreached { joined: usize, within: String },
    /// The node has found a fault in itself.
    Unfit { node: u32 },
    /// These nodes have the same addresses on the rails.
    Duplicate(Duplicate),
    /// The node fails with whom it was tried with: with `failed` of `tried`.
    Node { node: u32, failed: usize, tried: usize },
    /// The node fails in some tries, and passes in others with the same nodes: with `failed` of `tried`.
    Flapping { node: u32, failed: usize, tried: usize },
    /// Nodes bring different numbers of rails: for each number, who brings it; and the number that more than
    /// half of the nodes bring that have a rail.
    Uneven { groups: BTreeMap<usize, Vec<u32>>, usual: Option<usize> },
    /// The way between two nodes that are well elsewhere.
    Link { nodes: [u32; 2] },
    /// These nodes reach each other, and none of the others.
    Cut { nodes: Vec<u32>, others: usize },
    /// The job is in parts of which none is the main one. The nodes of the larger parts, how many nodes reach
    /// no other, and the nodes through which alone some of the parts reach each other.
    Apart { parts: Vec<Vec<u32>>, alone: usize, through: Vec<u32> },
    /// These pairs fail, of so many that were tried, and no node explains it. The nodes of both sides, if each
    /// of the pairs has one of either.
    Scattered { pairs: Vec<[u32; 2]>, tried: usize, sides: Option<[Vec<u32>; 2]> },
    /// A pair that has failed, and has passed when it was tried again. This is a warning.
    Unsteady { nodes: [u32; 2] },
}

/// The scope of the fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// All rails, or the node as a whole.
    Whole,
    /// Two nodes do not even meet over TCP.
    Meeting,
    Rails(Vec<usize>),
}

impl Fault {
    pub fn is_warning(&self) -> bool {
        matches!(self.what, What::Unsteady { .. })
    }

    /// Returns the nodes without which the job would have passed, as far as nodes are faulty.
    pub fn accused(&self) -> Vec<u32> {
        match &self.what {
            What::Gone { node, .. }
            | What::Owes { node, .. }
            | What::Unfit { node }
            | What::Node { node, .. }
            | What::Flapping { node, .. } => vec![*node],
            What::Cut { nodes, .. } => nodes.clone(),
            What::Uneven { groups, usual: Some(usual) } => groups
                .iter()
                .filter(|(rails, _)| *rails != usual)
                .flat_map(|(_, nodes)| nodes.clone())
                .collect(),
            What::Uneven { groups, usual: None } => groups.get(&0).cloned().unwrap_or_default(),
            What::Unfinished { .. }
            | What::Unreached { .. }
            | What::Contested { .. }
            | What::Duplicate(_)
            | What::Link { .. }
            | What::Apart { .. }
            | What::Scattered { .. }
            | What::Unsteady { .. } => Vec::new(),
        }
    }

    /// The order in which faults are reported: nodes that are not there, nodes, parts of the job, links.
    fn rank(&self) -> usize {
        match &self.what {
            What::Unreached { .. } => 0,
            What::Gone { .. } => 1,
            What::Owes { .. } => 2,
            What::Unfinished { .. } => 3,
            What::Unfit { .. } => 4,
            What::Uneven { .. } => 5,
            What::Duplicate(_) | What::Contested { .. } => 6,
            What::Node { .. } => 7,
            What::Flapping { .. } => 8,
            What::Cut { .. } => 9,
            What::Apart { .. } => 10,
            What::Scattered { .. } => 11,
            What::Link { .. } => 12,
            What::Unsteady { .. } => 13,
        }
    }
}

/// Returns all faults, the gravest first. `unfit` are nodes whose own self-test has failed, with the reason.
pub fn faults(evidence: &Evidence, unfit: &[(u32, String)]) -> Vec<Fault> {
    let unreached = unreached::fault(evidence);
    let is_told = |how: &Gone| unreached.is_some() && matches!(how, Gone::NeverJoined(_));
    let gone = evidence.gone().iter().filter(|(_, how)| !is_told(how)).map(|(node, how)| Fault {
        what: What::Gone { node: *node, how: how.clone() },
        place: Place::Whole,
        why: String::new(),
    });
    let own = unfit.iter().map(|(node, why)| Fault {
        what: What::Unfit { node: *node },
        place: Place::Whole,
        why: why.clone(),
    });
    let contested = evidence.contested().iter().map(|(node, nodes)| Fault {
        what: What::Contested { node: *node, nodes: nodes.clone() },
        place: Place::Whole,
        why: String::new(),
    });
    let duplicates = evidence.duplicates().list().iter().map(|duplicate| Fault {
        what: What::Duplicate(duplicate.clone()),
        place: Place::Rails(duplicate.rails.clone()),
        why: String::new(),
    });
    let owing = owing(evidence);
    let mut found = Found::default();
    for layer in layers(evidence) {
        found.layer(evidence, &layer);
    }
    let mut all: Vec<Fault> = gone
        .chain(unreached.clone())
        .chain(owing)
        .chain(own)
        .chain(contested)
        .chain(duplicates)
        .chain(uneven::fault(evidence))
        .chain(found.faults(evidence))
        .collect();
    all.sort_by_key(Fault::rank);
    all
}

/// Pairs that were not reported, so that nothing passes that was not proven. A node is faulty for them if
/// their time was over: it ends each pair by itself in time, whatever its partner does.
fn owing(evidence: &Evidence) -> Vec<Fault> {
    let debts = evidence.debts();
    let late = debts.iter().filter(|(_, debt)| debt.is_late);
    let mut all: Vec<What> =
        late.map(|(node, debt)| What::Owes { node: *node, owed: debt.owed, of: debt.of }).collect();
    if all.is_empty() && !debts.is_empty() {
        all.push(What::Unfinished { tried: evidence.tried(), scheduled: evidence.scheduled() });
    }
    all.into_iter().map(|what| Fault { what, place: Place::Whole, why: String::new() }).collect()
}

#[cfg(test)]
mod tests;
