//! Which pairs are tried once more, to find out which node is faulty. Pure.
//!
//! * A node that has passed with no other is tried with nodes that have passed, and once with another one
//!   that has passed with no other: the two may be behind one switch that is cut off.
//! * A part of the job that is cut off from the rest is tried with the rest.
//! * A pair that has failed, both of whose nodes are well elsewhere, is tried again by itself.
//! * A node that fails with some is tried with others: it may be the node, and not the way between two.
//! * In a small job, nodes that are idle meanwhile try each other, which shows how often any pair fails.
//! * What seems slow is measured again ([`outliers::again`]).

mod in_rounds;
mod within;

use std::collections::{HashMap, HashSet};

use in_rounds::Rounds;
use indexmap::IndexSet;

use super::layer::{Layer, layers};
use super::odd::Within;
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::outliers::{self, Slow};

/// How many nodes that are well have to fail with a node before it is faulty.
pub(super) const WITNESSES: usize = 2;

/// How many pairs between two parts of the job have to fail before it is cut in two.
pub(super) const CUTS: usize = 3;

/// The same if the parts are not of very different sizes.
const HALVES: usize = 12;

/// How often the second tries go on at the most.
pub const MOST_TIMES: usize = 4;

/// How often a node of a part that is cut off is tried with the others at once.
const SOME: usize = 3;

/// How many nodes of the main part, if it has as many, have to fail with a part that is cut off.
const REACHED: usize = 8;

/// With how many nodes of the main part a part of this size has to fail before it is cut off: one of them may be the
/// node through which alone it is reached. All of them are tried if that does not take long.
pub(super) fn reached(size: usize, main: usize) -> usize {
    if main <= size * SOME { main } else { REACHED.min(main) }
}

/// Returns how many pairs have to fail between a part of this size and the main part. Of two halves between
/// which half of the paths are dead, several pairs may fail.
pub(super) fn cuts_needed(size: usize, main: usize) -> usize {
    if main <= size * SOME { HALVES.min(size * main) } else { CUTS }
}

/// How many islands, or pairs between two of them, are looked at for one that was not tried.
const NEXT: usize = 64;

type Pair = (u32, u32);

/// Returns the rounds of second tries that are wanted now, each with the pairs in it; none if everything is
/// known. Once they are done, there may be others: call it up to [`MOST_TIMES`] times. `slow` is what
/// seems slow so far.
pub fn rounds(evidence: &Evidence, slow: &[Slow]) -> Vec<Vec<Pair>> {
    let layers = layers(evidence);
    let mut wanted = Wanted::new(evidence, &layers);
    let within: Vec<Within> = layers.iter().map(Within::of).collect();
    for (layer, within) in layers.iter().zip(&within) {
        wanted.islands(layer, within);
        wanted.bridges(layer);
    }
    wanted.lonely(&layers, &within);
    // New partners say more of a node than another try with one that it has failed with.
    layers.iter().for_each(|layer| wanted.links(layer, false));
    layers.iter().filter(|layer| layer.main().is_some()).for_each(|layer| wanted.suspects(layer));
    layers.iter().for_each(|layer| wanted.links(layer, true));
    layers.iter().for_each(|layer| wanted.same(layer));
    // While it is unclear which nodes a rail is dead at, their other rails wait.
    let unclear = layers.iter().filter(|layer| layer.main().is_none()).flat_map(Layer::bad_edges);
    let unclear: HashSet<u32> = unclear.flat_map(|edge| edge.nodes).collect();
    let well: Vec<u32> = wanted.clean.iter().copied().filter(|node| !unclear.contains(node)).collect();
    let slow = outliers::again::pairs(evidence, slow, &well);
    let idle = layers.iter().filter(|layer| !layer.is_sound()).flat_map(|layer| wanted.idle(layer));
    Rounds::of(wanted.pairs.iter().copied().chain(slow), idle.collect::<IndexSet<Pair>>())
}

struct Wanted<'a> {
    evidence: &'a Evidence,
    /// All pairs that were tried, or will be.
    tried: HashSet<Pair>,
    /// With how many others each node was tried.
    partners: HashMap<u32, usize>,
    /// Nodes with which nothing is wrong, and the place of the one that is next.
    clean: Vec<u32>,
    next: usize,
    /// In the order in which they were wanted.
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
                // A pair with a node that is alone says nothing about the other one.
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

    /// Parts of the job that do not reach each other.
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
                // Those first that were not tried with the main part.
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
        // Each with another one: those that reach each other may be behind one switch. Single nodes
        // once, unless no node is known to be well.
        let again: HashSet<u32> =
            layer.edges.iter().filter(|edge| edge.again).flat_map(|edge| edge.nodes).collect();
        let is_new =
            |island: &u32| layer.main().is_none() || layer.size(*island) > 1 || !again.contains(island);
        let others: Vec<u32> =
            islands.into_iter().filter(|island| Some(*island) != layer.main()).filter(is_new).collect();
        let most = self.most(layer.main().is_none());
        // Each once; single nodes with a larger one if there is any, each with another node of it.
        let mut is_used = vec![false; others.len()];
        let mut taken: HashSet<u32> = HashSet::new();
        for first in 0..others.len() {
            // A look at the next few is enough, and stays linear.
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

    /// So many new pairs between two groups, each with another node of the first.
    fn between(&mut self, group: &[u32], others: &[u32], wanted: usize) {
        let mut free: Vec<u32> = others.to_vec();
        let mut added = 0;
        for &node in group.iter().cycle().take(group.len() * SOME) {
            if added == wanted {
                break;
            }
            // Each of the others once, as far as there are as many.
            let Some(partner) = self.from(&free, node).or_else(|| self.from(others, node)) else { continue };
            free.retain(|other| *other != partner);
            self.add(node, partner);
            added += 1;
        }
    }

    /// Groups that seem to reach each other only through a node or two.
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

    /// Returns the nodes of each island that are still there.
    fn by_island(&self, layer: &Layer) -> HashMap<u32, Vec<u32>> {
        let gone = self.evidence.gone();
        let all = layer.by_island().into_iter();
        all.map(|(island, mut nodes)| {
            nodes.retain(|node| !gone.contains_key(node));
            (island, nodes)
        })
        .collect()
    }

    /// With how many others a node may be tried that belongs to no large part of the job. If no node reached
    /// another one, only all pairs of a small job show whether two of them can.
    fn most(&self, is_lost: bool) -> usize {
        let nodes = self.evidence.members().len();
        let more = if is_lost && nodes <= 8 { nodes } else { 2 };
        usize::from(self.evidence.rounds()).min(nodes.max(1).ilog2() as usize + 1) + more + WITNESSES
    }

    /// Nodes that have passed with no other, on whatever rail.
    fn lonely(&mut self, layers: &[Layer], within: &[Within]) {
        let mut missing: HashMap<u32, (usize, usize)> = HashMap::new();
        for (place, layer) in layers.iter().enumerate().filter(|(_, layer)| layer.main().is_some()) {
            let needed = within[place].background.needed(WITNESSES, layer.tried());
            for (&node, seen) in &witnesses(layer) {
                // One of them has to be a second try.
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

    /// Returns a node with which nothing is wrong, and that this one was not tried with. One after the other,
    /// they are from all over the job, as neighbours may all be behind the same switch.
    fn clean_partner(&mut self, node: u32) -> Option<u32> {
        let count = self.clean.len();
        let start = self.next * stride(count);
        let place = (0..count)
            .map(|step| (start + step) % count)
            .find(|place| self.is_new(node, self.clean[*place]))?;
        self.next += 1;
        Some(self.clean[place])
    }

    /// Returns one of these nodes with whom this one was not tried, another one for each node.
    fn from(&self, nodes: &[u32], node: u32) -> Option<u32> {
        let start = node as usize % nodes.len().max(1);
        let all = nodes[start..].iter().chain(&nodes[..start]).copied();
        all.filter(|other| !self.evidence.gone().contains_key(other)).find(|other| self.is_new(node, *other))
    }
}

/// Returns a step of about 0.618 of so many places, which leads to places that are far from all those before.
fn stride(places: usize) -> usize {
    (places * 89 / 144).max(1)
}

/// With how many nodes that are well a node has failed that has passed with no other.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Witnessed {
    pub well: usize,
    /// With how many it was tried in all.
    pub all: usize,
    /// Whether one of them was a second try with a node that is well.
    pub again: bool,
    /// The first edge with a node that is well, or else with any.
    pub edge: Option<usize>,
}

/// Returns the nodes that have passed with no other.
pub(super) fn witnesses(layer: &Layer) -> HashMap<u32, Witnessed> {
    let mut all: HashMap<u32, Witnessed> = HashMap::new();
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
