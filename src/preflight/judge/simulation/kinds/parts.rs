//! Faults that split the job.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{Entry, any, is_at, neighbours, only, scheduled};
use crate::preflight::judge::culprit::What;
use crate::preflight::judge::simulation::case::{Case, RailFailure};
use crate::preflight::judge::verdict::Verdict;

pub(super) const KINDS: &[Entry] = &[
    ("a quarter is cut off", 8, quarter),
    ("equal halves", 4, |random, nodes| leaves(random, nodes & !1, nodes / 2)),
    ("leaves of 4 to 8", 12, |random, nodes| {
        let size = random.u32(4..=8.min(nodes / 3));
        leaves(random, nodes, size)
    }),
    ("dead spine", 9, |random, nodes| {
        let count = random.u32(3..=6.min(nodes / 3));
        leaves(random, nodes, nodes.div_ceil(count))
    }),
    ("dead spine with one lucky pair", 9, lucky),
    ("halves joined by one node", 7, joined),
    ("half of the nodes are dead", 4, half_dead),
    ("node 0 is unreachable", 2, unreachable),
];

fn quarter(random: &mut Rng, nodes: u32) -> Case {
    let cut: BTreeSet<u32> = neighbours(random, nodes, nodes / 4);
    let rail = random.usize(0..2);
    let wanted: Vec<u32> = cut.iter().copied().collect();
    let guilty = cut.clone();
    Case::sound(random, nodes, 2)
        .failing(move |attempt| {
            (attempt.rail == rail && attempt.crosses(&cut)).then_some(RailFailure::Between)
        })
        .named(guilty, move |verdict| {
            only(verdict, |fault| {
                matches!(&fault.what, What::Cut { nodes, .. } if *nodes == wanted) && is_at(fault, rail)
            })
        })
}

/// Returns whether the verdict reports that the job is split, and each part is within one leaf.
fn is_apart(verdict: &Verdict, leaf: impl Fn(u32) -> u32) -> bool {
    let is_in_one = |part: &Vec<u32>| part.iter().all(|node| leaf(*node) == leaf(part[0]));
    only(verdict, |fault| matches!(&fault.what, What::Apart { parts, .. } if parts.iter().all(is_in_one)))
}

/// Leaves of this many nodes, which do not reach each other.
fn leaves(random: &mut Rng, nodes: u32, size: u32) -> Case {
    let leaf = move |node: u32| node / size;
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let [a, b] = attempt.nodes;
            (leaf(a) != leaf(b)).then_some(RailFailure::Between)
        })
        .named([], move |verdict| is_apart(verdict, leaf))
}

/// Makes leaves as [`leaves`] does, but one pair between two leaves passes.
fn lucky(random: &mut Rng, nodes: u32) -> Case {
    let size = nodes.div_ceil(random.u32(3..=6.min(nodes / 3)));
    let leaf = move |node: u32| node / size;
    let pair = loop {
        let pair = scheduled(random, nodes);
        if leaf(pair[0]) != leaf(pair[1]) {
            break pair;
        }
    };
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let [a, b] = attempt.nodes;
            (leaf(a) != leaf(b) && attempt.nodes != pair).then_some(RailFailure::Between)
        })
        .named([], |verdict| only(verdict, |fault| matches!(fault.what, What::Apart { .. })))
}

/// Splits the job into two halves, but one node reaches both.
fn joined(random: &mut Rng, nodes: u32) -> Case {
    let first = neighbours(random, nodes, nodes / 2);
    let between = any(random, nodes);
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            (attempt.crosses(&first) && !attempt.has(between)).then_some(RailFailure::Between)
        })
        .named([], move |verdict| {
            only(
                verdict,
                |fault| matches!(&fault.what, What::Apart { through, .. } if through.contains(&between)),
            )
        })
}

/// Makes half of the nodes faulty. So many nodes are never written to the list of nodes to exclude.
fn half_dead(random: &mut Rng, nodes: u32) -> Case {
    let bad = neighbours(random, nodes, nodes.div_ceil(2));
    let guilty = bad.clone();
    let way = RailFailure::At;
    Case::sound(random, nodes, 1)
        .failing(move |attempt| attempt.nodes.into_iter().find(|node| bad.contains(node)).map(way))
        .named(guilty, |verdict| !verdict.passed && verdict.exclude().is_empty())
}

fn unreachable(random: &mut Rng, nodes: u32) -> Case {
    // Node 0 joins, together with fewer than half of the other nodes.
    let here = random.u32(0..=nodes.div_ceil(2).saturating_sub(2));
    let mut case = Case::sound(random, nodes, 1).named([], |verdict| {
        only(verdict, |fault| matches!(fault.what, What::Unreached { .. })) && verdict.accused().is_empty()
    });
    case.absent = (1 + here..nodes).collect();
    case
}
