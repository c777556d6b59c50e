//! Who takes part: how many nodes the job has, which of them this one is, and where they meet.
//! Pure: the environment and the command in, a [`Part`] or a sentence out.
//!
//! [`launchers`] has a row for each way of starting a job. Numbers by hand win over all of them.

mod kubernetes;
mod launchers;
mod mpi;
mod torchrun;

use crate::facts::environment::Environment;
use crate::preflight::schedule::MOST_NODES;
use crate::text::{shortened, visible};
use crate::wire::Address;
use launchers::{LAUNCHERS, Said};

/// What this node knows of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub nodes: u32,
    /// The index of this node, counted from 0.
    pub node: u32,
    /// Which of the tasks on this node this one is. The first one does the work.
    pub local_rank: u32,
    /// `HOST` or `HOST:PORT` of node 0. Node 0 itself, and a job of one node, may do without.
    pub meet: Option<String>,
    /// What tells this job from another one, where the launcher says it.
    pub job: Option<String>,
    /// The names of all nodes, in the order of their indices; empty if they are not known.
    pub names: Vec<String>,
    /// From which variables, arguments and options this is known, each with its value.
    pub evidence: Vec<String>,
}

impl Part {
    /// Whether this process judges the job, and leaves the files about it: the first task of node 0.
    pub fn judges(&self) -> bool {
        self.node == 0 && self.local_rank == 0
    }
}

/// What the user has said by hand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked<'a> {
    pub nodes: Option<u32>,
    pub node: Option<u32>,
    pub meet: Option<&'a str>,
    /// What the names of these options begin with, behind `--`: nothing, or `preflight-` where the
    /// preflight comes before a command.
    pub prefix: &'a str,
}

/// What there is to look at.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    pub environment: &'a Environment,
    /// The words of the command that is to be started; none for a step without a job.
    pub command: &'a [String],
    /// The name of this host.
    pub host: &'a str,
    /// Reads a small file, such as `/etc/hosts` or a host file of mpirun.
    pub file: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Seen<'a> {
    /// A variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<&'a str> {
        self.environment.get(name).map(str::trim).filter(|value| !value.is_empty())
    }
}

/// A value, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told<T> {
    value: T,
    /// `SLURM_NODEID=3`
    from: String,
}

impl<T> Told<T> {
    fn new(value: T, name: &str, text: &str) -> Told<T> {
        Told { value, from: format!("{name}={}", visible(&shortened(text))) }
    }
}

/// Finds out who takes part.
///
/// # Errors
/// A sentence: it is not known, or what is known contradicts itself.
pub fn find(asked: &Asked, seen: &Seen) -> Result<Part, String> {
    let all = LAUNCHERS.iter().filter_map(|launcher| launcher.ask(seen).transpose());
    let all: Vec<Said> = all.collect::<Result<_, String>>()?;
    let by_hand =
        |value: Option<u32>, option: &str| value.map(|value| Told::new(value, option, &value.to_string()));
    let option = |name: &str| format!("--{}{name}", asked.prefix);
    let nodes =
        by_hand(asked.nodes, &option("nodes")).or_else(|| all.iter().find_map(|said| said.nodes.clone()));
    let teller = all.iter().find(|said| said.node.is_some());
    let node = by_hand(asked.node, &option("node")).or_else(|| teller.and_then(|said| said.node.clone()));
    let gap = all.iter().find_map(|said| said.uncounted.as_deref());
    let nodes = nodes.ok_or_else(|| unknown("how many nodes the job has", &option("nodes N"), gap, &all))?;
    if nodes.value == 0 || nodes.value > MOST_NODES {
        return Err(format!("{}: a job has 1 to {MOST_NODES} nodes", nodes.from));
    }
    let node = match node {
        None if nodes.value == 1 => Told { value: 0, from: String::new() },
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
    let names = all.iter().map(|said| &said.names).find(|names| names.len() == nodes.value as usize);
    let names = names.cloned().unwrap_or_default();
    let meet = asked
        .meet
        .map(|place| Told::new(place.to_owned(), &option("meet"), place))
        .or_else(|| all.iter().find_map(|said| said.meet.clone()));
    // Node 0 is told by hand that it is node 0, and needs no more. If a launcher does not say where
    // to meet, it says so to none of them, and node 0 would wait for nobody.
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
        evidence,
    })
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
    format!("it is not known {what}{why}; say it with {option}")
}

#[cfg(test)]
mod tests;
