//! Narrowing the usable ports down to those of the job.

use super::default_route::{self, OnDefaultRoute};
use super::port::{Candidate, Reason, Verdict, needs_own_library};
use super::step::Step;
use super::{gid, near};
use crate::facts::Facts;
use crate::facts::rdma::LinkLayer;

/// Which of the usable ports are wanted.
#[must_use]
pub enum Wanted<'a> {
    /// Those that the facts tell to be rails.
    Rails(OnDefaultRoute),
    /// All of them.
    All,
    /// Those that somebody has named; `by` is a phrase for who.
    Named { selects: Box<dyn Fn(&Candidate) -> bool + 'a>, by: String },
    /// None of them, for this reason.
    None(Reason),
    /// All of them, and those that need a library of their own.
    WithOwnLibrary,
}

/// Leaves out, with the reason, what the job must not use.
pub fn choose(facts: &Facts, ports: &mut [Candidate], wanted: &Wanted) -> Vec<Step> {
    match wanted {
        Wanted::All => {}
        Wanted::WithOwnLibrary => {
            for port in ports.iter_mut().filter(|port| needs_own_library(port.hca, port.port)) {
                port.verdict = Verdict::Used;
            }
        }
        Wanted::None(reason) => leave_out(ports, |_| true, reason),
        Wanted::Named { selects, by } => {
            leave_out(ports, |port| !selects(port), &Reason::NotNamed { by: by.clone() });
        }
        Wanted::Rails(on_default_route) => return rails(facts, ports, *on_default_route),
    }
    Vec::new()
}

fn rails(facts: &Facts, ports: &mut [Candidate], on_default_route: OnDefaultRoute) -> Vec<Step> {
    keep_one_link_layer(ports);
    let is_wanted = |port: &Candidate| default_route::is_wanted(facts, on_default_route, port);
    let mut steps = Vec::from_iter(near::leave_out_far(facts, ports, is_wanted));
    steps.extend(default_route::decide(facts, ports, on_default_route));
    let without_own_gid = |port: &Candidate| {
        port.port.link_layer == LinkLayer::Ethernet && gid::own_slots(facts, port.port).is_empty()
    };
    if ports.iter().any(|port| port.is_used() && !without_own_gid(port)) {
        leave_out(ports, without_own_gid, &Reason::NoOwnGid);
    }
    steps
}

/// The link layer with the most bandwidth among the used ports; on a tie the
/// one with more ports, then InfiniBand.
#[must_use]
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

/// Leaves out those of the used ports for which the condition is true.
fn leave_out(ports: &mut [Candidate], condition: impl Fn(&Candidate) -> bool, reason: &Reason) {
    for port in ports.iter_mut().filter(|port| port.is_used()) {
        if condition(port) {
            port.leave_out(reason.clone());
        }
    }
}
