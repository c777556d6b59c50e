//! The faults of single layers, before those that belong together are joined.

use std::collections::{BTreeMap, HashMap};

use super::again::{WITNESSES, cuts_needed, reached, witnesses};
use super::layer::{Edge, Layer, why};
use super::odd::Within;
use super::within::{self, Scattered};
use super::{Fault, Place, What};
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::partial::Part;

/// A layer on which something is faulty, and why: a rail, or the connections before any rail.
#[derive(Debug)]
pub(super) struct At {
    pub rail: Option<usize>,
    pub why: String,
}

/// How many others a node has failed with, and how many it was tested with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count {
    pub failed: usize,
    pub tried: usize,
}

/// The parts of a job, and the nodes through which some of them still reach each other.
type Parts = (Vec<Vec<u32>>, Vec<u32>);

#[derive(Default)]
pub(super) struct Found {
    pub nodes: BTreeMap<u32, Vec<(Count, At)>>,
    pub flapping: BTreeMap<u32, Vec<(Count, At)>>,
    links: BTreeMap<[u32; 2], Vec<At>>,
    pub unsteady: BTreeMap<[u32; 2], Vec<At>>,
    pub scattered: Scattered,
    /// The parts that are cut off, each with the number of the other nodes.
    cuts: BTreeMap<Vec<u32>, (usize, Vec<At>)>,
    /// The parts that reach the others only in part, each with the number of these others, and how many
    /// pairs between them failed on the rail with the most.
    partial: BTreeMap<Vec<u32>, (usize, Count, Vec<At>)>,
    /// The parts without a main one, each with the number of nodes that reach no other node.
    apart: BTreeMap<Parts, (usize, Vec<At>)>,
    /// How many rails each node was tested on.
    tried: HashMap<u32, usize>,
}

impl Found {
    pub(super) fn layer(&mut self, evidence: &Evidence, layer: &Layer) {
        let before = self.count();
        self.explained(evidence, layer);
        if self.count() > before {
            return;
        }
        // A failed pair is a fault in any case, even if it says nothing about its nodes.
        for edge in layer.bad_edges() {
            if edge.nodes.iter().all(|node| !evidence.gone().contains_key(node)) {
                self.link(evidence, edge, layer.rail);
            }
        }
    }

    /// Returns the number of faults that are more than warnings, counted once for each layer.
    fn count(&self) -> usize {
        let of_nodes = self.nodes.values().chain(self.flapping.values()).map(Vec::len);
        let of_parts =
            self.cuts.values().map(|(_, at)| at.len()).chain(self.apart.values().map(|(_, at)| at.len()));
        let of_links = self.links.values().map(Vec::len);
        let of_parts = of_parts.chain(self.partial.values().map(|(_, _, at)| at.len()));
        of_nodes.chain(of_parts).chain(of_links).sum::<usize>() + self.scattered.failed.len()
    }

    fn explained(&mut self, evidence: &Evidence, layer: &Layer) {
        let rail = layer.rail;
        if rail.is_some() {
            for node in layer.by_island().into_values().flatten() {
                *self.tried.entry(node).or_default() += 1;
            }
        }
        let alone = witnesses(layer);
        if layer.main().is_none() {
            self.without_main(evidence, layer, alone.len());
            return;
        }
        let within = Within::of(layer);
        let nodes = layer.tried();
        let main = layer.main().map_or(0, |main| layer.size(main) as usize);
        for (&node, seen) in &alone {
            let Some(edge) = seen.edge.map(|place| &layer.edges[place]) else { continue };
            let needed = within.needed(node, WITNESSES, nodes).min(main);
            if seen.well >= needed && layer.bridges().is_empty() {
                let at = At { rail, why: why(evidence, edge, rail, node) };
                self.nodes.entry(node).or_default().push((Count { failed: seen.all, tried: seen.all }, at));
            } else if seen.well > 0 {
                // If only one healthy node has failed with it, the path between the two may be faulty.
                self.link(evidence, edge, rail);
            }
        }
        self.cut_off(evidence, layer, &within);
        within::find(self, evidence, layer, &within);
    }

    /// Finds islands that do not reach the main one, and those that reach it only through one or two
    /// nodes.
    fn cut_off(&mut self, evidence: &Evidence, layer: &Layer, within: &Within) {
        let rail = layer.rail;
        let islands = layer.by_island();
        let mut apart: Vec<Vec<u32>> = Vec::new();
        let mut first = None;
        let main = layer.main().map_or(0, |main| layer.size(main) as usize);
        let of_main = layer.main().and_then(|main| islands.get(&main)).into_iter().flatten();
        let main_there = of_main.filter(|node| !evidence.gone().contains_key(node)).count();
        for (island, cut) in layer.cuts() {
            let edge = cut.first;
            let Some(nodes) = islands.get(&island).filter(|nodes| nodes.len() > 1) else { continue };
            // If the main part is not connected well itself, failures with it say nothing against the
            // other parts.
            let is_whole = layer.bridges().is_empty() && !within::is_scattered(within);
            let there = nodes.iter().filter(|node| !evidence.gone().contains_key(node)).count();
            // There may be fewer pairs than the calculation requires.
            let needed = within.background.needed(cuts_needed(there, main_there), layer.tried());
            let needed = needed.min(there * main_there);
            let are_tried = cut.with.len() >= reached(there, main_there) && cut.of.len() >= there;
            if is_whole && are_tried && cut.failed >= needed {
                let others = main;
                let why = why(evidence, edge, rail, edge.nodes[0]);
                self.cuts.entry(nodes.clone()).or_insert((others, Vec::new())).1.push(At { rail, why });
            } else {
                apart.push(nodes.clone());
                first = first.or(Some(edge));
            }
        }
        if let Some(edge) = first {
            apart.extend(layer.main().and_then(|main| islands.get(&main)).cloned());
            self.apart(evidence, layer, apart, 0, edge);
        }
    }

    pub(super) fn link(&mut self, evidence: &Evidence, edge: &Edge, rail: Option<usize>) {
        let known = self.links.entry(edge.nodes).or_default();
        if known.iter().all(|at| at.rail != rail) {
            known.push(At { rail, why: why(evidence, edge, rail, edge.nodes[0]) });
        }
    }

    pub(super) fn part(&mut self, evidence: &Evidence, layer: &Layer, part: &Part) {
        let is_it = |edge: &&Edge| edge.is_ill() && part.group.parts(edge.nodes);
        let first =
            layer.edges.iter().find(|edge| is_it(edge) && edge.is_bad()).or(layer.edges.iter().find(is_it));
        let why = first.map_or_else(String::new, |edge| why(evidence, edge, layer.rail, edge.nodes[0]));
        let nodes: Vec<u32> = part.group.members().collect();
        let others = layer.tried().saturating_sub(nodes.len());
        let count = Count { failed: part.between.failed, tried: part.between.tried };
        let known = self.partial.entry(nodes).or_insert((others, count, Vec::new()));
        known.1 = known.1.max(count);
        known.2.push(At { rail: layer.rail, why });
    }

    fn apart(
        &mut self,
        evidence: &Evidence,
        layer: &Layer,
        mut parts: Vec<Vec<u32>>,
        alone: usize,
        edge: &Edge,
    ) {
        parts.sort_by_key(|part| (std::cmp::Reverse(part.len()), part.first().copied()));
        let mut through: Vec<u32> =
            layer.bridges().iter().flat_map(|bridge| bridge.through.clone()).collect();
        through.sort_unstable();
        through.dedup();
        let why = why(evidence, edge, layer.rail, edge.nodes[0]);
        let known = self.apart.entry((parts, through)).or_insert((alone, Vec::new()));
        known.1.push(At { rail: layer.rail, why });
    }

    fn without_main(&mut self, evidence: &Evidence, layer: &Layer, alone: usize) {
        let mut bad = layer.bad_edges();
        match (bad.next(), bad.next()) {
            (None, _) => {}
            // If only one pair has failed, either node may be the faulty one.
            (Some(one), None) => self.link(evidence, one, layer.rail),
            (Some(first), Some(_)) => {
                let parts = layer.by_island().into_values().filter(|nodes| nodes.len() > 1).collect();
                self.apart(evidence, layer, parts, alone, first);
            }
        }
    }

    pub(super) fn faults(self, evidence: &Evidence) -> Vec<Fault> {
        let rails = evidence.rails();
        let tried = self.tried;
        let of_one = |node: u32| tried.get(&node).copied().unwrap_or_default();
        let of_both = |nodes: &[u32; 2]| nodes.iter().map(|node| of_one(*node)).min().unwrap_or_default();
        let mut all = Vec::new();
        for (flaps, nodes) in [(false, self.nodes), (true, self.flapping)] {
            for (node, found) in nodes {
                let (counts, found): (Vec<Count>, Vec<At>) = found.into_iter().unzip();
                let Count { failed, tried } = counts.into_iter().max().unwrap_or_default();
                let what = match flaps {
                    true => What::Flapping { node, failed, tried },
                    false => What::Node { node, failed, tried },
                };
                all.push(fault(what, found, of_one(node)));
            }
        }
        for (nodes, found) in self.links {
            all.push(fault(What::Link { nodes }, found, of_both(&nodes)));
        }
        for (nodes, found) in self.unsteady {
            all.push(fault(What::Unsteady { nodes }, found, of_both(&nodes)));
        }
        for (nodes, (others, found)) in self.cuts {
            all.push(fault(What::Cut { nodes, others }, found, rails));
        }
        for (nodes, (others, Count { failed, tried }, found)) in self.partial {
            all.push(fault(What::Partial { nodes, others, failed, tried }, found, rails));
        }
        for ((parts, through), (alone, found)) in self.apart {
            all.push(fault(What::Apart { parts, alone, through }, found, rails));
        }
        if !self.scattered.failed.is_empty() {
            let sides = self.scattered.sides();
            let Scattered { failed, tried, at } = self.scattered;
            let pairs = failed.into_iter().collect();
            all.push(fault(What::Scattered { pairs, tried, sides }, at, rails));
        }
        all
    }
}

/// Returns a fault with its scope. If it affects all of several rails, it is not a fault of the rails.
fn fault(what: What, found: Vec<At>, tried: usize) -> Fault {
    let mut rails: Vec<usize> = found.iter().filter_map(|at| at.rail).collect();
    rails.sort_unstable();
    let place = if found.iter().any(|at| at.rail.is_none()) {
        Place::Meeting
    } else if rails.len() > 1 && rails.len() >= tried {
        Place::Whole
    } else {
        Place::Rails(rails)
    };
    let why = found.into_iter().map(|at| at.why).find(|why| !why.is_empty()).unwrap_or_default();
    Fault { what, place, why }
}
