//! `NCCL_IB_SUBNET_AWARE_ROUTING`. NCCL pairs the NICs of two nodes by their order. If each cable leads to a
//! different node, as in a ring of DGX Sparks, the two NICs of a pair may not reach each other. With this
//! variable, NCCL uses the NIC in the peer's subnet (`ncclIbFindDevBySubnet`,
//! `src/transport/net_ib/connect.cc`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Context, Forecast, Setting};
use crate::fabric::gid::own_network;
use crate::fabric::{Candidate, own_slots};
use crate::libraries::nccl::list::most_hcas;
use crate::libraries::nccl::predict::{Fused, Transport};
use crate::libraries::nccl::version::ROUTES_BY_SUBNET;

const BY_SUBNET: &str = "NCCL_IB_SUBNET_AWARE_ROUTING";
const PREFIX: &str = "NCCL_IB_SUBNET_PREFIX_LEN";

/// In bits: the part of two addresses that NCCL compares if [`PREFIX`] is not set.
const USUAL: u8 = 24;

/// Proposes the variable for one GPU only, for which all NICs are equally good: with several GPUs, a NIC near
/// another GPU may be slower than a route between the rails. Also requires that each NIC is a single port,
/// because a merged NIC is not in one subnet.
pub(super) fn propose(context: &Context, forecasts: &[Forecast], ports: &[Candidate]) -> Vec<Setting> {
    let reads = context.user.version().is_some_and(|version| version >= ROUTES_BY_SUBNET);
    if !reads || context.leaves_alone(BY_SUBNET) || context.user.get(PREFIX).is_some() {
        return Vec::new();
    }
    let Some(subnets) = subnets_of_nics(context, forecasts, ports) else { return Vec::new() };
    let Some(bits) = subnets.first().map(IpNet::prefix_len) else { return Vec::new() };
    if bits == 0 || !subnets.iter().all(|net| net.prefix_len() == bits) {
        return Vec::new();
    }
    let length = (bits != USUAL).then(|| (PREFIX, bits.to_string()));
    if length.is_some() && context.leaves_alone(PREFIX) {
        return Vec::new();
    }
    let all = [(BY_SUBNET, "1".to_owned())].into_iter().chain(length);
    let rule = format!(
        "each NIC has a subnet of its own (/{bits}), so that {} takes the one in the peer's subnet",
        context.library()
    );
    all.map(|(variable, value)| Setting::from_facts(variable, value, &rule)).collect()
}

/// Returns the subnets of the used ports, if the container has one GPU, and each of them is a NIC of its own in a subnet
/// of its own.
pub(crate) fn subnets_of_nics(
    context: &Context,
    forecasts: &[Forecast],
    ports: &[Candidate],
) -> Option<Vec<IpNet>> {
    let is_apart = |forecast: &Forecast| {
        matches!(forecast.prediction.transport, Transport::Verbs(_))
            && matches!(&forecast.prediction.fused, Fused::Nics(nics) if nics.is_empty())
    };
    if context.facts.gpu.count != Some(1) || forecasts.is_empty() || !forecasts.iter().all(is_apart) {
        return None;
    }
    let used = ports.iter().filter(|port| port.is_used());
    if !(2..=most_hcas(context.version())).contains(&used.clone().count()) {
        return None;
    }
    let subnet = |port: &Candidate| {
        let addresses = own_slots(context.facts, port.port).into_iter().map(|gid| gid.address());
        own_network(context.facts, addresses.into_iter().find(IpAddr::is_ipv4)?)
    };
    let subnets = used.map(subnet).collect::<Option<Vec<IpNet>>>()?;
    let is_own = |(number, net): (usize, &IpNet)| !subnets[..number].contains(net);
    subnets.iter().enumerate().all(is_own).then_some(subnets)
}
