//! Rails with different MTUs, and eRDMA with an MTU at which NCCL corrupts data.

use std::collections::{BTreeMap, BTreeSet};

use crate::fabric::own_interface::Index;
use crate::fabric::{Candidate, interface};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};
use crate::plan::Plan;

pub(crate) const FIX: &str = "Set one MTU on all interfaces of the fabric, here and on the switches (4200 or more for RoCE with 4096).";

/// Reports that the interfaces of used RoCE ports have different MTUs. An interface that carries a default
/// route does not count, because it is also for TCP.
pub(super) fn findings(
    facts: &Facts,
    interfaces: &Index,
    ports: &[Candidate],
    plan: &Plan,
) -> impl Iterator<Item = Finding> {
    differs(facts, interfaces, ports).into_iter().chain(check_erdma(facts, interfaces, plan))
}

fn differs(facts: &Facts, interfaces: &Index, ports: &[Candidate]) -> Option<Finding> {
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

/// The MTUs, in bytes, that NCCL's protocol LL128 needs on eRDMA: with jumbo frames, and without them. Alibaba
/// Cloud's page about eRDMA on GPU instances says that data is inconsistent with any other:
/// <https://www.alibabacloud.com/help/en/ecs/user-guide/on-the-gpu-instance-configuration-erdma>.
const OF_ERDMA: [u32; 2] = [8500, 1400];

const PROTOCOLS: &str = "NCCL_PROTO";

/// Reports eRDMA interfaces with an MTU at which LL128 corrupts data between nodes. The interface may be in the
/// node's network namespace, where its MTU is unknown.
fn check_erdma(facts: &Facts, interfaces: &Index, plan: &Plan) -> Option<Finding> {
    let is_one_node = facts.platform.nodes.is_some_and(|nodes| nodes.count == 1);
    if is_one_node || !may_use_ll128(plan.value(PROTOCOLS)) {
        return None;
    }
    let used = plan.forecasts.last()?.prediction.transport.ports()?;
    let wrong = used.iter().filter_map(|port| {
        let (hca, found) = facts.port(&port.hca, port.port)?;
        let interface = interfaces.find(hca, found).filter(|_| hca.driver.as_deref() == Some("erdma"))?;
        let mtu = interface.mtu.filter(|mtu| !OF_ERDMA.contains(mtu))?;
        Some((port.name(), interface.name.as_str(), mtu))
    });
    let wrong: Vec<(String, &str, u32)> = wrong.collect();
    let (_, first, _) = wrong.first()?;
    let list: Vec<String> =
        wrong.iter().map(|(port, interface, mtu)| format!("{interface} ({port}) has {mtu}")).collect();
    let [jumbo, usual] = OF_ERDMA;
    let message = format!(
        "eRDMA needs an MTU of {jumbo}, or of {usual} without jumbo frames, but {}: NCCL's protocol LL128 then corrupts data between nodes, as Alibaba Cloud warns.",
        list.join(", ")
    );
    let fix = format!(
        "On all nodes, set the MTU of the eRDMA interfaces to {jumbo} if the instances have jumbo frames, and otherwise to {usual} (ip link set dev {first} mtu {jumbo}). Or turn LL128 off on all nodes: {PROTOCOLS}=^LL128."
    );
    let finding = Finding::error(Id::ErdmaMtu, message);
    let (ports, interfaces): (Vec<String>, Vec<&str>) =
        wrong.iter().map(|(port, interface, _)| (port.clone(), *interface)).unzip();
    Some(finding.about_ports(ports).about_interfaces(interfaces).with_fix(fix))
}

/// Returns whether a list of protocols, such as `Simple;AllReduce:^LL`, leaves LL128 to any function
/// (`parseList` in NCCL's `src/graph/tuning.cc`).
fn may_use_ll128(list: Option<&str>) -> bool {
    let allows = |words: &str| {
        let (is_excluded, words) = match words.strip_prefix('^') {
            Some(words) => (true, words),
            None => (false, words),
        };
        words.split(',').any(|word| word.eq_ignore_ascii_case("LL128")) != is_excluded
    };
    let parts = || list.into_iter().flat_map(|list| list.split(';')).filter(|part| !part.is_empty());
    let of_all = parts().find(|part| !part.contains(':'));
    of_all.is_none_or(allows)
        || parts().filter_map(|part| part.split_once(':')).any(|(_, words)| allows(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_protocols_may_leave_ll128_out() {
        for list in [
            None,
            Some(""),
            Some("LL128"),
            Some("simple,ll128"),
            Some("^LL"),
            Some("AllReduce:Simple"),
            Some("Simple;AllReduce:LL128"),
        ] {
            assert!(may_use_ll128(list), "{list:?}");
        }
        for list in ["Simple", "LL,Simple", "^LL128", "^ll,ll128", "Simple;AllReduce:^LL128"] {
            assert!(!may_use_ll128(Some(list)), "{list}");
        }
    }
}
