//! The note about ports that use a GID of the node.

use crate::fabric::Candidate;
use crate::fabric::gid::OwnAddresses;
use crate::finding::{Finding, Id};
use crate::plan::Decided;

/// Returns the note for ports that use a GID of the node: why that is right, and what it depends on.
pub(super) fn report_node_gids(decided: &Decided) -> Option<Finding> {
    let own = OwnAddresses::of(decided.facts);
    let is_of_node = |port: &&Candidate| !own.has_own(port.port) && !own.slots(port.port).is_empty();
    let rails: Vec<&Candidate> = decided.used_roce().filter(is_of_node).collect();
    let with_gid = |rail: &&Candidate| {
        let gid = own.slots(rail.port).into_iter().next()?;
        Some(format!("{} with {} at index {}", rail.hca.name, gid.address(), gid.index))
    };
    let list: Vec<String> = rails.iter().filter_map(with_gid).collect();
    if list.is_empty() {
        return None;
    }
    let bootstrap = decided.beside.as_ref().map_or(String::new(), |interface| {
        format!("; the processes find each other on {interface} of this container")
    });
    let message = format!(
        "The job uses the node's GIDs: {}. The interfaces are in the node's network namespace, and so are the routes of RDMA{bootstrap}.",
        list.join(", ")
    );
    let fix = "This works if the nodes reach each other's addresses: the nodes' routes, firewalls and security groups decide, not the Pod's network policies. If the container is to have GIDs of its own, give it an address on each RoCE interface.";
    let finding = Finding::info(Id::NoOwnGid, message).with_fix(fix);
    Some(finding.about_ports(rails.iter().map(|rail| rail.name())).about_interfaces(decided.beside.as_ref()))
}
