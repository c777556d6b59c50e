//! Who is at fault. Pure: what the pairs have said in, faults out.
//!
//! On each rail, the nodes that reach each other, directly or over others, are an island. A node that is
//! an island by itself, and has failed with others that are well, is at fault; an island of several nodes
//! is cut off, as by a switch; and where a pair has failed within an island, both of its nodes are well,
//! so it is the way between them. So nobody is accused for having met a node at fault.

mod again;
mod layer;
mod uneven;

use std::collections::{BTreeMap, HashMap};

pub use again::{MOST_TIMES, rounds as next_rounds};
use again::{WITNESSES, cuts, witnesses};
use layer::{Edge, Layer, layers, why};

use super::evidence::{Evidence, Gone};

/// What is at fault.
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
    /// The node has found a fault in itself.
    Unfit { node: u32 },
    /// The node fails with whom it was tried with: with `failed` of `tried`.
    Node { node: u32, failed: usize, tried: usize },
    /// Nodes bring different numbers of rails: for each number, who brings it; and the number that more than
    /// half of the nodes bring that have a rail.
    Uneven { groups: BTreeMap<usize, Vec<u32>>, usual: Option<usize> },
    /// The way between two nodes that are well elsewhere.
    Link { nodes: [u32; 2] },
    /// These nodes reach each other, and none of the others.
    Cut { nodes: Vec<u32>, others: usize },
    /// The job is in parts of which none is the main one. The nodes of the larger parts, and how many
    /// reach nobody.
    Apart { parts: Vec<Vec<u32>>, alone: usize },
    /// A pair that has failed, and has passed when it was tried again. This is a warning.
    Unsteady { nodes: [u32; 2] },
}

/// Where it is at fault.
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

    /// The nodes without which the job would have passed, as far as nodes are at fault.
    pub fn accused(&self) -> Vec<u32> {
        match &self.what {
            What::Gone { node, .. } | What::Unfit { node } | What::Node { node, .. } => vec![*node],
            What::Cut { nodes, .. } => nodes.clone(),
            What::Uneven { groups, usual: Some(usual) } => groups
                .iter()
                .filter(|(rails, _)| *rails != usual)
                .flat_map(|(_, nodes)| nodes.clone())
                .collect(),
            What::Uneven { groups, usual: None } => groups.get(&0).cloned().unwrap_or_default(),
            What::Link { .. } | What::Apart { .. } | What::Unsteady { .. } => Vec::new(),
        }
    }

    /// In which order faults are told: nodes that are not there, nodes, parts of the job, links.
    fn rank(&self) -> usize {
        match &self.what {
            What::Gone { .. } => 0,
            What::Unfit { .. } => 1,
            What::Uneven { .. } => 2,
            What::Node { .. } => 3,
            What::Cut { .. } => 4,
            What::Apart { .. } => 5,
            What::Link { .. } => 6,
            What::Unsteady { .. } => 7,
        }
    }
}

/// All faults, the gravest first. `unfit` are nodes whose own self-test has failed, with the reason.
pub fn faults(evidence: &Evidence, unfit: &[(u32, String)]) -> Vec<Fault> {
    let gone = evidence.gone().iter().map(|(node, how)| Fault {
        what: What::Gone { node: *node, how: how.clone() },
        place: Place::Whole,
        why: String::new(),
    });
    let own = unfit.iter().map(|(node, why)| Fault {
        what: What::Unfit { node: *node },
        place: Place::Whole,
        why: why.clone(),
    });
    let mut found = Found::default();
    for layer in layers(evidence) {
        found.layer(evidence, &layer);
    }
    let mut all: Vec<Fault> =
        gone.chain(own).chain(uneven::fault(evidence)).chain(found.faults(evidence)).collect();
    all.sort_by_key(Fault::rank);
    all
}

/// A layer on which something is at fault: a rail, or the meetings; and why.
struct At {
    rail: Option<usize>,
    why: String,
}

/// With how many a node has failed, and was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    failed: usize,
    tried: usize,
}

/// The faults of the single layers, before those that belong together are joined.
#[derive(Default)]
struct Found {
    nodes: BTreeMap<u32, Vec<(Count, At)>>,
    links: BTreeMap<[u32; 2], Vec<At>>,
    unsteady: BTreeMap<[u32; 2], Vec<At>>,
    /// With the number of the others.
    cuts: BTreeMap<Vec<u32>, (usize, Vec<At>)>,
    /// With the number of those who reach nobody.
    apart: BTreeMap<Vec<Vec<u32>>, (usize, Vec<At>)>,
    /// How many rails each node was tried on.
    tried: HashMap<u32, usize>,
}

impl Found {
    fn layer(&mut self, evidence: &Evidence, layer: &Layer) {
        let rail = layer.rail;
        if rail.is_some() {
            let mut nodes: Vec<u32> = layer.edges.iter().flat_map(|edge| edge.nodes).collect();
            nodes.sort_unstable();
            nodes.dedup();
            nodes.into_iter().for_each(|node| *self.tried.entry(node).or_default() += 1);
        }
        let alone = witnesses(layer);
        let Some(main) = layer.main() else {
            self.without_main(evidence, layer, alone.len());
            return;
        };
        for (&node, seen) in &alone {
            let Some(edge) = seen.edge.map(|place| &layer.edges[place]) else { continue };
            if seen.well >= WITNESSES {
                let at = At { rail, why: why(evidence, edge, rail, node) };
                self.nodes.entry(node).or_default().push((Count { failed: seen.all, tried: seen.all }, at));
            } else if seen.well > 0 {
                // With one alone it may be the way between them.
                self.link(evidence, edge, rail);
            }
        }
        for island in layer.islands().filter(|island| *island != main && layer.size(*island) > 1) {
            if cuts(layer, island, main) > 0 {
                let others = layer.size(main) as usize;
                let nodes = layer.nodes_of(island);
                let between = |edge: &&Edge| {
                    let [a, b] = edge.nodes.map(|node| layer.island(node));
                    (a, b) == (island, main) || (b, a) == (island, main)
                };
                let edge = layer.bad_edges().find(between);
                let why = edge.map_or_else(String::new, |edge| why(evidence, edge, rail, edge.nodes[0]));
                self.cuts.entry(nodes).or_insert((others, Vec::new())).1.push(At { rail, why });
            }
        }
        self.within_islands(evidence, layer);
    }

    /// Pairs that have failed although both nodes are well elsewhere.
    fn within_islands(&mut self, evidence: &Evidence, layer: &Layer) {
        let within = |edge: &&Edge| layer.island(edge.nodes[0]) == layer.island(edge.nodes[1]);
        let mut bad: Vec<&Edge> = layer.bad_edges().filter(within).collect();
        // A node that fails with most of those whom it meets, and whose partners do not, is not well.
        let mut passed: HashMap<u32, usize> = HashMap::new();
        for edge in layer.edges.iter().filter(|edge| !edge.is_bad()) {
            edge.nodes.iter().for_each(|node| *passed.entry(*node).or_default() += 1);
        }
        while let Some((node, failed)) = worst(&bad) {
            let passed = passed.get(&node).copied().unwrap_or_default();
            if failed < 3 || failed <= passed {
                break;
            }
            let (of_node, others): (Vec<&Edge>, Vec<&Edge>) =
                bad.into_iter().partition(|edge| edge.nodes.contains(&node));
            let why = of_node.first().map_or_else(String::new, |edge| why(evidence, edge, layer.rail, node));
            let count = Count { failed, tried: failed + passed };
            self.nodes.entry(node).or_default().push((count, At { rail: layer.rail, why }));
            bad = others;
        }
        for edge in bad {
            self.link(evidence, edge, layer.rail);
        }
        for edge in layer.edges.iter().filter(|edge| edge.passed > 0 && edge.failed > 0) {
            let why = why(evidence, edge, layer.rail, edge.nodes[0]);
            self.unsteady.entry(edge.nodes).or_default().push(At { rail: layer.rail, why });
        }
    }

    fn link(&mut self, evidence: &Evidence, edge: &Edge, rail: Option<usize>) {
        let why = why(evidence, edge, rail, edge.nodes[0]);
        let known = self.links.entry(edge.nodes).or_default();
        if known.iter().all(|at| at.rail != rail) {
            known.push(At { rail, why });
        }
    }

    fn without_main(&mut self, evidence: &Evidence, layer: &Layer, alone: usize) {
        let bad: Vec<&Edge> = layer.bad_edges().collect();
        match bad.as_slice() {
            [] => {}
            // Of two nodes nobody can tell which it is.
            [one] => self.link(evidence, one, layer.rail),
            [first, ..] => {
                let mut parts: Vec<Vec<u32>> = layer
                    .islands()
                    .filter(|island| layer.size(*island) > 1)
                    .map(|island| layer.nodes_of(island))
                    .collect();
                parts.sort_by_key(|part| (std::cmp::Reverse(part.len()), part.first().copied()));
                let why = why(evidence, first, layer.rail, first.nodes[0]);
                self.apart.entry(parts).or_insert((alone, Vec::new())).1.push(At { rail: layer.rail, why });
            }
        }
    }

    fn faults(self, evidence: &Evidence) -> Vec<Fault> {
        let rails = evidence.rails();
        let mut all = Vec::new();
        for (node, found) in self.nodes {
            let tried = self.tried.get(&node).copied().unwrap_or_default();
            let (counts, found): (Vec<Count>, Vec<At>) = found.into_iter().unzip();
            let Count { failed, tried: of } = counts.into_iter().max().unwrap_or_default();
            all.push(fault(What::Node { node, failed, tried: of }, found, tried));
        }
        let of_both = |nodes: &[u32; 2]| {
            nodes
                .iter()
                .map(|node| self.tried.get(node).copied().unwrap_or_default())
                .min()
                .unwrap_or_default()
        };
        for (nodes, found) in self.links {
            all.push(fault(What::Link { nodes }, found, of_both(&nodes)));
        }
        for (nodes, found) in self.unsteady {
            all.push(fault(What::Unsteady { nodes }, found, of_both(&nodes)));
        }
        for (nodes, (others, found)) in self.cuts {
            all.push(fault(What::Cut { nodes, others }, found, rails));
        }
        for (parts, (alone, found)) in self.apart {
            all.push(fault(What::Apart { parts, alone }, found, rails));
        }
        all
    }
}

/// The node of which most of these pairs are.
fn worst(edges: &[&Edge]) -> Option<(u32, usize)> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for edge in edges {
        edge.nodes.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
    }
    counts.into_iter().max_by_key(|(node, count)| (*count, std::cmp::Reverse(*node)))
}

/// A fault with its place. Where it is on all of several rails, it is not a fault of the rails.
fn fault(what: What, found: Vec<At>, tried: usize) -> Fault {
    let mut rails: Vec<usize> = found.iter().filter_map(|at| at.rail).collect();
    rails.sort_unstable();
    let place = if found.iter().any(|at| at.rail.is_none()) {
        Place::Meeting
    } else if rails.len() > 1 && rails.len() >= tried {
        Place::Whole
    } else {
        Place::Rails(rails)
    };
    let why = found.into_iter().map(|at| at.why).find(|why| !why.is_empty()).unwrap_or_default();
    Fault { what, place, why }
}

#[cfg(test)]
mod tests;
