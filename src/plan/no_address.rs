//! Rails whose interface is in this network namespace, and has no address.

use super::devices::{Candidate, Reason, Verdict};
use super::{Finding, interface};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::rdma::{Hca, Port};

/// Whoever gave the container the interface meant the HCA for it. (Of an HCA that is left
/// out and whose interface is in another namespace, nothing can be said.)
pub fn finding(facts: &Facts, ports: &[Candidate]) -> Option<Finding> {
    let without = ports.iter().filter(|port| port.verdict == Verdict::LeftOut(Reason::NoOwnGid));
    let without: Vec<String> = without
        .filter_map(|port| {
            let interface = interface(facts, port.hca, port.port)?;
            // The address of a bond or bridge is not with its parts.
            let is_rail = interface.master.is_none() && interface.is_up();
            (is_rail && !interface::has_global_address(interface))
                .then(|| format!("{} ({})", port.name(), interface.name))
        })
        .collect();
    if without.is_empty() {
        return None;
    }
    Some(
        Finding::warning(
            "no-address",
            format!(
                "{} left out: the interface is here and up, and has no address that other nodes can reach.",
                without.join(", ")
            ),
        )
        .with_fix("Check who gives these interfaces their addresses: DHCP, or the network plugin and its IPAM (a pool that is used up, an annotation that is missing). `ip address` on a node where it works shows what is missing here."),
    )
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
