//! Which pairs to measure again, so that a node that was only busy is not reported as slow.
//!
//! * A node that seems slow is measured with nodes that do not, starting with the nearest, because
//!   those are least likely to be slower by design. It is also measured once with another suspect.
//! * A pair that seems slow is measured again itself. If one of its ends has no other pair, that end is
//!   measured with another node, because its peer may be faulty.
//! * A group whose pairs with the others seem slow is measured again with a few of them.
//! * A rail that seems slow on most nodes is measured again with a few pairs. In a small job, these are
//!   all pairs that were not tested yet, because two slow nodes can make all of four nodes seem slow.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::figures::{self, Rail};
use super::{Slow, Who};
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::partial::Group;

/// How often a suspect is measured again before it is reported as slow: at first, and in all. Most
/// suspects that were only busy pass at first.
const AT_FIRST: usize = 2;
const IN_ALL: usize = 5;

/// This many of these measurements must succeed.
pub(crate) const CERTAIN: usize = 3;

/// In a job with up to this many nodes, all pairs can be tested.
const SMALL: usize = 8;

/// How many pairs measure a whole rail again.
const SAMPLE: usize = 8;

/// How many nodes next to a suspect are considered on either side, and how many of them may become its
/// peers.
const NEXT: usize = 128;

/// How far away another suspect may be. If a job was placed round-robin, the next node of a leaf is as far away as
/// there are leaves.
const FAR: u32 = 512;
const NEAREST: usize = 12;

type Pair = (u32, u32);

/// Returns the pairs to measure again for these suspects of [`super::suspects`]; a pair may be in the
/// list several times. `well` are the nodes without a fault, sorted.
pub(crate) fn pairs(evidence: &Evidence, suspects: &[Slow], well: &[u32]) -> Vec<Pair> {
    if suspects.is_empty() {
        return Vec::new();
    }
    let rails = figures::rails(evidence);
    let mut wanted = Wanted::new(evidence, &rails, suspects, well);
    // Each one counts once, whichever figures are slow. Rails come last, because the pairs for other
    // suspects also measure the rails.
    let all: BTreeSet<Who> = suspects.iter().map(|slow| slow.who).collect();
    for who in all {
        match who {
            Who::Node { node, rail } => wanted.node(node, rail),
            Who::Link { nodes, rail } => wanted.link(nodes, rail),
            Who::Group { group, rail } => wanted.group(group, rail),
            Who::Rail { rail } => wanted.rail(rail),
        }
    }
    wanted.pairs
}

struct Wanted<'a> {
    rails: &'a [Rail],
    well: &'a [u32],
    /// Nodes that seem slow on a rail, and nodes whose only pair there seems slow.
    suspects: HashSet<(u32, usize)>,
    /// Pairs that were tested. A pair that failed is not tested again for its figures.
    tried: HashSet<[u32; 2]>,
    pairs: Vec<Pair>,
    /// The peers with which each node is measured again now.
    peers: HashMap<u32, Vec<u32>>,
}

impl<'a> Wanted<'a> {
    fn new(evidence: &'a Evidence, rails: &'a [Rail], suspects: &[Slow], well: &'a [u32]) -> Wanted<'a> {
        let of = |slow: &Slow| match slow.who {
            Who::Node { node, rail } => vec![(node, rail)],
            Who::Link { nodes, rail } => {
                let is_only = |node: &u32| rails.get(rail).is_some_and(|of| of.places(*node).len() == 1);
                nodes.into_iter().filter(is_only).map(|node| (node, rail)).collect()
            }
            Who::Group { .. } | Who::Rail { .. } => Vec::new(),
        };
        Wanted {
            rails,
            well,
            suspects: suspects.iter().flat_map(of).collect(),
            tried: evidence.tries().iter().map(|one| one.nodes).collect(),
            pairs: Vec::new(),
            peers: HashMap::new(),
        }
    }

    fn add(&mut self, a: u32, b: u32) {
        self.pairs.push((a.min(b), a.max(b)));
        self.tried.insert([a.min(b), a.max(b)]);
        for (node, peer) in [(a, b), (b, a)] {
            self.peers.entry(node).or_default().push(peer);
        }
    }

    /// Returns whether a node has no fault. A node with a fault is reported for that fault, and tests
    /// of a rail that is dead there would take too long.
    fn is_fit(&self, node: u32) -> bool {
        self.well.binary_search(&node).is_ok()
    }

    fn is_not_suspected(&self, node: u32, rail: usize) -> bool {
        !self.suspects.contains(&(node, rail))
    }

    fn is_new(&self, a: u32, b: u32) -> bool {
        a != b && !self.tried.contains(&[a.min(b), a.max(b)])
    }

    /// Returns how many more measurements a suspect needs if it has been measured again `have` times.
    fn missing(have: usize) -> usize {
        if have == 0 { AT_FIRST } else { IN_ALL.saturating_sub(have) }
    }

    fn node(&mut self, node: u32, rail: usize) {
        let Some(of) = self.rails.get(rail).filter(|_| self.is_fit(node)) else { return };
        let is_peer = |peer: u32| self.is_not_suspected(peer, rail);
        let pairs = of.pairs_of(node).filter(|pair| is_peer(pair.other(node)));
        let have: usize = pairs.map(|pair| pair.second.len()).sum();
        let planned = self.peers.get(&node).into_iter().flatten().filter(|peer| is_peer(**peer)).count();
        let missing = Self::missing(have).saturating_sub(planned);
        let nearest = self.nearest(node, rail);
        if have == 0 || nearest.is_empty() {
            self.other_suspect(node, rail);
        }
        if nearest.is_empty() {
            return;
        }
        for _ in 0..missing {
            let cost = |peer: &u32| {
                let load = self.peers.get(peer).map_or(0, Vec::len);
                let known = of.pair([node.min(*peer), node.max(*peer)]);
                let planned = self.peers.get(&node).into_iter().flatten();
                let often = known.map_or(0, |pair| pair.first.tries + pair.second.len())
                    + planned.filter(|other| *other == peer).count();
                (often + load, peer.abs_diff(node))
            };
            let Some(peer) = nearest.iter().copied().min_by_key(cost) else { return };
            self.add(node, peer);
        }
    }

    /// Returns the nodes next to this one that are healthy, and above suspicion on this rail.
    fn nearest(&self, node: u32, rail: usize) -> Vec<u32> {
        let at = self.well.partition_point(|other| *other < node);
        let (below, above) = self.well.split_at(at);
        let is_peer = |other: &u32| {
            *other != node
                && self.is_not_suspected(*other, rail)
                && self.rails.get(rail).is_some_and(|of| !of.places(*other).is_empty())
        };
        let below = below.iter().rev().take(NEXT).copied().filter(is_peer).take(NEAREST);
        let above = above.iter().take(NEXT).copied().filter(is_peer).take(NEAREST);
        below.chain(above).collect()
    }

    /// Pairs this suspect with the nearest other suspect that it was not tested with. Healthy nodes may
    /// seem slow because all peers that they were tested with are far away, or slow.
    fn other_suspect(&mut self, node: u32, rail: usize) {
        let Some(of) = self.rails.get(rail) else { return };
        let is_peer = |other: &u32| {
            !of.places(*other).is_empty()
                && !self.is_not_suspected(*other, rail)
                && self.is_fit(*other)
                && self.is_new(node, *other)
        };
        let next = (1..=FAR).flat_map(|step| [node.checked_sub(step), node.checked_add(step)]);
        if let Some(peer) = next.flatten().find(is_peer) {
            self.add(node, peer);
        }
    }

    fn link(&mut self, nodes: [u32; 2], rail: usize) {
        let Some(of) = self.rails.get(rail) else { return };
        if !nodes.iter().all(|node| self.is_fit(*node)) {
            return;
        }
        let have = of.pair(nodes).map_or(0, |pair| pair.second.len());
        let planned =
            self.peers.get(&nodes[0]).into_iter().flatten().filter(|peer| **peer == nodes[1]).count();
        (planned..Self::missing(have)).for_each(|_| self.add(nodes[0], nodes[1]));
        for node in nodes.into_iter().filter(|node| of.places(*node).len() == 1) {
            let near = self.nearest(node, rail);
            if let Some(peer) = near.into_iter().find(|peer| self.is_new(node, *peer)) {
                self.add(node, peer);
            }
        }
    }

    fn rail(&mut self, rail: usize) {
        let Some(of) = self.rails.get(rail) else { return };
        let have = of.tries_again();
        let nodes: Vec<u32> = of.nodes().filter(|node| self.is_fit(*node)).collect();
        let mut new: Vec<Pair> = Vec::new();
        if nodes.len() <= SMALL {
            let all =
                nodes.iter().enumerate().flat_map(|(place, a)| nodes[place + 1..].iter().map(|b| (*a, *b)));
            new = all.filter(|(a, b)| self.is_new(*a, *b)).collect();
        }
        if new.is_empty() && have < CERTAIN {
            new = self.sample(of.pairs.iter());
        }
        new.into_iter().for_each(|(a, b)| self.add(a, b));
    }

    fn group(&mut self, group: Group, rail: usize) {
        let Some(of) = self.rails.get(rail) else { return };
        let between = || of.pairs.iter().filter(|pair| group.parts(pair.nodes));
        if between().map(|pair| pair.second.len()).sum::<usize>() < CERTAIN {
            self.sample(between()).into_iter().for_each(|(a, b)| self.add(a, b));
        }
    }

    /// Returns a few of these pairs, each with different nodes.
    fn sample<'p>(&self, pairs: impl Iterator<Item = &'p figures::Pair>) -> Vec<Pair> {
        let mut taken: HashSet<u32> = HashSet::new();
        let mut new: Vec<Pair> = Vec::new();
        let known = pairs.map(|pair| (pair.nodes[0], pair.nodes[1]));
        for (a, b) in known.filter(|(a, b)| self.is_fit(*a) && self.is_fit(*b)) {
            if new.len() < SAMPLE && !taken.contains(&a) && !taken.contains(&b) {
                taken.extend([a, b]);
                new.push((a, b));
            }
        }
        // If there are few pairs, each is measured several times.
        let times = CERTAIN.div_ceil(new.len().max(1));
        new.iter().copied().cycle().take(new.len() * times).collect()
    }
}
