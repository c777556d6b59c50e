//! The kinds of faults.

mod nodes;
mod parts;
mod paths;
mod slow;

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
    pub make: fn(&mut Rng, u32) -> Case,
}

pub(super) fn all() -> Vec<Kind> {
    let sound = Kind { name: "sound", least: 3, make: |random, nodes| Case::sound(random, nodes, 2) };
    let of_files = [nodes::KINDS, parts::KINDS, paths::KINDS, slow::KINDS];
    let others =
        of_files.into_iter().flatten().map(|(name, least, make)| Kind { name, least: *least, make: *make });
    std::iter::once(sound).chain(others).collect()
}

type Entry = (&'static str, u32, fn(&mut Rng, u32) -> Case);

/// Returns any node of the job.
fn any(random: &mut Rng, nodes: u32) -> u32 {
    random.u32(0..nodes)
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

/// Returns the faults that are not warnings.
fn grave<'a>(verdict: &'a Verdict) -> impl Iterator<Item = &'a Fault> {
    verdict.faults.iter().filter(|fault| !fault.is_warning())
}

/// Returns whether this is the only fault that is reported.
fn only(verdict: &Verdict, is_it: impl Fn(&Fault) -> bool) -> bool {
    let mut faults = grave(verdict);
    faults.next().is_some_and(is_it) && faults.next().is_none()
}
