//! What the ends of a pair report: members that lie, faults in one direction, busy processors.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::slow::{busy_cpu, over_tcp};
use super::{Bounded, any, only, scheduled};
use crate::preflight::judge::culprit::What;
use crate::preflight::judge::outliers::{Figure, Who};
use crate::preflight::judge::simulation::case::{Case, RailFailure};

pub(super) const KINDS: &[Bounded] = &[
    ("member that says that one sound node fails", 4, [95, 0], |random, nodes| liars(random, nodes, 1)),
    ("five members that say that one sound node fails", 12, [95, 0], |random, nodes| liars(random, nodes, 5)),
    ("a third of the members say that one sound node fails", 6, [95, 0], |random, nodes| {
        liars(random, nodes, nodes / 3)
    }),
    ("member that says that all others fail", 6, [95, 0], accuser),
    ("dead node that says that it passes", 6, [95, 0], denier),
    ("one direction: node whose sends are lost", 4, [95, 0], |random, nodes| one_way(random, nodes, true)),
    ("one direction: node that receives nothing", 4, [95, 0], |random, nodes| one_way(random, nodes, false)),
    ("one direction: dead link", 4, [95, 0], link_one_way),
    ("one direction: slow sender", 4, [95, 0], slow_sender),
    ("one direction: node that cannot connect over TCP", 4, [95, 0], cannot_connect),
    ("busy CPU: sound over TCP", 3, [95, 8], sound_busy),
    ("busy CPU: sound over soft-RoCE", 3, [95, 8], soft_busy),
    ("busy CPU: dead link over TCP", 8, [95, 8], link_busy),
    ("busy CPU: slow node over TCP", 16, [95, 8], slow_busy),
];

/// Lets this many members say that each try with one sound node fails.
fn liars(random: &mut Rng, nodes: u32, count: u32) -> Case {
    let victim = any(random, nodes);
    let mut all: Vec<u32> = (0..nodes).filter(|node| *node != victim).collect();
    random.shuffle(&mut all);
    // They must be in pairs with it, or nothing shows.
    let liars: BTreeSet<u32> = all.into_iter().take(count as usize).collect();
    let guilty = liars.clone();
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let is_claimed = attempt.has(victim) && liars.contains(&attempt.other(victim));
            is_claimed.then(|| RailFailure::Claimed(attempt.other(victim)))
        })
        .named(guilty, |verdict| !verdict.passed)
        .that_may_hide()
}

fn accuser(random: &mut Rng, nodes: u32) -> Case {
    let liar = any(random, nodes);
    Case::sound(random, nodes, 1)
        .failing(move |attempt| attempt.has(liar).then_some(RailFailure::Claimed(liar)))
        .named([liar], |verdict| !verdict.passed)
}

fn denier(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    Case::sound(random, nodes, 1)
        .failing(move |attempt| attempt.has(bad).then(|| RailFailure::Claimed(attempt.other(bad))))
        .named([bad], |verdict| !verdict.passed)
}

/// The end that sends knows of the loss, and the other one only waits.
fn one_way(random: &mut Rng, nodes: u32, is_sent: bool) -> Case {
    let bad = any(random, nodes);
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let knows = if is_sent { bad } else { attempt.other(bad) };
            attempt.has(bad).then_some(RailFailure::At(knows))
        })
        .named([bad], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Node { node, .. } if node == bad))
        })
}

fn link_one_way(random: &mut Rng, nodes: u32) -> Case {
    let (link, end) = (scheduled(random, nodes), random.usize(0..2));
    Case::sound(random, nodes, 1)
        .failing(move |attempt| (attempt.nodes == link).then_some(RailFailure::At(link[end])))
        .named([], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Link { nodes } if nodes == link))
        })
}

fn slow_sender(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    Case::sound(random, nodes, 1)
        .measuring(move |_, node, measured, _| {
            if node == bad {
                measured.gbps /= 4.0;
            }
        })
        .named([bad], move |verdict| {
            verdict.slow.iter().all(|slow| slow.who == Who::Node { node: bad, rail: 0 })
                && !verdict.slow.is_empty()
        })
}

fn cannot_connect(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let mut case = Case::sound(random, nodes, 1)
        .failing(move |attempt| attempt.has(bad).then(|| RailFailure::NotReached(attempt.other(bad))))
        .named([bad], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Node { node, .. } if node == bad))
        });
    case.members.iter_mut().for_each(|member| member.is_verbs = false);
    case
}

fn sound_busy(random: &mut Rng, nodes: u32) -> Case {
    let share = 0.1 + 0.2 * random.f64();
    over_tcp(Case::sound(random, nodes, 2))
        .measuring(move |attempt, node, measured, seen| busy_cpu(attempt, node, share, measured, seen))
}

fn soft_busy(random: &mut Rng, nodes: u32) -> Case {
    let share = 0.1 + 0.2 * random.f64();
    let mut case = Case::sound(random, nodes, 1)
        .measuring(move |attempt, node, measured, seen| busy_cpu(attempt, node, share, measured, seen));
    for member in &mut case.members {
        (member.is_soft, member.rates) = (true, vec![0.0]);
    }
    case
}

fn link_busy(random: &mut Rng, nodes: u32) -> Case {
    let link = scheduled(random, nodes);
    over_tcp(Case::sound(random, nodes, 1))
        .failing(move |attempt| (attempt.nodes == link).then_some(RailFailure::Between))
        .measuring(|attempt, node, measured, seen| busy_cpu(attempt, node, 0.2, measured, seen))
        .named([], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Link { nodes } if nodes == link))
        })
}

fn slow_busy(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    over_tcp(Case::sound(random, nodes, 1))
        .measuring(move |attempt, node, measured, seen| {
            busy_cpu(attempt, node, 0.2, measured, seen);
            if attempt.has(bad) {
                measured.gbps /= 8.0;
            }
        })
        .named([bad], move |verdict| {
            let is_it = Who::Node { node: bad, rail: 0 };
            verdict.slow.iter().any(|slow| slow.who == is_it && slow.figure == Figure::Bandwidth)
        })
}
