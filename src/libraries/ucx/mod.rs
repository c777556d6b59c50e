//! UCX, and NIXL and MPI on top of it. [`taken`] models what each release uses on a host; [`list`],
//! [`transports`] and [`subnets`] parse its variables; [`alone`] determines whether a process reaches itself
//! without TCP, and [`gda`] what its transport for GPUs opens. The functions that these files name are in openucx/ucx, 1.10 to 1.22.

pub(crate) mod alone;
mod findings;
mod gda;
mod index;
mod list;
mod mend;
mod release;
mod subnets;
pub mod taken;
pub(crate) mod transports;
pub(crate) mod wheel;

use std::net::IpAddr;

use super::{Library, LibraryContext, traffic_class, vllm};
use crate::fabric::Rails;
use crate::text::condensed;

pub use release::Release;
pub use taken::Taken;

pub const DEVICES: &str = "UCX_NET_DEVICES";
pub const TRANSPORTS: &str = "UCX_TLS";
pub const GID_INDEX: &str = "UCX_IB_GID_INDEX";
pub const SUBNETS: &str = "UCX_IB_ROCE_SUBNETS";
pub const LOCAL_SUBNET: &str = "UCX_IB_ROCE_LOCAL_SUBNET";
pub const REACHABILITY: &str = "UCX_IB_ROCE_REACHABILITY_MODE";
const CLASS: &str = traffic_class::UCX.name;

/// `nixl` and `nixl-cu12`, whose wheels contain a UCX.
pub(crate) const NIXL: &str = "nixl-";

pub const LIBRARY: Library = Library {
    name: "ucx",
    title: "UCX",
    packages: &["libucx-", "mpi4py-", NIXL],
    filled: &[DEVICES, GID_INDEX, SUBNETS, REACHABILITY, CLASS],
    gid: &[GID_INDEX, SUBNETS],
    read: &["UCX_"],
    is_here,
    fills: mend::fills,
    findings: findings::findings,
    will: |subject| {
        let selection = subject.value(vllm::SELECTION).filter(|_| mend::works(subject));
        if selection.is_some_and(|selection| vllm::is_set_by_worker(selection, DEVICES)) {
            let ports = subject.rails.port_names();
            return Some(format!(
                "take the HCA of each GPU, as the worker of vLLM names it, of {}",
                condensed(&ports)
            ));
        }
        let release = *release::all(subject).last()?;
        taken::taken(subject, release).filter(|_| mend::works(subject)).map(|taken| describe(&taken))
    },
};

/// Returns whether the image has UCX or a package that contains its own, or one of its variables is set.
fn is_here(subject: &LibraryContext) -> bool {
    subject.facts.image.as_ref().is_some_and(|image| !image.ucx.is_empty())
        || ["libucx-", NIXL].iter().any(|listed| subject.has_package(listed))
        || [DEVICES, TRANSPORTS, GID_INDEX, SUBNETS].iter().any(|name| subject.value(name).is_some())
}

pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    let ports = rails.port_names();
    if variable != DEVICES || ports.is_empty() {
        return None;
    }
    // A list with only HCAs takes TCP away from UCX, and TCP is the fallback if a process does not reach
    // itself or another one over them.
    Some(format!("{},{}", ports.join(","), rails.interface?))
}

/// Returns text for a port's GID entry that is not right, with the reason.
pub(crate) fn slot_of(port: &str, slot: u32, address: Option<IpAddr>) -> String {
    match address {
        Some(address) => {
            format!("GID index {slot} of {port}, with {address}, which is not an address of this container")
        }
        None if slot == u32::MAX => format!("a GID index that {port} does not have"),
        None => format!("GID index {slot} of {port}, which is empty"),
    }
}

/// Returns a clause such as `take mlx5_1:1..mlx5_2:1 with GID index 3, and TCP on eth0`.
fn describe(taken: &Taken) -> String {
    let mut parts = Vec::new();
    if !taken.ports.is_empty() {
        let names: Vec<&str> = taken.ports.iter().map(|port| port.name.as_str()).collect();
        let mut slots: Vec<u32> =
            taken.ports.iter().filter_map(|port| Some(port.slot.as_ref()?.index)).collect();
        slots.sort_unstable();
        slots.dedup();
        let slots: Vec<String> = slots.iter().map(u32::to_string).collect();
        let gids = match slots.as_slice() {
            [] => String::new(),
            [slot] => format!(" with GID index {slot}"),
            _ => format!(" with GID indexes {}", slots.join(", ")),
        };
        parts.push(format!("{}{gids}", condensed(&names)));
    }
    if !taken.tcp.is_empty() {
        parts.push(format!("TCP on {}", condensed(&taken.tcp)));
    }
    if !taken.has_verbs {
        let left =
            if taken.tcp.is_empty() { "no network device" } else { &format!("{} alone", parts.join(", ")) };
        return format!("take {left}: it lacks libuct_ib.so, its module for HCAs");
    }
    match parts.is_empty() {
        true => "take no network device".to_owned(),
        false => format!("take {}", parts.join(", and ")),
    }
}
