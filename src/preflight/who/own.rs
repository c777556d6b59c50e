//! What this node contributes: the rails that NCCL will use, and their transport.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::libraries::nccl::interfaces::{self, Endpoint};
use crate::libraries::nccl::predict::{PortUse, Prediction, Transport};
use crate::libraries::nccl::version::KINDS;
use crate::plan::{Fabric, Plan};
use crate::preflight::prove::pair::POSSIBLE_GBPS;
use crate::self_test::check::{Check, Outcome};
use crate::self_test::kinds::{self, Level};
use crate::self_test::report::{Rail, Report};
use crate::self_test::run::{Scope, wanted};
use crate::self_test::verbs::{LOOPBACK, OPEN};
use crate::text::{condensed, shortened, visible};
use crate::verbs::port_test::PortTest;

/// The name of the transport of rails that are ports of HCAs.
pub(crate) const VERBS: &str = "verbs";

/// The name of the transport of rails that are interfaces.
pub(crate) const SOCKETS: &str = "sockets";

/// The rails of this node, in the order that all nodes have in common.
#[derive(Debug, Clone, PartialEq)]
pub enum LocalRails {
    /// The ports of HCAs, with what the report says about them.
    Verbs(Vec<(PortTest, Rail)>),
    /// Interfaces with an address.
    Sockets(Vec<Endpoint>),
}

impl LocalRails {
    /// Returns the rails that follow from the plan, after a self-test of this node.
    pub fn of(facts: &Facts, plan: &Plan, report: &Report, extent: Scope) -> LocalRails {
        let ports = wanted(facts, plan, extent);
        if ports.is_empty() || goes_over_sockets(plan) || why_unconnected(report).is_some() {
            return LocalRails::Sockets(endpoints(facts, plan));
        }
        let rails = ports.into_iter().zip(report.hcas.iter().cloned());
        LocalRails::Verbs(rails.filter(|(port, _)| why_unopened(report, port).is_none()).collect())
    }

    /// Returns the names, such as `mlx5_0:1` or `eth0`.
    pub fn names(&self) -> Vec<String> {
        match self {
            LocalRails::Verbs(ports) => ports.iter().map(|(port, _)| port.name()).collect(),
            LocalRails::Sockets(ends) => ends.iter().map(|end| end.interface.clone()).collect(),
        }
    }

    /// Returns the rates of the ports in Gbit/s; 0 if a rate is unknown or means nothing. Soft-RoCE's
    /// rate means nothing, because it has no device with a driver. Interfaces have none: what one TCP
    /// connection moves does not measure an interface.
    pub fn rates(&self) -> Vec<f32> {
        let of = |rail: &Rail| {
            let number = rail.rate.split_whitespace().next().and_then(|number| number.parse().ok());
            let number = number.filter(|number| POSSIBLE_GBPS.contains(number));
            rail.driver.as_ref().and(number).unwrap_or_default()
        };
        match self {
            LocalRails::Verbs(ports) => ports.iter().map(|(_, rail)| of(rail)).collect(),
            LocalRails::Sockets(ends) => vec![0.0; ends.len()],
        }
    }

    /// Returns the transport's name, for people.
    pub fn transport(&self) -> &'static str {
        match self {
            LocalRails::Verbs(_) => VERBS,
            LocalRails::Sockets(_) => SOCKETS,
        }
    }
}

/// What NCCL will use between this node and the others, as the plan forecasts it. The preflight may test something
/// else: TCP if no HCA can be opened here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// The ports: `mlx5_0:1..mlx5_7:1`.
    Verbs(String),
    /// Why not verbs, as a clause.
    Sockets(String),
    /// A plugin decides, the versions of NCCL that the image may have differ, or NCCL fails.
    #[default]
    Unknown,
}

impl Network {
    pub fn from_plan(plan: &Plan) -> Network {
        if let (Fabric::None(why), []) = (&plan.fabric, &plan.forecasts[..]) {
            return Network::Sockets(why.to_string());
        }
        // What such a plugin does without these devices or interfaces is not known; and on such an interface, sockets
        // themselves use RDMA.
        if matches!(plan.fabric, Fabric::Plugin(_) | Fabric::PluginOverInterfaces(_) | Fabric::Interface(_)) {
            return Network::Unknown;
        }
        let mut networks =
            plan.forecasts.iter().map(|forecast| Network::from_prediction(&forecast.prediction));
        let first = networks.next().unwrap_or_default();
        let is_same = |other: Network| std::mem::discriminant(&other) == std::mem::discriminant(&first);
        if networks.all(is_same) { first } else { Network::Unknown }
    }

    fn from_prediction(prediction: &Prediction) -> Network {
        if prediction.env_plugin.is_some() {
            return Network::Unknown;
        }
        match &prediction.transport {
            Transport::Sockets { why, .. } => Network::Sockets(why.clone()),
            // The plugins beside HCAs that need none are NCCL's own transport with additions.
            transport => transport.ports().map_or(Network::Unknown, |ports| {
                Network::Verbs(condensed(&ports.iter().map(PortUse::name).collect::<Vec<String>>()))
            }),
        }
    }

    /// Returns what another node reports, in a form that is safe to show.
    pub fn presentable(self) -> Network {
        let shown = |text: String| visible(&shortened(&text));
        match self {
            Network::Verbs(ports) => Network::Verbs(shown(ports)),
            Network::Sockets(why) => Network::Sockets(shown(why)),
            Network::Unknown => Network::Unknown,
        }
    }
}

/// Returns what the proof does not test, or tests in a different way than the job will, as sentences.
pub(crate) fn left_out(facts: &Facts, plan: &Plan, report: &Report, extent: Scope) -> Vec<String> {
    let ports = wanted(facts, plan, extent);
    if ports.is_empty() || goes_over_sockets(plan) {
        return Vec::new();
    }
    if let Some(why) = why_unconnected(report) {
        return vec![format!("the HCAs are not tested, because {why}: the preflight uses sockets")];
    }
    let unopened = ports.iter().filter_map(|port| {
        let why = why_unopened(report, port)?;
        Some(format!("{} is not tested, because {why}", port.name()))
    });
    let is_by_value = facts.settings.get(PKEY_VALUE).is_some_and(|setting| !setting.value.is_empty());
    let by_value = is_by_value.then(|| {
        format!("the preflight uses the partition key at the index of NCCL_IB_PKEY, or 0: it does not use {PKEY_VALUE}")
    });
    unopened.chain(by_value).collect()
}

/// The variable that names the key itself instead of its index.
const PKEY_VALUE: &str = "NCCL_IB_PKEY_VALUE";

/// Returns why none of the ports can be connected through verbs, if the ports are not faulty: they may
/// need a library of their own, as with EFA, or this binary has no provider.
fn why_unconnected(report: &Report) -> Option<&str> {
    let loopbacks = || report.checks.iter().filter(|check| check.id == LOOPBACK);
    let is_left_out = |check: &Check| check.outcome == Outcome::Skipped && check.subject.is_some();
    let first = loopbacks().next()?;
    let why = first.message.as_deref().unwrap_or("they have no verbs connections");
    (loopbacks().all(is_left_out) && has_no_failure(report)).then_some(why)
}

/// Returns why a port cannot be tested, if the port is not faulty.
fn why_unopened<'a>(report: &'a Report, port: &PortTest) -> Option<&'a str> {
    let name = port.name();
    let is_its = |check: &&Check| check.id == OPEN && check.subject.as_ref() == Some(&name);
    let check = report.checks.iter().find(is_its).filter(|check| check.outcome == Outcome::Skipped)?;
    Some(check.message.as_deref().unwrap_or("it cannot be opened"))
}

/// Returns whether NCCL will use sockets although there are ports, because the user has set a variable.
fn goes_over_sockets(plan: &Plan) -> bool {
    let transport = plan.forecasts.last().map(|forecast| &forecast.prediction.transport);
    transport.is_some_and(|transport| transport.ports().is_none())
}

/// Returns whether no check of a port failed. If an earlier step of a port fails, its loopback is
/// skipped for that reason.
fn has_no_failure(report: &Report) -> bool {
    report
        .checks
        .iter()
        .all(|check| !kinds::is_of(Level::Verbs, &check.id) || check.outcome != Outcome::Failed)
}

/// Returns the interfaces of NCCL's socket transport, each with the address that NCCL uses.
fn endpoints(facts: &Facts, plan: &Plan) -> Vec<Endpoint> {
    let get = |name: &str| {
        let of_user = || facts.settings.get(name).map(|setting| setting.value.as_str());
        plan.value(name).or_else(of_user)
    };
    let newest = KINDS.last().copied();
    let Some(version) = plan.nccl.or(newest) else { return Vec::new() };
    let ends = interfaces::all(&facts.net, get, version).unwrap_or_default();
    // NCCL cannot connect to another node's link-local address without its scope.
    ends.into_iter().filter(|end| !is_link_local(end.address)).collect()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::rdma::LinkLayer;
    use crate::libraries::nccl::predict::{Bootstrap, Fused};
    use crate::plan::Forecast;
    use crate::plan::NoRdmaReason;
    use crate::self_test::host;
    use crate::self_test::known;
    use crate::self_test::verbs::checks;
    use crate::verbs::port_test::DeviceProbe;

    /// Returns the rails of a node with two ports; this binary has no provider for the ports that are
    /// `unopened`.
    fn of(unopened: [bool; 2]) -> (Vec<String>, &'static str, Vec<String>) {
        let (mut facts, plan) = host(2, 2);
        facts.rdma.iter_mut().for_each(|hca| hca.driver = Some("ionic_rdma".to_owned()));
        let mut report = known::report("gpu-07", &facts, &plan, |_| true);
        for (port, no_provider) in wanted(&facts, &plan, Scope::default()).iter().zip(unopened) {
            let probe = DeviceProbe { no_provider, ..DeviceProbe::default() };
            report.checks.extend(checks(port, &Ok(Box::new(probe))));
        }
        let rails = LocalRails::of(&facts, &plan, &report, Scope::default());
        (rails.names(), rails.transport(), left_out(&facts, &plan, &report, Scope::default()))
    }

    fn forecast(transport: Transport) -> Forecast {
        let bootstrap = Bootstrap::Fails(String::new());
        let prediction = Prediction { bootstrap, transport, fused: Fused::Unknown, env_plugin: None };
        Forecast { since: None, prediction, log: None }
    }

    #[test]
    fn only_what_nccl_does_for_certain_is_its_network() {
        let ports = |hca: &&str| PortUse {
            hca: (*hca).to_owned(),
            port: 1,
            link_layer: LinkLayer::InfiniBand,
            gid: None,
        };
        let verbs = || Transport::Verbs(["mlx5_0", "mlx5_1"].iter().map(ports).collect());
        let sockets =
            || Transport::Sockets { why: "NCCL_IB_DISABLE is 1".to_owned(), interfaces: Vec::new() };
        let fails = || Transport::Fails("x".to_owned());
        let plugin = |otherwise| Transport::Plugin {
            file: "libnccl-net.so".to_owned(),
            found: true,
            otherwise: Box::new(otherwise),
        };
        let of = |fabric: Fabric, transports: &[Transport]| {
            let forecasts = transports.iter().cloned().map(forecast).collect();
            Network::from_plan(&Plan { fabric, forecasts, ..host(2, 2).1 })
        };
        let on_verbs = || Network::Verbs("mlx5_0:1, mlx5_1:1".to_owned());
        let on_sockets = || Network::Sockets("NCCL_IB_DISABLE is 1".to_owned());
        for (transports, network) in [
            (&[verbs()][..], on_verbs()),
            (&[sockets(), sockets()], on_sockets()),
            (&[plugin(verbs()), verbs()], on_verbs()),
            (&[plugin(sockets())], Network::Unknown),
            (&[fails()], Network::Unknown),
            (&[sockets(), verbs()], Network::Unknown),
            (&[], Network::Unknown),
        ] {
            assert_eq!(of(Fabric::Verbs, transports), network, "{transports:?}");
        }
        assert_eq!(of(Fabric::Plugin(2), &[verbs()]), Network::Unknown);
        let none = Network::Sockets("there is no RDMA device in this container".to_owned());
        assert_eq!(of(Fabric::None(NoRdmaReason::NoDevice), &[]), none);
        let mut plan = Plan { forecasts: vec![forecast(verbs())], ..host(2, 2).1 };
        plan.forecasts[0].prediction.env_plugin = Some("libnccl-env.so".to_owned());
        assert_eq!(Network::from_plan(&plan), Network::Unknown, "the plugin's answers replace all variables");
    }

    #[test]
    fn what_this_binary_cannot_open_is_left_out_and_told() {
        assert_eq!(of([false; 2]), (vec!["mlx5_0:1".to_owned(), "mlx5_1:1".to_owned()], VERBS, vec![]));
        let why = "this binary has no provider for ionic_rdma";
        let one = format!("mlx5_1:1 is not tested, because {why}");
        assert_eq!(of([false, true]), (vec!["mlx5_0:1".to_owned()], VERBS, vec![one]));
        let all = format!("the HCAs are not tested, because {why}: the preflight uses sockets");
        assert_eq!(of([true; 2]), (vec![], "sockets", vec![all]));
    }
}
