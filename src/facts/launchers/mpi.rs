//! Launchers of MPI. They number ranks and not nodes, so rdma-init computes the node's index if it is
//! certain; otherwise an error names what is missing.

use super::{MOST_NODES, Said, Seen, Sourced, kubernetes, parse_number};
use crate::facts::hostlist;

/// The names of the variables that count ranks.
struct RankVariables {
    size: &'static str,
    rank: &'static str,
    local_size: &'static str,
    local_rank: &'static str,
    /// How to start one rank on each node.
    one_each: &'static str,
}

/// Reads Open MPI's variables. They were examined with 4.1.4; 5.0 has no `OMPI_MCA_orte_*`.
pub(super) fn open_mpi(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let names = RankVariables {
        size: "OMPI_COMM_WORLD_SIZE",
        rank: "OMPI_COMM_WORLD_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        one_each: "mpirun --map-by ppr:1:node",
    };
    let by_node = seen
        .variable("OMPI_MCA_rmaps_base_mapping_policy")
        .is_some_and(|policy| policy.split([':', ',']).next() == Some("node"));
    count(seen, said, &names, "OMPI_MCA_orte_num_nodes", by_node)?;
    place(seen, said, hostfile(seen).or_else(|| allocation(seen)));
    said.meet = said.meet.take().or_else(|| address_of_mpirun(seen));
    if said.meet.is_none() {
        said.placeless = Some("mpirun does not say where rank 0 is".to_owned());
    }
    Ok(true)
}

/// Reads the variables of MPICH and Intel MPI. With -ppn, they number ranks node by node. Without it, MPICH
/// 4.0.2 numbered them round-robin, and no variable shows which of the two applies.
pub(super) fn hydra(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let names = RankVariables {
        size: "PMI_SIZE",
        rank: "PMI_RANK",
        local_size: "MPI_LOCALNRANKS",
        local_rank: "MPI_LOCALRANKID",
        one_each: "mpiexec -ppn 1",
    };
    count(seen, said, &names, "", false)?;
    place(seen, said, allocation(seen));
    if said.meet.is_none() {
        said.placeless = Some("mpiexec does not say where rank 0 is".to_owned());
    }
    Ok(true)
}

/// Reads the variables of PyTorch processes that know how many of them are on their node.
pub(super) fn pytorch(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let names = RankVariables {
        size: "WORLD_SIZE",
        rank: "RANK",
        local_size: "LOCAL_WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        one_each: "or all of them with torchrun",
    };
    count(seen, said, &names, "", false)?;
    Ok(true)
}

/// Computes the number of nodes from the total number of processes and the number on this node.
pub(super) fn from_world_size(seen: &Seen, said: &mut Said) -> Result<bool, String> {
    let [world, local] = ["WORLD_SIZE", "LOCAL_WORLD_SIZE"]
        .map(|name| parse_number(name, seen.variable(name).unwrap_or_default()));
    let (world, local) = (world?, local?);
    if local.value > 0 && world.value % local.value == 0 {
        let from = format!("{} and {}", world.from, local.from);
        said.nodes = Some(Sourced { value: world.value / local.value, from });
    } else {
        said.uncounted = Some("the nodes have different numbers of processes".to_owned());
    }
    Ok(true)
}

/// Computes the number of nodes and this node's index, if every node has as many ranks as this one. Ranks are
/// numbered node by node, or round-robin.
fn count(
    seen: &Seen,
    said: &mut Said,
    names: &RankVariables,
    nodes: &str,
    by_node: bool,
) -> Result<(), String> {
    let get = |name: &'static str| parse_number(name, seen.variable(name).unwrap_or("0"));
    let (size, rank) = (get(names.size)?, get(names.rank)?);
    let (local_size, local_rank) = (get(names.local_size)?.value, get(names.local_rank)?.value);
    let known = seen.variable(nodes).map(|text| parse_number(nodes, text)).transpose()?;
    let counted = size.value.checked_div(local_size).unwrap_or_default();
    let is_even = counted > 0
        && counted * local_size == size.value
        && known.as_ref().is_none_or(|known| known.value == counted);
    let node = match by_node {
        _ if !is_even => (0, 0),
        true => (rank.value % counted, rank.value / counted),
        false => (rank.value / local_size, rank.value % local_size),
    };
    if is_even && node.1 == local_rank {
        let each = format!("{} and {}={local_size}", size.from, names.local_size);
        said.nodes = Some(known.unwrap_or(Sourced { value: counted, from: each }));
        said.node = Some(Sourced { value: node.0, from: rank.from });
    } else {
        said.nodes = known;
        said.uncounted = Some(format!(
            "the ranks are not numbered node by node, with as many on each; start one on each node ({})",
            names.one_each
        ));
    }
    Ok(())
}

/// The hosts in a list, and where the list comes from.
struct Hosts {
    names: Vec<String>,
    variable: &'static str,
    text: String,
}

impl Hosts {
    fn first(&self) -> Option<Sourced<String>> {
        Some(Sourced::new(self.names.first()?.clone(), self.variable, &self.text))
    }
}

/// Returns the default host file, if this node has it.
fn hostfile(seen: &Seen) -> Option<Hosts> {
    const NAME: &str = "OMPI_MCA_orte_default_hostfile";
    let path = seen.variable(NAME)?;
    let text = (seen.file)(path)?;
    let mut names: Vec<String> = Vec::new();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for name in lines.filter_map(|line| line.split([' ', '\t', ':']).next()) {
        // The file may name a host once for each of its slots.
        if !names.iter().any(|known| known == name) && names.len() < MOST_NODES as usize {
            names.push(name.to_owned());
        }
    }
    Some(Hosts { names, variable: NAME, text: path.to_owned() })
}

/// Returns the nodes of the Slurm allocation: mpirun starts with the first one, and keeps their order.
fn allocation(seen: &Seen) -> Option<Hosts> {
    const NAME: &str = "SLURM_JOB_NODELIST";
    let list = seen.variable(NAME)?;
    Some(Hosts { names: hostlist::expand(list)?, variable: NAME, text: list.to_owned() })
}

/// Sets where rank 0 is and the names of all nodes: from the list of hosts if there is one, else from the
/// names of an MPIJob's Pods. mpirun numbers nodes in the order of its list, unless an option changes it.
fn place(seen: &Seen, said: &mut Said, hosts: Option<Hosts>) {
    said.meet = hosts.as_ref().and_then(Hosts::first).or_else(|| kubernetes::worker_0_of_mpi_job(seen));
    said.names = match hosts {
        Some(hosts) => hosts.names,
        None => kubernetes::workers_of_mpi_job(seen, said.nodes.as_ref().map_or(0, |nodes| nodes.value)),
    };
    said.are_names_usual = true;
}

/// Returns where mpirun itself runs, which is the node of rank 0 unless mpirun was started elsewhere:
/// `1077084160.0;tcp://192.0.2.2,172.17.0.1:56569;tcp6://[fd00::2]:58151`.
fn address_of_mpirun(seen: &Seen) -> Option<Sourced<String>> {
    const NAME: &str = "OMPI_MCA_orte_hnp_uri";
    let uri = seen.variable(NAME)?;
    let (_, addresses) = uri.split_once("tcp://")?;
    let first = addresses.split([',', ':', ';']).next().filter(|first| !first.is_empty())?;
    Some(Sourced::new(first.to_owned(), NAME, uri))
}
