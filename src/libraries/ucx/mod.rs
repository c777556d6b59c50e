//! UCX, and NIXL and MPI on it. What it takes of a host, by release: [`taken`]; what its variables
//! say: [`list`]. The functions that are named there are those of openucx/ucx, 1.10 to 1.22.

pub mod list;
mod mend;
mod release;
mod remarks;
pub mod taken;

use super::{Library, Remark as OfLibrary, Subject, Why as OfAny, Will};
use crate::fabric::Rails;

pub use mend::Why;
pub use release::Release;
pub use remarks::Remark;
pub use taken::Taken;

pub const DEVICES: &str = "UCX_NET_DEVICES";
pub const TRANSPORTS: &str = "UCX_TLS";
pub const GID_INDEX: &str = "UCX_IB_GID_INDEX";
pub const SUBNETS: &str = "UCX_IB_ROCE_SUBNETS";

pub const LIBRARY: Library = Library {
    name: "ucx",
    title: "UCX",
    filled: &[DEVICES, GID_INDEX, SUBNETS],
    read: &["UCX_"],
    is_here,
    fills: mend::fills,
    remarks: |subject| remarks::remarks(subject).into_iter().map(OfLibrary::Ucx).collect(),
    will: |subject| {
        let release = *release::all(subject).last()?;
        taken::taken(subject, release).filter(|_| mend::works(subject)).map(Will::TakeOfUcx)
    },
};

/// Whether the image has UCX, or a package that brings one of its own, or a variable of it is set.
fn is_here(subject: &Subject) -> bool {
    let of_image = subject.facts.image.as_ref().is_some_and(|image| {
        let brings_it = |name: &str| name.starts_with("libucx") || name.starts_with("nixl");
        !image.ucx.is_empty() || image.packages.iter().any(|package| brings_it(&package.name))
    });
    of_image || [DEVICES, TRANSPORTS, GID_INDEX].iter().any(|name| subject.value(name).is_some())
}

/// Whether each release in the image may go over verbs, as far as `UCX_TLS` says.
pub fn may_use_verbs(subject: &Subject) -> bool {
    let value = subject.value(TRANSPORTS);
    release::all(subject).into_iter().all(|release| list::transports(value, release).verbs)
}

pub fn value(variable: &str, rails: &Rails) -> Option<String> {
    let ports = rails.port_names();
    if variable != DEVICES || ports.is_empty() {
        return None;
    }
    // A list of HCAs alone takes TCP from UCX, and with it the way to a process itself and to
    // the first messages: NIXL ends with NIXL_ERR_BACKEND.
    Some(format!("{},{}", ports.join(","), rails.interface?))
}

/// For a reason of this library.
fn why(why: Why) -> OfAny {
    OfAny::Ucx(why)
}
