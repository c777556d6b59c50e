//! Narrowing the usable ports down to those of the job.

use super::devices::{Candidate, Reason};
use super::{Context, gid, interface};
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer, Port};
use crate::nccl::devices::is_for_plugin;
use crate::profiles::{self, DefaultRouteHca};

/// Leaves out, with the reason, what the job must not use.
pub fn select(context: &Context, ports: &mut [Candidate]) {
    let Context { facts, profile, user, .. } = context;
    if profile.fabric == Some(profiles::Fabric::Plugin) {
        for port in ports.iter_mut().filter(|port| is_for_plugin(port.hca, port.port)) {
            port.verdict = super::devices::Verdict::Used;
        }
        return;
    }
    if matches!(profile.fabric, Some(profiles::Fabric::Interface(_))) {
        for port in ports.iter_mut().filter(|port| port.is_used()) {
            port.leave_out(Reason::WithoutVerbs(profile.name.clone()));
        }
        return;
    }
    if let Some(setting) = user.ib_disabled() {
        let by = format!("{}={} ({})", setting.variable, setting.value, setting.origin);
        for port in ports.iter_mut().filter(|port| port.is_used()) {
            port.leave_out(Reason::TurnedOff(by.clone()));
        }
        return;
    }
    if let Some((pattern, setting)) = user.hcas() {
        for port in ports.iter_mut().filter(|port| port.is_used()) {
            if !pattern.selects(&port.hca.name, Some(port.port.number)) {
                port.leave_out(Reason::NotInUsersList(setting.origin.clone()));
            }
        }
        return;
    }
    // Where NCCL_IB_HCA is not ours to set, NCCL takes what it finds.
    if context.is_decided("NCCL_IB_HCA") {
        return;
    }
    keep_one_link_layer(ports);
    if profile.default_route_hca != Some(DefaultRouteHca::Use) {
        avoid_default_route(facts, ports);
    }
    leave_out_where_others_remain(
        ports,
        |port| port.port.link_layer == LinkLayer::Ethernet && gid::own_slots(facts, port.port).is_empty(),
        &Reason::NoOwnGid,
    );
}

/// The link layer with the most bandwidth among the used ports; on a tie the
/// one with more ports, then InfiniBand.
pub fn dominant_link_layer(ports: &[Candidate]) -> Option<LinkLayer> {
    let mut sums: Vec<(f64, usize, LinkLayer)> = Vec::new();
    for link_layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
        let of_it = ports.iter().filter(|p| p.is_used() && p.port.link_layer == link_layer);
        let (rate, count) = of_it.fold((0.0, 0), |(rate, count), p| (rate + p.port.gigabits(), count + 1));
        if count > 0 {
            sums.push((rate, count, link_layer));
        }
    }
    sums.into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
        .map(|(_, _, link_layer)| link_layer)
}

fn keep_one_link_layer(ports: &mut [Candidate]) {
    let Some(dominant) = dominant_link_layer(ports) else { return };
    for port in ports.iter_mut().filter(|p| p.is_used() && p.port.link_layer != dominant) {
        port.leave_out(Reason::OtherLinkLayer(port.port.link_layer.clone(), dominant.clone()));
    }
}

/// The NIC of a RoCE host that carries its TCP traffic is left out, unless that
/// leaves only slower ones. On InfiniBand the two do not get in each other's way.
fn avoid_default_route(facts: &Facts, ports: &mut [Candidate]) {
    let Some(route) = interface::default_route(facts) else { return };
    let carries = |port: &Candidate| {
        port.port.link_layer == LinkLayer::Ethernet && carries(facts, port.hca, port.port, &route.interface)
    };
    let fastest = |of: &dyn Fn(&Candidate) -> bool| {
        ports
            .iter()
            .filter(|port| port.is_used() && of(port))
            .map(|port| port.port.gigabits())
            .fold(0.0, f64::max)
    };
    if fastest(&|port| !carries(port)) >= fastest(&carries) {
        let reason = Reason::CarriesDefaultRoute(route.interface.clone());
        leave_out_where_others_remain(ports, carries, &reason);
    }
}

/// Whether this HCA's interface is the one named, in our own network namespace:
/// by the GID of one of our addresses, or by the PCI device.
fn carries(facts: &Facts, hca: &Hca, port: &Port, interface: &str) -> bool {
    let Some(interface) = facts.net.interface(interface) else { return false };
    let by_gid = port.gids.slots.iter().any(|gid| {
        gid.netdev.as_ref() == Some(&interface.name)
            && interface.addresses.iter().any(|address| address.addr() == gid.address())
    });
    by_gid || (hca.pci_address.is_some() && hca.pci_address == interface.pci_address)
}

fn leave_out_where_others_remain(
    ports: &mut [Candidate],
    condition: impl Fn(&Candidate) -> bool,
    reason: &Reason,
) {
    let out: Vec<bool> = ports.iter().map(|port| port.is_used() && condition(port)).collect();
    let others_remain = ports.iter().zip(&out).any(|(port, out)| port.is_used() && !out);
    if others_remain {
        for (port, _) in ports.iter_mut().zip(out).filter(|(_, out)| *out) {
            port.leave_out(reason.clone());
        }
    }
}
