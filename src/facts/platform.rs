//! Who started the container, as the names in its environment tell.

use serde::{Deserialize, Serialize};

use super::environment::{Environment, is_variable_name};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Platform {
    /// Names, without values, of the variables that Kubernetes, schedulers,
    /// launchers and platforms set. Values may be secrets.
    pub markers: Vec<String>,
    /// Where the processes of the job meet (`MASTER_ADDR`).
    pub master_addr: Option<String>,
    /// How many nodes the job has, and the number of this one, counted from 0, where a launcher tells
    /// both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    /// The version of NCCL that the image names (`NCCL_VERSION`, as in NVIDIA's images).
    pub nccl_version: Option<String>,
    /// The version of CUDA that the image names (`CUDA_VERSION`, as in NVIDIA's images).
    pub cuda_version: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nodes {
    pub count: u32,
    pub this: u32,
}

/// Where launchers and operators tell the number of nodes, and which of them this is: torchrun's own
/// variables (Kubeflow sets them), other platforms', Slurm.
const COUNTS: &[(&str, &str)] =
    &[("PET_NNODES", "PET_NODE_RANK"), ("NNODES", "NODE_RANK"), ("SLURM_JOB_NUM_NODES", "SLURM_NODEID")];

fn nodes(environment: &Environment) -> Option<Nodes> {
    let number = |name: &str| environment.get(name)?.parse::<u32>().ok();
    let told = |(count, this): (&str, &str)| Some(Nodes { count: number(count)?, this: number(this)? });
    // Kubeflow's PyTorchJob and PAI-DLC count nodes here, and torchrun counts the processes of all nodes.
    let by_world = || match environment.get("LOCAL_RANK").or(environment.get("LOCAL_WORLD_SIZE")) {
        None => told(("WORLD_SIZE", "RANK")),
        Some(_) => None,
    };
    let found = COUNTS.iter().find_map(|names| told(*names)).or_else(by_world);
    found.filter(|nodes| nodes.this < nodes.count)
}

const PREFIXES: &[&str] = &[
    "ALIBABA_",
    "AWS_BATCH_",
    "DLC_",
    "ECI_",
    "OMPI_COMM_WORLD_",
    "PAI_",
    "PBS_",
    "PMIX_",
    "PMI_",
    "SLURM_",
    "TORCHELASTIC_",
    "VC_",
    "VK_",
];

const NAMES: &[&str] = &[
    "GROUP_RANK",
    "JOB_COMPLETION_INDEX",
    "KUBERNETES_SERVICE_HOST",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NNODES",
    "NPROC_PER_NODE",
    "NVIDIA_VISIBLE_DEVICES",
    "RANK",
    "WORLD_SIZE",
];

pub fn read(environment: &Environment, also: impl Fn(&str) -> bool) -> Platform {
    let value = |name: &str| environment.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let mut markers: Vec<String> = environment
        .names()
        .filter(|name| {
            NAMES.contains(name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || also(name)
        })
        .filter(|name| is_variable_name(name))
        .map(str::to_owned)
        .collect();
    markers.sort();
    markers.dedup();
    Platform {
        markers,
        master_addr: value("MASTER_ADDR"),
        nodes: nodes(environment),
        nccl_version: value("NCCL_VERSION"),
        cuda_version: value("CUDA_VERSION"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_are_those_of_the_launcher() {
        let of = |pairs: &[(&str, &str)]| {
            let entries: Vec<_> = pairs
                .iter()
                .map(|(name, value)| std::ffi::CString::new(format!("{name}={value}")).unwrap())
                .collect();
            nodes(&Environment::new(&entries)).map(|nodes| (nodes.count, nodes.this))
        };
        assert_eq!(of(&[("PET_NNODES", "4"), ("PET_NODE_RANK", "1"), ("WORLD_SIZE", "32")]), Some((4, 1)));
        assert_eq!(of(&[("PET_NNODES", "1:4"), ("PET_NODE_RANK", "1")]), None, "it may grow");
        assert_eq!(of(&[("WORLD_SIZE", "2"), ("RANK", "1")]), Some((2, 1)));
        assert_eq!(of(&[("WORLD_SIZE", "16"), ("RANK", "9"), ("LOCAL_RANK", "1")]), None, "of processes");
        assert_eq!(of(&[("SLURM_JOB_NUM_NODES", "2"), ("SLURM_NODEID", "0")]), Some((2, 0)));
        assert_eq!(of(&[("NNODES", "2"), ("NODE_RANK", "2")]), None, "there is no such node");
        assert_eq!(of(&[]), None);
    }
}
