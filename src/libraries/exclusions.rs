//! Lists variables that switch off a feature of another library as soon as they are set. A fill must not do
//! that: rdma-init leaves the variable to the feature and says so in the report.
//!
//! | variable | what it switches off | condition |
//! |---|---|---|
//! | `UCX_NET_DEVICES`, `NVSHMEM_HCA_LIST` | vLLM's mapping: a worker puts its GPU's HCA before the existing value (`set_worker_gpu_nic_mapping` in `vllm/v1/executor/vllm_net_devices.py`) | rdma-init can fill in the mapping; it treats the user's own mapping as a user setting |
//! | `UCX_NET_DEVICES` | SGLang's `--disaggregation-ib-device`, which its NIXL connector does not apply if the variable is set | the image has SGLang and NIXL |
//! | `MC_TE_FILTERS` | the same option with Mooncake: only HCAs in both lists remain, and Mooncake's TENT uses only the variable (`mooncake-transfer-engine/src/topology.cpp`, `tent/src/common/config.cpp`) | the image has SGLang |
//!
//! rdma-init does not check whether SGLang starts with the option, because a script or another program
//! usually starts it. Without the option, the library does what it would do without rdma-init.
//!
//! `UCX_IB_GID_INDEX` and `UCX_IB_ROCE_SUBNETS` also exclude each other; [`super::ucx`] fills in at most one
//! of them.

use super::{Fill, Library, LibraryContext, ucx, vllm};

struct Exclusion {
    variable: &'static str,
    /// Why it is left unset.
    why: &'static str,
    /// Whether the feature is in use or may be.
    may_be_used: fn(&LibraryContext) -> bool,
}

const OF_WORKERS: &str =
    "each worker of vLLM sets it to the HCA of its own GPU, and keeps the present value after it";
const OF_SGLANG: &str = "with it, SGLang would not apply its option --disaggregation-ib-device";

const ALL: &[Exclusion] = &[
    Exclusion {
        variable: "UCX_NET_DEVICES",
        why: OF_WORKERS,
        may_be_used: |subject| maps(subject, "UCX_NET_DEVICES"),
    },
    Exclusion {
        variable: "NVSHMEM_HCA_LIST",
        why: OF_WORKERS,
        may_be_used: |subject| maps(subject, "NVSHMEM_HCA_LIST"),
    },
    Exclusion {
        variable: "UCX_NET_DEVICES",
        why: OF_SGLANG,
        may_be_used: |subject| subject.has_package("sglang") && subject.has_package(ucx::NIXL),
    },
    Exclusion {
        variable: "MC_TE_FILTERS",
        why: OF_SGLANG,
        may_be_used: |subject| subject.has_package("sglang"),
    },
];

/// Returns the fill, or an entry that leaves its variable unset.
pub(crate) fn settled(subject: &LibraryContext, fill: Fill) -> Fill {
    let is_it =
        |exclusion: &&Exclusion| exclusion.variable == fill.variable && (exclusion.may_be_used)(subject);
    match ALL.iter().find(is_it) {
        Some(exclusion) => Fill { value: None, why: exclusion.why.to_owned(), ..fill },
        None => fill,
    }
}

/// Returns whether rdma-init fills in a vLLM mapping through which each worker sets this variable.
pub(crate) fn maps(subject: &LibraryContext, variable: &str) -> bool {
    let library: &Library = &vllm::LIBRARY;
    (subject.is_allowed)(library)
        && (library.fills)(subject).iter().any(|fill| {
            let selection = fill.value.as_deref().filter(|_| fill.variable == vllm::SELECTION);
            selection.is_some_and(|selection| vllm::is_set_by_worker(selection, variable))
        })
}
