//! Which pairs to retry, to find out which node is faulty. Pure.
//!
//! * A node that has passed with no other node is tested with nodes that have passed. It is also tested
//!   once with another node that has passed with none: the two may be behind one switch that is cut
//!   off.
//! * A part of the job that is cut off from the rest is tested with the rest.
//! * A failed pair whose nodes both pass elsewhere is retried by itself.
//! * A node that fails with some nodes is tested with others: the node may be faulty, and not the path
//!   between two nodes.
//! * A group that may reach the others only in part is tested with them ([`partial`](super::super::partial)).
//! * In a small job, idle nodes test each other meanwhile, which shows how often any pair fails.
//! * Anything that seems slow is measured again ([`outliers::again`]).

mod in_rounds;
mod within;

use std::collections::{HashMap, HashSet};

use in_rounds::Rounds;
use indexmap::IndexSet;

use super::layer::{Layer, layers};
use super::odd::Within;
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::outliers::{self, Slow};

/// How many healthy nodes must fail with a node before it counts as faulty.
pub(super) const WITNESSES: usize = 2;

/// How many pairs between two parts of the job must fail before the job counts as cut in two.
pub(super) const CUTS: usize = 3;

/// The same number for parts whose sizes do not differ much.
const HALVES: usize = 12;

/// How many times to retry at most.
pub const MOST_TIMES: usize = 4;

/// How often one node of a part that is cut off is tested with the others in one pass.
const SOME: usize = 3;

/// How many nodes of the main part, if it has that many, must fail with a part that is cut off.
const REACHED: usize = 8;

/// How many nodes on either side of one that fails with some are tested with others: the fault may be
/// that of the leaf that they share.
const NEIGHBOURS: u32 = 3;

/// Returns how many nodes of the main part must fail with a part of this size before it counts as cut
/// off: the part may be reachable only through one of them. If it does not take long, all of them are
/// tested.
pub(super) fn reached(size: usize, main: usize) -> usize {
    if main <= size * SOME { main } else { REACHED.min(main) }
}

/// Returns how many pairs must fail between a part of this size and the main part. Several pairs may
/// fail between two halves if only half of the paths between them are dead.
pub(super) fn cuts_needed(size: usize, main: usize) -> usize {
    if main <= size * SOME { HALVES.min(size * main) } else { CUTS }
}

/// How many islands, or pairs between two of them, are searched for one that was not tested.
const NEXT: usize = 64;

type Pair = (u32, u32);

/// Returns the retry rounds that are wanted now, each with its pairs; none if everything is known.
/// There may be more afterwards: call this up to [`MOST_TIMES`] times. `slow` is what seems slow so
/// far.
pub fn rounds(evidence: &Evidence, slow: &[Slow]) -> Vec<Vec<Pair>> {
    let layers = layers(evidence);
    let mut wanted = Wanted::new(evidence, &layers);
    let within: Vec<Within> = layers.iter().map(Within::of).collect();
    for (layer, within) in layers.iter().zip(&within) {
        wanted.islands(layer, within);
        wanted.bridges(layer);
    }
    wanted.lonely(&layers, &within);
    // A pair with a new peer says more about a node than a retry with a peer that it has failed with.
    layers.iter().for_each(|layer| wanted.links(layer, false));
    layers.iter().filter(|layer| layer.main().is_some()).for_each(|layer| wanted.suspects(layer));
    layers.iter().for_each(|layer| wanted.links(layer, true));
    layers.iter().zip(&within).for_each(|(layer, within)| wanted.partial(layer, within));
    layers.iter().for_each(|layer| wanted.same(layer));
    // As long as it is unclear which nodes have a dead rail, the other rails of these nodes wait.
    let unclear = layers.iter().filter(|layer| layer.main().is_none()).flat_map(Layer::bad_edges);
    let unclear: HashSet<u32> = unclear.flat_map(|edge| edge.nodes).collect();
    let well: Vec<u32> = wanted.clean.iter().copied().filter(|node| !unclear.contains(node)).collect();
    let slow = outliers::again::pairs(evidence, slow, &well);
    let idle = layers.iter().filter(|layer| !layer.is_sound()).flat_map(|layer| wanted.idle(layer));
    Rounds::of(wanted.pairs.iter().copied().chain(slow), idle.collect::<IndexSet<Pair>>())
}

struct Wanted<'a> {
    evidence: &'a Evidence,
    /// All pairs that were tested, or will be.
    tried: HashSet<Pair>,
    /// How many others each node was tested with.
    partners: HashMap<u32, usize>,
    /// Nodes that have no failure, and the position of the next one to use.
    clean: Vec<u32>,
    next: usize,
    /// The wanted pairs, in the order in which they were added.
    pairs: IndexSet<Pair>,
}

impl<'a> Wanted<'a> {
    fn new(evidence: &'a Evidence, layers: &[Layer]) -> Wanted<'a> {
        let tried: HashSet<Pair> = evidence.tries().iter().map(|one| (one.nodes[0], one.nodes[1])).collect();
        let mut partners: HashMap<u32, usize> = HashMap::new();
        for (low, high) in &tried {
            *partners.entry(*low).or_default() += 1;
            *partners.entry(*high).or_default() += 1;
        }
        let mut is_clean: Vec<bool> =
            (0..evidence.members().len() as u32).map(|node| !evidence.gone().contains_key(&node)).collect();
        for layer in layers.iter().filter(|layer| layer.main().is_some()) {
            for (clean, node) in is_clean.iter_mut().zip(0..) {
                *clean &= layer.is_in_main(node);
            }
            for edge in layer.bad_edges() {
                // A pair with a node that is alone says nothing about the other node.
                if !edge.nodes.iter().any(|node| layer.is_alone(*node)) {
                    edge.nodes.iter().for_each(|node| is_clean[*node as usize] = false);
                }
            }
        }
        let clean = (0..).zip(is_clean).filter(|(_, is_clean)| *is_clean).map(|(node, _)| node).collect();
        Wanted { evidence, tried, partners, clean, next: 0, pairs: IndexSet::new() }
    }

    fn add(&mut self, a: u32, b: u32) {
        let pair = (a.min(b), a.max(b));
        self.tried.insert(pair);
        self.pairs.insert(pair);
    }

    fn is_new(&self, a: u32, b: u32) -> bool {
        a != b && !self.tried.contains(&(a.min(b), a.max(b)))
    }

    /// Adds pairs between parts of the job that do not reach each other.
    fn islands(&mut self, layer: &Layer, within: &Within) {
        let mut islands: Vec<u32> = layer.islands().collect();
        if islands.len() < 2 {
            return;
        }
        islands.sort_by_key(|island| std::cmp::Reverse(layer.size(*island)));
        let nodes: HashMap<u32, Vec<u32>> = self.by_island(layer);
        if let Some(main) = layer.main() {
            let cuts = layer.cuts();
            for &island in islands.iter().filter(|island| **island != main && layer.size(**island) > 1) {
                let (group, whole) = (&nodes[&island], &nodes[&main]);
                let cut = cuts.get(&island);
                let (failed, with) = cut.map_or((0, 0), |cut| (cut.failed, cut.with.len()));
                let is_known = |node: &u32| cut.is_some_and(|cut| cut.with.contains(node));
                let is_own_known = |node: &u32| cut.is_some_and(|cut| cut.of.contains(node));
                let mut others: Vec<u32> = whole.iter().copied().filter(|node| !is_known(node)).collect();
                if others.is_empty() {
                    others.clone_from(whole);
                }
                // Nodes that were not tested with the main part come first.
                let (known, mut group): (Vec<u32>, Vec<u32>) =
                    group.iter().partition(|node| is_own_known(node));
                let sizes = [known.len() + group.len(), whole.len()];
                let reached = reached(sizes[0], sizes[1]);
                let needed = within.background.needed(cuts_needed(sizes[0], sizes[1]), layer.tried());
                let needed = needed.min(sizes[0] * sizes[1]);
                let wanted = needed.saturating_sub(failed).max(reached.saturating_sub(with)).max(group.len());
                group.extend(known);
                self.between(&group, &others, wanted);
            }
        }
        // Pairs each island with another one: if they reach each other, both may be behind one switch.
        // Single nodes are tested once, unless no node is known to be healthy.
        let again: HashSet<u32> =
            layer.edges.iter().filter(|edge| edge.again).flat_map(|edge| edge.nodes).collect();
        let is_new =
            |island: &u32| layer.main().is_none() || layer.size(*island) > 1 || !again.contains(island);
        let others: Vec<u32> =
            islands.into_iter().filter(|island| Some(*island) != layer.main()).filter(is_new).collect();
        let most = self.most(layer.main().is_none());
        // Uses each island once. Single nodes are paired with a larger island if there is one, each of
        // them with a different node in it.
        let mut is_used = vec![false; others.len()];
        let mut taken: HashSet<u32> = HashSet::new();
        for first in 0..others.len() {
            // Searching the next few is enough, and takes linear time.
            for second in (first + 1)..others.len().min(first + 1 + NEXT) {
                let is_single = layer.size(others[second]) == 1;
                let joins = is_single && layer.size(others[first]) > 1;
                if is_used[second] || is_used[first] && !joins {
                    continue;
                }
                let nodes = [first, second].map(|place| &nodes[&others[place]]);
                let pairs = nodes[0].iter().flat_map(|a| nodes[1].iter().map(move |b| (*a, *b)));
                let is_possible = |(a, b): &Pair| {
                    let few = |node| {
                        self.partners.get(node).copied().unwrap_or_default() < most && !taken.contains(node)
                    };
                    self.is_new(*a, *b) && few(a) && few(b)
                };
                if let Some((a, b)) = pairs.take(NEXT).find(is_possible) {
                    self.add(a, b);
                    taken.extend([a, b]);
                    (is_used[first], is_used[second]) = (true, true);
                }
            }
        }
    }

    /// Adds this many new pairs between two groups, each with a different node of the first group.
    fn between(&mut self, group: &[u32], others: &[u32], wanted: usize) {
        let mut free: Vec<u32> = others.to_vec();
        let mut added = 0;
        for &node in group.iter().cycle().take(group.len() * SOME) {
            if added == wanted {
                break;
            }
            // Uses each of the others once, as far as there are enough of them.
            let Some(partner) = self.from(&free, node).or_else(|| self.from(others, node)) else { continue };
            free.retain(|other| *other != partner);
            self.add(node, partner);
            added += 1;
        }
    }

    /// Adds pairs for groups that seem to reach each other only through one or two nodes.
    fn bridges(&mut self, layer: &Layer) {
        for bridge in layer.perhaps() {
            let is_of_group: HashSet<u32> = bridge.group.iter().copied().collect();
            let island = layer.island(bridge.group[0]);
            let is_other = |node: &u32| !is_of_group.contains(node) && !bridge.through.contains(node);
            let others: Vec<u32> = layer.nodes_of(island).into_iter().filter(is_other).collect();
            let gone = self.evidence.gone();
            let group: Vec<u32> =
                bridge.group.iter().copied().filter(|node| !gone.contains_key(node)).collect();
            self.between(&group, &others, CUTS);
        }
    }

    /// Adds pairs between a group and the others if the group may reach them only in part.
    fn partial(&mut self, layer: &Layer, within: &Within) {
        let main = layer.main().map(|main| layer.nodes_of(main)).unwrap_or_default();
        let there = main.into_iter().filter(|node| !self.evidence.gone().contains_key(node));
        let few = within.odd.iter().filter(|odd| odd.failed * 2 < odd.tried);
        let is_near = |node: u32| few.clone().any(|odd| odd.node.abs_diff(node) <= NEIGHBOURS);
        let is_in = |node: &u32| match within.perhaps {
            Some(part) => part.group.has(*node),
            None => is_near(*node),
        };
        let (group, others): (Vec<u32>, Vec<u32>) = there.partition(is_in);
        self.between(&group, &others, group.len() * SOME);
    }

    /// Returns the nodes of each island that are still connected.
    fn by_island(&self, layer: &Layer) -> HashMap<u32, Vec<u32>> {
        let gone = self.evidence.gone();
        let all = layer.by_island().into_iter();
        all.map(|(island, mut nodes)| {
            nodes.retain(|node| !gone.contains_key(node));
            (island, nodes)
        })
        .collect()
    }

    /// Returns how many others a node may be tested with if it belongs to no large part of the job. If
    /// no node reached another one, only a test of all pairs of a small job shows whether any two can.
    fn most(&self, is_lost: bool) -> usize {
        let nodes = self.evidence.members().len();
        let more = if is_lost && nodes <= 8 { nodes } else { 2 };
        usize::from(self.evidence.rounds()).min(nodes.max(1).ilog2() as usize + 1) + more + WITNESSES
    }

    /// Adds pairs for nodes that have passed with no other node on any rail.
    fn lonely(&mut self, layers: &[Layer], within: &[Within]) {
        let mut missing: HashMap<u32, (usize, usize)> = HashMap::new();
        for (place, layer) in layers.iter().enumerate().filter(|(_, layer)| layer.main().is_some()) {
            for (&node, seen) in &witnesses(layer) {
                let needed = within[place].needed(node, WITNESSES, layer.tried());
                // At least one of the pairs must be a retry.
                let wanted = needed.saturating_sub(seen.well).max(usize::from(!seen.again));
                let known = missing.entry(node).or_insert((0, place));
                known.0 = known.0.max(wanted);
            }
        }
        let mut missing: Vec<(u32, (usize, usize))> = missing.into_iter().collect();
        missing.sort_unstable();
        let mains: Vec<Vec<u32>> = layers
            .iter()
            .map(|layer| layer.main().map(|main| layer.nodes_of(main)).unwrap_or_default())
            .collect();
        for (node, (wanted, place)) in missing {
            for _ in 0..wanted {
                let Some(partner) = self.clean_partner(node).or_else(|| self.from(&mains[place], node))
                else {
                    break;
                };
                self.add(node, partner);
            }
        }
    }

    /// Returns a node without failures that this node was not tested with. Successive ones are from all
    /// over the job, because neighbors may all be behind the same switch.
    fn clean_partner(&mut self, node: u32) -> Option<u32> {
        let count = self.clean.len();
        let start = self.next * stride(count);
        let place = (0..count)
            .map(|step| (start + step) % count)
            .find(|place| self.is_new(node, self.clean[*place]))?;
        self.next += 1;
        Some(self.clean[place])
    }

    /// Returns one of these nodes that this node was not tested with. Different nodes get different
    /// ones.
    fn from(&self, nodes: &[u32], node: u32) -> Option<u32> {
        let start = node as usize % nodes.len().max(1);
        let all = nodes[start..].iter().chain(&nodes[..start]).copied();
        all.filter(|other| !self.evidence.gone().contains_key(other)).find(|other| self.is_new(node, *other))
    }
}

/// Returns a step of about 0.618 of this number of places. Each next place is far from all those
/// before.
fn stride(places: usize) -> usize {
    (places * 89 / 144).max(1)
}

/// How many healthy nodes a node has failed with, if it has passed with no other node.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct FailedPeers {
    pub well: usize,
    /// How many nodes it was tested with in all.
    pub all: usize,
    /// Whether one of these tries was a retry with a healthy node.
    pub again: bool,
    /// The first pair with a healthy node or, if there is none, with any node.
    pub edge: Option<usize>,
}

/// Returns the nodes that have passed with no other node.
pub(super) fn witnesses(layer: &Layer) -> HashMap<u32, FailedPeers> {
    let mut all: HashMap<u32, FailedPeers> = HashMap::new();
    for (place, edge) in layer.edges.iter().enumerate().filter(|(_, edge)| edge.is_bad()) {
        for node in edge.nodes.into_iter().filter(|node| layer.is_alone(*node)) {
            let seen = all.entry(node).or_default();
            let is_well = layer.is_in_main(edge.other(node));
            seen.all += 1;
            if is_well && seen.well == 0 || seen.edge.is_none() {
                seen.edge = Some(place);
            }
            seen.well += usize::from(is_well);
            seen.again |= is_well && edge.again;
        }
    }
    all
}
