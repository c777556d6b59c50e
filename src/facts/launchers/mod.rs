//! The launcher of a job's processes, and what it reports: how many nodes there are, which of them this one
//! is, and where node 0 is. Pure, except for [`read`].
//!
//! [`table`] has a row for each launcher. All code that needs the number of nodes gets it from here, so the
//! report and the preflight agree on it.

mod kubernetes;
mod mpi;
mod table;
mod torchrun;

use serde::{Deserialize, Serialize};

use crate::facts::environment::Environment;
use crate::facts::reader::Reader;
use crate::facts::start::Start;
use crate::text::{shortened, visible};
use table::LAUNCHERS;

/// The most nodes of a job.
pub(crate) const MOST_NODES: u32 = 65_536;

/// The number of nodes of the job, and the index of this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nodes {
    pub count: u32,
    /// Counted from 0.
    pub this: u32,
}

/// What a launcher's row may look at.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub environment: &'a Environment,
    /// The words of the command to start; empty for a step without a job.
    pub command: &'a [String],
    /// The name of this host.
    pub host: &'a str,
    /// Reads a small file, such as `/etc/hosts` or a host file of mpirun.
    pub file: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Seen<'a> {
    /// Returns a variable that is set and not empty.
    fn variable(&self, name: &str) -> Option<&'a str> {
        self.environment.get(name).map(str::trim).filter(|value| !value.is_empty())
    }
}

/// A value, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sourced<T> {
    pub value: T,
    /// Such as `SLURM_NODEID=3`.
    pub from: String,
}

impl<T> Sourced<T> {
    pub(crate) fn new(value: T, name: &str, text: &str) -> Sourced<T> {
        Sourced { value, from: format!("{name}={}", visible(&shortened(text))) }
    }
}

/// What a launcher reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub launcher: &'static str,
    pub nodes: Option<Sourced<u32>>,
    /// The number of nodes that the launcher starts by default.
    pub nodes_by_default: Option<Sourced<u32>>,
    pub node: Option<Sourced<u32>>,
    pub local: Option<Sourced<u32>>,
    pub meet: Option<Sourced<String>>,
    pub job: Option<Sourced<String>>,
    /// The names of all nodes, in the order of their indexes, if there is a list.
    pub names: Vec<String>,
    /// Whether the order of the names is only an assumption, based on how the launcher usually numbers nodes.
    pub are_names_usual: bool,
    /// Whether these nodes may be one of several groups that send data to each other, such as in serving with
    /// separate prefill and decode, or as steps of one job. If so, a group with one node may still have
    /// peers.
    pub is_part: bool,
    /// Why the number of nodes or the index is unknown, as a clause.
    pub uncounted: Option<String>,
    /// Why the location of node 0 is unknown, as a clause.
    pub placeless: Option<String>,
}

/// Returns what each launcher of this process reports, in the order of precedence.
///
/// # Errors
/// The values of one of the launchers cannot be understood. The text contains the variable or argument with its value.
pub(crate) fn all(seen: &Seen) -> Result<Vec<Said>, String> {
    LAUNCHERS.iter().filter_map(|launcher| launcher.ask(seen).transpose()).collect()
}

/// Returns the launcher that reports the number of nodes.
pub(crate) fn counting(all: &[Said]) -> Option<&Said> {
    all.iter().find(|said| said.nodes.is_some())
}

/// Returns the launcher that reports which node this is.
pub(crate) fn numbering(all: &[Said]) -> Option<&Said> {
    all.iter().find(|said| said.node.is_some())
}

/// Returns the nodes of the job; `None` if no launcher reports them for certain.
pub(crate) fn nodes(seen: &Seen) -> Option<Nodes> {
    let all = all(seen).ok()?;
    let counting = counting(&all)?;
    let count = counting.nodes.as_ref()?.value;
    let this = match numbering(&all).and_then(|said| said.node.as_ref()) {
        _ if count == 1 && counting.is_part => return None,
        None if count == 1 => 0,
        node => node?.value,
    };
    (this < count && count <= MOST_NODES).then_some(Nodes { count, this })
}

/// Does the same as [`nodes`] for this container. Reads no file; the only lookup is the host's name.
pub(crate) fn read(reader: &Reader, start: Start) -> Option<Nodes> {
    let words = start.words.iter().map(|word| word.to_string_lossy().into_owned());
    let host = reader.host_name().unwrap_or_default();
    let command: Vec<String> = words.collect();
    nodes(&Seen { environment: start.environment, command: &command, host: &host, file: &|_| None })
}

fn parse_number(name: &str, text: &str) -> Result<Sourced<u32>, String> {
    let told = |value| Sourced::new(value, name, text);
    text.parse().map(told).map_err(|_| format!("{}: this is not a number of nodes or an index", told(0).from))
}

/// Parses a number of nodes. torchrun accepts a range, too.
fn parse_nodes(name: &str, text: &str) -> Result<Sourced<u32>, String> {
    match text.split_once(':') {
        Some((least, most)) if least == most => {
            parse_number(name, least).map(|told| Sourced::new(told.value, name, text))
        }
        Some(_) => Err(format!(
            "{}: an elastic job has no fixed number of nodes, which the preflight needs; set --nodes N, or --preflight-nodes N before a command",
            Sourced::new(0, name, text).from
        )),
        None => parse_number(name, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(u32, u32)> {
        let entries: Vec<_> =
            text.split_whitespace().map(|entry| std::ffi::CString::new(entry).unwrap()).collect();
        let environment = Environment::new(&entries);
        let seen = Seen { environment: &environment, command: &[], host: "a-1", file: &|_| None };
        nodes(&seen).map(|nodes| (nodes.count, nodes.this))
    }

    #[test]
    fn the_nodes_are_those_of_the_launcher() {
        for (environment, nodes, why) in [
            ("PET_NNODES=4 PET_NODE_RANK=1 WORLD_SIZE=32", Some((4, 1)), "Kubeflow"),
            ("PET_NNODES=1:4 PET_NODE_RANK=1", None, "it may grow"),
            ("WORLD_SIZE=2 RANK=1 MASTER_ADDR=a", Some((2, 1)), "a PyTorchJob"),
            (
                "WORLD_SIZE=16 RANK=1 MASTER_ADDR=a PET_NPROC_PER_NODE=8",
                Some((2, 1)),
                "a PyTorchJob whose operator counts the processes of all nodes",
            ),
            ("WORLD_SIZE=1 RANK=0 MASTER_ADDR=a", Some((1, 0)), "the only node of a PyTorchJob"),
            ("WORLD_SIZE=844444416 RANK=3 MASTER_ADDR=a", None, "no job has so many nodes"),
            ("WORLD_SIZE=16 RANK=9 LOCAL_RANK=1", None, "of processes"),
            ("SLURM_STEP_NODELIST=a[1-2] SLURM_STEP_NUM_NODES=2 SLURM_NODEID=1", Some((2, 1)), "Slurm"),
            ("SLURM_STEP_NODELIST=a[1-2] SLURM_NNODES=2 SLURM_NODEID=1", Some((2, 1)), "its older name"),
            (
                "SLURM_STEP_NODELIST=a1 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=4",
                None,
                "a step of one node may be one of several",
            ),
            (
                "SLURM_STEP_NODELIST=a1 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=1",
                Some((1, 0)),
                "the only node of a job of Slurm",
            ),
            ("SLURM_JOB_ID=7 SLURM_NNODES=1", Some((1, 0)), "an allocation of one node"),
            ("SLURM_JOB_ID=7 SLURM_NNODES=2 SLURM_NODEID=0", None, "a batch script is no step"),
            ("NNODES=2 NODE_RANK=2", None, "there is no such node"),
            ("NNODES=1 NODE_RANK=0", Some((1, 0)), "the only node of the job"),
            ("", None, "no launcher"),
        ] {
            assert_eq!(of(environment), nodes, "{why}");
        }
    }

    #[test]
    fn a_group_of_several_nodes_is_the_job_but_a_group_of_one_may_not_be() {
        for (environment, nodes, why) in [
            (
                "TORCHELASTIC_RUN_ID=none GROUP_WORLD_SIZE=2 GROUP_RANK=1 WORLD_SIZE=16 RANK=9 LOCAL_RANK=1",
                Some((2, 1)),
                "torchrun",
            ),
            ("LWS_LEADER_ADDRESS=a LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1", Some((2, 1)), "LeaderWorkerSet"),
            ("LWS_LEADER_ADDRESS=a LWS_GROUP_SIZE=1 LWS_WORKER_INDEX=0", None, "a group of one"),
            ("LWS_LEADER_ADDRESS=a LWS_GROUP_SIZE=2", None, "which of them is not told"),
            ("VC_WORKER_HOSTS=a-0.a,a-1.a VC_TASK_INDEX=1", Some((2, 1)), "Volcano"),
            (
                "VC_WORKER_HOSTS=a-0,a-1 VC_MASTER_HOSTS=c VC_TASK_INDEX=1",
                Some((3, 2)),
                "a master and workers",
            ),
            ("VC_WORKER_HOSTS=a,b VC_TASK_INDEX=0", None, "this Pod is in no list"),
            ("VC_WORKER_HOSTS=a-1 VC_TASK_INDEX=0", None, "a task of one"),
            (
                "LWS_LEADER_ADDRESS=a LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1 NNODES=4 NODE_RANK=3",
                Some((4, 3)),
                "the job counts first",
            ),
        ] {
            assert_eq!(of(environment), nodes, "{why}");
        }
    }

    #[test]
    fn ranks_give_the_number_of_nodes_if_each_node_has_equally_many() {
        let open_mpi = |size, rank, local_size, local_rank| {
            of(&format!(
                "OMPI_COMM_WORLD_SIZE={size} OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_LOCAL_SIZE={local_size} OMPI_COMM_WORLD_LOCAL_RANK={local_rank}"
            ))
        };
        assert_eq!(open_mpi(16, 9, 8, 1), Some((2, 1)));
        assert_eq!(open_mpi(8, 1, 8, 1), None, "one node");
        assert_eq!(open_mpi(12, 8, 4, 3), None, "around the nodes");
        assert_eq!(open_mpi(12, 8, 8, 0), None, "another node has fewer");
        assert_eq!(open_mpi(12, 8, 0, 0), None);
        assert_eq!(of("PMI_SIZE=4 PMI_RANK=3 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=1"), Some((2, 1)));
        assert_eq!(of("WORLD_SIZE=16 RANK=9 LOCAL_WORLD_SIZE=8 LOCAL_RANK=1"), Some((2, 1)), "Ray Train");
    }
}
