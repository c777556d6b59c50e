//! The launchers, each a row of data: the variables that tell how many nodes there are, which of
//! them this one is, and where node 0 is.
//!
//! The first row that knows an index tells it, so a row of what starts processes on a node (torchrun,
//! mpirun) comes before a row of what has started the nodes.

use super::torchrun::rendezvous_host;
use super::{Seen, Told, kubernetes, mpi, torchrun};
use crate::preflight::hostlist;

/// What a launcher says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub launcher: &'static str,
    pub nodes: Option<Told<u32>>,
    pub node: Option<Told<u32>>,
    pub local: Option<Told<u32>>,
    pub meet: Option<Told<String>>,
    pub job: Option<Told<String>>,
    pub names: Vec<String>,
    /// Why the number of nodes or the index is not known, as a clause.
    pub uncounted: Option<String>,
    /// Why it is not known where node 0 is, as a clause.
    pub placeless: Option<String>,
}

pub(super) struct Launcher {
    name: &'static str,
    /// All of these are set if this launcher has started the process; none if `more` looks.
    marks: &'static [&'static str],
    /// None of these is set.
    unless: &'static [&'static str],
    /// The variables, of which the first that is set counts.
    nodes: &'static [&'static str],
    node: &'static [&'static str],
    local: &'static [&'static str],
    meet: &'static [&'static str],
    job: &'static [&'static str],
    /// What takes more than the value of a variable. Returns whether the launcher is there.
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
    more: |_, _| Ok(true),
};

pub(super) const LAUNCHERS: [Launcher; 13] = [
    // torch/distributed/run.py of PyTorch 2.9.
    Launcher { name: "torchrun's arguments", more: torchrun::arguments, ..NOTHING },
    // A worker that torchrun has started: torch/distributed/elastic/agent/server/local_elastic_agent.py
    // of PyTorch 2.9.
    Launcher {
        name: "torchrun",
        marks: &["TORCHELASTIC_RUN_ID", "GROUP_RANK"],
        nodes: &["GROUP_WORLD_SIZE"],
        node: &["GROUP_RANK"],
        local: &["LOCAL_RANK"],
        meet: &["MASTER_ADDR"],
        // A run without an id is called so.
        more: |seen, said| {
            said.job = seen
                .variable("TORCHELASTIC_RUN_ID")
                .filter(|id| *id != "none")
                .map(|id| Told::new(id.to_owned(), "TORCHELASTIC_RUN_ID", id));
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
    // _set_torch_distributed_env_vars in python/ray/train/torch/config.py of Ray 2.60, and others who
    // start each process of PyTorch by themselves: WORLD_SIZE counts processes here. MASTER_ADDR is
    // that of rank 0, whose node is the first (_assign_worker_ranks in
    // python/ray/train/v2/_internal/execution/worker_group/worker_group.py).
    Launcher {
        name: "Ray Train",
        marks: &["NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"],
        unless: &["GROUP_RANK"],
        node: &["NODE_RANK"],
        local: &["LOCAL_RANK"],
        meet: &["MASTER_ADDR"],
        more: mpi::from_world_size,
        ..NOTHING
    },
    // Open MPI 4.1 (orte/mca/schizo/ompi) and 5.0 (docs/tuning-apps/environment-var.rst), and
    // MPIJob, which starts it.
    Launcher {
        name: "Open MPI",
        marks: &["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"],
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        job: &["PMIX_NAMESPACE"],
        more: mpi::open_mpi,
        ..NOTHING
    },
    // launch_procs in src/pm/hydra/proxy/pmip_cb.c of MPICH 4.1. What a rank gets was looked at with
    // MPICH 4.0.2 and Intel MPI 2021.19. With -pmi-port, it gets PMI_ID and no number of ranks.
    Launcher {
        name: "Hydra (MPICH, Intel MPI)",
        marks: &["PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"],
        local: &["MPI_LOCALRANKID"],
        more: mpi::hydra,
        ..NOTHING
    },
    // srun(1), "OUTPUT ENVIRONMENT VARIABLES", and src/common/env.c of Slurm 25.05. SLURM_NODELIST
    // and SLURM_NNODES are those of the step, too, unless something has kept the job's.
    Launcher {
        name: "Slurm",
        marks: &["SLURM_STEP_NODELIST", "SLURM_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
        node: &["SLURM_NODEID"],
        local: &["SLURM_LOCALID"],
        more: |seen, said| {
            let list = seen.variable("SLURM_STEP_NODELIST").unwrap_or_default();
            said.names = hostlist::expand(list).unwrap_or_default();
            said.meet = said.names.first().map(|first| Told::new(first.clone(), "SLURM_STEP_NODELIST", list));
            if said.meet.is_none() {
                said.placeless = Some("SLURM_STEP_NODELIST is no list of hosts".to_owned());
            }
            let step = seen.variable("SLURM_STEP_ID").unwrap_or("0");
            said.job = seen
                .variable("SLURM_JOB_ID")
                .map(|job| Told::new(format!("{job}.{step}"), "SLURM_JOB_ID", job));
            Ok(true)
        },
        ..NOTHING
    },
    // An allocation without a step: a batch script runs once, on the first node.
    Launcher {
        name: "Slurm",
        marks: &["SLURM_JOB_ID", "SLURM_NNODES"],
        unless: &["SLURM_STEP_NODELIST", "OMPI_COMM_WORLD_SIZE"],
        more: |seen, said| {
            match seen.variable("SLURM_NNODES") {
                Some("1") => said.nodes = Some(Told::new(1, "SLURM_NNODES", "1")),
                _ => {
                    said.uncounted = Some(
                        "this is an allocation of Slurm, and no step; start it with srun, once on each node"
                            .to_owned(),
                    );
                }
            }
            Ok(true)
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
        more: kubernetes::leader_worker_set,
        ..NOTHING
    },
    // Volcano 1.13 (pkg/controllers/job/plugins/distributed-framework/pytorch), PAI-DLC, and
    // training-operators that set no PET_*. WORLD_SIZE and RANK count nodes here, because it is
    // torchrun that starts the processes.
    Launcher {
        name: "PyTorchJob",
        marks: &["WORLD_SIZE", "RANK", "MASTER_ADDR"],
        unless: &["LOCAL_RANK"],
        nodes: &["WORLD_SIZE"],
        node: &["RANK"],
        meet: &["MASTER_ADDR"],
        more: kubernetes::master_and_workers,
        ..NOTHING
    },
    // Volcano 1.13 (pkg/controllers/job/plugins/env, .../svc).
    Launcher { name: "Volcano", more: kubernetes::volcano, ..NOTHING },
    // An Indexed Job of Kubernetes, and JobSet, which consists of such Jobs.
    Launcher {
        name: "the Indexed Job",
        marks: &["JOB_COMPLETION_INDEX"],
        node: &["JOB_COMPLETION_INDEX"],
        more: kubernetes::indexed_job,
        ..NOTHING
    },
    // KubeRay 1.4 (ray-operator/controllers/ray/utils/constant.go). It numbers no Pods.
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
    /// What this launcher says; `None` if it has not started this process.
    pub fn ask(&self, seen: &Seen) -> Result<Option<Said>, String> {
        let is_set = |name: &&str| seen.variable(name).is_some();
        if !self.marks.iter().all(is_set) || self.unless.iter().any(is_set) {
            return Ok(None);
        }
        let first =
            |names: &[&'static str]| names.iter().find_map(|name| Some((*name, seen.variable(name)?)));
        let number = |names| first(names).map(|(name, text)| of_number(name, text)).transpose();
        let text = |names| first(names).map(|(name, text)| Told::new(text.to_owned(), name, text));
        let mut said = Said {
            launcher: self.name,
            nodes: first(self.nodes).map(|(name, text)| of_nodes(name, text)).transpose()?,
            node: number(self.node)?,
            local: number(self.local)?,
            meet: text(self.meet),
            job: text(self.job),
            names: Vec::new(),
            uncounted: None,
            placeless: None,
        };
        Ok((self.more)(seen, &mut said)?.then_some(said))
    }
}

pub(super) fn of_number(name: &str, text: &str) -> Result<Told<u32>, String> {
    let told = |value| Told::new(value, name, text);
    text.parse().map(told).map_err(|_| format!("{}: this is no number of nodes or index", told(0).from))
}

/// A number of nodes, which torchrun takes as a range, too.
pub(super) fn of_nodes(name: &str, text: &str) -> Result<Told<u32>, String> {
    match text.split_once(':') {
        Some((least, most)) if least == most => {
            of_number(name, least).map(|told| Told::new(told.value, name, text))
        }
        Some(_) => Err(format!(
            "{}: an elastic job has no certain number of nodes, which the preflight needs; say it with --nodes N, or --preflight-nodes N before a command",
            Told::new(0, name, text).from
        )),
        None => of_number(name, text),
    }
}
