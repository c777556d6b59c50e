//! Rails that pass, but are slow or lose packets.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{Entry, any, scheduled};
use crate::preflight::judge::outliers::{Basis, Figure, Who};
use crate::preflight::judge::simulation::case::{Attempt, Case};
use crate::preflight::judge::verdict::Verdict;
use crate::preflight::prove::pair::{Measured, Seen, Sent};

pub(super) const KINDS: &[Entry] = &[
    ("slow rail at a node", 4, |random, nodes| slow_rail(random, nodes, true)),
    ("slow rail at a node over TCP", 4, |random, nodes| slow_rail(random, nodes, false)),
    ("slow node", 4, slow_node),
    ("late node", 4, late_node),
    ("two slow nodes of four", 4, two_of_four),
    ("slow link", 4, slow_link),
    ("all below half of the port's rate", 2, all_slow),
    ("a rail that is slow everywhere", 3, whole_rail),
    ("node that loses 1 %", 4, |random, nodes| lossy_node(random, nodes, 1.0, false)),
    ("node that loses 10 %", 4, |random, nodes| lossy_node(random, nodes, 10.0, false)),
    ("rail of a node that loses 1 %", 4, |random, nodes| lossy_node(random, nodes, 1.0, true)),
    ("link that loses 1 %", 4, |random, nodes| lossy_link(random, nodes, 1.0)),
    ("link that loses 10 %", 4, |random, nodes| lossy_link(random, nodes, 10.0)),
    ("sound on busy machines", 3, busy),
    ("sound in two halls", 6, halls),
];

fn slow_rail(random: &mut Rng, nodes: u32, is_verbs: bool) -> Case {
    let (bad, rail) = (any(random, nodes), random.usize(0..2));
    let case = Case::sound(random, nodes, 2);
    let case = if is_verbs { case } else { over_tcp(case) };
    case.measuring(move |attempt, _, measured, _| {
        // The port has trained to a quarter of its rate.
        if attempt.has(bad) && attempt.rail == rail {
            measured.gbps /= 4.0;
        }
    })
    .named([bad], move |verdict| only(verdict, &[Who::Node { node: bad, rail }]))
}

fn slow_node(random: &mut Rng, nodes: u32) -> Case {
    let (bad, rails) = (any(random, nodes), random.usize(1..=4));
    let all: Vec<Who> = (0..rails).map(|rail| Who::Node { node: bad, rail }).collect();
    Case::sound(random, nodes, rails)
        .measuring(move |attempt, _, measured, _| {
            if attempt.has(bad) {
                measured.gbps /= 3.0;
            }
        })
        .named([bad], move |verdict| only(verdict, &all))
}

fn late_node(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let all = [0, 1].map(|rail| Who::Node { node: bad, rail });
    Case::sound(random, nodes, 2)
        .measuring(move |attempt, _, measured, _| {
            if attempt.has(bad) {
                measured.latency_us += 12.0;
            }
        })
        .named([bad], move |verdict| only(verdict, &all))
}

fn two_of_four(random: &mut Rng, _: u32) -> Case {
    let first = any(random, 4);
    let second = (first + random.u32(1..4)) % 4;
    let all = [first.min(second), first.max(second)].map(|node| Who::Node { node, rail: 0 });
    Case::sound(random, 4, 2)
        .measuring(move |attempt, _, measured, _| {
            if attempt.rail == 0 && (attempt.has(first) || attempt.has(second)) {
                measured.gbps /= 3.0;
            }
        })
        .named([first, second], move |verdict| only(verdict, &all))
}

fn slow_link(random: &mut Rng, nodes: u32) -> Case {
    let (link, rail) = (scheduled(random, nodes), random.usize(0..2));
    Case::sound(random, nodes, 2)
        .measuring(move |attempt, _, measured, _| {
            if attempt.nodes == link && attempt.rail == rail {
                measured.gbps /= 4.0;
            }
        })
        .named([], move |verdict| only(verdict, &[Who::Link { nodes: link, rail }]))
}

fn all_slow(random: &mut Rng, nodes: u32) -> Case {
    Case::sound(random, nodes, 1).measuring(|_, _, measured, _| measured.gbps *= 0.4).named(
        [],
        move |verdict| {
            let who = if nodes == 2 { Who::Link { nodes: [0, 1], rail: 0 } } else { Who::Rail { rail: 0 } };
            only(verdict, &[who]) && verdict.slow.iter().all(|slow| slow.basis == Basis::Rate)
        },
    )
}

fn whole_rail(random: &mut Rng, nodes: u32) -> Case {
    let rails = random.usize(2..=4);
    let bad = random.usize(0..rails);
    over_tcp(Case::sound(random, nodes, rails))
        .measuring(move |attempt, _, measured, _| {
            if attempt.rail == bad {
                measured.gbps /= 4.0;
            }
        })
        .named([], move |verdict| only(verdict, &[Who::Rail { rail: bad }]))
}

fn lossy_node(random: &mut Rng, nodes: u32, percent: f64, is_rail: bool) -> Case {
    let bad = any(random, nodes);
    let rails: BTreeSet<usize> = if is_rail { [random.usize(0..2)].into() } else { [0, 1].into() };
    let is_sent = random.bool();
    let all: Vec<Who> = rails.iter().map(|rail| Who::Node { node: bad, rail: *rail }).collect();
    over_tcp(Case::sound(random, nodes, 2))
        .measuring(move |attempt, node, _, seen| {
            let by = if is_sent { node } else { attempt.other(node) };
            let is_lossy = by == bad && rails.contains(&attempt.rail);
            lose(attempt, node, if is_lossy { percent } else { 0.001 }, seen);
        })
        .named([bad], move |verdict| lose_only(verdict, &all))
}

fn lossy_link(random: &mut Rng, nodes: u32, percent: f64) -> Case {
    let (link, rail) = (scheduled(random, nodes), random.usize(0..2));
    over_tcp(Case::sound(random, nodes, 2))
        .measuring(move |attempt, node, _, seen| {
            let is_lossy = attempt.nodes == link && attempt.rail == rail;
            lose(attempt, node, if is_lossy { percent } else { 0.001 }, seen);
        })
        .named([], move |verdict| lose_only(verdict, &[Who::Link { nodes: link, rail }]))
}

/// Makes one of the two nodes busy with something else in a tenth of the tries.
fn busy(random: &mut Rng, nodes: u32) -> Case {
    let is_verbs = random.bool();
    let case = Case::sound(random, nodes, 2);
    let case = if is_verbs { case } else { over_tcp(case) };
    case.measuring(move |attempt, node, measured, seen| {
        let draw = attempt.of_try();
        if draw < 0.1 {
            measured.latency_us *= 1.0 + (draw * 500.0) as f32;
            measured.gbps *= 0.1 + (draw * 9.0) as f32;
        }
        if !is_verbs {
            lose(attempt, node, if draw < 0.02 { 0.4 } else { 0.001 }, seen);
        }
    })
}

/// Makes the processor of one of the two nodes busy in this share of the tries.
pub(super) fn busy_cpu(attempt: &Attempt, node: u32, share: f64, measured: &mut Measured, seen: &mut Seen) {
    let draw = attempt.of_try() / share;
    if draw < 1.0 {
        measured.latency_us *= 1.0 + (draw * 50.0) as f32;
        measured.gbps *= 0.1 + (draw * 0.9) as f32;
    }
    lose(attempt, node, if draw < 0.2 { 0.4 } else { 0.001 }, seen);
}

/// Makes the links between two halls fewer and longer.
fn halls(random: &mut Rng, nodes: u32) -> Case {
    let border = random.u32(2..nodes - 1);
    let first: BTreeSet<u32> = (0..border).collect();
    Case::sound(random, nodes, 2).measuring(move |attempt, _, measured, _| {
        if attempt.crosses(&first) {
            measured.gbps *= 0.6;
            measured.latency_us += 14.0;
        }
    })
}

pub(super) fn over_tcp(mut case: Case) -> Case {
    for member in &mut case.members {
        (member.is_verbs, member.rates) = (false, Vec::new());
    }
    case
}

/// Sets what an end has sent if it loses this percentage of its packets. They leave in bursts, and each
/// burst is lost as a whole.
pub(super) fn lose(attempt: &Attempt, node: u32, percent: f64, seen: &mut Seen) {
    const BURSTS: u32 = 600;
    const BURST: u64 = 44;
    let mut random = Rng::with_seed((attempt.of_try() * 1e15) as u64 ^ u64::from(node));
    // Draws how many bursts arrive before the next one that is lost.
    let mut arrive = || (random.f64().ln() / (1.0 - percent / 100.0).ln()) as u32;
    let (mut lost, mut next) = (0, arrive());
    while next < BURSTS {
        lost += 1;
        next = next.saturating_add(1).saturating_add(arrive());
    }
    seen.sent = Some(Sent { packets: u64::from(BURSTS) * BURST + lost * BURST, again: lost * BURST });
}

/// Returns whether exactly these are slow.
fn only(verdict: &Verdict, wanted: &[Who]) -> bool {
    let mut told: Vec<Who> = verdict.slow.iter().map(|slow| slow.who).collect();
    told.dedup();
    told == wanted && verdict.faults.is_empty()
}

fn lose_only(verdict: &Verdict, wanted: &[Who]) -> bool {
    only(verdict, wanted) && verdict.slow.iter().all(|slow| slow.figure == Figure::Resent)
}
