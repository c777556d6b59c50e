//! The nodes and the pairs on one rail, or of the meetings: who has passed with whom.

use super::super::evidence::{Came, Evidence, Try};
use super::uneven;
use crate::verbs::rail::WAITING;

/// What came of all tries of one pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub nodes: [u32; 2],
    pub passed: u16,
    pub failed: u16,
    /// Whether one of these was a second try.
    pub again: bool,
    /// The place of the first try that failed, or else of the first.
    pub place: usize,
}

impl Edge {
    pub fn is_bad(&self) -> bool {
        self.passed == 0
    }

    pub fn other(&self, node: u32) -> u32 {
        if self.nodes[0] == node { self.nodes[1] } else { self.nodes[0] }
    }
}

/// Nodes that reach each other, directly or over others, are one island.
#[derive(Debug)]
pub struct Layer {
    /// `None` for the meetings.
    pub rail: Option<usize>,
    /// Sorted by their nodes. Failed tries with a node that is gone are left out: they say nothing
    /// about the other one.
    pub edges: Vec<Edge>,
    /// For each node: one of the nodes of its island, the same for all of them.
    island: Vec<u32>,
    /// For each island its number of nodes, at the place of that node.
    size: Vec<u32>,
    /// Whether there is an edge to this node.
    is_tried: Vec<bool>,
    /// The island that is larger than any other one, and is more than one node.
    main: Option<u32>,
}

impl Layer {
    /// `order` are the places of the tries, sorted by their nodes.
    pub fn new(evidence: &Evidence, order: &[usize], rail: Option<usize>) -> Layer {
        let nodes = evidence.members().len();
        let mut edges: Vec<Edge> = Vec::new();
        for &place in order {
            let one = &evidence.tries()[place];
            if rail.is_some_and(|rail| !uneven::have(evidence, one.nodes, rail)) {
                continue;
            }
            let Some(came) = came(one, rail) else { continue };
            let is_well = came == Came::Well;
            if !is_well && one.nodes.iter().any(|node| evidence.gone().contains_key(node)) {
                continue;
            }
            let again = evidence.is_again(one.round);
            match edges.last_mut().filter(|edge| edge.nodes == one.nodes) {
                Some(edge) => {
                    if !is_well && edge.failed == 0 {
                        edge.place = place;
                    }
                    edge.passed += u16::from(is_well);
                    edge.failed += u16::from(!is_well);
                    edge.again |= again;
                }
                None => edges.push(Edge {
                    nodes: one.nodes,
                    passed: is_well.into(),
                    failed: (!is_well).into(),
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
        };
        layer.join();
        layer
    }

    fn join(&mut self) {
        for index in 0..self.edges.len() {
            let edge = self.edges[index];
            for node in edge.nodes {
                self.is_tried[node as usize] = true;
            }
            if !edge.is_bad() {
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
        let largest = self.islands().map(|root| self.size[root as usize]).max().unwrap_or_default();
        let of_size: Vec<u32> =
            self.islands().filter(|root| self.size[*root as usize] == largest).take(2).collect();
        self.main = match of_size.as_slice() {
            [one] if largest > 1 => Some(*one),
            _ => None,
        };
    }

    fn root(&self, mut node: u32) -> u32 {
        while self.island[node as usize] != node {
            node = self.island[node as usize];
        }
        node
    }

    /// A node of each island, also of those that are one node alone. Nodes without any edge are no
    /// islands.
    pub fn islands(&self) -> impl Iterator<Item = u32> {
        let all = self.island.iter().zip(0..);
        all.filter(|(island, node)| *island == node && self.is_tried[*node as usize]).map(|(_, node)| node)
    }

    pub fn island(&self, node: u32) -> u32 {
        self.island[node as usize]
    }

    pub fn size(&self, island: u32) -> u32 {
        self.size[island as usize]
    }

    pub fn main(&self) -> Option<u32> {
        self.main
    }

    pub fn is_in_main(&self, node: u32) -> bool {
        self.main == Some(self.island(node))
    }

    /// Whether the node was tried, and has passed with nobody.
    pub fn is_alone(&self, node: u32) -> bool {
        self.is_tried[node as usize] && self.size(self.island(node)) == 1
    }

    pub fn nodes_of(&self, island: u32) -> Vec<u32> {
        let nodes = self.island.iter().zip(0..);
        nodes.filter(|(of, _)| **of == island).map(|(_, node)| node).collect()
    }

    pub fn bad_edges(&self) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(|edge| edge.is_bad())
    }
}

/// The meetings and all rails.
pub fn layers(evidence: &Evidence) -> Vec<Layer> {
    let mut order: Vec<usize> = (0..evidence.tries().len()).collect();
    order.sort_by_key(|place| {
        let one = &evidence.tries()[*place];
        (one.nodes, one.round)
    });
    let rails = (0..evidence.rails()).map(Some);
    std::iter::once(None).chain(rails).map(|rail| Layer::new(evidence, &order, rail)).collect()
}

fn came(one: &Try, rail: Option<usize>) -> Option<Came<'_>> {
    rail.map_or_else(|| one.meeting(), |rail| one.rail(rail))
}

/// Why a pair has failed, from what its ends say, the one that it is `about` first. Who has only waited
/// for the other end knows less.
pub fn why(evidence: &Evidence, edge: &Edge, rail: Option<usize>, about: u32) -> String {
    let one = &evidence.tries()[edge.place];
    let Some(rail) = rail else {
        // Who is not reached says nothing, or the same of the other one.
        let Some(Came::Ill(_, why)) = one.meeting() else { return String::new() };
        return why.to_owned();
    };
    let first = usize::from(one.nodes[1] == about);
    let said = [first, 1 - first].map(|end| one.said_of(end, rail).and_then(Result::err));
    let knows = said.into_iter().flatten().find(|why| !why.starts_with(WAITING));
    knows.or(said.into_iter().flatten().next()).unwrap_or_default().to_owned()
}
