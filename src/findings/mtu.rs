//! Rails with different MTUs.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::own_interface::Index;
use crate::fabric::{Candidate, interface};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};

pub(crate) const FIX: &str = "Set one MTU on all interfaces of the fabric, here and on the switches (4200 or more for RoCE with 4096).";

/// Reports that the interfaces of used RoCE ports have different MTUs. An interface that carries a default
/// route does not count, because it is also for TCP.
pub(crate) fn finding(facts: &Facts, interfaces: &Index, ports: &[Candidate]) -> Option<Finding> {
    let is_roce = |port: &&Candidate| port.is_used() && port.port.link_layer == LinkLayer::Ethernet;
    let routes = interface::default_routes(facts);
    let of_routes: BTreeSet<&str> = routes.iter().map(|route| route.interface.as_str()).collect();
    let is_rail = |found: &&Interface| !of_routes.contains(found.name.as_str());
    let mut by_mtu: BTreeMap<u32, Vec<(String, String)>> = BTreeMap::new();
    for port in ports.iter().filter(is_roce) {
        let found = interfaces.find(port.hca, port.port).filter(is_rail);
        if let Some((found, mtu)) = found.and_then(|found| Some((found, found.mtu?))) {
            by_mtu.entry(mtu).or_default().push((port.name(), found.name.clone()));
        }
    }
    if by_mtu.len() < 2 {
        return None;
    }
    let list = by_mtu.iter().map(|(mtu, rails)| {
        let names: Vec<String> = rails.iter().map(|(port, found)| format!("{found} ({port})")).collect();
        format!("{mtu} on {}", names.join(", "))
    });
    let list: Vec<String> = list.collect();
    let message = format!(
        "The interfaces of the rails have different MTUs: {}. Between two rails, the smallest MTU on the path applies.",
        list.join("; ")
    );
    let (ports, interfaces): (Vec<String>, Vec<String>) = by_mtu.into_values().flatten().unzip();
    let finding = Finding::warning(Id::MtuDiffers, message).about_ports(ports).about_interfaces(interfaces);
    Some(finding.with_fix(FIX))
}
