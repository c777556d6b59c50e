//! Nodes that reach the others only in part, because the leaf that they share has lost some of its
//! uplinks, or because these are slow: neighbors in index, or every so many nodes if the job was placed
//! round-robin. Each of them fails with some peers, so one of them may seem to be at fault by itself.
//! Pure.

use std::cell::Cell;
use std::collections::BTreeSet;

use crate::preflight::judge::culprit::chance::{Background, log_likelihood, weighted_log};

/// So many nodes of a group must fail with others: two may be at fault by themselves, and be in one group
/// by chance.
const SEVERAL: usize = 3;

/// In nats: how much better than chance a group must explain the failures if no node explains them.
const PROVEN: f64 = 1.0;

/// In nats: a node is not named if a group is worse by less than this.
const CLOSE: f64 = 3.0;

/// In nats: a group that is worse than the nodes by less than this may turn out to be better.
const OPEN: f64 = 12.0;

/// Larger groups of neighbors are searched for only from every so many nodes on.
const LARGE: u32 = 512;
const EVERY: u32 = 16;

/// The most leaves over which nodes may be spread round-robin.
const LEAVES: u32 = 512;

/// How many times a pair may be looked at in each part of a search. A node 0 that searches must not fall silent, and a job
/// may have tens of thousands of nodes and hundreds of thousands of pairs.
const WORK: usize = 8_000_000;

/// Some nodes, and the pairs between them and the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub group: Group,
    pub between: Background,
    /// How well the group explains all failures: a logarithm.
    score: f64,
    /// Whether enough nodes of the group fail with others.
    are_several: bool,
}

/// `count` nodes of a job of `nodes`, from `first` on with this step. After the last node comes the
/// first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    pub first: u32,
    pub step: u32,
    pub count: u32,
    pub nodes: u32,
}

impl Group {
    pub fn members(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |place| (self.first + place * self.step) % self.nodes)
    }

    pub fn has(self, node: u32) -> bool {
        let far = (node + self.nodes - self.first) % self.nodes;
        far.is_multiple_of(self.step) && far / self.step < self.count
    }

    /// Returns whether a pair has one node in the group.
    pub fn parts(self, nodes: [u32; 2]) -> bool {
        self.has(nodes[0]) != self.has(nodes[1])
    }
}

/// What explains the failures if no group does.
#[derive(Debug, Clone, Default)]
pub(super) struct Other {
    /// The pairs of each node that seems to be at fault, without those of the nodes before it.
    pub nodes: Vec<Background>,
    /// The pairs without these nodes.
    pub left: Background,
}

impl Part {
    /// Returns whether the group explains the failures better.
    pub(super) fn is_better(&self, than: &Other, nodes: u32) -> bool {
        let margin = if than.nodes.is_empty() { PROVEN } else { 0.0 };
        self.are_several && self.score > than.score(nodes) + margin
    }

    /// Returns whether the group explains the failures about as well as the nodes, so that none of these
    /// is known to be at fault.
    pub(super) fn is_close(&self, than: &Other, nodes: u32) -> bool {
        self.are_several && !than.nodes.is_empty() && self.score > than.score(nodes) - CLOSE
    }

    /// Returns whether more tries may show that the group explains the failures better.
    pub(super) fn is_open(&self, than: &Other, nodes: u32) -> bool {
        !self.is_better(than, nodes) && self.score > than.score(nodes) - OPEN
    }
}

impl Other {
    fn score(&self, nodes: u32) -> f64 {
        let all = self.nodes.iter().map(|own| own.tried).sum::<usize>() + self.left.tried;
        let own: f64 = self.nodes.iter().map(|own| log_likelihood(*own)).sum();
        own + log_likelihood(self.left) - self.nodes.len() as f64 * price(nodes as usize, all)
    }
}

/// Returns what it costs to choose one of so many causes, and its share of failures, which so many
/// pairs show (Schwarz, "Estimating the dimension of a model", Ann. Stat. 6, 1978).
fn price(choices: usize, pairs: usize) -> f64 {
    (choices.max(1) as f64).ln() + (pairs.max(1) as f64).ln() / 2.0
}

/// Returns the group that explains best which pairs of a job of so many nodes have failed, at most half
/// of the nodes.
pub(super) fn find(nodes: u32, pairs: &[([u32; 2], bool)]) -> Option<Part> {
    let mut all = Background::default();
    pairs.iter().for_each(|(_, has_failed)| all.add(*has_failed));
    let largest = nodes / 2;
    let leaves = (nodes / 2).min(LEAVES).min(u32::try_from(WORK / pairs.len().max(1)).unwrap_or(LEAVES));
    let choices = nodes as usize * largest as usize + (leaves * leaves / 2) as usize;
    let price = price(choices, pairs.len());
    // There are many groups, so each number's logarithm is computed once.
    let logs: Vec<f64> = (0..=all.tried).map(weighted_log).collect();
    let likelihood = |of: Background| logs[of.failed] + logs[of.tried - of.failed] - logs[of.tried];
    let best: Cell<Option<Part>> = Cell::new(None);
    let consider = |first: u32, step: u32, count: u32, between: Background| {
        let rest = Background { failed: all.failed - between.failed, tried: all.tried - between.tried };
        // The pairs between the two sides fail more often than the others.
        if between.failed * rest.tried <= rest.failed * between.tried {
            return;
        }
        let score = likelihood(between) + likelihood(rest) - price;
        if best.get().is_none_or(|known| score > known.score) {
            let group = Group { first, step, count, nodes };
            best.set(Some(Part { group, between, score, are_several: false }));
        }
    };
    let mut near: Vec<Vec<(u32, bool)>> = vec![Vec::new(); nodes as usize];
    for ([a, b], has_failed) in pairs {
        near[*a as usize].push((*b, *has_failed));
        near[*b as usize].push((*a, *has_failed));
    }
    let search = |first: u32, most: u32| {
        let mut between = Background::default();
        for count in 1..=most {
            let added = (first + count - 1) % nodes;
            for (other, has_failed) in &near[added as usize] {
                match (other + nodes - first) % nodes < count - 1 {
                    true => between.remove(*has_failed),
                    false => between.add(*has_failed),
                }
            }
            if count > 1 {
                consider(first, 1, count, between);
            }
        }
    };
    // A first node that fails with no other node does not improve a group.
    let fails: Vec<bool> = near.iter().map(|pairs| pairs.iter().any(|(_, has_failed)| *has_failed)).collect();
    let starts = fails.iter().filter(|fails| **fails).count();
    let stride = |most: u32| {
        let each = most as usize * (2 * pairs.len()).div_ceil(nodes as usize);
        u32::try_from((starts * each).div_ceil(WORK)).unwrap_or(u32::MAX).max(1)
    };
    let [every, every_large] = [stride(largest.min(LARGE)), stride(largest).max(EVERY)];
    for first in (0..nodes).filter(|first| fails[*first as usize]) {
        if first.is_multiple_of(every_large) {
            search(first, largest);
        } else if first.is_multiple_of(every) {
            search(first, largest.min(LARGE));
        }
    }
    if every > 1
        && let Some(Part { group: Group { first, step: 1, count, .. }, .. }) = best.get()
    {
        // The others near the best one.
        for near in nodes + first - every..=nodes + first + every {
            search(near % nodes, (count + every).min(largest));
        }
    }
    for step in 2..=leaves {
        let mut between = vec![Background::default(); step as usize];
        for ([a, b], has_failed) in pairs.iter().filter(|([a, b], _)| a % step != b % step) {
            [a, b].into_iter().for_each(|node| between[(node % step) as usize].add(*has_failed));
        }
        for (first, between) in (0..step).zip(between) {
            consider(first, step, (nodes - first).div_ceil(step), between);
        }
    }
    let mut best = best.get()?;
    let failed = pairs.iter().filter(|(nodes, has_failed)| *has_failed && best.group.parts(*nodes));
    let ends = failed.flat_map(|(nodes, _)| nodes).filter(|node| best.group.has(**node));
    best.are_several = ends.collect::<BTreeSet<_>>().len() >= SEVERAL;
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::meet::schedule::{Extent, Schedule};

    const NODES: u32 = 64;

    fn pairs(fails: impl Fn(u32, u32) -> bool) -> Vec<([u32; 2], bool)> {
        let schedule = Schedule { nodes: NODES, extent: Extent::Doubling };
        let all = (0..schedule.rounds()).flat_map(|round| schedule.pairs(round));
        all.map(|(a, b)| ([a, b], fails(a, b))).collect()
    }

    /// Returns the group that explains the failures better than these nodes.
    fn found(pairs: &[([u32; 2], bool)], nodes: &[u32]) -> Option<Group> {
        let mut other = Other::default();
        other.nodes.resize(nodes.len(), Background::default());
        for (pair, has_failed) in pairs {
            let of = nodes.iter().position(|node| pair.contains(node));
            of.map_or(&mut other.left, |place| &mut other.nodes[place]).add(*has_failed);
        }
        find(NODES, pairs).filter(|part| part.is_better(&other, NODES)).map(|part| part.group)
    }

    #[test]
    fn neighbours_that_lose_some_paths_are_found_wherever_they_are() {
        for first in [0, 13, 60] {
            let group = Group { first, step: 1, count: 8, nodes: NODES };
            let fails = |a: u32, b: u32| group.parts([a, b]) && !(a + b).is_multiple_of(3);
            assert_eq!(found(&pairs(fails), &[]), Some(group));
            assert_eq!(found(&pairs(fails), &[first + 1]), Some(group), "one of them has failed most");
        }
    }

    #[test]
    fn nodes_of_every_so_many_are_found() {
        let group = Group { first: 2, step: 7, count: 9, nodes: NODES };
        assert_eq!(group.members().collect::<Vec<_>>(), [2, 9, 16, 23, 30, 37, 44, 51, 58]);
        let fails = |a: u32, b: u32| group.parts([a, b]) && !(a + b).is_multiple_of(3);
        assert_eq!(found(&pairs(fails), &[]), Some(group));
    }

    #[test]
    fn single_nodes_and_chance_are_no_group() {
        assert_eq!(found(&pairs(|_, _| false), &[]), None);
        // Two ports, next to each other, fail with most others.
        let is_bad =
            |a: u32, b: u32| [a, b].iter().any(|node| [20, 21].contains(node)) && !(a + b).is_multiple_of(4);
        assert_eq!(found(&pairs(is_bad), &[20, 21]), None);
        assert_eq!(found(&pairs(is_bad), &[]), None, "two nodes are not several");
        // Failures all over the job.
        assert_eq!(found(&pairs(|a, b| (a * 31 + b * 17).is_multiple_of(11)), &[]), None);
    }
}
