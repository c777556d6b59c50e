//! Leaves: nodes that share a switch, either neighbors or every so many nodes.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::slow::{busy_cpu, lose, over_tcp};
use super::{Bounded, grave, is_alike, neighbours};
use crate::preflight::judge::culprit::What;
use crate::preflight::judge::outliers::{Basis, Who};
use crate::preflight::judge::simulation::case::{Attempt, Case, RailFailure};
use crate::preflight::judge::verdict::Verdict;

pub(super) const KINDS: &[Bounded] = &[
    ("leaf that loses half of its paths", 16, [90, 8], |random, nodes| {
        partial(random, nodes, 0.5, Leaf::Near)
    }),
    ("leaf that loses a third of its paths", 16, [90, 8], |random, nodes| {
        partial(random, nodes, 0.33, Leaf::Near)
    }),
    ("leaf that loses a fifth of its paths", 32, [90, 8], |random, nodes| {
        partial(random, nodes, 0.2, Leaf::Near)
    }),
    ("leaf that loses four fifths of its paths", 16, [90, 8], nearly_cut),
    ("leaf by modulo that loses half of its paths", 16, [90, 8], |random, nodes| {
        partial(random, nodes, 0.5, Leaf::Modulo)
    }),
    ("leaf by modulo that loses a fifth of its paths", 32, [90, 8], |random, nodes| {
        partial(random, nodes, 0.2, Leaf::Modulo)
    }),
    ("leaf that loses half of its paths in one direction", 16, [90, 8], one_direction),
    ("leaf that loses half of its paths on one of four rails", 16, [90, 8], dead_rail),
    ("leaf that loses a third of its paths, TCP, busy CPU", 16, [90, 8], partial_busy),
    ("leaf with a slow uplink", 16, [90, 8], |random, nodes| slow_uplink(random, nodes, 1.0, Leaf::Near)),
    ("leaf with an uplink that is slow for half of its flows", 24, [90, 8], |random, nodes| {
        slow_uplink(random, nodes, 0.5, Leaf::Near)
    }),
    ("leaf by modulo with a slow uplink", 16, [90, 8], |random, nodes| {
        slow_uplink(random, nodes, 1.0, Leaf::Modulo)
    }),
    ("leaf with an uplink that loses 1 %", 16, [90, 8], lossy_uplink),
    ("leaf by modulo that is cut off", 12, [90, 0], cut_modulo),
    ("slow leaf", 12, [95, 0], |random, nodes| slow_leaf(random, nodes, Leaf::Near)),
    ("slow leaf by modulo", 12, [95, 0], |random, nodes| slow_leaf(random, nodes, Leaf::Modulo)),
    ("third without a rail's switch", 9, [95, 0], |random, nodes| without_switch(random, nodes, Leaf::Near)),
    ("third by modulo without a rail's switch", 9, [95, 0], |random, nodes| {
        without_switch(random, nodes, Leaf::Modulo)
    }),
];

/// Which nodes share a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    /// Neighbors in index.
    Near,
    /// Every so many nodes.
    Modulo,
}

/// Returns the nodes of a leaf: at least three, and at most a third of all.
fn leaf(random: &mut Rng, nodes: u32, kind: Leaf) -> BTreeSet<u32> {
    match kind {
        Leaf::Near => {
            let size = random.u32(4.min(nodes / 4)..=(nodes / 3).min(32));
            let first = random.u32(0..=nodes - size);
            (first..first + size).collect()
        }
        Leaf::Modulo => {
            let count = random.u32(3..=(nodes / 4).min(300));
            let own = random.u32(0..count);
            (0..nodes).filter(|node| node % count == own).collect()
        }
    }
}

/// Returns whether the verdict names the leaf as a group or, without neighbors, the paths.
fn names_group(verdict: &Verdict, leaf: &BTreeSet<u32>, is_near: bool) -> bool {
    grave(verdict).any(|fault| match &fault.what {
        What::Partial { nodes, .. } => is_alike(nodes, leaf),
        What::Scattered { .. } => !is_near,
        _ => false,
    })
}

fn names_slow_group(verdict: &Verdict, leaf: &BTreeSet<u32>) -> bool {
    verdict.slow.iter().any(|slow| match slow.who {
        Who::Group { group, .. } => is_alike(&group.members().collect::<Vec<_>>(), leaf),
        _ => false,
    })
}

fn partial(random: &mut Rng, nodes: u32, share: f64, kind: Leaf) -> Case {
    let leaf = leaf(random, nodes, kind);
    let (wanted, is_fixed) = (leaf.clone(), random.bool());
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let draw = if is_fixed { attempt.of_pair() } else { attempt.of_try() };
            (attempt.crosses(&leaf) && draw < share).then_some(RailFailure::Between)
        })
        .named([], move |verdict| names_group(verdict, &wanted, kind == Leaf::Near))
        .that_may_hide()
}

/// As far as the tests show, such a leaf may be cut off.
fn nearly_cut(random: &mut Rng, nodes: u32) -> Case {
    let leaf = leaf(random, nodes, Leaf::Near);
    let wanted = leaf.clone();
    Case::sound(random, nodes, 1)
        .failing({
            let leaf = leaf.clone();
            move |attempt| (attempt.crosses(&leaf) && attempt.of_pair() < 0.8).then_some(RailFailure::Between)
        })
        .named(leaf, move |verdict| {
            grave(verdict).any(|fault| match &fault.what {
                What::Partial { nodes, .. } | What::Cut { nodes, .. } => is_alike(nodes, &wanted),
                What::Apart { parts, .. } => parts.iter().any(|nodes| is_alike(nodes, &wanted)),
                _ => false,
            })
        })
}

/// Loses what the leaf sends, so that the other end only waits.
fn one_direction(random: &mut Rng, nodes: u32) -> Case {
    let leaf = leaf(random, nodes, Leaf::Near);
    let wanted = leaf.clone();
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let own = attempt.nodes[usize::from(!leaf.contains(&attempt.nodes[0]))];
            (attempt.crosses(&leaf) && attempt.of_pair() < 0.5).then_some(RailFailure::At(own))
        })
        .named([], move |verdict| names_group(verdict, &wanted, true))
        .that_may_hide()
}

fn dead_rail(random: &mut Rng, nodes: u32) -> Case {
    let (leaf, rail) = (leaf(random, nodes, Leaf::Near), random.usize(0..4));
    let wanted = leaf.clone();
    Case::sound(random, nodes, 4)
        .failing(move |attempt| {
            let is_lost = attempt.rail == rail && attempt.crosses(&leaf) && attempt.of_pair() < 0.5;
            is_lost.then_some(RailFailure::Between)
        })
        .named([], move |verdict| names_group(verdict, &wanted, true))
        .that_may_hide()
}

fn partial_busy(random: &mut Rng, nodes: u32) -> Case {
    let leaf = leaf(random, nodes, Leaf::Near);
    let wanted = leaf.clone();
    over_tcp(Case::sound(random, nodes, 2))
        .failing(move |attempt| {
            (attempt.crosses(&leaf) && attempt.of_pair() < 0.33).then_some(RailFailure::Between)
        })
        .measuring(|attempt, node, measured, seen| busy_cpu(attempt, node, 0.2, measured, seen))
        .named([], move |verdict| names_group(verdict, &wanted, true))
        .that_may_hide()
}

/// Makes this share of the flows through the leaf's uplinks slow.
fn slow_uplink(random: &mut Rng, nodes: u32, share: f64, kind: Leaf) -> Case {
    let leaf = leaf(random, nodes, kind);
    let wanted = leaf.clone();
    Case::sound(random, nodes, 1)
        .measuring(move |attempt, _, measured, _| {
            if attempt.crosses(&leaf) && attempt.of_pair() < share {
                measured.gbps /= 4.0;
            }
        })
        .named([], move |verdict| names_slow_group(verdict, &wanted))
}

fn lossy_uplink(random: &mut Rng, nodes: u32) -> Case {
    let leaf = leaf(random, nodes, Leaf::Near);
    let wanted = leaf.clone();
    over_tcp(Case::sound(random, nodes, 1))
        .measuring(move |attempt, node, _, seen| {
            lose(attempt, node, if attempt.crosses(&leaf) { 1.0 } else { 0.001 }, seen);
        })
        .named([], move |verdict| names_slow_group(verdict, &wanted))
}

fn cut_modulo(random: &mut Rng, nodes: u32) -> Case {
    let leaf = leaf(random, nodes, Leaf::Modulo);
    let wanted: Vec<u32> = leaf.iter().copied().collect();
    Case::sound(random, nodes, 1)
        .failing({
            let leaf = leaf.clone();
            move |attempt| attempt.crosses(&leaf).then_some(RailFailure::Between)
        })
        .named(leaf, move |verdict| verdict.accused() == wanted)
}

/// Makes all ports of a leaf slow, as with a wrong configuration of its switch.
fn slow_leaf(random: &mut Rng, nodes: u32, kind: Leaf) -> Case {
    let leaf = leaf(random, nodes, kind);
    let guilty = leaf.clone();
    let is_any = move |attempt: &Attempt| attempt.nodes.iter().any(|node| leaf.contains(node));
    let wanted = guilty.clone();
    Case::sound(random, nodes, 1)
        .measuring(move |attempt, _, measured, _| {
            if is_any(attempt) {
                measured.gbps /= 4.0;
            }
        })
        .named(guilty, move |verdict| {
            let told: BTreeSet<u32> = verdict
                .slow
                .iter()
                .filter_map(|slow| match slow.who {
                    Who::Node { node, .. } if slow.basis != Basis::Wanted => Some(node),
                    _ => None,
                })
                .collect();
            told == wanted
        })
}

/// Takes one of the rails from a third of the nodes.
fn without_switch(random: &mut Rng, nodes: u32, kind: Leaf) -> Case {
    let rail = random.usize(0..4);
    let leaf: BTreeSet<u32> = match kind {
        Leaf::Near => neighbours(random, nodes, nodes / 3),
        Leaf::Modulo => {
            let own = random.u32(0..3);
            (0..nodes).filter(|node| node % 3 == own).take(nodes as usize / 3).collect()
        }
    };
    let guilty = leaf.clone();
    let wanted = leaf.clone();
    Case::sound(random, nodes, 4)
        .failing(move |attempt| {
            let is_lost = attempt.rail == rail && attempt.nodes.iter().any(|node| leaf.contains(node));
            is_lost.then_some(RailFailure::Between)
        })
        .named(guilty, move |verdict| {
            let told = verdict.accused();
            told.len() == wanted.len() && told.iter().all(|node| wanted.contains(node))
        })
}
