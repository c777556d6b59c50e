//! Nodes that reach others but fail with some of them, and the other pairs that fail although both
//! nodes pass elsewhere. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::chance::{BY_PAIRS, BY_TRIES, Background};
use super::layer::{Edge, Layer};
use super::within::are_scattered;
use crate::preflight::judge::partial::{self, Other, Part};

/// If a node fails with fewer others, it may just be one end of dead links.
const LEAST: usize = 3;

/// If a path is dead in one direction, one end knows why, and the other one waits. It is at least this
/// many times less probable that the same node knows each time by chance. Over verbs, the node with the
/// lower number sends first, so it is the one that knows, wherever the fault is. So a node counts only
/// if it knows both as the lower and as the higher node.
const SAME_END: f64 = 4.0;

/// One in this many nodes may be odd, and one more in any case. If it takes more odd nodes to explain
/// the failures, the nodes are not the cause.
const ONE_IN: usize = 16;

/// With this many nodes or fewer, there are few pairs to show how often others fail. In such a job, an
/// odd node fails with at least two of seven.
const SMALL: usize = 32;

/// A node that fails with some others, and whose peers fail less often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Odd {
    pub node: u32,
    /// How many others it fails with, and how many it was tested with.
    pub failed: usize,
    pub tried: usize,
    /// Whether failed pairs of this node passed in another try.
    pub flaps: bool,
}

/// The pairs within the islands of one layer.
#[derive(Default)]
pub(super) struct Within<'a> {
    pub odd: Vec<Odd>,
    /// The pairs of each of these nodes, without those of the nodes before it.
    own: Vec<Background>,
    /// The pairs with a failure that the odd nodes do not explain.
    pub rest: Vec<&'a Edge>,
    pub background: Background,
    /// The group whose pairs with the others explain the failures better than any single nodes do, and
    /// one that may turn out to do so.
    pub part: Option<Part>,
    pub perhaps: Option<Part>,
}

/// How many pairs, and how many of their tries, failed.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    pairs: Background,
    tries: Background,
}

impl Tally {
    fn of(edge: &Edge) -> Tally {
        let has_failed_first = edge.failed_first.iter().any(|has_failed| *has_failed);
        Tally::new(edge, has_failed_first, edge.failed)
    }

    fn against(edge: &Edge, node: u32) -> Tally {
        let end = edge.end(node);
        Tally::new(edge, edge.failed_first[end], edge.against[end])
    }

    fn new(edge: &Edge, has_failed_first: bool, failed: u16) -> Tally {
        let tried = usize::from(edge.failed) + usize::from(edge.passed);
        Tally {
            pairs: Background { failed: has_failed_first.into(), tried: 1 },
            tries: Background { failed: failed.into(), tried },
        }
    }

    fn add(&mut self, other: Tally) {
        for (own, other) in [(&mut self.pairs, other.pairs), (&mut self.tries, other.tries)] {
            own.failed += other.failed;
            own.tried += other.tried;
        }
    }

    fn take(&mut self, other: Tally) {
        for (own, other) in [(&mut self.pairs, other.pairs), (&mut self.tries, other.tries)] {
            own.take(other);
        }
    }
}

/// A node that may be odd, and what remains without it and the suspects before it.
struct Suspect {
    odd: Odd,
    /// In how many of its pairs this node knows why, while the other one only waited; 0 if any pair is
    /// the other way round, or if this node always or never sends first.
    known: usize,
    own: Tally,
    left: Tally,
}

/// All pairs, and the pairs of each node.
struct Graph<'a> {
    edges: Vec<&'a Edge>,
    of: HashMap<u32, Vec<usize>>,
}

impl<'a> Within<'a> {
    pub(super) fn of(layer: &'a Layer) -> Within<'a> {
        let mut edges: Vec<&Edge> = layer.edges.iter().filter(|edge| layer.is_within(edge)).collect();
        let ill = edges.iter().filter(|edge| edge.is_ill()).count();
        let mut tally = Tally::default();
        edges.iter().for_each(|edge| tally.add(Tally::of(edge)));
        let all = tally.pairs;
        if ill == 0 {
            return Within { background: all, ..Within::default() };
        }
        let nodes = layer.tried();
        let within = Within::without_part(edges.clone(), tally, nodes);
        if within.odd.is_empty() && !are_scattered(&within.rest) {
            return within;
        }
        // Nodes of a group may pass with few of the others, or with none.
        let pairs: Vec<([u32; 2], bool)> =
            layer.edges.iter().map(|edge| (edge.nodes, edge.failed_first.contains(&true))).collect();
        let mut left = Background::default();
        pairs.iter().for_each(|(_, has_failed)| left.add(*has_failed));
        within.own.iter().for_each(|own| left.take(*own));
        let mut other = Other { nodes: within.own.clone(), left };
        // A node that passes with no other node explains its own pairs.
        let mut alone: BTreeMap<u32, Background> = BTreeMap::new();
        for (ends, has_failed) in &pairs {
            if let Some(node) = ends.iter().find(|node| layer.is_alone(**node)) {
                alone.entry(*node).or_default().add(*has_failed);
            }
        }
        for own in alone.into_values() {
            other.left.take(own);
            other.nodes.push(own);
        }
        let count = layer.nodes();
        let Some(part) = partial::find(count, &pairs).filter(|part| part.between.failed < part.between.tried)
        else {
            return within;
        };
        if !part.is_better(&other, count) {
            let perhaps = Some(part).filter(|part| part.is_open(&other, count));
            if part.is_close(&other, count) {
                let rest = edges.into_iter().filter(|edge| edge.is_ill()).collect();
                return Within { rest, background: all, perhaps, ..Within::default() };
            }
            return Within { perhaps, ..within };
        }
        edges.retain(|edge| !part.group.parts(edge.nodes));
        let mut tally = Tally::default();
        edges.iter().for_each(|edge| tally.add(Tally::of(edge)));
        let rest = Within::without_part(edges, tally, nodes);
        // Other nodes may have lost as many paths.
        Within { background: all, part: Some(part), ..rest }
    }

    /// Returns how many tries of this node must fail, with none passing, until chance no longer explains
    /// that; `least` if nothing else fails.
    pub(super) fn needed(&self, node: u32, least: usize, nodes: usize) -> usize {
        let part = self.part.filter(|part| part.group.has(node));
        part.map_or(self.background, |part| part.between).needed(least, nodes)
    }

    fn without_part(edges: Vec<&'a Edge>, tally: Tally, nodes: usize) -> Within<'a> {
        let mut graph = Graph { edges, of: HashMap::new() };
        for (place, edge) in graph.edges.iter().enumerate() {
            edge.nodes.iter().for_each(|node| graph.of.entry(*node).or_default().push(place));
        }
        let suspects = graph.suspects(tally, 1 + nodes / ONE_IN);
        let count = graph.proven(&suspects, nodes);
        let odd: Vec<Odd> = suspects[..count].iter().map(|suspect| suspect.odd).collect();
        let background = count.checked_sub(1).map_or(tally.pairs, |last| suspects[last].left.pairs);
        let explained: BTreeSet<u32> = odd.iter().map(|odd| odd.node).collect();
        let is_left = |edge: &&Edge| {
            edge.is_ill() && !edge.nodes.iter().any(|node| explained.contains(node) && edge.is_against(*node))
        };
        let own = suspects[..count].iter().map(|suspect| suspect.own.pairs).collect();
        let rest = graph.edges.iter().copied().filter(is_left).collect();
        Within { odd, own, rest, background, ..Within::default() }
    }
}

impl Graph<'_> {
    /// Returns the nodes with the most failures first, each counted without those before it; none if
    /// more than `most` nodes fail with several others.
    fn suspects(&self, mut left: Tally, most: usize) -> Vec<Suspect> {
        let mut is_left: Vec<bool> = self.edges.iter().map(|edge| edge.is_ill()).collect();
        let mut is_tried = vec![true; self.edges.len()];
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for edge in self.edges.iter().filter(|edge| edge.is_ill()) {
            let accused = edge.nodes.iter().filter(|node| edge.is_against(**node));
            accused.for_each(|node| *counts.entry(*node).or_default() += 1);
        }
        let mut queue: BTreeSet<(usize, Reverse<u32>)> =
            counts.iter().map(|(node, count)| (*count, Reverse(*node))).collect();
        let mut all = Vec::new();
        while let Some((failed, Reverse(node))) = queue.pop_last().filter(|(failed, _)| *failed >= LEAST) {
            if all.len() == most {
                return Vec::new();
            }
            let own = &self.of[&node];
            let is_flapping = |edge: &Edge| edge.is_against(node) && !edge.is_bad();
            let flapping =
                own.iter().filter(|place| is_left[**place] && is_flapping(self.edges[**place])).count();
            let (mut tally, mut all_tries) = (Tally::default(), Tally::default());
            for &place in own {
                if is_tried[place] {
                    tally.add(Tally::against(self.edges[place], node));
                    all_tries.add(Tally::of(self.edges[place]));
                }
                if is_left[place] && self.edges[place].is_against(node) {
                    is_left[place] = false;
                    let other = self.edges[place].other(node);
                    if self.edges[place].is_against(other)
                        && let Some(count) = counts.get_mut(&other)
                        && queue.remove(&(*count, Reverse(other)))
                    {
                        *count -= 1;
                        queue.insert((*count, Reverse(other)));
                    }
                }
                is_tried[place] = false;
            }
            left.take(all_tries);
            let odd = Odd { node, failed, tried: own.len(), flaps: flapping * 4 >= failed };
            let known = self.known(node);
            all.push(Suspect { odd, known, own: tally, left });
        }
        all
    }

    fn known(&self, node: u32) -> usize {
        let edges = self.of[&node].iter().map(|place| self.edges[*place]);
        let ends = edges.filter_map(|edge| Some((edge.is_known_at(node)?, edge.nodes[0] == node)));
        let is_first = |wanted: bool| ends.clone().any(|(_, is_first)| is_first == wanted);
        let says_more = is_first(true) && is_first(false) && ends.clone().all(|(is_own, _)| is_own);
        if says_more { ends.count() } else { 0 }
    }

    /// Returns how many of the suspects are odd, measured against what remains without them.
    fn proven(&self, suspects: &[Suspect], nodes: usize) -> usize {
        let is_proven = |count: &usize| {
            let background = suspects[*count - 1].left;
            // There are this many groups of as many nodes.
            let choices = (nodes as f64).powi(i32::try_from(*count).unwrap_or(i32::MAX));
            let names: BTreeSet<u32> = suspects[..*count].iter().map(|suspect| suspect.odd.node).collect();
            suspects[..*count].iter().all(|Suspect { odd, own, known, .. }| {
                let choices = if *known >= LEAST { choices / SAME_END } else { choices };
                let is_unlikely = |of: Background, own: Background, bound: f64| {
                    of.is_unlikely(own.failed, own.tried, choices, bound)
                };
                let by_pairs = is_unlikely(background.pairs, own.pairs, BY_PAIRS);
                let by_tries = odd.flaps && is_unlikely(background.tries, own.tries, BY_TRIES);
                (nodes > SMALL || odd.failed * 7 >= odd.tried * 2)
                    && (by_pairs || by_tries)
                    && !self.peers_fail_as_often(odd, &names)
            })
        };
        (1..=suspects.len()).rev().find(is_proven).unwrap_or_default()
    }

    /// Returns whether the peers that this node fails with fail as often with others that are not
    /// suspects.
    fn peers_fail_as_often(&self, odd: &Odd, suspects: &BTreeSet<u32>) -> bool {
        let (mut failed, mut tried) = (0, 0);
        let partners = self.of[&odd.node].iter().map(|place| self.edges[*place]);
        for partner in partners.filter(|edge| edge.is_against(odd.node)).map(|edge| edge.other(odd.node)) {
            for edge in self.of[&partner].iter().map(|place| self.edges[*place]) {
                if !suspects.contains(&edge.other(partner)) {
                    failed += usize::from(edge.is_against(partner));
                    tried += 1;
                }
            }
        }
        // They may fail at most half as often.
        failed * odd.tried * 2 > odd.failed * tried
    }
}
