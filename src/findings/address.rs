//! Rails with an interface in this network namespace that RoCE cannot use, because the
//! interface has no address, or the HCA no GID for it.

use crate::fabric::{Candidate, Reason, Verdict, enough, interface, own_interface};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::finding::{Finding, Id};

/// An HCA with its interface in this container was meant for it. (Nothing is known about an HCA
/// with its interface in another namespace.)
pub fn findings(facts: &Facts, ports: &[Candidate]) -> Vec<Finding> {
    let without = ports.iter().filter(|port| port.verdict == Verdict::LeftOut(Reason::NoOwnGid));
    let rails = without.filter_map(|port| {
        let interface = own_interface::of(facts, port.hca, port.port)?;
        // A part of a bond or bridge has no address of its own.
        (interface.master.is_none() && interface.is_up()).then_some((port, interface))
    });
    let (no_gid, no_address): (Vec<_>, Vec<_>) =
        rails.partition(|(_, interface)| interface::has_global_address(interface));
    let missing = no_gid.len() + no_address.len();
    let is_enough = enough(facts, ports, missing) == Some(true);
    let found = |of: &[(&Candidate, &Interface)], why: &str, fix: &str| {
        let names: Vec<String> =
            of.iter().map(|(port, interface)| format!("{} ({})", port.name(), interface.name)).collect();
        let message =
            format!("{} left out: the interface is in this container and up, but {why}.", names.join(", "));
        let finding = match is_enough {
            true => Finding::info(Id::NoAddress, message),
            false => Finding::warning(Id::NoAddress, message),
        };
        let finding = finding
            .about_ports(of.iter().map(|(port, _)| port.name()))
            .about_interfaces(of.iter().map(|(_, interface)| &interface.name));
        (!of.is_empty()).then(|| finding.with_fix(fix))
    };
    let no_address = found(
        &no_address,
        "has no address that other nodes can reach",
        "Check what gives these interfaces their addresses: DHCP, or the network plugin and its IPAM (its pool may be used up, or an annotation may be missing). `ip address` on a node where it works shows what is missing here.",
    );
    let no_gid = found(
        &no_gid,
        "the GID table of the HCA has no RoCE v2 GID with its address",
        "Compare `show_gids` here and on a node where it works: the HCA may be in RoCE v1 mode, or its GID table may be full (GIDs of containers that are gone stay until the driver is loaded again).",
    );
    no_address.into_iter().chain(no_gid).collect()
}
