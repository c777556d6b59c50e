//! Narrows the usable ports down to those that the job uses.

use super::default_route::{self, OnDefaultRoute};
use super::own_interface::Index;
use super::port::{Candidate, SkipReason, Verdict, needs_own_library};
use super::step::NarrowingStep;
use super::{claims, gid, near, slower, subnet};
use crate::facts::Facts;
use crate::facts::rdma::LinkLayer;

/// Which of the usable ports the job uses.
#[must_use]
pub enum Wanted<'a> {
    /// The ports that are rails according to the facts.
    Rails(OnDefaultRoute),
    /// All usable ports.
    All,
    /// The ports that a source names; `by` is a phrase for that source.
    Named { selects: Box<dyn Fn(&Candidate) -> bool + 'a>, by: String },
    /// No port, for this reason.
    None(SkipReason),
    /// All usable ports of the HCAs that a net plugin is for, also those that need their own library; `by` is a phrase
    /// for what names the plugin.
    OfPlugin { is_for: Box<dyn Fn(&Candidate) -> bool + 'a>, by: String },
}

/// Marks every port that the job must not use as skipped, with the reason.
pub fn choose(facts: &Facts, ports: &mut [Candidate], wanted: &Wanted) -> Vec<NarrowingStep> {
    match wanted {
        Wanted::All => take_nvswitches(ports, |_| true),
        Wanted::OfPlugin { is_for, by } => {
            for port in ports.iter_mut().filter(|port| needs_own_library(port.hca, port.port)) {
                port.verdict = Verdict::Used;
            }
            leave_out(ports, |port| !is_for(port), &SkipReason::NotOfPlugin { by: by.clone() });
            leave_out_without_gid(&gid::OwnAddresses::of(facts), ports);
        }
        Wanted::None(reason) => leave_out(ports, |_| true, reason),
        Wanted::Named { selects, by } => {
            leave_out(ports, |port| !selects(port), &SkipReason::NotNamed { by: by.clone() });
            take_nvswitches(ports, selects);
        }
        Wanted::Rails(on_default_route) => return rails(facts, ports, *on_default_route),
    }
    Vec::new()
}

/// Uses the ports that connect to NVSwitches and meet the condition: if the user names a port, rdma-init uses
/// it.
fn take_nvswitches(ports: &mut [Candidate], condition: impl Fn(&Candidate) -> bool) {
    for port in ports.iter_mut().filter(|port| port.leads_to_nvswitches()) {
        if condition(port) {
            port.verdict = Verdict::Used;
        }
    }
}

fn rails(facts: &Facts, ports: &mut [Candidate], on_default_route: OnDefaultRoute) -> Vec<NarrowingStep> {
    keep_one_link_layer(facts, ports);
    let interfaces = Index::of(facts);
    let is_wanted = default_route::wanted(facts, on_default_route);
    let mut steps = Vec::from_iter(claims::leave_out_unclaimed(facts, ports));
    steps.extend(near::leave_out_far(facts, &interfaces, ports, is_wanted));
    steps.extend(subnet::leave_out_others(facts, ports));
    steps.extend(slower::leave_out_slower(facts, ports));
    steps.extend(default_route::decide(facts, &interfaces, ports, on_default_route));
    let own = gid::OwnAddresses::of(facts);
    leave_out_without_gid(&own, ports);
    let is_link_local = |port: &Candidate| {
        let slots = own.slots(port.port);
        !slots.is_empty() && slots.iter().all(|slot| slot.is_link_local_ipv4())
    };
    if ports.iter().any(|port| port.is_used() && !is_link_local(port)) {
        leave_out(ports, is_link_local, &SkipReason::LinkLocal);
    }
    steps
}

/// Skips the RoCE ports without a GID of this container, or if none has one, those without a GID of the node,
/// unless all are so.
fn leave_out_without_gid(own: &gid::OwnAddresses, ports: &mut [Candidate]) {
    let is_roce = |port: &Candidate| port.port.link_layer == LinkLayer::Ethernet;
    let without_own = |port: &Candidate| is_roce(port) && !own.has_own(port.port);
    let without_any = |port: &Candidate| is_roce(port) && own.slots(port.port).is_empty();
    if ports.iter().any(|port| port.is_used() && !without_own(port)) {
        leave_out(ports, without_own, &SkipReason::NoOwnGid);
    } else if ports.iter().any(|port| port.is_used() && !without_any(port)) {
        leave_out(ports, without_any, &SkipReason::NoOwnGid);
    }
}

/// Returns the link layer with the most bandwidth among the used ports; on a tie, the one of the HCAs that the
/// Pod holds, then the one with more ports, then InfiniBand.
#[must_use]
pub(super) fn dominant_link_layer(facts: &Facts, ports: &[Candidate]) -> Option<LinkLayer> {
    let of_it = |link_layer: LinkLayer| -> Vec<&Candidate> {
        ports.iter().filter(|port| port.is_used() && port.port.link_layer == link_layer).collect()
    };
    let (ethernet, infiniband) = (of_it(LinkLayer::Ethernet), of_it(LinkLayer::InfiniBand));
    // Nearly every host has one of them alone, and who holds which rails takes long to determine.
    match (ethernet.is_empty(), infiniband.is_empty()) {
        (true, true) => None,
        (false, true) => Some(LinkLayer::Ethernet),
        (true, false) => Some(LinkLayer::InfiniBand),
        (false, false) => {
            let weight = |ports: &[&Candidate]| {
                let rate: f64 = ports.iter().map(|port| port.port.gigabits()).sum();
                (rate, claims::holds_rails_of(facts, ports.iter().copied()), ports.len())
            };
            let (one, other) = (weight(&ethernet), weight(&infiniband));
            let order = one.0.total_cmp(&other.0).then((one.1, one.2).cmp(&(other.1, other.2)));
            Some(if order.is_gt() { LinkLayer::Ethernet } else { LinkLayer::InfiniBand })
        }
    }
}

/// Returns the link layer by which a profile recognizes the job's fabric: the one with the most bandwidth, or that of
/// the HCAs that the Pod holds if none of these has a link, because the others may be those of other Pods.
#[must_use]
pub fn link_layer_of_job(facts: &Facts, ports: &[Candidate]) -> Option<LinkLayer> {
    claims::link_layer_without_link(facts, ports).or_else(|| dominant_link_layer(facts, ports))
}

fn keep_one_link_layer(facts: &Facts, ports: &mut [Candidate]) {
    let Some(dominant) = dominant_link_layer(facts, ports) else { return };
    for port in ports.iter_mut().filter(|p| p.is_used() && p.port.link_layer != dominant) {
        port.leave_out(SkipReason::OtherLinkLayer(port.port.link_layer.clone(), dominant.clone()));
    }
}

/// Skips the used ports that meet the condition.
fn leave_out(ports: &mut [Candidate], condition: impl Fn(&Candidate) -> bool, reason: &SkipReason) {
    for port in ports.iter_mut().filter(|port| port.is_used()) {
        if condition(port) {
            port.leave_out(reason.clone());
        }
    }
}
