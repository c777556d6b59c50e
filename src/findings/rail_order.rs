//! NICs in different networks, which releases before subnet-aware routing pair by their order.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::fabric::{Candidate, SkipReason, Verdict};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::version::ROUTES_BY_SUBNET;
use crate::plan::subnets::subnets_of_nics;
use crate::plan::{Context, Decided};
use crate::text::{condensed, paired};

/// Reports that other nodes may have other NICs in their lists. Rails in networks of their own are sound as long as all
/// nodes have them in one order, which no node sees. Only an ACTIVE port without an address of a network shows that this
/// node's list was not meant as it is: the port is missing in the list, or pairs with one of a network. With several
/// GPUs, each GPU has a rail, and all nodes were set up alike.
pub(super) fn finding(decided: &Decided) -> Option<Finding> {
    let Decided { context: Context { facts, user, .. }, ports, plan, .. } = decided;
    user.version().filter(|version| *version < ROUTES_BY_SUBNET)?;
    if facts.platform.nodes.is_some_and(|nodes| nodes.count == 1) {
        return None;
    }
    let subnets = subnets_of_nics(&decided.context, &plan.forecasts, ports)?;
    let used = ports.iter().filter(|port| port.is_used()).zip(&subnets);
    let (odd, rails): (Vec<_>, Vec<_>) = used.partition(|(_, net)| is_link_local(net));
    let skipped = ports.iter().filter(|port| port.verdict == Verdict::LeftOut(SkipReason::LinkLocal));
    let odd: Vec<String> =
        odd.into_iter().map(|(port, _)| port).chain(skipped).map(Candidate::name).collect();
    if odd.is_empty() || rails.len() < 2 {
        return None;
    }
    let named: Vec<(&str, String)> =
        rails.iter().map(|(port, net)| (port.hca.name.as_str(), net.to_string())).collect();
    let message = format!(
        "{} pairs the NICs of two nodes by their order in its list, and these are in different networks: {}. {} {} ACTIVE without an address of a network, so another node may have other NICs in its list. A pair in two networks does not connect.",
        plan.library.of_release(user.version()),
        paired(&named),
        condensed(&odd),
        if odd.len() == 1 { "is" } else { "are" },
    );
    let master: Option<IpAddr> =
        facts.platform.master_addr.as_deref().and_then(|address| address.parse().ok());
    let meets = rails.iter().find(|(_, net)| master.is_some_and(|master| net.contains(&master)));
    let example = meets
        .map_or(String::new(), |(port, _)| format!(" (={} is in the network of MASTER_ADDR)", port.hca.name));
    let fix = format!(
        "Name in NCCL_IB_HCA only NICs that all nodes have in the same networks and in the same order{example}, or use NCCL {ROUTES_BY_SUBNET} or later, which can pair NICs by their networks."
    );
    let about: Vec<String> = rails.iter().map(|(port, _)| port.name()).chain(odd).collect();
    Some(Finding::info(Id::RailOrder, message).about_ports(about).with_fix(fix))
}

fn is_link_local(net: &IpNet) -> bool {
    matches!(net, IpNet::V4(net) if net.addr().is_link_local())
}
