//! Nodes that reach others but fail with some of them, and the other pairs that fail although both
//! nodes pass elsewhere. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::chance::{BY_PAIRS, BY_TRIES, Background};
use super::layer::{Edge, Layer};

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
pub(super) struct Within<'a> {
    pub odd: Vec<Odd>,
    /// The pairs with a failure that the odd nodes do not explain.
    pub rest: Vec<&'a Edge>,
    pub background: Background,
}

/// How many pairs, and how many of their tries, failed.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    pairs: Background,
    tries: Background,
}

impl Tally {
    fn of(edge: &Edge) -> Tally {
        Tally {
            pairs: Background { failed: edge.failed_first.into(), tried: 1 },
            tries: Background {
                failed: edge.failed.into(),
                tried: usize::from(edge.failed) + usize::from(edge.passed),
            },
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
            own.failed -= other.failed;
            own.tried -= other.tried;
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
        let edges: Vec<&Edge> = layer.edges.iter().filter(|edge| layer.is_within(edge)).collect();
        let ill = edges.iter().filter(|edge| edge.is_ill()).count();
        let mut tally = Tally::default();
        edges.iter().for_each(|edge| tally.add(Tally::of(edge)));
        let all = tally.pairs;
        if ill == 0 {
            return Within { odd: Vec::new(), rest: Vec::new(), background: all };
        }
        let mut graph = Graph { edges, of: HashMap::new() };
        for (place, edge) in graph.edges.iter().enumerate() {
            edge.nodes.iter().for_each(|node| graph.of.entry(*node).or_default().push(place));
        }
        let nodes = layer.tried();
        let suspects = graph.suspects(tally, 1 + nodes / ONE_IN);
        let count = graph.proven(&suspects, nodes);
        let odd: Vec<Odd> = suspects[..count].iter().map(|suspect| suspect.odd).collect();
        let background = count.checked_sub(1).map_or(all, |last| suspects[last].left.pairs);
        let explained: BTreeSet<u32> = odd.iter().map(|odd| odd.node).collect();
        let is_left = |edge: &&Edge| edge.is_ill() && !edge.nodes.iter().any(|node| explained.contains(node));
        Within { rest: graph.edges.iter().copied().filter(is_left).collect(), odd, background }
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
            edge.nodes.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
        }
        let mut queue: BTreeSet<(usize, Reverse<u32>)> =
            counts.iter().map(|(node, count)| (*count, Reverse(*node))).collect();
        let mut all = Vec::new();
        while let Some((failed, Reverse(node))) = queue.pop_last().filter(|(failed, _)| *failed >= LEAST) {
            if all.len() == most {
                return Vec::new();
            }
            let own = &self.of[&node];
            let flapping =
                own.iter().filter(|place| is_left[**place] && !self.edges[**place].is_bad()).count();
            let mut tally = Tally::default();
            for &place in own {
                if is_tried[place] {
                    tally.add(Tally::of(self.edges[place]));
                }
                if is_left[place] {
                    is_left[place] = false;
                    let other = self.edges[place].other(node);
                    if let Some(count) = counts.get_mut(&other)
                        && queue.remove(&(*count, Reverse(other)))
                    {
                        *count -= 1;
                        queue.insert((*count, Reverse(other)));
                    }
                }
                is_tried[place] = false;
            }
            left.take(tally);
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
        for partner in partners.filter(|edge| edge.is_ill()).map(|edge| edge.other(odd.node)) {
            for edge in self.of[&partner].iter().map(|place| self.edges[*place]) {
                if !suspects.contains(&edge.other(partner)) {
                    failed += usize::from(edge.is_ill());
                    tried += 1;
                }
            }
        }
        // They may fail at most half as often.
        failed * odd.tried * 2 > odd.failed * tried
    }
}
