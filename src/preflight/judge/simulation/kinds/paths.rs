//! Faults on the path between healthy nodes, and ports that pass with only some nodes.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{Entry, any, grave, is_alike, is_at, neighbours, only, scheduled};
use crate::preflight::judge::culprit::{Fault, What};
use crate::preflight::judge::simulation::case::{Case, RailFailure};

pub(super) const KINDS: &[Entry] = &[
    ("dead link", 4, dead_link),
    ("two dead links", 6, two_links),
    ("ECMP, 10 % of the pairs", 8, |random, nodes| ecmp(random, nodes, 0.1)),
    ("ECMP, 30 % of the pairs", 8, |random, nodes| ecmp(random, nodes, 0.3)),
    ("ECMP, 50 % of the pairs", 8, |random, nodes| ecmp(random, nodes, 0.5)),
    ("port that reaches half of the fabric", 12, half_port),
    ("port that flaps", 12, flapping),
];

fn dead_link(random: &mut Rng, nodes: u32) -> Case {
    let (link, rail) = (scheduled(random, nodes), random.usize(0..2));
    Case::sound(random, nodes, 2)
        .failing(move |attempt| {
            (attempt.rail == rail && attempt.nodes == link).then_some(RailFailure::Between)
        })
        .named([], move |verdict| {
            only(verdict, |fault| {
                matches!(fault.what, What::Link { nodes } if nodes == link) && is_at(fault, rail)
            })
        })
}

fn two_links(random: &mut Rng, nodes: u32) -> Case {
    let links: BTreeSet<[u32; 2]> = [scheduled(random, nodes), scheduled(random, nodes)].into();
    let wanted = links.clone();
    Case::sound(random, nodes, 1)
        .failing(move |attempt| links.contains(&attempt.nodes).then_some(RailFailure::Between))
        .named([], move |verdict| {
            let of_fault = |what: &What| match what {
                What::Link { nodes } => Some(*nodes),
                _ => None,
            };
            let told: Option<BTreeSet<[u32; 2]>> =
                grave(verdict).map(|fault| of_fault(&fault.what)).collect();
            told.is_some_and(|told| told == wanted)
        })
}

/// Returns half of the nodes: neighbors, or any nodes.
fn half_of(random: &mut Rng, nodes: u32) -> BTreeSet<u32> {
    match random.bool() {
        true => neighbours(random, nodes, nodes / 2),
        false => {
            let mut all: Vec<u32> = (0..nodes).collect();
            random.shuffle(&mut all);
            all.into_iter().take(nodes as usize / 2).collect()
        }
    }
}

/// Makes some of the paths between two halves dead. Flows are hashed onto the paths, either always in
/// the same way for a pair, or anew in each try. The failure is in both directions; or in one
/// direction, so that only one end knows it; or over verbs, where the end that sends first knows it.
fn ecmp(random: &mut Rng, nodes: u32, share: f64) -> Case {
    let half = half_of(random, nodes);
    let group = half.clone();
    let (is_fixed, knows) = (random.bool(), random.usize(0..3));
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            let draw = if is_fixed { attempt.of_pair() } else { attempt.of_try() };
            let ill = match knows {
                0 => RailFailure::At(attempt.nodes[usize::from(draw < share / 2.0)]),
                1 => RailFailure::At(attempt.nodes[0]),
                _ => RailFailure::Between,
            };
            (attempt.crosses(&half) && draw < share).then_some(ill)
        })
        .named([], move |verdict| {
            // If there are only a few, they are reported one by one.
            let is_one_by_one =
                |fault: &Fault| matches!(fault.what, What::Link { .. } | What::Unsteady { .. });
            only(verdict, |fault| match &fault.what {
                What::Scattered { .. } => true,
                What::Partial { nodes, .. } => {
                    let rest: BTreeSet<u32> = (0..verdict.evidence.members().len() as u32)
                        .filter(|node| !group.contains(node))
                        .collect();
                    is_alike(nodes, &group) || is_alike(nodes, &rest)
                }
                _ => false,
            }) || verdict.faults.iter().all(is_one_by_one) && !verdict.faults.is_empty()
        })
        .that_may_hide()
}

/// Makes a port that does not reach half of the nodes, always the same ones.
fn half_port(random: &mut Rng, nodes: u32) -> Case {
    let (bad, rail) = (any(random, nodes), random.usize(0..2));
    let half = half_of(random, nodes);
    Case::sound(random, nodes, 2)
        .failing(move |attempt| {
            let is_missed = attempt.has(bad) && half.contains(&attempt.other(bad));
            (attempt.rail == rail && is_missed).then_some(RailFailure::Between)
        })
        .named([bad], move |verdict| {
            only(verdict, |fault| {
                matches!(fault.what, What::Node { node, .. } if node == bad) && is_at(fault, rail)
            })
        })
        .that_may_hide()
}

/// Makes a port that is down for about half of the time.
fn flapping(random: &mut Rng, nodes: u32) -> Case {
    let (bad, rail, share) = (any(random, nodes), random.usize(0..2), 0.4 + 0.3 * random.f64());
    Case::sound(random, nodes, 2)
        .failing(move |attempt| {
            let is_down = attempt.rail == rail && attempt.has(bad) && attempt.of_try() < share;
            is_down.then_some(RailFailure::At(bad))
        })
        .named([bad], move |verdict| {
            only(verdict, |fault| {
                matches!(fault.what, What::Flapping { node, .. } | What::Node { node, .. } if node == bad)
                    && is_at(fault, rail)
            })
        })
        .that_may_hide()
}
