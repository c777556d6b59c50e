//! The nodes and pairs of one rail, or of the connections before any rail: which nodes passed with
//! which.

use std::collections::{BTreeMap, BTreeSet};

use super::bridge::{self, Bridge};
use super::uneven::Brought;
use crate::preflight::judge::evidence::{Evidence, Try, TryOutcome};

/// The most bridges to look for on one rail.
const BRIDGES: usize = 64;

/// The results of all tries of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    pub nodes: [u32; 2],
    pub passed: u16,
    pub failed: u16,
    /// For each end: how many of the failed tries are evidence against it. A try is none if this end
    /// says that it passed, and only the other one says that it failed.
    pub against: [u16; 2],
    /// For each end: whether the first try failed, and is evidence against it. Some pairs are tested
    /// more often than others, so this gives each of them one chance to fail.
    pub failed_first: [bool; 2],
    /// For each end: in how many of the failed tries this end knows why, and the other one only waited
    /// for it.
    pub known: [u16; 2],
    /// Whether one of the tries was a retry.
    pub again: bool,
    /// The position of the first failed try or, if none failed, of the first one.
    pub place: usize,
}

impl Edge {
    pub(super) fn is_bad(&self) -> bool {
        self.passed == 0
    }

    /// Returns whether any try of the pair failed.
    pub(super) fn is_ill(&self) -> bool {
        self.failed > 0
    }

    /// Returns whether any failed try is evidence against this end.
    pub(super) fn is_against(&self, node: u32) -> bool {
        self.against[self.end(node)] > 0
    }

    /// Returns whether the two nodes reach each other, as far as at least one of them says.
    fn joins(&self) -> bool {
        !self.is_bad() || self.against.iter().any(|count| *count < self.failed)
    }

    pub(super) fn end(&self, node: u32) -> usize {
        usize::from(self.nodes[1] == node)
    }

    /// Returns whether this end of a failed pair always knows why, and the other end only waited for
    /// it; `None` if that is not known for either end.
    pub(super) fn is_known_at(&self, node: u32) -> Option<bool> {
        let own = self.end(node);
        match [self.known[own], self.known[1 - own]] {
            [0, 0] => None,
            [_, others] => Some(others == 0),
        }
    }

    pub(super) fn other(&self, node: u32) -> u32 {
        if self.nodes[0] == node { self.nodes[1] } else { self.nodes[0] }
    }
}

/// The failed pairs between the main island and another one.
pub(super) struct Cut<'a> {
    pub failed: usize,
    /// The nodes of the main island in these pairs, and those of the other one.
    pub with: BTreeSet<u32>,
    pub of: BTreeSet<u32>,
    pub first: &'a Edge,
}

/// Nodes that reach each other, directly or through others, form one island. Groups that reach each
/// other only through one or two nodes are separate islands.
#[derive(Debug)]
pub(super) struct Layer {
    /// `None` for the connections before any rail.
    pub rail: Option<usize>,
    /// Sorted by their nodes. Failed tries are omitted if one of the nodes has disconnected or shares
    /// its address with another node, because they say nothing about the other node.
    pub edges: Vec<Edge>,
    /// For each node: one of the nodes of its island, the same for all of them.
    island: Vec<u32>,
    /// The number of nodes of each island, at the position of that node.
    size: Vec<u32>,
    /// Whether each node is in any pair.
    is_tried: Vec<bool>,
    /// The island with more than half of the tested nodes, if it has more than one node.
    main: Option<u32>,
    /// The bridges that join islands, and those that may turn out to do so.
    bridges: Vec<Bridge>,
    perhaps: Vec<Bridge>,
}

impl Layer {
    /// Creates a layer. `order` lists the positions of the tries, sorted by their nodes.
    pub(super) fn new(evidence: &Evidence, brought: &Brought, order: &[usize], rail: Option<usize>) -> Layer {
        let nodes = evidence.members().len();
        let mut edges: Vec<Edge> = Vec::new();
        for &place in order {
            let one = &evidence.tries()[place];
            if rail.is_some_and(|rail| !brought.have(one.nodes, rail)) {
                continue;
            }
            let Some(outcome) = outcome_of(one, rail) else { continue };
            let is_well = outcome == TryOutcome::Passed;
            if !is_well && one.nodes.iter().any(|node| evidence.gone().contains_key(node)) {
                continue;
            }
            if !is_well && evidence.wrong_addresses().explain(&one.nodes, rail) {
                continue;
            }
            let again = evidence.is_again(one.round);
            let against = [0, 1].map(|end| !is_well && !one.has_passed(end, rail));
            let known = rail.filter(|_| !is_well).map_or([0, 0], |rail| {
                let waited = [0, 1].map(|end| one.waited(end, rail));
                [waited[1] && !waited[0], waited[0] && !waited[1]].map(u16::from)
            });
            match edges.last_mut().filter(|edge| edge.nodes == one.nodes) {
                Some(edge) => {
                    if !is_well && edge.failed == 0 {
                        edge.place = place;
                    }
                    edge.passed += u16::from(is_well);
                    edge.failed += u16::from(!is_well);
                    (0..2).for_each(|end| edge.known[end] += known[end]);
                    (0..2).for_each(|end| edge.against[end] += u16::from(against[end]));
                    edge.again |= again;
                }
                None => edges.push(Edge {
                    nodes: one.nodes,
                    passed: is_well.into(),
                    failed: (!is_well).into(),
                    against: against.map(u16::from),
                    failed_first: against,
                    known,
                    again,
                    place,
                }),
            }
        }
        let mut layer = Layer {
            rail,
            edges,
            island: (0..nodes as u32).collect(),
            size: vec![1; nodes],
            is_tried: vec![false; nodes],
            main: None,
            bridges: Vec::new(),
            perhaps: Vec::new(),
        };
        layer.join();
        layer.part();
        let tried = layer.tried();
        let is_main = |island: &u32| {
            let size = layer.size(*island) as usize;
            size > 1 && size * 2 > tried
        };
        let main = layer.islands().find(is_main);
        layer.main = main;
        layer
    }

    fn join(&mut self) {
        for index in 0..self.edges.len() {
            let edge = self.edges[index];
            for node in edge.nodes {
                self.is_tried[node as usize] = true;
            }
            if edge.joins() {
                let [a, b] = edge.nodes.map(|node| self.root(node));
                if a != b {
                    let (small, large) =
                        if self.size[a as usize] < self.size[b as usize] { (a, b) } else { (b, a) };
                    self.island[small as usize] = large;
                    self.size[large as usize] += self.size[small as usize];
                }
            }
        }
        for node in 0..self.island.len() as u32 {
            self.island[node as usize] = self.root(node);
        }
    }

    /// Splits islands whose groups reach each other only through one or two nodes.
    fn part(&mut self) {
        let mut bad: BTreeMap<u32, Vec<[u32; 2]>> = BTreeMap::new();
        for edge in self.bad_edges().filter(|edge| !edge.joins()) {
            let [a, b] = edge.nodes.map(|node| self.island(node));
            if a == b {
                bad.entry(a).or_default().push(edge.nodes);
            }
        }
        if bad.is_empty() {
            return;
        }
        let mut good: Vec<Vec<u32>> = vec![Vec::new(); self.island.len()];
        for edge in self.edges.iter().filter(|edge| edge.joins()) {
            let [a, b] = edge.nodes;
            good[a as usize].push(b);
            good[b as usize].push(a);
        }
        let mut islands: Vec<u32> = bad.keys().copied().collect();
        while let Some(island) = islands.pop()
            && self.bridges.len() < BRIDGES
        {
            let Some(bridge) = bridge::find(&good, island, &bad[&island]) else { continue };
            if !bridge.is_proven() {
                self.perhaps.push(bridge);
                continue;
            }
            let other = bridge.group[0];
            let rest = self.nodes_of(island).into_iter().find(|node| !bridge.group.contains(node));
            let Some(rest) = rest else { continue };
            self.rename(island, rest, &bridge.group, other);
            for node in self.nodes_of(rest).into_iter().chain(bridge.group.iter().copied()) {
                let own = self.island[node as usize];
                good[node as usize].retain(|near| self.island[*near as usize] == own);
            }
            let within = bad.remove(&island).unwrap_or_default();
            for new in [rest, other] {
                let of_new = |pair: &&[u32; 2]| pair.iter().all(|node| self.island[*node as usize] == new);
                let pairs: Vec<[u32; 2]> = within.iter().filter(of_new).copied().collect();
                if !pairs.is_empty() {
                    bad.insert(new, pairs);
                    islands.push(new);
                }
            }
            self.bridges.push(bridge);
        }
    }

    /// Makes a group of an island an island of its own, and names the rest after one of the rest's
    /// nodes.
    fn rename(&mut self, island: u32, rest: u32, group: &[u32], other: u32) {
        let size = self.size[island as usize];
        for of in self.island.iter_mut().filter(|of| **of == island) {
            *of = rest;
        }
        for node in group {
            self.island[*node as usize] = other;
        }
        self.size[other as usize] = group.len() as u32;
        self.size[rest as usize] = size - group.len() as u32;
    }

    fn root(&self, mut node: u32) -> u32 {
        while self.island[node as usize] != node {
            node = self.island[node as usize];
        }
        node
    }

    /// Returns one node of each island, including islands of a single node. A node without any pair is
    /// not an island.
    pub(super) fn islands(&self) -> impl Iterator<Item = u32> {
        let all = self.island.iter().zip(0..);
        all.filter(|(island, node)| *island == node && self.is_tried[*node as usize]).map(|(_, node)| node)
    }

    pub(super) fn island(&self, node: u32) -> u32 {
        self.island[node as usize]
    }

    pub(super) fn size(&self, island: u32) -> u32 {
        self.size[island as usize]
    }

    pub(super) fn main(&self) -> Option<u32> {
        self.main
    }

    pub(super) fn nodes(&self) -> u32 {
        self.island.len() as u32
    }

    /// Returns how many nodes were tested.
    pub(super) fn tried(&self) -> usize {
        self.is_tried.iter().filter(|is_tried| **is_tried).count()
    }

    pub(super) fn bridges(&self) -> &[Bridge] {
        &self.bridges
    }

    /// Returns the bridges for which more tries would show whether only one or two nodes join the
    /// groups.
    pub(super) fn perhaps(&self) -> &[Bridge] {
        &self.perhaps
    }

    /// Returns whether there are several islands of more than one node.
    pub(super) fn is_torn(&self) -> bool {
        self.islands().filter(|island| self.size(*island) > 1).nth(1).is_some()
    }

    /// Returns whether no try of any pair failed.
    pub(super) fn is_sound(&self) -> bool {
        !self.edges.iter().any(Edge::is_ill)
    }

    /// Returns whether both nodes are in one island.
    pub(super) fn is_within(&self, edge: &Edge) -> bool {
        self.island(edge.nodes[0]) == self.island(edge.nodes[1])
    }

    /// Returns the nodes of each tested island.
    pub(super) fn by_island(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut all: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (island, node) in self.island.iter().zip(0..).filter(|(_, node)| self.is_tried[*node as usize]) {
            all.entry(*island).or_default().push(node);
        }
        all
    }

    /// Returns the failed pairs between the main island and each of the others.
    pub(super) fn cuts(&self) -> BTreeMap<u32, Cut<'_>> {
        let mut all: BTreeMap<u32, Cut> = BTreeMap::new();
        for edge in self.bad_edges().filter(|edge| !self.is_within(edge)) {
            let [main, other] = match edge.nodes.map(|node| self.is_in_main(node)) {
                [true, false] => edge.nodes,
                [false, true] => [edge.nodes[1], edge.nodes[0]],
                _ => continue,
            };
            let new = Cut { failed: 0, with: BTreeSet::new(), of: BTreeSet::new(), first: edge };
            let cut = all.entry(self.island(other)).or_insert(new);
            cut.failed += 1;
            cut.with.insert(main);
            cut.of.insert(other);
        }
        all
    }

    pub(super) fn is_in_main(&self, node: u32) -> bool {
        self.main == Some(self.island(node))
    }

    /// Returns whether the node was tested and has passed with no other node.
    pub(super) fn is_alone(&self, node: u32) -> bool {
        self.is_tried[node as usize] && self.size(self.island(node)) == 1
    }

    pub(super) fn nodes_of(&self, island: u32) -> Vec<u32> {
        let nodes = self.island.iter().zip(0..);
        nodes.filter(|(of, _)| **of == island).map(|(_, node)| node).collect()
    }

    pub(super) fn bad_edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| edge.is_bad())
    }
}

/// Returns the layer of the connections before any rail, and the layers of all rails.
pub(super) fn layers(evidence: &Evidence) -> Vec<Layer> {
    let mut order: Vec<usize> = (0..evidence.tries().len()).collect();
    order.sort_by_key(|place| {
        let one = &evidence.tries()[*place];
        (one.nodes, one.round)
    });
    let rails = (0..evidence.rails()).map(Some);
    let brought = Brought::of(evidence);
    std::iter::once(None).chain(rails).map(|rail| Layer::new(evidence, &brought, &order, rail)).collect()
}

fn outcome_of(one: &Try, rail: Option<usize>) -> Option<TryOutcome<'_>> {
    rail.map_or_else(|| one.meeting(), |rail| one.rail(rail))
}

/// Returns why a pair failed, from what its ends report. It prefers the end that it is `about`, and an
/// end that knows more to one that only waited for the other.
pub(super) fn why(evidence: &Evidence, edge: &Edge, rail: Option<usize>, about: u32) -> String {
    let one = &evidence.tries()[edge.place];
    if let Some(end) = (0..2).find(|end| one.has_passed(*end, rail)) {
        let Some(TryOutcome::Failed(_, why)) = outcome_of(one, rail) else { return String::new() };
        let [passed, failed] = [end, 1 - end].map(|end| evidence.name(one.nodes[end]));
        return format!("{failed} reports a failure, but {passed} reports that it passed: {why}");
    }
    let Some(rail) = rail else {
        // A node that cannot be reached reports nothing, or the same about the other node.
        let Some(TryOutcome::Failed(_, why)) = one.meeting() else { return String::new() };
        return why.to_owned();
    };
    let first = usize::from(one.nodes[1] == about);
    let ends = [first, 1 - first];
    let said = |end: &usize| one.said_of(*end, rail).and_then(Result::err);
    let knows = ends.iter().filter(|end| !one.waited(**end, rail)).find_map(said);
    knows.or_else(|| ends.iter().find_map(said)).unwrap_or_default().to_owned()
}
