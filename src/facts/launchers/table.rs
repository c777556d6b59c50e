//! The launchers, one row of data for each: the variables that report how many nodes there are, which of them
//! this one is, and where node 0 is.
//!
//! The first row that knows an index decides it. So launchers that start processes on a node (torchrun,
//! mpirun) come before launchers that start the nodes.

use super::torchrun::rendezvous_host;
use super::{Said, Seen, Sourced, kubernetes, mpi, parse_nodes, parse_number, torchrun};
use crate::facts::hostlist;

pub(super) struct Launcher {
    name: &'static str,
    /// If this launcher has started the process, all of these are set; empty if only `more` decides.
    marks: &'static [&'static str],
    /// If this launcher has started the process, none of these is set.
    unless: &'static [&'static str],
    /// The variables; the first one that is set counts.
    nodes: &'static [&'static str],
    node: &'static [&'static str],
    local: &'static [&'static str],
    meet: &'static [&'static str],
    job: &'static [&'static str],
    /// See [`Said`].
    is_part: bool,
    /// Handles launchers that need more than the value of a variable. Returns whether the launcher has
    /// started the process.
    more: fn(&Seen, &mut Said) -> Result<bool, String>,
}

const NOTHING: Launcher = Launcher {
    name: "",
    marks: &[],
    unless: &[],
    nodes: &[],
    node: &[],
    local: &[],
    meet: &[],
    job: &[],
    is_part: false,
    more: |_, _| Ok(true),
};

pub(super) const LAUNCHERS: [Launcher; 15] = [
    // torch/distributed/run.py of PyTorch 2.9.
    Launcher { name: "torchrun's arguments", is_part: true, more: torchrun::arguments, ..NOTHING },
    // A worker that torchrun has started: torch/distributed/elastic/agent/server/local_elastic_agent.py of
    // PyTorch 2.9.
    Launcher {
        name: "torchrun",
        marks: &["TORCHELASTIC_RUN_ID", "GROUP_RANK"],
        nodes: &["GROUP_WORLD_SIZE"],
        node: &["GROUP_RANK"],
        local: &["LOCAL_RANK"],
        meet: &["MASTER_ADDR"],
        is_part: true,
        // A run without an id is called "none".
        more: |seen, said| {
            said.job = seen
                .variable("TORCHELASTIC_RUN_ID")
                .filter(|id| *id != "none")
                .map(|id| Sourced::new(id.to_owned(), "TORCHELASTIC_RUN_ID", id));
            Ok(true)
        },
        ..NOTHING
    },
    // The options of torchrun as variables: PyTorchJob of Kubeflow's training-operator 1.9
    // (pkg/controller.v1/pytorch), TrainJob of Kubeflow Trainer 2.3 (pkg/runtime/framework/plugins/torch).
    Launcher {
        name: "the variables of torchrun (PET_*)",
        marks: &["PET_NNODES"],
        nodes: &["PET_NNODES"],
        node: &["PET_NODE_RANK"],
        meet: &["PET_MASTER_ADDR"],
        job: &["PET_RDZV_ID"],
        more: |seen, said| {
            if said.meet.is_none() {
                said.meet = rendezvous_host(seen, "PET_RDZV_ENDPOINT");
            }
            kubernetes::elastic_workers(seen, said)
        },
        ..NOTHING
    },
    // _set_torch_distributed_env_vars in python/ray/train/torch/config.py of Ray 2.60, and other launchers
    // that start each PyTorch process themselves: WORLD_SIZE counts processes here. MASTER_ADDR is the
    // address of rank 0, which runs on the first node (_assign_worker_ranks in
    // python/ray/train/v2/_internal/execution/worker_group/worker_group.py).
    Launcher {
        name: "Ray Train",
        marks: &["NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"],
        unless: &["GROUP_RANK"],
        node: &["NODE_RANK"],
        local: &["LOCAL_RANK"],
        meet: &["MASTER_ADDR"],
        is_part: true,
        more: mpi::from_world_size,
        ..NOTHING
    },
    // Open MPI 4.1 (orte/mca/schizo/ompi) and 5.0 (docs/tuning-apps/environment-var.rst), and MPIJob, which
    // starts Open MPI.
    Launcher {
        name: "Open MPI",
        marks: &["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"],
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        job: &["PMIX_NAMESPACE"],
        is_part: true,
        more: mpi::open_mpi,
        ..NOTHING
    },
    // launch_procs in src/pm/hydra/proxy/pmip_cb.c of MPICH 4.1. The variables of a rank were examined with
    // MPICH 4.0.2 and Intel MPI 2021.19. With -pmi-port, a rank gets PMI_ID, and no variable with the number
    // of ranks.
    Launcher {
        name: "Hydra (MPICH, Intel MPI)",
        marks: &["PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"],
        local: &["MPI_LOCALRANKID"],
        is_part: true,
        more: mpi::hydra,
        ..NOTHING
    },
    // srun(1), "OUTPUT ENVIRONMENT VARIABLES", and src/common/env.c of Slurm 25.05. SLURM_NODELIST and
    // SLURM_NNODES describe the step, too, unless something has kept the job's values.
    Launcher {
        name: "Slurm",
        marks: &["SLURM_STEP_NODELIST", "SLURM_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
        node: &["SLURM_NODEID"],
        local: &["SLURM_LOCALID"],
        more: |seen, said| {
            let list = seen.variable("SLURM_STEP_NODELIST").unwrap_or_default();
            said.is_part = seen.variable("SLURM_JOB_NUM_NODES") != Some("1");
            said.names = hostlist::expand(list).unwrap_or_default();
            said.meet =
                said.names.first().map(|first| Sourced::new(first.clone(), "SLURM_STEP_NODELIST", list));
            if said.meet.is_none() {
                said.placeless = Some("SLURM_STEP_NODELIST is not a list of hosts".to_owned());
            }
            let step = seen.variable("SLURM_STEP_ID").unwrap_or("0");
            said.job = seen
                .variable("SLURM_JOB_ID")
                .map(|job| Sourced::new(format!("{job}.{step}"), "SLURM_JOB_ID", job));
            Ok(true)
        },
        ..NOTHING
    },
    // An allocation without a step: a batch script runs once, on the first node.
    Launcher {
        name: "Slurm",
        marks: &["SLURM_JOB_ID", "SLURM_NNODES"],
        unless: &["SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE"],
        nodes: &["SLURM_NNODES"],
        more: |_, said| {
            if said.nodes.as_ref().is_none_or(|nodes| nodes.value != 1) {
                said.uncounted = Some(
                    "this is a Slurm allocation, not a step; start it with srun, once on each node"
                        .to_owned(),
                );
            }
            Ok(true)
        },
        ..NOTHING
    },
    // Numbers that a user or a platform passes on to torchrun. Other programs may use these names for
    // something else.
    Launcher {
        name: "NNODES and NODE_RANK",
        marks: &["NNODES", "NODE_RANK"],
        unless: &["LOCAL_RANK", "LOCAL_WORLD_SIZE"],
        meet: &["MASTER_ADDR"],
        more: |seen, said| {
            let number = |name| parse_number(name, seen.variable(name)?).ok();
            (said.nodes, said.node) = (number("NNODES"), number("NODE_RANK"));
            let numbers = said.nodes.as_ref().zip(said.node.as_ref());
            Ok(numbers.is_some_and(|(nodes, node)| node.value < nodes.value))
        },
        ..NOTHING
    },
    // api/leaderworkerset/v1 of LeaderWorkerSet 0.8. The leader has the index 0.
    Launcher {
        name: "LeaderWorkerSet",
        marks: &["LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE"],
        nodes: &["LWS_GROUP_SIZE"],
        node: &["LWS_WORKER_INDEX"],
        meet: &["LWS_LEADER_ADDRESS"],
        is_part: true,
        more: kubernetes::leader_worker_set,
        ..NOTHING
    },
    // Other launchers that start each PyTorch process themselves, and do not number nodes.
    Launcher {
        name: "PyTorch's processes",
        marks: &["WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"],
        unless: &["GROUP_RANK", "NODE_RANK"],
        local: &["LOCAL_RANK"],
        meet: &["MASTER_ADDR"],
        is_part: true,
        more: mpi::pytorch,
        ..NOTHING
    },
    // Volcano 1.13 (pkg/controllers/job/plugins/distributed-framework/pytorch), PAI-DLC, and
    // training-operators that do not set PET_*. WORLD_SIZE and RANK count nodes here, because torchrun starts
    // the processes.
    Launcher {
        name: "PyTorchJob",
        marks: &["WORLD_SIZE", "RANK", "MASTER_ADDR"],
        unless: &["LOCAL_RANK", "LOCAL_WORLD_SIZE"],
        nodes: &["WORLD_SIZE"],
        node: &["RANK"],
        meet: &["MASTER_ADDR"],
        more: kubernetes::master_and_workers,
        ..NOTHING
    },
    // Volcano 1.13 (pkg/controllers/job/plugins/env, .../svc).
    Launcher { name: "Volcano", is_part: true, more: kubernetes::volcano, ..NOTHING },
    // An Indexed Job of Kubernetes, and JobSet, which consists of Indexed Jobs.
    Launcher {
        name: "the Indexed Job",
        marks: &["JOB_COMPLETION_INDEX"],
        node: &["JOB_COMPLETION_INDEX"],
        more: kubernetes::indexed_job,
        ..NOTHING
    },
    // KubeRay 1.4 (ray-operator/controllers/ray/utils/constant.go). It does not number its Pods.
    Launcher {
        name: "KubeRay",
        marks: &["RAY_CLUSTER_NAME"],
        meet: &["FQ_RAY_IP"],
        more: |_, said| {
            said.uncounted = Some("Ray does not number its nodes".to_owned());
            Ok(true)
        },
        ..NOTHING
    },
];

impl Launcher {
    /// Returns what this launcher reports; `None` if it has not started this process.
    pub(super) fn ask(&self, seen: &Seen) -> Result<Option<Said>, String> {
        let is_set = |name: &&str| seen.variable(name).is_some();
        if !self.marks.iter().all(is_set) || self.unless.iter().any(is_set) {
            return Ok(None);
        }
        let first =
            |names: &[&'static str]| names.iter().find_map(|name| Some((*name, seen.variable(name)?)));
        let number = |names| first(names).map(|(name, text)| parse_number(name, text)).transpose();
        let text = |names| first(names).map(|(name, text)| Sourced::new(text.to_owned(), name, text));
        let mut said = Said {
            launcher: self.name,
            nodes: first(self.nodes).map(|(name, text)| parse_nodes(name, text)).transpose()?,
            nodes_by_default: None,
            node: number(self.node)?,
            local: number(self.local)?,
            meet: text(self.meet),
            job: text(self.job),
            names: Vec::new(),
            are_names_usual: false,
            is_part: self.is_part,
            uncounted: None,
            placeless: None,
        };
        Ok((self.more)(seen, &mut said)?.then_some(said))
    }
}
