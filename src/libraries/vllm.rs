//! vLLM, and the variables that it sets for its workers' libraries.
//!
//! `VLLM_GPU_NIC_PCIE_MAPPING` names a NIC for each GPU by PCI address (`GPU=NIC,...`).
//! `VLLM_NIC_SELECTION_VARS` lists the variables that each worker sets to the RDMA device of its own GPU's
//! NIC, each with a suffix for the name (`UCX_NET_DEVICES:1`). vLLM fails if only one of them is set, or if
//! the mapping lacks a GPU (`vllm/v1/executor/vllm_net_devices.py`, vLLM 0.23 to 0.33). A worker puts the new
//! name before the variable's existing value, with a comma between them.

mod mapping;

use super::nccl::version::Version;
use super::node_address::AddressingProgram;
use super::ucx::NIXL;
use super::{Fill, Library, LibraryContext, node_address, ray, ucx};
use crate::fabric::distance::Distance;
use crate::fabric::of_gpu::{self, GpuHca};
use crate::finding::{Finding, Id};
use mapping::{address, nic};

pub(crate) const MAPPING: &str = "VLLM_GPU_NIC_PCIE_MAPPING";
pub(crate) const SELECTION: &str = "VLLM_NIC_SELECTION_VARS";

pub(crate) const HOST_IP: &str = "VLLM_HOST_IP";
/// Where one node's processes bootstrap; if unset, on loopback (`get_loopback_ip` in
/// `vllm/utils/network_utils.py`).
const LOOPBACK_IP: &str = "VLLM_LOOPBACK_IP";

const ADDRESS: AddressingProgram = AddressingProgram {
    library: "vLLM",
    variable: HOST_IP,
    also: None,
    of_interface: None,
    asks_for_name: false,
};

/// The first release that reads the mapping.
const SINCE: Version = Version::new(0, 23, 0);

/// The libraries' variables that a worker sets to its NIC, and the packages of those libraries as vLLM uses
/// them: NIXL on UCX, and NVSHMEM below DeepEP. NCCL finds each GPU's nearest HCA itself.
const TOLD: [(&str, &str); 2] = [("UCX_NET_DEVICES", NIXL), ("NVSHMEM_HCA_LIST", "deep-ep-")];

/// Variables that people set, and that neither vLLM nor NIXL reads. vLLM takes NIXL's backend only from
/// `kv_connector_extra_config`, and else UCX (vllm-project/vllm issue 41814); NIXL's libfabric plugin reads
/// `NIXL_LIBFABRIC_` with the name of a parameter, and has none for the number of rails
/// (`getCustomStringParam` in `src/utils/libfabric/libfabric_common.cpp`, NIXL 1.4).
const NOT_READ: [&str; 3] = ["NIXL_BACKEND", "VLLM_NIXL_KVCACHE_BACKEND", "NIXL_LIBFABRIC_NUM_RAILS"];

pub(crate) const LIBRARY: Library = Library {
    name: "vllm",
    title: "vLLM",
    packages: &["vllm"],
    filled: &[MAPPING, SELECTION, HOST_IP],
    gid: &[],
    read: &[
        MAPPING,
        SELECTION,
        HOST_IP,
        LOOPBACK_IP,
        "VLLM_GPU_NIC_",
        "VLLM_NIC_",
        NOT_READ[0],
        NOT_READ[1],
        NOT_READ[2],
    ],
    is_here,
    fills: |subject| fills(subject).into_iter().chain(host_ip(subject)).collect(),
    findings: |subject| {
        let of_address = [ADDRESS.finding(subject), node_address::inside(subject, "vLLM", LOOPBACK_IP)];
        let all = mapping::findings(subject).into_iter().chain(of_address.into_iter().flatten());
        let all = all.chain(not_read(subject));
        all.map(Into::into).collect()
    },
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    subject.has_package("vllm")
        || [MAPPING, SELECTION, HOST_IP].iter().any(|name| subject.value(name).is_some())
}

/// Returns the release in the image, unless it is a build from source, which has its own number (`0.1.dev1`).
fn release(subject: &LibraryContext) -> Option<Version> {
    let package = subject.packages("vllm").next()?;
    Version::parse(&package.version).filter(|_| !package.version.contains("dev"))
}

/// Returns the fill of vLLM's address. On Ray, vLLM waits for its placement on the node with this address, so
/// it must be the address under which Ray knows the node: the one on the command line, or else both use the
/// same route's address, if there is a route.
fn host_ip(subject: &LibraryContext) -> Option<Fill> {
    if let Some(known_by) = ray::named(subject) {
        return ADDRESS.fill_on_ray(subject, known_by);
    }
    let is_sound_on_ray = subject.has_package("ray") && node_address::by_route(subject.facts).is_some();
    if is_sound_on_ray { None } else { ADDRESS.fill(subject) }
}

fn fills(subject: &LibraryContext) -> Vec<Fill> {
    let stays = |name: &str| subject.value(name).is_some() || (subject.is_kept)(name);
    if release(subject).is_none_or(|release| release < SINCE)
        || !subject.facts.gpu.make.is_nvidia()
        // vLLM fails if only one of them is set.
        || stays(MAPPING)
        || stays(SELECTION)
    {
        return Vec::new();
    }
    let Some(pairs) = of_gpu::pairs(subject.facts, subject.rails.ports) else { return Vec::new() };
    // The port number must be the same for all workers.
    let mut used = subject.rails.ports.iter().filter(|port| port.is_used());
    let Some(port) = used.next().map(|first| first.port.number) else { return Vec::new() };
    if used.any(|other| other.port.number != port) {
        return Vec::new();
    }
    let selection: Vec<String> = TOLD
        .iter()
        .filter(|(variable, package)| !stays(variable) && is_told(subject, package))
        .map(|(variable, _)| format!("{variable}:{port}"))
        .collect();
    if selection.is_empty() {
        return Vec::new();
    }
    let mapping: Vec<String> =
        pairs.iter().filter_map(|pair| Some(format!("{}={}", address(pair.gpu), nic(pair.hca)?))).collect();
    if mapping.len() != pairs.len() {
        return Vec::new();
    }
    let hcas = subject.rails.ports.iter().filter(|port| port.is_used()).count();
    let distance = pairs.iter().map(|GpuHca { distance, .. }| *distance).max().map_or("", Distance::word);
    let why = format!(
        "without it, a worker of vLLM may take another of the {hcas} HCAs than the nearest of its GPU ({distance})"
    );
    vec![Fill::new(MAPPING, mapping.join(","), &why), Fill::new(SELECTION, selection.join(","), &why)]
}

/// Returns whether a worker should set the NIC for a package's library. The worker then leaves UCX only this
/// HCA, over which each NIXL agent must reach itself: see [`ucx::alone`].
fn is_told(subject: &LibraryContext, package: &'static str) -> bool {
    subject.has_package(package) && (package != NIXL || ucx::alone::each_rail_will_do(subject))
}

/// Returns the finding about variables that should configure NIXL, and that are not read.
fn not_read(subject: &LibraryContext) -> Option<Finding> {
    let set: Vec<&str> = NOT_READ.into_iter().filter(|name| subject.value(name).is_some()).collect();
    if set.is_empty() || !subject.has_package("vllm") || !subject.has_package(NIXL) {
        return None;
    }
    let shown: Vec<String> = set.iter().map(|name| subject.shown(name)).collect();
    let message = format!(
        "{}: neither vLLM nor NIXL reads this. vLLM's connector takes UCX, unless --kv-transfer-config names another backend.",
        shown.join(", ")
    );
    let fix = format!(
        "Name the backend in --kv-transfer-config (kv_connector_extra_config, backends), and remove {}.",
        set.join(", ")
    );
    Some(Finding::info(Id::LibraryValue, message).about_variables(set).with_fix(fix))
}

/// Returns whether vLLM's workers set this variable themselves, because the user requested it.
pub(crate) fn is_set_by_worker(selection: &str, variable: &str) -> bool {
    let names = selection.split(',').map(|entry| entry.split(':').next().unwrap_or_default().trim());
    names.into_iter().any(|name| name == variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sets_what_is_named() {
        let is_set = |name| is_set_by_worker("UCX_NET_DEVICES:1, NCCL_IB_HCA", name);
        assert!(is_set("UCX_NET_DEVICES") && is_set("NCCL_IB_HCA"));
        assert!(!is_set("UCX_NET") && !is_set("NCCL_IB_HCA:1") && !is_set_by_worker("", "UCX_NET_DEVICES"));
    }
}
