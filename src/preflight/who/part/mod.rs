//! Membership: how many nodes the job has, which of them this one is, and where to find node 0. Pure:
//! takes the environment and the command, and returns a [`Part`]. Errors name a variable or option with its value.
//!
//! [`launchers`] has a row for each way to start a job. Numbers that the user sets by hand win over all
//! of them.

use anyhow::{anyhow, bail, ensure};

use crate::facts::launchers::{self, MOST_NODES, Said, Sourced};
use crate::text;
use crate::wire::Address;

pub(crate) use crate::facts::launchers::Seen;

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
pub(crate) fn find(asked: &Overrides, seen: &Seen) -> anyhow::Result<Part> {
    let all = launchers::all(seen).map_err(anyhow::Error::msg)?;
    let by_hand =
        |value: Option<u32>, option: &str| value.map(|value| Sourced::new(value, option, &value.to_string()));
    let option = |name: &str| format!("--{}{name}", asked.prefix);
    let nodes = match by_hand(asked.nodes, &option("nodes")) {
        Some(nodes) => Some(nodes),
        None => counted(&all, &option("nodes N"))?,
    };
    let teller = launchers::numbering(&all);
    let node = by_hand(asked.node, &option("node")).or_else(|| teller.and_then(|said| said.node.clone()));
    let meet = asked
        .meet
        .map(|place| Sourced::new(place.to_owned(), &option("meet"), place))
        .or_else(|| all.iter().find_map(|said| said.meet.clone()));
    // If the user has set this node's index to 0, it needs no address. Otherwise the launcher gives
    // node 0's address to no node, and node 0 would wait for nodes that cannot find it.
    let lacks_meet = meet.is_none() && asked.node != Some(0);
    let Some(nodes) = nodes else { return Err(unknown(None, node.is_none(), lacks_meet, &option, &all)) };
    if nodes.value == 0 || nodes.value > MOST_NODES {
        bail!("{}: a job has 1 to {MOST_NODES} nodes", nodes.from);
    }
    let node = match node {
        None if nodes.value == 1 => Sourced { value: 0, from: String::new() },
        None => return Err(unknown(Some(&nodes), true, lacks_meet, &option, &all)),
        Some(node) if node.value >= nodes.value => {
            bail!(
                "{} and {} contradict each other: the nodes are counted from 0, so the last one is {}",
                node.from,
                nodes.from,
                nodes.value - 1
            );
        }
        Some(node) => node,
    };
    let listing = all.iter().find(|said| said.names.len() == nodes.value as usize);
    let names = listing.map(|said| said.names.clone()).unwrap_or_default();
    let are_names_certain = asked.node.is_none()
        && listing.is_some_and(|said| {
            !said.are_names_usual && teller.is_some_and(|teller| std::ptr::eq(teller, said))
        });
    if lacks_meet && nodes.value > 1 {
        return Err(unknown(Some(&nodes), false, true, &option, &all));
    }
    if let Some(told) = meet.as_ref().filter(|_| nodes.value > 1) {
        check_place(told, node.value)?;
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
fn counted(all: &[Said], option: &str) -> anyhow::Result<Option<Sourced<u32>>> {
    let told = launchers::counting(all).and_then(|said| said.nodes.as_ref());
    let default = all.iter().find_map(|said| said.nodes_by_default.as_ref());
    match (default, told) {
        (Some(default), Some(told)) if told.value != default.value => bail!(
            "{} starts a job of {}, and {} contradicts it; give the launcher the number of nodes, or set {option}",
            default.from,
            text::counted(default.value as usize, "node"),
            told.from
        ),
        (default, told) => Ok(default.or(told).cloned()),
    }
}

/// Checks the address of node 0, as a node with this index needs it.
fn check_place(place: &Sourced<String>, node: u32) -> anyhow::Result<()> {
    let from = if place.from.is_empty() { String::new() } else { format!("{}: ", place.from) };
    let address: Address = place.value.parse().map_err(|why| anyhow!("{from}{why}"))?;
    ensure!(address.port != 0, "{from}port 0 is not a port of node 0");
    ensure!(node == 0 || !address.is_empty(), "{from}the address of node 0 has no host");
    Ok(())
}

/// Returns the error that asks for all that is missing: the number of nodes if it is `None`, this node's index, and the
/// address of node 0.
fn unknown(
    nodes: Option<&Sourced<u32>>,
    lacks_node: bool,
    lacks_meet: bool,
    option: &dyn Fn(&str) -> String,
    all: &[Said],
) -> anyhow::Error {
    let (mut what, mut options) = (Vec::new(), Vec::new());
    let mut add = |missing: String, name| {
        what.push(missing);
        options.push(option(name));
    };
    if nodes.is_none() {
        add("how many nodes the job has".to_owned(), "nodes N");
    }
    if lacks_node {
        let which = match nodes {
            Some(nodes) => format!("which of the {} nodes ({}) this one is", nodes.value, nodes.from),
            None => "which of them this one is".to_owned(),
        };
        add(which, "node I");
    }
    if lacks_meet {
        add("where the nodes meet".to_owned(), "meet HOST, a name or address of node 0");
    }
    let uncounted =
        || all.iter().find_map(|said| said.uncounted.as_ref()).filter(|_| nodes.is_none() || lacks_node);
    let placeless = || all.iter().find_map(|said| said.placeless.as_ref()).filter(|_| lacks_meet);
    let why = match (uncounted().or_else(placeless), all.first()) {
        (Some(gap), _) => format!(": {gap}"),
        (None, Some(said)) => format!(" (not set by {})", said.launcher),
        (None, None) => {
            " (no variable of a known launcher is set, and the command is not torchrun)".to_owned()
        }
    };
    anyhow!("cannot determine {}{why}; set {}", listed(&what), listed(&options))
}

/// Returns `a`, `a and b`, or `a, b and c`.
fn listed(all: &[String]) -> String {
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
