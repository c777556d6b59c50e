//! Who takes part: how many nodes the job has, which of them this one is, and where they meet.
//! Pure: the environment and the command in, a [`Part`] or a sentence out.
//!
//! [`launchers`] has a row for each way of starting a job. Numbers by hand win over all of them.

use crate::facts::launchers::{self, MOST_NODES, Said, Sourced, Unclear};
use crate::text;
use crate::wire::Address;

pub(crate) use crate::facts::launchers::Seen;

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
    /// Whether this process judges the job, and leaves the files about it: the first task of node 0.
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

/// Finds out who takes part.
///
/// # Errors
/// A sentence: it is not known, or what is known contradicts itself.
pub(crate) fn find(asked: &Overrides, seen: &Seen) -> Result<Part, String> {
    let all = launchers::all(seen).map_err(|unclear| unclear_sentence(&unclear))?;
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
    let nodes = nodes.ok_or_else(|| unknown("how many nodes the job has", &option("nodes N"), gap, &all))?;
    if nodes.value == 0 || nodes.value > MOST_NODES {
        return Err(format!("{}: a job has 1 to {MOST_NODES} nodes", nodes.from));
    }
    let node = match node {
        None if nodes.value == 1 => Sourced { value: 0, from: String::new() },
        None => {
            let known = format!("which of the {} nodes ({}) this one is", nodes.value, nodes.from);
            return Err(unknown(&known, &option("node I"), gap, &all));
        }
        Some(node) if node.value >= nodes.value => {
            return Err(format!(
                "{} and {} contradict each other: the nodes are counted from 0, so the last one is {}",
                node.from,
                nodes.from,
                nodes.value - 1
            ));
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
        return Err(unknown("where the nodes meet", &option, gap, &all));
    }
    if let Some(told) = meet.as_ref().filter(|_| nodes.value > 1) {
        place(&told.value, node.value).map_err(|why| match told.from.as_str() {
            "" => why,
            from => format!("{from}: {why}"),
        })?;
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

/// The number of nodes, as the launchers say it. What one of them starts by default is not more than
/// a guess if another one says a number: the first one may not know of the others.
fn counted(all: &[Said], option: &str) -> Result<Option<Sourced<u32>>, String> {
    let told = launchers::counting(all).and_then(|said| said.nodes.as_ref());
    let default = all.iter().find_map(|said| said.nodes_by_default.as_ref());
    match (default, told) {
        (Some(default), Some(told)) if told.value != default.value => Err(format!(
            "{} starts a job of {}, and {} contradicts it; give the launcher the number of nodes, or set {option}",
            default.from,
            text::counted(default.value as usize, "node"),
            told.from,
        )),
        (default, told) => Ok(default.or(told).cloned()),
    }
}

fn unclear_sentence(unclear: &Unclear) -> String {
    match unclear {
        Unclear::NotANumber(from) => format!("{from}: this is no number of nodes or index"),
        Unclear::Elastic(from) => format!(
            "{from}: an elastic job has no certain number of nodes, which the preflight needs; set --nodes N, or --preflight-nodes N before a command"
        ),
    }
}

/// Reads where node 0 is, as a node with this index needs to know it.
fn place(text: &str, node: u32) -> Result<Address, String> {
    let place: Address = text.parse()?;
    match (place.port, place.is_empty()) {
        (0, _) => Err("port 0 is no port of node 0".to_owned()),
        (_, true) if node > 0 => Err("the address of node 0 has no host".to_owned()),
        _ => Ok(place),
    }
}

fn unknown(what: &str, option: &str, gap: Option<&str>, all: &[Said]) -> String {
    let why = match (gap, all.first()) {
        (Some(gap), _) => format!(": {gap}"),
        (None, Some(said)) => format!(" (not said by {})", said.launcher),
        (None, None) => {
            " (no variable of a launcher that is known is set, and the command is not torchrun)".to_owned()
        }
    };
    format!("cannot determine {what}{why}; set {option}")
}

#[cfg(test)]
mod tests;
