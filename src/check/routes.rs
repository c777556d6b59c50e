//! Routes that RoCE and the bootstrap need.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::facts::net::Interface;
use crate::nccl::predict::{Bootstrap, GidUse};
use crate::plan::{Finding, Plan};

pub fn findings(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    // Where none can be read, none is missing.
    if facts.net.routes.is_empty() {
        return Vec::new();
    }
    no_route(facts, plan).into_iter().chain(overlapping(facts, plan)).collect()
}

/// A GID whose interface leads nowhere (nccl-tests#185).
fn no_route(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let ports = plan.forecasts.last()?.prediction.transport.ports()?;
    let addresses = ports.iter().filter_map(|port| match &port.gid {
        Some(GidUse::Slot { gid: Some(gid), .. }) if !gid.is_link_local() => Some((port, gid)),
        _ => None,
    });
    let without: Vec<String> = addresses
        .filter_map(|(port, gid)| {
            let interface = interface_of(facts, gid)?;
            (!leads_out(facts, interface))
                .then(|| format!("{} ({} on {})", port.hca, gid.address(), interface.name))
        })
        .collect();
    if without.is_empty() {
        return None;
    }
    Some(
        Finding::warning(
            "no-route",
            format!("No route leads out of the interface of {}: connections to other nodes will end with \"Network is unreachable\".", without.join(", ")),
        )
        .with_fix("Give the interface an address with the prefix length of its network, or a route to the other nodes' RoCE network."),
    )
}

fn interface_of<'a>(facts: &'a Facts, gid: &Gid) -> Option<&'a Interface> {
    let has = |interface: &&Interface| interface.addresses.iter().any(|net| net.addr() == gid.address());
    facts.net.interfaces.iter().find(has)
}

/// Whether anybody else than itself can be reached.
fn leads_out(facts: &Facts, interface: &Interface) -> bool {
    facts.net.routes.iter().any(|route| {
        let is_link_local =
            matches!(route.destination.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
        route.interface == interface.name && !is_link_local && !is_of_one(&route.destination)
    })
}

fn is_of_one(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

/// Interfaces in one network: the kernel may send through the other one
/// (NVIDIA/nccl#1581).
fn overlapping(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(forecast) = plan.forecasts.last() else { return Vec::new() };
    let mut findings = Vec::new();
    if let Bootstrap::On(endpoint) = &forecast.prediction.bootstrap {
        let others = facts.net.interfaces.iter().map(|interface| interface.name.as_str());
        let shared = sharing(facts, &endpoint.interface, others);
        if !shared.is_empty() {
            findings.push(Finding::warning(
                "overlapping-subnets",
                format!(
                    "The interface of the bootstrap, {}, shares its network with {}: the kernel may send through the wrong one, and connections hang.",
                    endpoint.interface,
                    shared.join(", ")
                ),
            ));
        }
    }
    let ports = forecast.prediction.transport.ports().unwrap_or_default();
    let rails: Vec<&str> = ports
        .iter()
        .filter_map(|port| match &port.gid {
            Some(GidUse::Slot { gid: Some(gid), .. }) => Some(interface_of(facts, gid)?.name.as_str()),
            _ => None,
        })
        .collect();
    if let Some((first, others)) = rails.split_first() {
        let shared = sharing(facts, first, others.iter().copied());
        if !shared.is_empty() {
            findings.push(Finding::info(
                "overlapping-subnets",
                format!(
                    "The rails are in one network ({first} with {}): the node answers for the address of one with the card of another, unless it has a rule for each.",
                    shared.join(", ")
                ),
            ));
        }
    }
    let fix = "Give each interface a network of its own, or a routing table of its own for its address (ip rule), with arp_ignore=1 and arp_announce=2.";
    findings.into_iter().map(|finding| finding.with_fix(fix)).collect()
}

/// Those of the others that share a network with an interface, and which.
fn sharing<'a>(facts: &Facts, interface: &str, others: impl Iterator<Item = &'a str>) -> Vec<String> {
    let own: Vec<&IpNet> = on_link(facts, interface).collect();
    let is_link_local =
        |net: &IpNet| matches!(net.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
    others
        .filter(|other| *other != interface)
        .filter_map(|other| {
            let shared = on_link(facts, other).find(|net| own.contains(net) && !is_link_local(net))?;
            Some(format!("{other} ({shared})"))
        })
        .collect()
}

/// The networks that are reached through an interface directly.
fn on_link<'a>(facts: &'a Facts, interface: &'a str) -> impl Iterator<Item = &'a IpNet> {
    let of_it = facts.net.routes.iter().filter(move |route| route.interface == interface);
    let direct = of_it.filter(|route| route.gateway.is_none() && !route.is_default());
    direct.map(|route| &route.destination).filter(|destination| !is_of_one(destination))
}
