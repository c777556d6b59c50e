//! Jobs of two to four nodes, and nodes with different numbers of rails.

use fastrand::Rng;

use super::{Bounded, any, any_other, grave, only, scheduled};
use crate::preflight::judge::culprit::What;
use crate::preflight::judge::outliers::Who;
use crate::preflight::judge::simulation::case::{Case, RailFailure};

pub(super) const KINDS: &[Bounded] = &[
    ("2 nodes: dead rail", 2, [100, 0], two_dead_rail),
    ("2 nodes: slow rail", 2, [100, 0], two_slow),
    ("3 nodes: dead node", 3, [100, 0], |random, _| dead_node(random, 3)),
    ("4 nodes: dead node", 4, [100, 0], |random, _| dead_node(random, 4)),
    ("4 nodes: dead link", 4, [100, 0], |random, _| dead_link(random, 4)),
    ("3 nodes: dead link", 3, [100, 0], |random, _| dead_link(random, 3)),
    ("4 nodes: flapping link", 4, [95, 0], |random, _| flapping_link(random, 4)),
    ("flapping link", 8, [95, 0], flapping_link),
    ("uneven rails: half of the nodes", 4, [100, 0], uneven_half),
    ("uneven rails: a third of the nodes", 6, [100, 0], uneven_third),
    ("uneven rails, dead rail", 6, [95, 0], uneven_and_rail),
];

fn two_dead_rail(random: &mut Rng, _: u32) -> Case {
    let (end, rail) = (random.u32(0..2), random.usize(0..2));
    Case::sound(random, 2, 2)
        .failing(move |attempt| (attempt.rail == rail).then_some(RailFailure::At(end)))
        .named([], |verdict| only(verdict, |fault| matches!(fault.what, What::Link { .. })))
}

fn two_slow(random: &mut Rng, _: u32) -> Case {
    Case::sound(random, 2, 2)
        .measuring(|attempt, _, measured, _| {
            if attempt.rail == 1 {
                measured.gbps /= 4.0;
            }
        })
        .named([], |verdict| {
            verdict.slow.iter().all(|slow| slow.who == Who::Link { nodes: [0, 1], rail: 1 })
                && !verdict.slow.is_empty()
        })
}

fn dead_node(random: &mut Rng, nodes: u32) -> Case {
    let (bad, is_one) = (any(random, nodes), random.bool());
    Case::sound(random, nodes, 2)
        .failing(move |attempt| {
            (attempt.has(bad) && (attempt.rail == 0 || !is_one)).then_some(RailFailure::At(bad))
        })
        .named([bad], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Node { node, .. } if node == bad))
        })
}

fn dead_link(random: &mut Rng, nodes: u32) -> Case {
    let link = scheduled(random, nodes);
    Case::sound(random, nodes, 2)
        .failing(move |attempt| (attempt.nodes == link).then_some(RailFailure::Between))
        .named([], move |verdict| {
            only(verdict, |fault| matches!(fault.what, What::Link { nodes } if nodes == link))
        })
}

/// Makes a link that is down for about half of the time.
fn flapping_link(random: &mut Rng, nodes: u32) -> Case {
    let link = scheduled(random, nodes);
    Case::sound(random, nodes, 1)
        .failing(move |attempt| {
            (attempt.nodes == link && attempt.of_try() < 0.5).then_some(RailFailure::Between)
        })
        .named([], move |verdict| {
            verdict.faults.iter().any(|fault| {
                matches!(fault.what, What::Link { nodes } | What::Unsteady { nodes } if nodes == link)
            })
        })
        .that_may_hide()
}

fn uneven_half(random: &mut Rng, nodes: u32) -> Case {
    let nodes = nodes & !1;
    let mut case = Case::sound(random, nodes, 4)
        .named([], |verdict| only(verdict, |fault| matches!(fault.what, What::Uneven { usual: None, .. })));
    case.members.iter_mut().step_by(2).for_each(|member| member.rails.truncate(2));
    case
}

fn uneven_third(random: &mut Rng, nodes: u32) -> Case {
    let guilty: Vec<u32> = (0..nodes).filter(|node| node % 3 == 1).collect();
    let wanted = guilty.clone();
    let mut case = Case::sound(random, nodes, 4).named(guilty, move |verdict| {
        only(verdict, |fault| matches!(fault.what, What::Uneven { .. }) && fault.accused() == wanted)
    });
    case.members.iter_mut().skip(1).step_by(3).for_each(|member| member.rails.truncate(3));
    case
}

fn uneven_and_rail(random: &mut Rng, nodes: u32) -> Case {
    let odd = any(random, nodes);
    let bad = any_other(random, nodes, odd);
    let mut case = Case::sound(random, nodes, 4)
        .failing(move |attempt| (attempt.has(bad) && attempt.rail == 0).then_some(RailFailure::At(bad)))
        .named([odd, bad], move |verdict| {
            let is_node =
                grave(verdict).any(|fault| matches!(fault.what, What::Node { node, .. } if node == bad));
            is_node && grave(verdict).any(|fault| matches!(fault.what, What::Uneven { .. }))
        });
    case.members[odd as usize].rails.truncate(2);
    case
}
