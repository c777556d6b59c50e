//! HCAs that may be for storage, where the facts do not decide it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use crate::fabric::{Candidate, default_route, near};
use crate::facts::gpu::Make;
use crate::facts::rdma::{LinkLayer, Port};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::plan::{Context, on_default_route};

/// Findings about the HCAs that the plan chose.
pub fn findings(context: &Context, ports: &[Candidate]) -> Vec<Finding> {
    if !context.uses_verbs() || context.leaves_alone(VARIABLE) {
        return Vec::new();
    }
    let every_gpu_has_one = near::every_gpu_has_one(context.facts, ports);
    let subnets = if every_gpu_has_one { None } else { subnets(ports) };
    more_than_gpus(context, ports, every_gpu_has_one).into_iter().chain(subnets).collect()
}

/// More HCAs than GPUs. Two or three for each GPU are no surprise where all of them are near.
fn more_than_gpus(context: &Context, ports: &[Candidate], every_gpu_has_one: bool) -> Option<Finding> {
    let facts = context.facts;
    let on_default_route = on_default_route(context);
    let is_wanted = |port: &Candidate| default_route::is_wanted(facts, on_default_route, port);
    let rails = ports.iter().filter(|port| port.is_used() && !is_wanted(port));
    let names: Vec<String> = rails.clone().map(Candidate::name).collect();
    let hcas: BTreeMap<&str, &str> = rails
        .map(|port| (port.hca.name.as_str(), port.hca.system_guid.as_deref().unwrap_or(&port.hca.name)))
        .collect();
    // The functions of one NIC have one purpose, so they count as one.
    let nics = hcas.values().collect::<BTreeSet<_>>().len();
    let hcas = hcas.len();
    let gpus = usize::try_from(facts.gpu.count?).ok().filter(|gpus| *gpus > 0)?;
    if nics <= gpus || (every_gpu_has_one && hcas.is_multiple_of(gpus)) {
        return None;
    }
    let plural = if gpus == 1 { "" } else { "s" };
    let why = match (every_gpu_has_one, facts.gpu.devices.is_empty()) {
        (true, _) => "each HCA is near a GPU (PIX or PXB)",
        (false, true) => "it is not known where the GPUs are on the PCI bus",
        (false, false) => "not every GPU has a near HCA (PIX or PXB)",
    };
    let tool = match facts.gpu.make {
        Make::Amd => "rocm-smi --showtopo",
        Make::Nvidia | Make::Other => "nvidia-smi topo -m",
    };
    let message = format!(
        "{VARIABLE} takes {hcas} HCAs for {gpus} GPU{plural}, and {why}: some of the HCAs may be for storage, or near the GPUs of other containers."
    );
    Some(Finding::info(Id::MoreHcasThanGpus, message).about_variables([VARIABLE]).about_ports(names).with_fix(format!(
        "Look where the HCAs are (`{tool}` on the node) and what networks they are in; if some are not rails, name in {VARIABLE} only those that are."
    )))
}

/// Ports of different InfiniBand subnets, which cannot reach each other without a router.
fn subnets(ports: &[Candidate]) -> Option<Finding> {
    let mut by_prefix: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.is_used()) {
        if let Some(prefix) = subnet_prefix(port.port) {
            by_prefix.entry(prefix).or_default().push(port.name());
        }
    }
    if by_prefix.len() < 2 {
        return None;
    }
    let list: Vec<String> = by_prefix
        .iter()
        .map(|(prefix, names)| {
            format!("{} in {}/64", names.join(", "), Ipv6Addr::from(u128::from(*prefix) << 64))
        })
        .collect();
    let message = format!(
        "{VARIABLE} takes ports of {} InfiniBand subnets, and one subnet may be for storage: {}.",
        by_prefix.len(),
        list.join("; ")
    );
    Some(Finding::info(Id::SeveralIbSubnets, message).about_variables([VARIABLE]).about_ports(by_prefix.into_values().flatten()).with_fix(format!(
        "Ask which subnets the job's nodes share; if one is for storage, name the HCAs of the others in {VARIABLE}. If each rail has a subnet of its own, there is nothing to do."
    )))
}

/// The upper half of GID 0 (InfiniBand Architecture Specification, 4.1.1).
fn subnet_prefix(port: &Port) -> Option<u64> {
    let gid = port.gids.slots.iter().find(|gid| gid.index == 0)?;
    let prefix = u64::try_from(u128::from(gid.gid) >> 64).ok()?;
    (port.link_layer == LinkLayer::InfiniBand).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gid::{Gid, GidTable};

    #[test]
    fn the_subnet_is_the_upper_half_of_gid_0_on_infiniband() {
        let port = |link_layer, slots: &[(u32, &str)]| {
            let slot = |(index, gid): &(u32, &str)| Gid {
                index: *index,
                gid: gid.parse().unwrap(),
                kind: Default::default(),
                netdev: None,
            };
            let gids = GidTable { slots: slots.iter().map(slot).collect(), ..GidTable::default() };
            Port { link_layer, gids, ..Port::default() }
        };
        let ib = |slots| subnet_prefix(&port(LinkLayer::InfiniBand, slots));
        assert_eq!(ib(&[(0, "fe80::1:2:3:4")]), Some(0xfe80 << 48));
        assert_eq!(ib(&[(0, "fec0:0:0:7:1:2:3:4"), (1, "fe80::1")]), Some(0xfec0_0000_0000_0007));
        assert_eq!(ib(&[(1, "fe80::1")]), None);
        assert_eq!(subnet_prefix(&port(LinkLayer::Ethernet, &[(0, "fe80::1")])), None);
    }
}
