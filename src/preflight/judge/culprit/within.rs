//! Faults between nodes of one island: odd nodes, links, and paths that fail here and there.

use std::collections::BTreeSet;

use super::layer::{Edge, Layer, why};
use super::odd::Within;
use super::{At, Count, Found};
use crate::preflight::judge::evidence::Evidence;

/// This many dead links at once on one rail are one fault, of something that carries many paths.
const MANY: usize = 4;

/// Pairs that fail here and there on the rails.
#[derive(Debug, Default)]
pub(super) struct Scattered {
    pub failed: BTreeSet<[u32; 2]>,
    /// The largest number of pairs that were tested on one rail.
    pub tried: usize,
    pub at: Vec<At>,
}

impl Scattered {
    /// Returns the nodes of both sides if each pair has one node on either side of some index.
    pub(super) fn sides(&self) -> Option<[Vec<u32>; 2]> {
        let low = self.failed.iter().map(|pair| pair[0]).max()?;
        let high = self.failed.iter().map(|pair| pair[1]).min()?;
        let ends = |end: usize| -> Vec<u32> {
            let nodes: BTreeSet<u32> = self.failed.iter().map(|pair| pair[end]).collect();
            nodes.into_iter().collect()
        };
        (low < high).then(|| [ends(0), ends(1)])
    }
}

/// Returns whether there are too many failures within the islands for single links. In this case, no
/// node that does not reach others is known to be faulty. Failures that all belong to one node are that
/// node's links, however many there are.
pub(super) fn is_scattered(within: &Within) -> bool {
    within.part.is_some() || are_scattered(&within.rest)
}

/// Returns whether these are too many failed pairs for single links.
pub(super) fn are_scattered(rest: &[&Edge]) -> bool {
    let Some(first) = rest.first() else { return false };
    let is_of_all = |node: &u32| rest.iter().all(|edge| edge.nodes.contains(node));
    rest.len() >= MANY && !first.nodes.iter().any(is_of_all)
}

/// Adds the failures between nodes that pass with others.
pub(super) fn find(found: &mut Found, evidence: &Evidence, layer: &Layer, within: &Within) {
    let rail = layer.rail;
    // If nodes reach each other only through a few others, a node behind one of these fails with all
    // others.
    for odd in within.odd.iter().filter(|_| !layer.is_torn()) {
        let has = |edge: &&Edge| {
            edge.nodes.contains(&odd.node) && edge.is_against(odd.node) && layer.is_within(edge)
        };
        let why =
            layer.edges.iter().find(has).map_or_else(String::new, |edge| why(evidence, edge, rail, odd.node));
        let count = Count { failed: odd.failed, tried: odd.tried };
        let nodes = if odd.flaps { &mut found.flapping } else { &mut found.nodes };
        nodes.entry(odd.node).or_default().push((count, At { rail, why }));
    }
    if let Some(part) = &within.part {
        found.part(evidence, layer, part);
    }
    if are_scattered(&within.rest) {
        let first = within.rest.iter().find(|edge| edge.is_bad()).or(within.rest.first());
        let why = first.map_or_else(String::new, |edge| why(evidence, edge, rail, edge.nodes[0]));
        found.scattered.failed.extend(within.rest.iter().map(|edge| edge.nodes));
        found.scattered.tried = found.scattered.tried.max(within.background.tried);
        found.scattered.at.push(At { rail, why });
        return;
    }
    for edge in &within.rest {
        if edge.is_bad() {
            found.link(evidence, edge, rail);
        } else {
            let why = why(evidence, edge, rail, edge.nodes[0]);
            found.unsteady.entry(edge.nodes).or_default().push(At { rail, why });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sides_of_paths_that_fail_are_told_where_there_are_two() {
        let sides = |pairs: &[[u32; 2]]| {
            let failed = pairs.iter().copied().collect();
            Scattered { failed, ..Scattered::default() }.sides()
        };
        assert_eq!(sides(&[[0, 4], [1, 5], [1, 4]]), Some([vec![0, 1], vec![4, 5]]));
        assert_eq!(sides(&[[0, 4], [1, 2], [3, 4]]), None);
    }
}
