//! Rails that RoCE cannot use: their interface is not here or has no address, or the HCA has no GID for it.

use crate::fabric::{Candidate, SkipReason, Verdict, enough, interface, own_interface::Index, twin};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::finding::{Finding, Id};
use crate::text::{condensed, paired};

/// What a rail lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Lack {
    Address,
    Gid,
    /// The rail lacks an address, and is the other half of this port's cable.
    OtherHalf(String),
}

/// A rail without an address, and its interface.
type Rail<'a, 'b> = (&'b Candidate<'a>, &'b Interface);

pub(super) fn findings(facts: &Facts, interfaces: &Index, ports: &[Candidate]) -> Vec<Finding> {
    let is_without = |port: &&Candidate| {
        matches!(port.verdict, Verdict::LeftOut(SkipReason::NoOwnGid | SkipReason::LinkLocal))
    };
    let (here, elsewhere): (Vec<_>, Vec<_>) = ports
        .iter()
        .filter(is_without)
        .map(|port| (port, interfaces.find(port.hca, port.port)))
        .partition(|(_, interface)| interface.is_some());
    // If an HCA's interface is in this container, the HCA is meant for it. A member of a bond or bridge has
    // no address of its own.
    let here = here.into_iter().filter_map(|(port, interface)| Some((port, interface?)));
    let here: Vec<Rail> =
        here.filter(|(_, interface)| interface.master.is_none() && interface.is_up()).collect();
    let elsewhere: Vec<&Candidate> = elsewhere.into_iter().map(|(port, _)| port).collect();

    let mut by_lack: Vec<(Lack, Vec<Rail>)> = Vec::new();
    for (port, interface) in &here {
        let lack = match twin::in_use(ports, port) {
            Some(twin) => Lack::OtherHalf(twin.name()),
            None if interface::has_global_address(interface) => Lack::Gid,
            None => Lack::Address,
        };
        match by_lack.iter_mut().find(|(known, _)| *known == lack) {
            Some((_, rails)) => rails.push((port, interface)),
            None => by_lack.push((lack, vec![(port, interface)])),
        }
    }
    by_lack.sort_by_key(|(lack, _)| matches!(lack, Lack::Gid));
    let is_enough = enough(facts, ports, here.len()) == Some(true);
    let of_here = by_lack.iter().map(|(lack, rails)| finding_for_lack(lack, rails, is_enough));
    of_here.chain(not_here(facts, ports, &elsewhere)).collect()
}

fn finding_for_lack(lack: &Lack, rails: &[Rail], is_enough: bool) -> Finding {
    let pairs: Vec<(String, &str)> =
        rails.iter().map(|(port, interface)| (port.name(), interface.name.as_str())).collect();
    let names = paired(&pairs);
    let (message, fix) = match lack {
        Lack::Address => (
            format!(
                "{names} skipped: the interface is in this container and up, but has no address that other nodes can reach."
            ),
            "Check what gives these interfaces their addresses: DHCP, or the network plugin and its IPAM (its pool may be used up, or an annotation may be missing). `ip address` on a node where it works shows what is missing here.",
        ),
        Lack::Gid => (
            format!(
                "{names} skipped: the interface is in this container and up, but the GID table of the HCA has no RoCE v2 GID with its address."
            ),
            "Compare `show_gids` here and on a node where it works: the HCA may be in RoCE v1 mode, or its GID table may be full (GIDs of removed containers stay until the driver is reloaded).",
        ),
        Lack::OtherHalf(twin) => (
            format!(
                "{names} skipped: it is the other half of the cable of {twin}, and its interface has no address that other nodes can reach. Without it, the job has half of the cable's bandwidth."
            ),
            "Give the interface an address in its own network on each node, as the other half has one.",
        ),
    };
    let finding = match is_enough && !matches!(lack, Lack::OtherHalf(_)) {
        true => Finding::info(Id::NoAddress, message),
        false => Finding::warning(Id::NoAddress, message),
    };
    let twin = match lack {
        Lack::OtherHalf(twin) => Some(twin.clone()),
        Lack::Address | Lack::Gid => None,
    };
    finding
        .about_ports(rails.iter().map(|(port, _)| port.name()).chain(twin))
        .about_interfaces(rails.iter().map(|(_, interface)| &interface.name))
        .with_fix(fix)
}

/// Reports HCAs that are as fast as the rails, but have their interfaces in another network namespace. They
/// may belong to other containers, so they are missing only if there are too few rails for the GPUs.
fn not_here(facts: &Facts, ports: &[Candidate], elsewhere: &[&Candidate]) -> Option<Finding> {
    let used = || ports.iter().filter(|port| port.is_used());
    let fastest = used().map(|port| port.port.gigabits()).fold(0.0, f64::max);
    let missed: Vec<String> =
        elsewhere.iter().filter(|port| port.port.gigabits() >= fastest).map(|port| port.name()).collect();
    // A single rail may be the intended share of a container, if several containers share the node.
    if missed.is_empty() || used().count() < 2 || enough(facts, ports, missed.len()) != Some(false) {
        return None;
    }
    let message = format!(
        "{} skipped: {} not in this container, which has {} rails for {} GPUs without {}.",
        condensed(&missed),
        if missed.len() == 1 { "the interface is" } else { "the interfaces are" },
        used().count(),
        facts.gpu.count?,
        if missed.len() == 1 { "it" } else { "them" }
    );
    Some(Finding::warning(Id::NoAddress, message).about_ports(missed).with_fix(
        "Give the container the network of each rail (the network plugin's annotation for RDMA), or the host's network.",
    ))
}
