//! Faults of single nodes.

use std::net::IpAddr;

use fastrand::Rng;

use super::{Entry, any, is_at, is_everywhere, only};
use crate::preflight::judge::culprit::What;
use crate::preflight::judge::evidence::Gone;
use crate::preflight::judge::simulation::case::{Case, RailFailure};
use crate::preflight::who::addresses::Addresses;

pub(super) const KINDS: &[Entry] = &[
    ("dead node", 3, dead_node),
    ("node that no node connects to", 3, closed_node),
    ("node that never came", 3, absent),
    ("node gone", 3, |random, nodes| ending(random, nodes, Gone::Left("its connection has ended".into()))),
    ("node hangs", 3, |random, nodes| ending(random, nodes, Gone::Silent("nothing for 25 s".into()))),
    ("dead rail at a node", 3, dead_rail),
    ("node that only listens badly", 3, listener),
    ("two dead nodes", 5, two_dead),
    ("uneven rails", 3, uneven),
    ("duplicate address", 3, duplicate),
];

fn dead_node(random: &mut Rng, nodes: u32) -> Case {
    let (bad, rails) = (any(random, nodes), random.usize(1..=3));
    Case::sound(random, nodes, rails)
        .failing(move |attempt| attempt.has(bad).then_some(RailFailure::At(bad)))
        .named([bad], move |verdict| {
            only(verdict, |fault| {
                matches!(fault.what, What::Node { node, .. } if node == bad) && is_everywhere(fault, rails)
            })
        })
}

fn closed_node(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let mut case = Case::sound(random, nodes, 2).named([bad], move |verdict| {
        only(verdict, |fault| matches!(fault.what, What::Node { node, .. } if node == bad))
    });
    case.meets = Box::new(move |pair| !pair.contains(&bad));
    case
}

fn absent(random: &mut Rng, nodes: u32) -> Case {
    // Node 0 counts the others, so it is never the missing one.
    let bad = random.u32(1..nodes);
    let mut case = Case::sound(random, nodes, 2).named([bad], move |verdict| {
        only(verdict, |fault| matches!(fault.what, What::Gone { node, .. } if node == bad))
    });
    case.absent = [bad].into();
    case
}

fn ending(random: &mut Rng, nodes: u32, how: Gone) -> Case {
    let bad = random.u32(1..nodes);
    let round = random.u16(0..2);
    let mut case = Case::sound(random, nodes, 2).named([bad], move |verdict| {
        only(verdict, |fault| matches!(fault.what, What::Gone { node, .. } if node == bad))
    });
    case.ends = [(bad, (round, how))].into();
    case
}

fn dead_rail(random: &mut Rng, nodes: u32) -> Case {
    let (bad, rails) = (any(random, nodes), random.usize(2..=4));
    let rail = random.usize(0..rails);
    Case::sound(random, nodes, rails)
        .failing(move |attempt| (attempt.rail == rail && attempt.has(bad)).then_some(RailFailure::At(bad)))
        .named([bad], move |verdict| {
            only(verdict, |fault| {
                matches!(fault.what, What::Node { node, .. } if node == bad) && is_at(fault, rail)
            })
        })
}

fn listener(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let mut case = Case::sound(random, nodes, 1)
        .failing(move |attempt| attempt.has(bad).then_some(RailFailure::NotReached(bad)))
        .named([bad], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Node { node, .. } if node == bad))
        });
    case.members.iter_mut().for_each(|member| member.is_verbs = false);
    case
}

fn two_dead(random: &mut Rng, nodes: u32) -> Case {
    let first = any(random, nodes);
    let second = (first + random.u32(1..nodes)) % nodes;
    let bad = [first.min(second), first.max(second)];
    Case::sound(random, nodes, 2)
        .failing(move |attempt| bad.into_iter().find(|node| attempt.has(*node)).map(RailFailure::At))
        .named(bad, move |verdict| verdict.accused() == bad)
}

fn uneven(random: &mut Rng, nodes: u32) -> Case {
    let bad = any(random, nodes);
    let mut case = Case::sound(random, nodes, 4).named([bad], move |verdict| {
        only(verdict, |fault| matches!(fault.what, What::Uneven { .. }) && fault.accused() == [bad])
    });
    case.members[bad as usize].rails.truncate(random.usize(0..4));
    case
}

/// Packets to the address reach only the first of the two nodes.
fn duplicate(random: &mut Rng, nodes: u32) -> Case {
    let first = any(random, nodes);
    let second = (first + random.u32(1..nodes)) % nodes;
    let mut pair = [first, second];
    pair.sort_unstable();
    let mut case = Case::sound(random, nodes, 1)
        .failing(move |attempt| attempt.has(second).then_some(RailFailure::Between))
        .named([], move |verdict| {
            only(verdict, |fault| matches!(&fault.what, What::Duplicate(shared) if shared.nodes == pair))
        });
    for (member, node) in case.members.iter_mut().zip(0u32..) {
        let holder = if node == second { first } else { node };
        let [high, low] = [holder >> 8, holder & 255];
        let address = IpAddr::from([10, 0, high as u8, low as u8]);
        member.addresses = Addresses::on(&format!("machine {node}"), vec![Some(address.into())]);
    }
    case
}
