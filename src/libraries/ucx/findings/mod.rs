//! Findings about UCX's variables on a host, and their consequences for NIXL and MPI.

mod devices;
mod gid;
mod transports;

use super::mend::works;
use super::release::has_verbs;
use super::{DEVICES, wheel};
use crate::finding::Finding;
use crate::libraries::{LibraryContext, LibraryFinding};

pub(super) fn findings(subject: &LibraryContext) -> Vec<LibraryFinding> {
    let plain = |findings: Vec<Finding>| findings.into_iter().map(LibraryFinding::from);
    if !works(subject) {
        return Vec::new();
    }
    if !has_verbs(subject) {
        return plain(transports::without_verbs(subject)).collect();
    }
    plain(wheel::unserved(subject))
        .chain(plain(transports::findings(subject)))
        .chain(plain(devices::findings(subject)))
        .chain(gid::finding(subject))
        .chain(plain(Vec::from_iter(gid::local_subnet(subject))))
        .collect()
}

/// Returns how to fix a device list that keeps UCX from what it needs.
fn with_tcp(subject: &LibraryContext) -> String {
    let mut names = subject.rails.port_names();
    names.extend(subject.rails.interface.map(str::to_owned));
    format!("Remove {DEVICES}, or write {DEVICES}={}.", names.join(","))
}
