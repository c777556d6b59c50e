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

use super::{FillReason as OfAny, Library, LibraryContext, Will, traffic_class, vllm};
use crate::fabric::Rails;

pub use mend::{Gda, UcxReason};
pub use release::Release;
pub use taken::Taken;

pub const DEVICES: &str = "UCX_NET_DEVICES";
pub const TRANSPORTS: &str = "UCX_TLS";
pub const GID_INDEX: &str = "UCX_IB_GID_INDEX";
pub const SUBNETS: &str = "UCX_IB_ROCE_SUBNETS";
pub const LOCAL_SUBNET: &str = "UCX_IB_ROCE_LOCAL_SUBNET";
pub const REACHABILITY: &str = "UCX_IB_ROCE_REACHABILITY_MODE";
const CLASS: &str = traffic_class::UCX.name;

pub const LIBRARY: Library = Library {
    name: "ucx",
    title: "UCX",
    filled: &[DEVICES, GID_INDEX, SUBNETS, REACHABILITY, CLASS],
    gid: &[GID_INDEX, SUBNETS],
    read: &["UCX_"],
    is_here,
    fills: mend::fills,
    findings: findings::findings,
    will: |subject| {
        let selection = subject.value(vllm::SELECTION).filter(|_| mend::works(subject));
        if selection.is_some_and(|selection| vllm::is_set_by_worker(selection, DEVICES)) {
            return Some(Will::UseWorkerPorts(subject.rails.port_names()));
        }
        let release = *release::all(subject).last()?;
        taken::taken(subject, release).filter(|_| mend::works(subject)).map(Will::UseUcxChoice)
    },
};

/// Returns whether the image has UCX or a package that contains its own, or one of its variables is set.
fn is_here(subject: &LibraryContext) -> bool {
    let of_image = subject.facts.image.as_ref().is_some_and(|image| {
        let is_it = |name: &str| name.starts_with("libucx");
        !image.ucx.is_empty()
            || release::has_nixl(image)
            || image.packages.iter().any(|package| is_it(&package.name))
    });
    of_image || [DEVICES, TRANSPORTS, GID_INDEX, SUBNETS].iter().any(|name| subject.value(name).is_some())
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

fn why(why: UcxReason) -> OfAny {
    OfAny::Ucx(why)
}
