//! Routes that RoCE and the bootstrap need.

mod way;

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::facts::net::Interface;
use crate::facts::route::Route;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::{Bootstrap, GidUse, PortUse};
use crate::plan::Plan;

pub use way::{Way, way};

pub fn findings(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    no_route(facts, plan).into_iter().chain(overlapping(facts, plan)).collect()
}

/// Reports GIDs that cannot reach any other node, or cannot do so through their own interface
/// (nccl-tests#185).
fn no_route(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(forecast) = plan.forecasts.last() else { return Vec::new() };
    let mut ways: Vec<(Way, Vec<RoutedPort>)> = Vec::new();
    for port in forecast.prediction.transport.ports().unwrap_or_default() {
        let Some(GidUse::Slot { gid: Some(gid), .. }) = &port.gid else { continue };
        let Some(interface) = interface_of(facts, gid).filter(|_| !gid.is_link_local()) else { continue };
        let Some(way) = way(&facts.net, gid.address(), &interface.name) else { continue };
        let rail = RoutedPort { port, address: gid.address(), interface: &interface.name };
        match ways.iter_mut().find(|(known, _)| *known == way) {
            Some((_, rails)) => rails.push(rail),
            None => ways.push((way, vec![rail])),
        }
    }
    let finding = |(way, rails): &(Way, Vec<RoutedPort>)| {
        let names: Vec<String> = rails.iter().map(RoutedPort::to_string).collect();
        let finding = of_way(way, &names.join(", "))?;
        let ports = rails.iter().map(|rail| rail.port.name());
        Some(finding.about_ports(ports).about_interfaces(rails.iter().map(|rail| rail.interface)))
    };
    ways.iter().filter_map(finding).collect()
}

/// A port that NCCL will use, with the address of its GID and the interface that has this address.
struct RoutedPort<'a> {
    port: &'a PortUse,
    address: IpAddr,
    interface: &'a str,
}

impl std::fmt::Display for RoutedPort<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{} ({} on {})", self.port.hca, self.address, self.interface)
    }
}

/// What the interface needs.
const WAY_OUT: &str =
    "an address with the prefix length of its network, or a route to the other nodes' RoCE network";

fn of_way(way: &Way, names: &str) -> Option<Finding> {
    match way {
        Way::Out => None,
        Way::OnLink => Some(
            Finding::info(
                Id::NoRoute,
                format!("No route leads out of the interface of {names}: the kernel looks for every other node on the interface's own link, by ARP, and connections fail with \"Connection timed out\" unless the node, or a router in its place, answers there."),
            )
            .with_fix(format!("If connections time out, give the interface {WAY_OUT}.")),
        ),
        Way::Elsewhere(other) => Some(
            Finding::warning(
                Id::NoRoute,
                format!("No route leads out of the interface of {names}, and the route to other nodes leads out of {other}: the HCA will send to the MAC address of {other}'s router, which is not on its network, and connections will time out."),
            )
            .about_interfaces([other])
            .with_fix(format!("Give the interface {WAY_OUT}; put a default route into a separate routing table, and add a rule that selects this table by the address (ip -6 rule add from ADDRESS table N).")),
        ),
        Way::Nowhere => Some(
            Finding::warning(
                Id::NoRoute,
                format!("No route leads out of the interface of {names}: connections to other nodes will fail with \"Network is unreachable\"."),
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

/// Reports interfaces in the same network: the kernel may send through the other one (NVIDIA/nccl#1581).
fn overlapping(facts: &Facts, plan: &Plan) -> Vec<Finding> {
    let Some(forecast) = plan.forecasts.last() else { return Vec::new() };
    let mut findings = Vec::new();
    let on_link = on_link(facts);
    if let Bootstrap::On(endpoint) = &forecast.prediction.bootstrap {
        let others = facts.net.interfaces.iter().map(|interface| interface.name.as_str());
        // The kernel always sends through the interface with the lowest metric. Clouds set up instances with several
        // NICs in one network so: ACK's eRDMA controller gives the route of its NIC a metric of 200 or more
        // (AliyunContainerService/alibabacloud-erdma-controller, `internal/drivers/netdev.go`).
        let may_win = |own: &Route, other: &Route| other.metric <= own.metric;
        let shared = sharing(&on_link, &endpoint.interface, others, may_win);
        if !shared.is_empty() {
            let message = format!(
                "The interface of the bootstrap, {}, shares its network with {}: the kernel may send through the wrong one, and connections hang.",
                endpoint.interface,
                shown(&shared)
            );
            let finding = Finding::warning(Id::OverlappingSubnets, message);
            findings.push(of_interfaces(finding, &endpoint.interface, &shared));
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
        let shared = sharing(&on_link, first, others.iter().copied(), |_, _| true);
        if !shared.is_empty() {
            let message = format!(
                "Rails share a network ({first} with {}): the node answers for the address of one rail with the MAC address of another, unless it has a routing rule for each.",
                shown(&shared)
            );
            findings.push(of_interfaces(Finding::info(Id::OverlappingSubnets, message), first, &shared));
        }
    }
    findings
}

fn of_interfaces(finding: Finding, first: &str, shared: &[(&str, &IpNet)]) -> Finding {
    let others = shared.iter().map(|(other, _)| *other);
    finding.about_interfaces([first].into_iter().chain(others)).with_fix(
        "Give each interface its own network, or a separate routing table for its address (ip rule), with arp_ignore=1 and arp_announce=2.",
    )
}

fn shown(shared: &[(&str, &IpNet)]) -> String {
    let list: Vec<String> = shared.iter().map(|(other, net)| format!("{other} ({net})")).collect();
    list.join(", ")
}

/// Returns the other interfaces that share a network with this interface and whose route to it counts, each with
/// the network.
fn sharing<'a>(
    on_link: &OnLink<'a>,
    interface: &str,
    others: impl Iterator<Item = &'a str>,
    counts: impl Fn(&Route, &Route) -> bool,
) -> Vec<(&'a str, &'a IpNet)> {
    let of = |name: &str| on_link.get(name).map(Vec::as_slice).unwrap_or_default();
    let own = of(interface);
    let is_shared = |other: &&&Route| {
        let is_same = |own: &&Route| own.destination == other.destination && counts(own, other);
        own.iter().any(is_same) && !is_link_local(&other.destination)
    };
    let shared = |other: &str| of(other).iter().find(is_shared).map(|route| &route.destination);
    others.filter(|other| *other != interface).filter_map(|other| Some((other, shared(other)?))).collect()
}

/// The routes to the networks that each interface reaches directly.
type OnLink<'a> = HashMap<&'a str, Vec<&'a Route>>;

fn on_link(facts: &Facts) -> OnLink<'_> {
    let mut networks = OnLink::new();
    for route in &facts.net.routes {
        #[cfg(test)]
        crate::facts::steps::step();
        let is_direct = route.gateway.is_none() && !route.is_default() && route.is_for_all();
        if is_direct && !is_of_one(&route.destination) {
            networks.entry(&route.interface).or_default().push(route);
        }
    }
    networks
}
