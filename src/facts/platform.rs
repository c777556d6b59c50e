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
    /// The version of NCCL that the image names (`NCCL_VERSION`, as in NVIDIA's images).
    pub nccl_version: Option<String>,
    /// The version of CUDA that the image names (`CUDA_VERSION`, as in NVIDIA's images).
    pub cuda_version: Option<String>,
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
        nccl_version: value("NCCL_VERSION"),
        cuda_version: value("CUDA_VERSION"),
    }
}
