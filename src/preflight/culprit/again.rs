//! Which pairs are tried once more, so that it can be said who is at fault. Pure.
//!
//! * A node that has passed with nobody is tried with nodes that have passed, and once with another one
//!   that has passed with nobody: the two may be behind one switch that is cut off.
//! * A part of the job that is cut off from the rest is tried with the rest.
//! * A pair that has failed, both of whose nodes are well elsewhere, is tried again by itself.
//! * A node whose only pair is slow is tried with another one: it may be the partner's fault.

use std::collections::{HashMap, HashSet};

use indexmap::IndexSet;

use super::super::evidence::Evidence;
use super::super::outliers::{Slow, Who};
use super::layer::{Layer, layers};

/// How many nodes that are well have to fail with a node before it is at fault.
pub const WITNESSES: usize = 2;

/// How many pairs between two parts of the job have to fail before it is cut in two.
pub const CUTS: usize = 3;

/// How often the second tries go on at the most.
pub const MOST_TIMES: usize = 4;

/// The rounds of one time. Where few nodes are well, not all others can be tried with them at once.
const MOST_ROUNDS: usize = 8;

/// How many islands, or pairs between two of them, are looked at for one that was not tried.
const NEXT: usize = 64;

type Pair = (u32, u32);

/// The rounds of second tries that are wanted now, each with the pairs in it; none where everything is
/// known. Once they are done, there may be others: call it up to [`MOST_TIMES`] times. `slow` is what
/// is slow so far.
pub fn rounds(evidence: &Evidence, slow: &[Slow]) -> Vec<Vec<Pair>> {
    let layers = layers(evidence);
    let mut wanted = Wanted::new(evidence, &layers);
    for layer in &layers {
        wanted.links(layer);
        wanted.islands(layer);
    }
    wanted.lonely(&layers);
    wanted.slow(slow);
    in_rounds(wanted.pairs)
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

    /// Pairs that have failed once, of nodes that are well; and the only pair of a job of two nodes.
    fn links(&mut self, layer: &Layer) {
        let is_all = layer.edges.len() == 1;
        for edge in layer.bad_edges().filter(|edge| !edge.again) {
            if is_all || layer.island(edge.nodes[0]) == layer.island(edge.nodes[1]) {
                self.pairs.insert((edge.nodes[0], edge.nodes[1]));
            }
        }
    }

    /// Parts of the job that do not reach each other.
    fn islands(&mut self, layer: &Layer) {
        let mut islands: Vec<u32> = layer.islands().collect();
        if islands.len() < 2 {
            return;
        }
        islands.sort_by_key(|island| std::cmp::Reverse(layer.size(*island)));
        let nodes: HashMap<u32, Vec<u32>> = self.by_island(layer);
        if let Some(main) = layer.main() {
            for &island in islands.iter().filter(|island| **island != main && layer.size(**island) > 1) {
                let missing = CUTS.saturating_sub(cuts(layer, island, main));
                let mut room = missing;
                for &node in &nodes[&island] {
                    if room > 0
                        && let Some(partner) = self.from(&nodes[&main], node)
                    {
                        self.add(node, partner);
                        room -= 1;
                    }
                }
            }
        }
        // Each with another one: those that reach each other may be behind one switch. Single nodes
        // once, unless nobody is known to be well.
        let again: HashSet<u32> =
            layer.edges.iter().filter(|edge| edge.again).flat_map(|edge| edge.nodes).collect();
        let is_new =
            |island: &u32| layer.main().is_none() || layer.size(*island) > 1 || !again.contains(island);
        let others: Vec<u32> =
            islands.into_iter().filter(|island| Some(*island) != layer.main()).filter(is_new).collect();
        let most = self.most(layer.main().is_none());
        let mut is_used = vec![false; others.len()];
        for first in 0..others.len() {
            // A look at the next few is enough, and stays linear.
            for second in (first + 1)..others.len().min(first + 1 + NEXT) {
                if is_used[first] || is_used[second] {
                    continue;
                }
                let nodes = [first, second].map(|place| &nodes[&others[place]]);
                let pairs = nodes[0].iter().flat_map(|a| nodes[1].iter().map(move |b| (*a, *b)));
                let has_room = |(a, b): &Pair| {
                    let few = |node| self.partners.get(node).copied().unwrap_or_default() < most;
                    self.is_new(*a, *b) && few(a) && few(b)
                };
                if let Some((a, b)) = pairs.take(NEXT).find(has_room) {
                    self.add(a, b);
                    (is_used[first], is_used[second]) = (true, true);
                }
            }
        }
    }

    /// The nodes of each island that are still there.
    fn by_island(&self, layer: &Layer) -> HashMap<u32, Vec<u32>> {
        let mut all: HashMap<u32, Vec<u32>> = layer.islands().map(|island| (island, Vec::new())).collect();
        for node in 0..self.evidence.members().len() as u32 {
            if let Some(nodes) = all.get_mut(&layer.island(node))
                && !self.evidence.gone().contains_key(&node)
            {
                nodes.push(node);
            }
        }
        all
    }

    /// With how many others a node may be tried that belongs to no large part of the job. Where nobody
    /// reaches anybody, it takes all pairs of a small job to find two that do.
    fn most(&self, is_lost: bool) -> usize {
        let nodes = self.evidence.members().len();
        let more = if is_lost && nodes <= 8 { nodes } else { 2 };
        usize::from(self.evidence.rounds()).min(nodes.max(1).ilog2() as usize + 1) + more + WITNESSES
    }

    /// Nodes that have passed with nobody, on whatever rail.
    fn lonely(&mut self, layers: &[Layer]) {
        let mut missing: HashMap<u32, (usize, Vec<usize>)> = HashMap::new();
        for (place, layer) in layers.iter().enumerate().filter(|(_, layer)| layer.main().is_some()) {
            for (&node, seen) in &witnesses(layer) {
                let known = missing.entry(node).or_default();
                // One of them has to be a second try.
                let wanted = WITNESSES.saturating_sub(seen.well).max(usize::from(!seen.again));
                known.0 = known.0.max(wanted);
                known.1.push(place);
            }
        }
        let mut missing: Vec<(u32, (usize, Vec<usize>))> = missing.into_iter().collect();
        missing.sort_unstable();
        for (node, (wanted, places)) in missing {
            for _ in 0..wanted {
                let Some(partner) = self.clean_partner(node).or_else(|| {
                    let layer = &layers[*places.first()?];
                    let main = layer.nodes_of(layer.main()?);
                    self.from(&main, node)
                }) else {
                    break;
                };
                self.add(node, partner);
            }
        }
    }

    /// Nodes with one pair on a rail where it, or the whole rail, is slow.
    fn slow(&mut self, slow: &[Slow]) {
        let links = slow.iter().filter_map(|slow| match slow.who {
            Who::Link { nodes, .. } => Some(nodes),
            _ => None,
        });
        let suspects: HashSet<u32> = links.flatten().collect();
        for one in slow {
            let (nodes, rail) = match one.who {
                Who::Link { nodes, rail } => (nodes.to_vec(), rail),
                Who::Rail { rail } => ((0..self.evidence.members().len() as u32).collect(), rail),
                Who::Node { .. } => continue,
            };
            let measured = self.measured(rail);
            for node in nodes.into_iter().filter(|node| measured.get(node) == Some(&1)) {
                let new = || self.clean.iter().copied().filter(|other| self.is_new(node, *other));
                if let Some(other) = new().find(|other| !suspects.contains(other)).or_else(|| new().next()) {
                    self.add(node, other);
                }
            }
        }
    }

    /// In how many pairs each node was measured on a rail.
    fn measured(&self, rail: usize) -> HashMap<u32, usize> {
        let tries = self.evidence.tries().iter().filter(|one| one.measured(rail).is_some());
        let pairs: HashSet<[u32; 2]> = tries.map(|one| one.nodes).collect();
        let mut counts: HashMap<u32, usize> = HashMap::new();
        pairs.into_iter().flatten().for_each(|node| *counts.entry(node).or_default() += 1);
        counts
    }

    /// The next node with which nothing is wrong, and that this one was not tried with.
    fn clean_partner(&mut self, node: u32) -> Option<u32> {
        let count = self.clean.len();
        let place = (0..count)
            .map(|step| (self.next + step) % count)
            .find(|place| self.is_new(node, self.clean[*place]))?;
        self.next = place + 1;
        Some(self.clean[place])
    }

    /// One of these nodes with whom this one was not tried, another one for each node.
    fn from(&self, nodes: &[u32], node: u32) -> Option<u32> {
        let start = node as usize % nodes.len().max(1);
        let all = nodes[start..].iter().chain(&nodes[..start]).copied();
        all.filter(|other| !self.evidence.gone().contains_key(other)).find(|other| self.is_new(node, *other))
    }
}

/// With how many nodes that are well a node has failed that has passed with nobody.
#[derive(Debug, Default, Clone, Copy)]
pub struct Witnessed {
    pub well: usize,
    /// With how many it was tried in all.
    pub all: usize,
    /// Whether one of them was a second try with a node that is well.
    pub again: bool,
    /// The first edge with a node that is well, or else with any.
    pub edge: Option<usize>,
}

/// The nodes that have passed with nobody.
pub fn witnesses(layer: &Layer) -> HashMap<u32, Witnessed> {
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

/// How many pairs have failed between two islands.
pub fn cuts(layer: &Layer, island: u32, other: u32) -> usize {
    let between = |edge: &&super::layer::Edge| {
        let [a, b] = edge.nodes.map(|node| layer.island(node));
        (a, b) == (island, other) || (b, a) == (island, other)
    };
    layer.bad_edges().filter(between).count()
}

/// Puts each pair into the first round in which both of its nodes are free.
fn in_rounds(pairs: IndexSet<Pair>) -> Vec<Vec<Pair>> {
    let mut busy: HashMap<u32, u64> = HashMap::new();
    let mut rounds: Vec<Vec<Pair>> = Vec::new();
    for (a, b) in pairs {
        let taken = [a, b].map(|node| busy.get(&node).copied().unwrap_or_default());
        let round = (taken[0] | taken[1]).trailing_ones() as usize;
        if round >= MOST_ROUNDS {
            continue;
        }
        if rounds.len() <= round {
            rounds.resize(round + 1, Vec::new());
        }
        rounds[round].push((a, b));
        for node in [a, b] {
            *busy.entry(node).or_default() |= 1 << round;
        }
    }
    rounds
}
