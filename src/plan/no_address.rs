//! Rails whose interface is in this network namespace, and that RoCE cannot use for want of
//! an address, or of its GID.

use super::devices::{Candidate, Reason, Verdict};
use super::enough::enough;
use super::interface;
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::rdma::{Hca, Port};
use crate::finding::{Finding, Id};

/// Whoever gave the container the interface meant the HCA for it. (Of an HCA that is left
/// out and whose interface is in another namespace, nothing can be said.)
pub fn findings(facts: &Facts, ports: &[Candidate]) -> Vec<Finding> {
    let without = ports.iter().filter(|port| port.verdict == Verdict::LeftOut(Reason::NoOwnGid));
    let rails = without.filter_map(|port| {
        let interface = interface(facts, port.hca, port.port)?;
        // The address of a bond or bridge is not with its parts.
        (interface.master.is_none() && interface.is_up()).then_some((port, interface))
    });
    let (no_gid, no_address): (Vec<_>, Vec<_>) =
        rails.partition(|(_, interface)| interface::has_global_address(interface));
    let missing = no_gid.len() + no_address.len();
    let is_enough = enough(facts, ports, missing) == Some(true);
    let found = |of: &[(&Candidate, &Interface)], why: &str, fix: &str| {
        let names: Vec<String> =
            of.iter().map(|(port, interface)| format!("{} ({})", port.name(), interface.name)).collect();
        let message = format!("{} left out: the interface is here and up, and {why}.", names.join(", "));
        let finding = match is_enough {
            true => Finding::info(Id::NoAddress, message),
            false => Finding::warning(Id::NoAddress, message),
        };
        (!of.is_empty()).then(|| finding.with_fix(fix))
    };
    let no_address = found(
        &no_address,
        "has no address that other nodes can reach",
        "Check who gives these interfaces their addresses: DHCP, or the network plugin and its IPAM (a pool that is used up, an annotation that is missing). `ip address` on a node where it works shows what is missing here.",
    );
    let no_gid = found(
        &no_gid,
        "the GID table of the HCA has no RoCE v2 GID of its address",
        "Compare `show_gids` here and on a node where it works: the HCA may be in RoCE v1 mode, or its GID table may be full (GIDs of containers that are gone stay until the driver is loaded again).",
    );
    no_address.into_iter().chain(no_gid).collect()
}

/// The interface of a port, where it is in this network namespace: by a GID that is one of
/// its addresses, link-local ones included, or by the PCI device.
pub fn interface<'a>(facts: &'a Facts, hca: &Hca, port: &Port) -> Option<&'a Interface> {
    let by_gid = |interface: &&Interface| {
        port.gids.slots.iter().any(|gid| {
            gid.netdev.as_ref() == Some(&interface.name)
                && interface.addresses.iter().any(|address| address.addr() == gid.address())
        })
    };
    let by_device =
        |interface: &&Interface| hca.pci_address.is_some() && hca.pci_address == interface.pci_address;
    let mut interfaces = facts.net.interfaces.iter();
    interfaces.clone().find(by_gid).or_else(|| interfaces.find(by_device))
}
