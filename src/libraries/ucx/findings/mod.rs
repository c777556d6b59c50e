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
        .chain(plain(Vec::from_iter(devices::without_gid(subject))))
        .chain(gid::finding(subject))
        .chain(plain(Vec::from_iter(gid::local_subnet(subject))))
        .collect()
}

/// Returns how to fix a device list that keeps UCX from what it needs.
fn with_tcp(subject: &LibraryContext) -> String {
    format!("Remove {DEVICES}, or write {DEVICES}={}.", job_and_interface(subject).join(","))
}

/// Returns the job's ports and the interface for TCP.
fn job_and_interface(subject: &LibraryContext) -> Vec<String> {
    let interface = subject.rails.interface.map(str::to_owned);
    subject.rails.port_names().into_iter().chain(interface).collect()
}
