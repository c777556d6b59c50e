//! Two independent faults at once.

use fastrand::Rng;

use super::{Bounded, any, any_other, scheduled, slow::over_tcp};
use crate::preflight::judge::culprit::{Fault, What};
use crate::preflight::judge::outliers::Who;
use crate::preflight::judge::simulation::case::{Case, RailFailure};
use crate::preflight::judge::verdict::Verdict;

pub(super) const KINDS: &[Bounded] = &[
    ("two: dead node, dead link", 8, [95, 0], node_and_link),
    ("two: dead rails at two nodes", 8, [95, 0], two_rails),
    ("two: dead rail, slow node", 8, [95, 0], rail_and_slow),
    ("two: node that never came, dead rail", 8, [95, 0], absent_and_rail),
    ("two: dead link, slow link", 12, [95, 0], two_links),
    ("two: flapping port, dead rail", 16, [88, 0], flapping_and_rail),
    ("two: ports that each reach half of the fabric", 16, [75, 0], half_ports),
    ("two: three dead ports, port that reaches half", 32, [90, 0], dead_and_half),
    ("two: slow node, node that loses 2 %", 12, [95, 0], slow_and_lossy),
];

/// Returns whether the verdict reports this node on these rails.
fn names_node(verdict: &Verdict, node: u32) -> bool {
    let is_it = |what: &What| match what {
        What::Node { node: of, .. } | What::Flapping { node: of, .. } | What::Gone { node: of, .. } => {
            *of == node
        }
        _ => false,
    };
    verdict.faults.iter().any(|fault| is_it(&fault.what))
}

fn names_link(verdict: &Verdict, pair: [u32; 2]) -> bool {
    verdict.faults.iter().any(|fault| matches!(fault.what, What::Link { nodes } if nodes == pair))
}

fn names_slow(verdict: &Verdict, who: Who) -> bool {
    verdict.slow.iter().any(|slow| slow.who == who)
}

fn link_without(random: &mut Rng, nodes: u32, node: u32) -> [u32; 2] {
    loop {
        let link = scheduled(random, nodes);
        if !link.contains(&node) {
            return link;
        }
    }
}

fn node_and_link(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let link = link_without(random, nodes, bad);
    Case::sound(random, nodes, 2)
        .failing(move |attempt| match attempt.has(bad) {
            true => Some(RailFailure::At(bad)),
            false => (attempt.nodes == link).then_some(RailFailure::Between),
        })
        .named([bad], move |verdict| names_node(verdict, bad) && names_link(verdict, link))
}

fn two_rails(random: &mut Rng, nodes: u32) -> Case {
    let bad = [(any(random, nodes), random.usize(0..4)), (any(random, nodes), random.usize(0..4))];
    let guilty = bad.map(|(node, _)| node);
    Case::sound(random, nodes, 4)
        .failing(move |attempt| {
            let ill = bad.into_iter().find(|(node, rail)| attempt.has(*node) && attempt.rail == *rail);
            ill.map(|(node, _)| RailFailure::At(node))
        })
        .named(guilty, move |verdict| guilty.into_iter().all(|node| names_node(verdict, node)))
}

fn rail_and_slow(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let slow = any_other(random, nodes, bad);
    Case::sound(random, nodes, 2)
        .failing(move |attempt| (attempt.has(bad) && attempt.rail == 0).then_some(RailFailure::At(bad)))
        .measuring(move |attempt, _, measured, _| {
            if attempt.has(slow) && attempt.rail == 1 {
                measured.gbps /= 3.0;
            }
        })
        .named([bad, slow], move |verdict| {
            names_node(verdict, bad) && names_slow(verdict, Who::Node { node: slow, rail: 1 })
        })
}

fn absent_and_rail(random: &mut Rng, nodes: u32) -> Case {
    let gone = random.u32(1..nodes);
    let bad = any_other(random, nodes, gone);
    let mut case = Case::sound(random, nodes, 2)
        .failing(move |attempt| (attempt.has(bad) && attempt.rail == 1).then_some(RailFailure::At(bad)))
        .named([gone, bad], move |verdict| names_node(verdict, gone) && names_node(verdict, bad));
    case.absent = [gone].into();
    case
}

fn two_links(random: &mut Rng, nodes: u32) -> Case {
    let dead = scheduled(random, nodes);
    let slow = loop {
        let link = scheduled(random, nodes);
        if link != dead {
            break link;
        }
    };
    Case::sound(random, nodes, 2)
        .failing(move |attempt| (attempt.nodes == dead).then_some(RailFailure::Between))
        .measuring(move |attempt, _, measured, _| {
            if attempt.nodes == slow {
                measured.gbps /= 4.0;
            }
        })
        .named([], move |verdict| {
            names_link(verdict, dead) && names_slow(verdict, Who::Link { nodes: slow, rail: 0 })
        })
}

fn flapping_and_rail(random: &mut Rng, nodes: u32) -> Case {
    let flaps = any(random, nodes);
    let dead = any_other(random, nodes, flaps);
    Case::sound(random, nodes, 2)
        .failing(move |attempt| match attempt.rail {
            0 if attempt.has(flaps) && attempt.of_try() < 0.5 => Some(RailFailure::At(flaps)),
            1 if attempt.has(dead) => Some(RailFailure::At(dead)),
            _ => None,
        })
        .named([flaps, dead], move |verdict| names_node(verdict, flaps) && names_node(verdict, dead))
        .that_may_hide()
}

fn half_ports(random: &mut Rng, nodes: u32) -> Case {
    let first = any(random, nodes);
    let bad = [first, any_other(random, nodes, first)];
    let salt = random.u32(0..2);
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let is_missed = |node: &&u32| attempt.has(**node) && attempt.other(**node) % 2 == salt;
            bad.iter().find(is_missed).map(|_| RailFailure::Between)
        })
        .named(bad, move |verdict| bad.into_iter().all(|node| names_node(verdict, node)))
        .that_may_hide()
}

/// The verdict may not name a group of nodes that only happen to be around the dead ones.
fn dead_and_half(random: &mut Rng, nodes: u32) -> Case {
    let mut bad: Vec<u32> = Vec::new();
    while bad.len() < 4 {
        let node = any(random, nodes);
        if !bad.contains(&node) {
            bad.push(node);
        }
    }
    let half = bad[3];
    let dead = [bad[0], bad[1], bad[2]];
    let salt = random.u32(0..2);
    let is_group = |fault: &Fault| matches!(fault.what, What::Partial { .. });
    Case::sound(random, nodes, 1)
        .failing(move |attempt| match dead.into_iter().find(|node| attempt.has(*node)) {
            Some(node) => Some(RailFailure::At(node)),
            None if attempt.has(half) && attempt.other(half) % 2 == salt => Some(RailFailure::Between),
            None => None,
        })
        .named(bad.clone(), move |verdict| {
            dead.into_iter().all(|node| names_node(verdict, node)) && !verdict.faults.iter().any(is_group)
        })
}

fn slow_and_lossy(random: &mut Rng, nodes: u32) -> Case {
    let slow = any(random, nodes);
    let lossy = any_other(random, nodes, slow);
    over_tcp(Case::sound(random, nodes, 1))
        .measuring(move |attempt, node, measured, seen| {
            if attempt.has(slow) {
                measured.gbps /= 3.0;
            }
            super::slow::lose(attempt, node, if node == lossy { 2.0 } else { 0.001 }, seen);
        })
        .named([slow, lossy], move |verdict| {
            [slow, lossy].into_iter().all(|node| names_slow(verdict, Who::Node { node, rail: 0 }))
        })
}
