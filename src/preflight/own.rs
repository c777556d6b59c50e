//! What this node brings with it: the rails that NCCL will use, and over what.

use std::net::IpAddr;

use crate::facts::Facts;
use crate::libraries::nccl::interfaces::{self, Endpoint};
use crate::libraries::nccl::version::KINDS;
use crate::plan::Plan;
use crate::self_test::check::Outcome;
use crate::self_test::report::{Rail, Report};
use crate::self_test::run::{Scope, wanted};
use crate::self_test::verbs::LOOPBACK;
use crate::verbs::port_test::PortTest;

/// What stands for rails that are ports of HCAs.
pub const VERBS: &str = "verbs";

/// The rails of this node, each with its place in the list that all nodes have in common.
#[derive(Debug, Clone, PartialEq)]
pub enum Rails {
    /// The ports of HCAs, with what the report says of them.
    Verbs(Vec<(PortTest, Rail)>),
    /// Interfaces with an address.
    Sockets(Vec<Endpoint>),
}

impl Rails {
    /// The rails for what the plan is, after a self-test of this node.
    pub fn of(facts: &Facts, plan: &Plan, report: &Report, extent: Scope) -> Rails {
        let ports = wanted(facts, plan, extent);
        // Such as EFA, whose devices only a library of their own can connect.
        let is_left_out = |check: &crate::self_test::check::Check| {
            check.id == LOOPBACK && check.outcome == Outcome::Skipped && check.subject.is_some()
        };
        let loopbacks = || report.checks.iter().filter(|check| check.id == LOOPBACK);
        let cannot_connect = loopbacks().next().is_some() && loopbacks().all(is_left_out);
        if ports.is_empty() || goes_over_sockets(plan) || cannot_connect && has_no_failure(report) {
            return Rails::Sockets(endpoints(facts, plan));
        }
        let rails = report.hcas.iter().cloned();
        Rails::Verbs(ports.into_iter().zip(rails).collect())
    }

    /// `mlx5_0:1`, `eth0`.
    pub fn names(&self) -> Vec<String> {
        match self {
            Rails::Verbs(ports) => ports.iter().map(|(port, _)| port.name()).collect(),
            Rails::Sockets(ends) => ends.iter().map(|end| end.interface.clone()).collect(),
        }
    }

    /// Over what, for people.
    pub fn transport(&self) -> &'static str {
        match self {
            Rails::Verbs(_) => VERBS,
            Rails::Sockets(_) => "sockets",
        }
    }
}

/// Whether NCCL will use sockets although there are ports, because of a variable of the user's.
fn goes_over_sockets(plan: &Plan) -> bool {
    let transport = plan.forecasts.last().map(|forecast| &forecast.prediction.transport);
    transport.is_some_and(|transport| transport.ports().is_none())
}

/// Where an earlier step of a port failed, its loopback was skipped for that reason.
fn has_no_failure(report: &Report) -> bool {
    report.checks.iter().all(|check| !check.id.starts_with("verbs-") || check.outcome != Outcome::Failed)
}

/// The interfaces of NCCL's socket transport, with the address that it takes of each.
fn endpoints(facts: &Facts, plan: &Plan) -> Vec<Endpoint> {
    let get = |name: &str| {
        let of_user = || facts.settings.get(name).map(|setting| setting.value.as_str());
        plan.value(name).or_else(of_user)
    };
    let newest = KINDS.last().copied();
    let Some(version) = plan.nccl.or(newest) else { return Vec::new() };
    let ends = interfaces::all(&facts.net, get, version).unwrap_or_default();
    // NCCL cannot connect to a link-local address of another node without its scope.
    ends.into_iter().filter(|end| !is_link_local(end.address)).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
