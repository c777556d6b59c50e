//! The kinds of faults.

mod few;
mod leaves;
mod nodes;
mod parts;
mod paths;
mod reports;
mod slow;
mod two;

use std::collections::BTreeSet;

use fastrand::Rng;

use super::case::Case;
use crate::preflight::judge::culprit::{Fault, Place};
use crate::preflight::judge::verdict::Verdict;
use crate::preflight::meet::schedule::{Extent, Schedule};

/// A kind of fault.
pub(super) struct Kind {
    pub name: &'static str,
    /// The smallest job in which this fault can be distinguished from others.
    pub least: u32,
    /// How many of the jobs must name the fault, in percent, and how many may accuse a sound node, per
    /// mille.
    pub bounds: [usize; 2],
    /// There are this many times fewer jobs of this kind, unless the simulation is full.
    pub part: usize,
    pub make: fn(&mut Rng, u32) -> Case,
}

pub(super) fn all() -> Vec<Kind> {
    let usual = |name, least, make| Kind { name, least, bounds: USUAL, part: 1, make };
    let sound = usual("sound", 3, |random, nodes| Case::sound(random, nodes, 2));
    let of_files = [nodes::KINDS, parts::KINDS, paths::KINDS, slow::KINDS].into_iter().flatten();
    let bounded = [two::KINDS, leaves::KINDS, reports::KINDS, few::KINDS].into_iter().flatten();
    std::iter::once(sound)
        .chain(of_files.map(|(name, least, make)| usual(name, *least, *make)))
        .chain(bounded.map(|(name, least, bounds, make)| Kind {
            name,
            least: *least,
            bounds: *bounds,
            part: PART,
            make: *make,
        }))
        .collect()
}

/// The bounds of most kinds.
const USUAL: [usize; 2] = [95, 0];

/// Most of the jobs of the kinds with bounds of their own take longer than others.
const PART: usize = 3;

type Entry = (&'static str, u32, fn(&mut Rng, u32) -> Case);

/// A kind with bounds of its own.
type Bounded = (&'static str, u32, [usize; 2], fn(&mut Rng, u32) -> Case);

/// Returns any node of the job.
fn any(random: &mut Rng, nodes: u32) -> u32 {
    random.u32(0..nodes)
}

fn any_other(random: &mut Rng, nodes: u32, node: u32) -> u32 {
    (node + random.u32(1..nodes)) % nodes
}

/// Returns this many neighbors, starting with any node.
fn neighbours(random: &mut Rng, nodes: u32, size: u32) -> BTreeSet<u32> {
    let first = any(random, nodes);
    (first..first + size).map(|node| node % nodes).collect()
}

/// Returns any pair of the schedule.
fn scheduled(random: &mut Rng, nodes: u32) -> [u32; 2] {
    let schedule = Schedule { nodes, extent: Extent::Doubling };
    loop {
        let round = random.u32(0..schedule.rounds());
        let node = any(random, nodes);
        if let Some(partner) = schedule.partner(round, node) {
            return [node.min(partner), node.max(partner)];
        }
    }
}

/// Returns whether a fault is on this rail only.
fn is_at(fault: &Fault, rail: usize) -> bool {
    fault.place == Place::Rails(vec![rail])
}

/// Returns whether a fault is on all of this many rails.
fn is_everywhere(fault: &Fault, rails: usize) -> bool {
    if rails == 1 { is_at(fault, 0) } else { fault.place == Place::Whole }
}

/// Returns whether two groups have more nodes in common than not.
fn is_alike(nodes: &[u32], leaf: &BTreeSet<u32>) -> bool {
    let common = nodes.iter().filter(|node| leaf.contains(node)).count();
    common * 2 > nodes.len() + leaf.len() - common
}

/// Returns the faults that are not warnings.
fn grave<'a>(verdict: &'a Verdict) -> impl Iterator<Item = &'a Fault> {
    verdict.faults.iter().filter(|fault| !fault.is_warning())
}

/// Returns whether this is the only fault that is reported.
fn only(verdict: &Verdict, is_it: impl Fn(&Fault) -> bool) -> bool {
    let mut faults = grave(verdict);
    faults.next().is_some_and(is_it) && faults.next().is_none()
}
