//! Retries of nodes that reach each other, but fail with some.

use std::collections::HashMap;

use super::super::layer::Layer;
use super::{Pair, Wanted};

/// How many new peers the two nodes of a failed pair are tested with, and how many in all if a node
/// fails with two, or with more.
const FIRST: usize = 5;
const MORE: usize = 9;
const MOST: usize = 16;

/// In a job with up to this many nodes, a node that fails with some is tested with all others.
const SMALL: usize = 16;

/// In a job with up to this many nodes, all other pairs are tested at the same time.
const FEW: usize = 32;

/// If more nodes than this fail with several others, a flapping port is an unlikely cause. The second
/// number is how often the pairs of such a node are tested.
const FLAPPING: usize = 2;
const TIMES: u16 = 2;

/// If more nodes than this fail with some others, or more than one in eight, a single node is an
/// unlikely cause.
const SUSPECTS: usize = 16;

impl Wanted<'_> {
    /// Adds pairs that have failed once although both nodes are healthy, and the only pair of a job of
    /// two nodes. With `of_several`, adds only pairs of nodes that fail with several others, and
    /// otherwise only the rest.
    pub(super) fn links(&mut self, layer: &Layer, of_several: bool) {
        let is_all = layer.edges.len() == 1;
        let mut failed: HashMap<u32, usize> = HashMap::new();
        for node in layer.bad_edges().flat_map(|edge| edge.nodes) {
            *failed.entry(node).or_default() += 1;
        }
        for edge in layer.bad_edges().filter(|edge| !edge.again) {
            let are_several =
                edge.nodes.iter().any(|node| failed.get(node).is_some_and(|failed| *failed > 1));
            let is_within = is_all || layer.island(edge.nodes[0]) == layer.island(edge.nodes[1]);
            if is_within && are_several == of_several {
                self.pairs.insert((edge.nodes[0], edge.nodes[1]));
            }
        }
    }

    /// Adds the pairs of a node that fails with several others once more, including those that have
    /// passed: a flapping port fails in some of these tries.
    pub(super) fn same(&mut self, layer: &Layer) {
        let mut failed: HashMap<u32, usize> = HashMap::new();
        let ill = layer.edges.iter().filter(|edge| edge.is_ill() && layer.is_within(edge));
        for node in ill.flat_map(|edge| edge.nodes) {
            *failed.entry(node).or_default() += 1;
        }
        failed.retain(|_, failed| *failed > 1);
        if failed.len() > FLAPPING {
            return;
        }
        let few =
            layer.edges.iter().filter(|edge| layer.is_within(edge) && edge.passed + edge.failed < TIMES);
        for edge in few.filter(|edge| edge.nodes.iter().any(|node| failed.contains_key(node))) {
            self.pairs.insert((edge.nodes[0], edge.nodes[1]));
        }
    }

    /// Adds new peers for nodes that fail with some of their peers.
    pub(super) fn suspects(&mut self, layer: &Layer) {
        let mut failed: HashMap<u32, usize> = HashMap::new();
        let mut partners: HashMap<u32, usize> = HashMap::new();
        for edge in layer.edges.iter().filter(|edge| layer.is_within(edge)) {
            for node in edge.nodes {
                *partners.entry(node).or_default() += 1;
                if edge.is_ill() {
                    *failed.entry(node).or_default() += 1;
                }
            }
        }
        let mut suspects: Vec<(usize, u32)> =
            failed.into_iter().map(|(node, failed)| (failed, node)).collect();
        if suspects.len() > SUSPECTS.max(layer.tried() / 8) {
            return;
        }
        suspects.sort_unstable_by_key(|(failed, node)| (std::cmp::Reverse(*failed), *node));
        let main = layer.main().map(|main| layer.nodes_of(main)).unwrap_or_default();
        let is_small = main.len() <= SMALL;
        for (failed, node) in suspects.into_iter().filter(|(_, node)| layer.is_in_main(*node)) {
            let has = partners.get(&node).copied().unwrap_or_default();
            let first = usize::from(self.evidence.rounds());
            let (wanted, at_once) = match failed {
                _ if is_small => (main.len(), main.len()),
                1 => (first + FIRST, FIRST),
                2 => (first + MORE, MORE),
                _ => (first + MOST, MORE),
            };
            for _ in has..wanted.min(has + at_once) {
                let partner = self.clean_partner(node).or_else(|| self.from(&main, node));
                let Some(partner) = partner else { break };
                self.add(node, partner);
            }
        }
    }

    /// Returns all pairs in a small job, starting with those that were not tested: how often other
    /// pairs fail shows what the failures of one node mean. Only nodes that have nothing else to do
    /// spend time on them.
    pub(super) fn idle(&self, layer: &Layer) -> Vec<Pair> {
        let mut nodes = layer.main().map(|main| layer.nodes_of(main)).unwrap_or_default();
        nodes.retain(|node| !self.evidence.gone().contains_key(node));
        if nodes.len() > FEW {
            return Vec::new();
        }
        let all = nodes.iter().enumerate().flat_map(|(place, a)| nodes[place + 1..].iter().map(|b| (*a, *b)));
        let (new, known): (Vec<Pair>, Vec<Pair>) = all.partition(|(a, b)| self.is_new(*a, *b));
        new.into_iter().chain(known).collect()
    }
}
