//! Routes that RoCE and the bootstrap need.

mod way;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::facts::net::Interface;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::{Bootstrap, GidUse};
use crate::plan::Plan;

pub use way::{Way, way};

pub fn findings(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    no_route(facts, plan).into_iter().chain(overlapping(facts, plan)).collect()
}

/// A GID from which no other node is reached, or not on its own interface (nccl-tests#185).
fn no_route(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(forecast) = plan.forecasts.last() else { return Vec::new() };
    let mut ways: Vec<(Way, Vec<String>)> = Vec::new();
    for port in forecast.prediction.transport.ports().unwrap_or_default() {
        let Some(GidUse::Slot { gid: Some(gid), .. }) = &port.gid else { continue };
        let Some(interface) = interface_of(facts, gid).filter(|_| !gid.is_link_local()) else { continue };
        let Some(way) = way(&facts.net, gid.address(), &interface.name) else { continue };
        let name = format!("{} ({} on {})", port.hca, gid.address(), interface.name);
        match ways.iter_mut().find(|(known, _)| *known == way) {
            Some((_, names)) => names.push(name),
            None => ways.push((way, vec![name])),
        }
    }
    ways.iter().filter_map(|(way, names)| of_way(way, &names.join(", "))).collect()
}

/// What an interface lacks.
const WAY_OUT: &str =
    "an address with the prefix length of its network, or a route to the other nodes' RoCE network";

fn of_way(way: &Way, names: &str) -> Option<Finding> {
    match way {
        Way::Out => None,
        Way::OnLink => Some(
            Finding::info(
                Id::NoRoute,
                format!("No route leads out of the interface of {names}: the kernel looks for every other node on the interface's own link, by ARP, and connections end with \"Connection timed out\" unless the node, or a router in its place, answers there."),
            )
            .with_fix(format!("Where connections time out, give the interface {WAY_OUT}.")),
        ),
        Way::Elsewhere(other) => Some(
            Finding::warning(
                Id::NoRoute,
                format!("No route leads out of the interface of {names}, and the route to other nodes leads out of {other}: the HCA will send to the MAC address of {other}'s router, which is not on its network, and connections will time out."),
            )
            .with_fix(format!("Give the interface {WAY_OUT}; put a default route into a routing table of its own, and add a rule that selects this table by the address (ip -6 rule add from ADDRESS table N).")),
        ),
        Way::Nowhere => Some(
            Finding::warning(
                Id::NoRoute,
                format!("No route leads out of the interface of {names}: connections to other nodes will end with \"Network is unreachable\"."),
            )
            .with_fix(format!("Give the interface {WAY_OUT}.")),
        ),
    }
}

fn interface_of<'a>(facts: &'a Facts, gid: &Gid) -> Option<&'a Interface> {
    let has = |interface: &&Interface| interface.addresses.iter().any(|net| net.addr() == gid.address());
    facts.net.interfaces.iter().find(has)
}

fn is_of_one(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

fn is_link_local(net: &IpNet) -> bool {
    matches!(net.addr(), IpAddr::V6(address) if address.is_unicast_link_local())
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
                Id::OverlappingSubnets,
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
                Id::OverlappingSubnets,
                format!(
                    "Rails share a network ({first} with {}): the node answers for the address of one rail with the MAC address of another, unless it has a routing rule for each.",
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
    let of_it =
        facts.net.routes.iter().filter(move |route| route.interface == interface && route.is_for_all());
    let direct = of_it.filter(|route| route.gateway.is_none() && !route.is_default());
    direct.map(|route| &route.destination).filter(|destination| !is_of_one(destination))
}
