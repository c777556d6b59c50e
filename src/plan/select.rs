//! Narrowing the usable ports down to those of the job.

use super::devices::{Candidate, Reason};
use super::{Context, Notes, default_route, gid, near};
use crate::facts::rdma::LinkLayer;
use crate::libraries::nccl::devices::is_for_plugin;
use crate::profiles;

/// Leaves out, with the reason, what the job must not use.
pub fn select(context: &Context, ports: &mut [Candidate], notes: &mut Notes) {
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
    // Where the plan may not set NCCL_IB_HCA, NCCL takes every port that it finds.
    if context.leaves_alone("NCCL_IB_HCA") {
        return;
    }
    keep_one_link_layer(ports);
    near::leave_out_far(facts, ports, |port| default_route::is_wanted(context, port), notes);
    default_route::decide(context, ports, notes);
    leave_out_where_others_remain(
        ports,
        |port| port.port.link_layer == LinkLayer::Ethernet && gid::own_slots(facts, port.port).is_empty(),
        &Reason::NoOwnGid,
    );
}

/// The names of the ports that the job would use if the user had not set `NCCL_IB_HCA`; none
/// where the plan may not set it.
pub fn without_users_list(context: &Context) -> Vec<String> {
    let user = context.user.without("NCCL_IB_HCA");
    let context = Context { user: &user, ..*context };
    if context.user.hcas().is_some() || context.leaves_alone("NCCL_IB_HCA") || !context.uses_verbs() {
        return Vec::new();
    }
    let mut ports = super::devices::candidates(context.facts);
    select(&context, &mut ports, &mut Notes::default());
    ports.iter().filter(|port| port.is_used()).map(Candidate::name).collect()
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
