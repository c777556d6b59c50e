//! Narrows the usable ports down to those that the job uses.

use super::default_route::{self, OnDefaultRoute};
use super::own_interface::Index;
use super::port::{Candidate, SkipReason, Verdict, needs_own_library};
use super::step::NarrowingStep;
use super::{claims, gid, near, subnet};
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
    /// All usable ports, and those that need their own library.
    WithOwnLibrary,
}

/// Marks every port that the job must not use as skipped, with the reason.
pub fn choose(facts: &Facts, ports: &mut [Candidate], wanted: &Wanted) -> Vec<NarrowingStep> {
    match wanted {
        Wanted::All => take_nvswitches(ports, |_| true),
        Wanted::WithOwnLibrary => {
            for port in ports.iter_mut().filter(|port| needs_own_library(port.hca, port.port)) {
                port.verdict = Verdict::Used;
            }
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
    steps.extend(default_route::decide(facts, &interfaces, ports, on_default_route));
    let own = gid::OwnAddresses::of(facts);
    let without_own_gid =
        |port: &Candidate| port.port.link_layer == LinkLayer::Ethernet && own.slots(port.port).is_empty();
    if ports.iter().any(|port| port.is_used() && !without_own_gid(port)) {
        leave_out(ports, without_own_gid, &SkipReason::NoOwnGid);
    }
    let is_link_local = |port: &Candidate| {
        let slots = own.slots(port.port);
        !slots.is_empty() && slots.iter().all(|slot| slot.is_link_local_ipv4())
    };
    if ports.iter().any(|port| port.is_used() && !is_link_local(port)) {
        leave_out(ports, is_link_local, &SkipReason::LinkLocal);
    }
    steps
}

/// Returns the link layer with the most bandwidth among the used ports; on a tie, the one of the HCAs that the
/// Pod holds, then the one with more ports, then InfiniBand.
#[must_use]
pub(super) fn dominant_link_layer(facts: &Facts, ports: &[Candidate]) -> Option<LinkLayer> {
    let mut sums: Vec<(f64, bool, usize, LinkLayer)> = Vec::new();
    for link_layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
        let of_it = || ports.iter().filter(|p| p.is_used() && p.port.link_layer == link_layer);
        let rate = of_it().map(|port| port.port.gigabits()).sum();
        let (is_held, count) = (claims::holds_rails_of(facts, of_it()), of_it().count());
        if count > 0 {
            sums.push((rate, is_held, count, link_layer));
        }
    }
    sums.into_iter()
        .max_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))))
        .map(|(_, _, _, link_layer)| link_layer)
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
