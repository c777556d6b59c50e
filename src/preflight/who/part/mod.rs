//! Membership: how many nodes the job has, which of them this one is, and where to find node 0. Pure:
//! takes the environment and the command, and returns a [`Part`] or a [`PartError`].
//!
//! [`launchers`] has a row for each way to start a job. Numbers that the user sets by hand win over all
//! of them.

use crate::facts::launchers::{self, MOST_NODES, Said, Sourced};
use crate::wire::Address;

mod error;

pub(crate) use crate::facts::launchers::Seen;
pub(crate) use error::PartError;
use error::{Gap, Missing, PlaceError};

/// What this node knows about the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub nodes: u32,
    /// The index of this node, counted from 0.
    pub node: u32,
    /// The index of this task on this node. Task 0 does the work.
    pub local_rank: u32,
    /// `HOST` or `HOST:PORT` of node 0. Node 0 itself and a job of one node do not need it.
    pub meet: Option<String>,
    /// An ID that separates this job from others, if the launcher provides one.
    pub job: Option<String>,
    /// The names of all nodes, in the order of their indices; empty if they are not known.
    pub names: Vec<String>,
    /// Whether these names certainly belong to these indices: the source of the list also gives this
    /// node its index.
    pub are_names_certain: bool,
    /// The variables, arguments and options from which this is known, each with its value.
    pub evidence: Vec<String>,
}

impl Part {
    /// Returns whether this process judges the job and writes the files about it: the first task of
    /// node 0.
    pub(crate) fn judges(&self) -> bool {
        self.node == 0 && self.local_rank == 0
    }
}

/// What the user has set by hand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Overrides<'a> {
    pub nodes: Option<u32>,
    pub node: Option<u32>,
    pub meet: Option<&'a str>,
    /// How the names of these options begin after `--`: with nothing, or with `preflight-` if the
    /// preflight runs before a command.
    pub prefix: &'a str,
}

/// Finds the number of nodes in the job, the index of this one, and where to find node 0.
///
/// # Errors
/// Something of this cannot be determined, or the sources contradict each other.
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
    // If the user has set this node's index to 0, it needs no address. Otherwise the launcher gives
    // node 0's address to no node, and node 0 would wait for nodes that cannot find it.
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

/// Returns the number of nodes, as the launchers report it. A launcher's default is only a guess if
/// another launcher names a number: the first one may not know about the others.
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

/// Reads the address of node 0, as a node with this index needs it.
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
