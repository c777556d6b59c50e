//! Which nodes, links and parts of the job are faulty. Pure: takes the reports about pairs, and returns
//! faults.
//!
//! On each rail, the nodes that reach each other, directly or through others, form an island
//! ([`layer`]), unless they do so only through one or two nodes ([`bridge`]). The main island has more
//! than half of the nodes. A node is faulty if it is an island by itself and has failed with several
//! nodes of the main island. An island of several nodes is cut off, for example by a switch. Within an
//! island, a node is faulty if it fails far more often than its peers ([`odd`]), unless chance explains
//! that ([`chance`]), or a group of nodes that reach the others only in part does so about as well
//! ([`partial`](super::partial)). Otherwise the path between two nodes is faulty, or something that
//! carries many paths. So a node is not blamed for being paired with a faulty one. A failure that the
//! other end denies is no evidence against that end.

mod again;
mod bridge;
pub(super) mod chance;
mod found;
mod layer;
mod mixed;
mod odd;
mod uneven;
mod unreached;
mod within;

use std::collections::BTreeMap;

pub use again::{MOST_TIMES, rounds as next_rounds};
use found::{At, Count, Found};
use layer::layers;
pub use mixed::is_mixed;

use crate::preflight::judge::evidence::{Evidence, Gone};
use crate::preflight::who::addresses::{Duplicate, Loopback};

/// What is faulty.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub what: What,
    pub place: Place,
    /// Why, as a clause from one of the nodes; may be empty.
    pub why: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The node is missing.
    Gone { node: u32, how: Gone },
    /// Two nodes joined with this index: their names and addresses. Neither is trusted more than the
    /// other.
    Contested { node: u32, nodes: [String; 2] },
    /// The node is connected, but has not reported this many of its pairs.
    Owes { node: u32, owed: usize, of: usize },
    /// The time ran out before all pairs were tested, and no node is known to have delayed the others.
    Unfinished { tried: usize, scheduled: usize },
    /// Only this many nodes joined, including node 0, and no other node reached node 0 within this
    /// time, in words. That says more about node 0 than about them.
    Unreached { joined: usize, within: String },
    /// The node's own self-test found a fault.
    Unfit { node: u32 },
    /// These nodes have the same addresses on these rails.
    Duplicate(Duplicate),
    /// These nodes have loopback addresses on these rails.
    Loopback(Loopback),
    /// The node fails with the nodes that it was tested with: with `failed` of `tried`.
    Node { node: u32, failed: usize, tried: usize },
    /// The node fails in some tries and passes in others with the same nodes: it fails with `failed` of
    /// `tried`.
    Flapping { node: u32, failed: usize, tried: usize },
    /// NCCL will use verbs on some nodes, and sockets on others.
    Mixed {
        verbs: Vec<u32>,
        sockets: Vec<u32>,
        /// How many other nodes there are whose network is not known.
        unknown: usize,
    },
    /// Nodes have different numbers of rails: the nodes for each number, and the number that more than
    /// half of the nodes with a rail have.
    Uneven { groups: BTreeMap<usize, Vec<u32>>, usual: Option<usize> },
    /// The path between two nodes that pass with others.
    Link { nodes: [u32; 2] },
    /// These nodes reach each other, but none of the others.
    Cut { nodes: Vec<u32>, others: usize },
    /// These neighbors in index reach the others only in part: `failed` of the `tried` pairs between the
    /// two sides fail. The nodes themselves are sound.
    Partial { nodes: Vec<u32>, others: usize, failed: usize, tried: usize },
    /// The job is split into parts, and none is the main one: the nodes of the larger parts, how many
    /// nodes reach no other node, and the nodes that alone connect some of the parts.
    Apart { parts: Vec<Vec<u32>>, alone: usize, through: Vec<u32> },
    /// These pairs fail, of this many that were tested, and no node explains it. `sides` are the nodes
    /// of both sides, if each pair has one node on either side.
    Scattered { pairs: Vec<[u32; 2]>, tried: usize, sides: Option<[Vec<u32>; 2]> },
    /// The pair failed, but passed when it was retried. This is a warning.
    Unsteady { nodes: [u32; 2] },
}

/// The scope of the fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// All rails, or the node as a whole.
    Whole,
    /// Two nodes cannot even connect over TCP, before any rail.
    Meeting,
    Rails(Vec<usize>),
}

impl Fault {
    pub fn is_warning(&self) -> bool {
        matches!(self.what, What::Unsteady { .. })
    }

    /// Returns the faulty nodes: without them, the job would have passed.
    pub fn accused(&self) -> Vec<u32> {
        match &self.what {
            What::Gone { node, .. }
            | What::Owes { node, .. }
            | What::Unfit { node }
            | What::Node { node, .. }
            | What::Flapping { node, .. } => vec![*node],
            // Only what most nodes have can be what the others lack.
            What::Mixed { verbs, sockets, unknown } if verbs.len() > sockets.len() + unknown => {
                sockets.clone()
            }
            What::Cut { nodes, .. } | What::Loopback(Loopback { nodes, .. }) => nodes.clone(),
            What::Uneven { groups, usual: Some(usual) } => groups
                .iter()
                .filter(|(rails, _)| *rails != usual)
                .flat_map(|(_, nodes)| nodes.clone())
                .collect(),
            What::Uneven { groups, usual: None } => groups.get(&0).cloned().unwrap_or_default(),
            What::Mixed { .. }
            | What::Unfinished { .. }
            | What::Unreached { .. }
            | What::Contested { .. }
            | What::Duplicate(_)
            | What::Link { .. }
            | What::Partial { .. }
            | What::Apart { .. }
            | What::Scattered { .. }
            | What::Unsteady { .. } => Vec::new(),
        }
    }

    /// Returns the position in the report: missing nodes first, then nodes, parts of the job, and
    /// links.
    fn rank(&self) -> usize {
        match &self.what {
            What::Unreached { .. } => 0,
            What::Gone { .. } | What::Contested { .. } => 1,
            What::Owes { .. } => 2,
            What::Unfinished { .. } => 3,
            What::Unfit { .. } => 4,
            What::Mixed { .. } | What::Uneven { .. } => 5,
            What::Duplicate(_) | What::Loopback(_) => 6,
            What::Node { .. } => 7,
            What::Flapping { .. } => 8,
            What::Cut { .. } => 9,
            What::Apart { .. } => 10,
            What::Partial { .. } => 11,
            What::Scattered { .. } => 12,
            What::Link { .. } => 13,
            What::Unsteady { .. } => 14,
        }
    }
}

/// Returns all faults, the gravest first. `unfit` are nodes that failed their own self-test, with the
/// reason.
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
    let duplicates = evidence.wrong_addresses().duplicates().iter().map(|duplicate| Fault {
        what: What::Duplicate(duplicate.clone()),
        place: Place::Rails(duplicate.rails.clone()),
        why: String::new(),
    });
    let loopbacks = evidence.wrong_addresses().loopbacks().iter().map(|own| Fault {
        what: What::Loopback(own.clone()),
        place: Place::Rails(own.rails.clone()),
        why: String::new(),
    });
    let owing = owing(evidence);
    let mut found = Found::default();
    for layer in layers(evidence) {
        found.layer(evidence, &layer);
    }
    // The node whose index another one has is among the missing ones.
    let mut all: Vec<Fault> = contested
        .chain(gone)
        .chain(unreached.clone())
        .chain(owing)
        .chain(own)
        .chain(duplicates)
        .chain(loopbacks)
        // Different networks have different rails.
        .chain(mixed::fault(evidence).or_else(|| uneven::fault(evidence)))
        .chain(found.faults(evidence))
        .collect();
    all.sort_by_key(Fault::rank);
    all
}

/// Returns faults for pairs that were not reported, so that nothing passes without proof. A node is
/// faulty if its time ran out, because it ends each pair in time, whatever its peer does.
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
