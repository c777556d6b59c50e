//! Membership: how many nodes the job has, which of them this one is, and where they meet.
//! Pure: the environment and the command in, a [`Part`] or a [`PartError`] out.
//!
//! [`launchers`] has a row for each way of starting a job. Numbers by hand win over all of them.

use crate::facts::launchers::{self, MOST_NODES, Said, Sourced};
use crate::wire::Address;

mod error;

pub(crate) use crate::facts::launchers::Seen;
pub(crate) use error::PartError;
use error::{Gap, Missing, PlaceError};

/// What this node knows of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub nodes: u32,
    /// The index of this node, counted from 0.
    pub node: u32,
    /// Which of the tasks on this node this one is. The first one does the work.
    pub local_rank: u32,
    /// `HOST` or `HOST:PORT` of node 0. Node 0 itself, and a job of one node, may do without.
    pub meet: Option<String>,
    /// What tells this job from another one, if the launcher says it.
    pub job: Option<String>,
    /// The names of all nodes, in the order of their indices; empty if they are not known.
    pub names: Vec<String>,
    /// Whether these are the names of the indices for certain: what lists them also gives this node its index.
    pub are_names_certain: bool,
    /// From which variables, arguments and options this is known, each with its value.
    pub evidence: Vec<String>,
}

impl Part {
    /// Returns whether this process judges the job, and leaves the files about it: the first task of node 0.
    pub(crate) fn judges(&self) -> bool {
        self.node == 0 && self.local_rank == 0
    }
}

/// What the user has said by hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Overrides<'a> {
    pub nodes: Option<u32>,
    pub node: Option<u32>,
    pub meet: Option<&'a str>,
    /// What the names of these options begin with, behind `--`: nothing, or `preflight-` if the
    /// preflight comes before a command.
    pub prefix: &'a str,
}

/// Finds the nodes of the job, the index of this one, and where they meet.
///
/// # Errors
/// It is not known, or what is known contradicts itself.
pub(crate) fn find(asked: &Overrides, seen: &Seen) -> Result<Part, PartError> {
    let all = launchers::all(seen)?;
    let by_hand =
        |value: Option<u32>, option: &str| value.map(|value| Sourced::new(value, option, &value.to_string()));
    let option = |name: &str| format!("--{}{name}", asked.prefix);
    let nodes = match by_hand(asked.nodes, &option("nodes")) {
        Some(nodes) => Some(nodes),
        None => counted(&all, &option("nodes N"))?,
    };
    let teller = launchers::numbering(&all);
    let node = by_hand(asked.node, &option("node")).or_else(|| teller.and_then(|said| said.node.clone()));
    let gap = all.iter().find_map(|said| said.uncounted.as_deref());
    let nodes = nodes.ok_or_else(|| unknown(Missing::Nodes, option("nodes N"), gap, &all))?;
    if nodes.value == 0 || nodes.value > MOST_NODES {
        return Err(PartError::TooMany { from: nodes.from });
    }
    let node = match node {
        None if nodes.value == 1 => Sourced { value: 0, from: String::new() },
        None => {
            let what = Missing::Node { nodes: nodes.value, from: nodes.from };
            return Err(unknown(what, option("node I"), gap, &all));
        }
        Some(node) if node.value >= nodes.value => {
            let last = nodes.value - 1;
            return Err(PartError::NodeBeyondLast { node: node.from, nodes: nodes.from, last });
        }
        Some(node) => node,
    };
    let listing = all.iter().find(|said| said.names.len() == nodes.value as usize);
    let names = listing.map(|said| said.names.clone()).unwrap_or_default();
    let are_names_certain = asked.node.is_none()
        && listing.is_some_and(|said| {
            !said.are_names_usual && teller.is_some_and(|teller| std::ptr::eq(teller, said))
        });
    let meet = asked
        .meet
        .map(|place| Sourced::new(place.to_owned(), &option("meet"), place))
        .or_else(|| all.iter().find_map(|said| said.meet.clone()));
    // Node 0 is told by hand that it is node 0, and needs no more. If a launcher does not say where
    // to meet, it says so to none of them, and node 0 would wait for none.
    if meet.is_none() && nodes.value > 1 && asked.node != Some(0) {
        let gap = all.iter().find_map(|said| said.placeless.as_deref());
        let option = option("meet HOST, a name or address of node 0");
        return Err(unknown(Missing::Place, option, gap, &all));
    }
    if let Some(told) = meet.as_ref().filter(|_| nodes.value > 1) {
        place(&told.value, node.value).map_err(|why| PartError::Place { from: told.from.clone(), why })?;
    }
    let local = teller.or(all.first()).and_then(|said| said.local.clone());
    let job = all.iter().find_map(|said| said.job.clone());
    let evidence = [Some(nodes.from), Some(node.from), local.as_ref().map(|told| told.from.clone())]
        .into_iter()
        .chain([meet.as_ref().map(|told| told.from.clone())])
        .flatten()
        .filter(|from| !from.is_empty())
        .collect();
    Ok(Part {
        nodes: nodes.value,
        node: node.value,
        local_rank: local.map_or(0, |told| told.value),
        meet: meet.map(|told| told.value),
        job: job.map(|told| told.value),
        names,
        are_names_certain,
        evidence,
    })
}

/// Returns the number of nodes, as the launchers say it. What one of them starts by default is not more than
/// a guess if another one says a number: the first one may not know of the others.
fn counted(all: &[Said], option: &str) -> Result<Option<Sourced<u32>>, PartError> {
    let told = launchers::counting(all).and_then(|said| said.nodes.as_ref());
    let default = all.iter().find_map(|said| said.nodes_by_default.as_ref());
    match (default, told) {
        (Some(default), Some(told)) if told.value != default.value => Err(PartError::Contradiction {
            default: default.from.clone(),
            count: default.value,
            other: told.from.clone(),
            option: option.to_owned(),
        }),
        (default, told) => Ok(default.or(told).cloned()),
    }
}

/// Reads where node 0 is, as a node with this index needs to know it.
fn place(text: &str, node: u32) -> Result<Address, PlaceError> {
    let place: Address = text.parse()?;
    match (place.port, place.is_empty()) {
        (0, _) => Err(PlaceError::NoPort),
        (_, true) if node > 0 => Err(PlaceError::NoHost),
        _ => Ok(place),
    }
}

fn unknown(what: Missing, option: String, gap: Option<&str>, all: &[Said]) -> PartError {
    let why = match (gap, all.first()) {
        (Some(gap), _) => Gap::Reason(gap.to_owned()),
        (None, Some(said)) => Gap::NotSaid(said.launcher),
        (None, None) => Gap::NoLauncher,
    };
    PartError::Unknown { what, why, option }
}

#[cfg(test)]
mod tests;
