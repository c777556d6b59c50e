//! Makes a plan with its findings for a host, for every command and for the start.

use std::path::Path;

use crate::apply::state::may_hold_code;
use crate::config::Config;
use crate::env_plugin::LIBRARY_FILE;
use crate::env_plugin::answer::MARKER;
use crate::facts::Facts;
use crate::facts::environment::Filled;
use crate::facts::settings::{Settings, UserSetting};
use crate::finding::{Finding, Id, Source};
use crate::findings;
use crate::libraries::nccl::env_plugin::VARIABLE;
use crate::plan::{self, EnvPlugin, Plan};
use crate::profiles::Profiles;
use crate::state::FOLDER;
use crate::state::run::Run;

/// Returns the plan with all findings that need only the facts.
///
/// Variables that this container's start filled in stay, like everything in the environment. They are not the
/// user's wish: if the decision would be the same today, the plan is made without them.
pub fn decide(facts: &Facts, profiles: &Profiles, config: &Config) -> Plan {
    if facts.settings.0.iter().any(leads_to_own_plugin) {
        let mut without = facts.clone();
        without.settings.0.retain(|setting| !leads_to_own_plugin(setting));
        without.filled_at_start.retain(|filled| !is_of_plugin(&filled.variable));
        return decide(&without, profiles, config);
    }
    if facts.filled_at_start.is_empty() {
        return plan_with_findings(facts, profiles, config);
    }
    let anew = Facts { settings: facts.settings.of_user(), ..facts.clone() };
    let mut plan = plan_with_findings(&anew, profiles, config);
    let of_start = facts.settings.0.iter().filter(|setting| setting.origin == Source::AtStart);
    let comes_out = |setting: &UserSetting| {
        plan.filled().any(|filled| filled == (setting.variable.as_str(), setting.value.as_str()))
    };
    if !of_start.clone().all(comes_out) {
        return plan_with_findings(facts, profiles, config);
    }
    for setting in &mut plan.settings {
        setting.at_start = of_start.clone().any(|known| known.variable == setting.variable);
    }
    plan
}

/// Does the same as [`decide`] for this container, where it can check whether the state directory may contain
/// the env plugin.
pub fn decide_here(facts: &Facts, profiles: &Profiles, config: &Config) -> Plan {
    let mut plan = decide(facts, profiles, config);
    if plan.env_plugin == EnvPlugin::Used && !may_hold_code(&config.state_dir) {
        let why =
            "the state directory is not on a file system of this container's own, or others may write to it";
        plan.env_plugin = EnvPlugin::NotUsed(why.to_owned());
    }
    plan
}

/// Returns whether a start, here or on another node, set this variable for rdma-init's env plugin. The user
/// did not set it.
fn leads_to_own_plugin(setting: &UserSetting) -> bool {
    setting.variable == MARKER || names_own_plugin(setting)
}

/// Does the same as [`leads_to_own_plugin`], only for the variable that names the plugin.
pub(super) fn names_own_plugin(setting: &UserSetting) -> bool {
    let usual = Path::new(FOLDER).join(LIBRARY_FILE);
    let is_ours = setting.origin == Source::AtStart || Path::new(&setting.value) == usual;
    setting.variable == VARIABLE && is_ours
}

fn is_of_plugin(variable: &str) -> bool {
    [MARKER, VARIABLE].contains(&variable)
}

/// Reports which of a start's filled values are now wrong on this host.
pub fn changed_since(run: &Run, facts: Facts, profiles: &Profiles, config: &Config) -> Option<Finding> {
    let filled_at_start: Vec<Filled> = run.filled_itself().collect();
    let origin = |name: &str| {
        let is_ours = filled_at_start.iter().any(|filled| filled.variable == name);
        if is_ours { Source::AtStart } else { Source::Environment }
    };
    let given = run.given().map(|(name, value)| UserSetting::new(name, value, origin(name)));
    let settings = Settings(given.collect());
    let plan = decide(&Facts { settings, filled_at_start, ..facts }, profiles, config);
    plan.findings.into_iter().find(|finding| finding.id == Id::GidChanged)
}

fn plan_with_findings(facts: &Facts, profiles: &Profiles, config: &Config) -> Plan {
    findings::add(plan::decide(facts, profiles, &config.plan_options()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gid::{Gid, GidTable, GidType};
    use crate::facts::net::Interface;
    use crate::facts::rdma::{Hca, LinkLayer, Port, Uverbs};
    use crate::facts::settings::Settings;
    use crate::facts::steps;
    use crate::plan::{DefaultRouteOption, Options};
    use ipnet::IpNet;
    use serde_json::json;
    use std::net::IpAddr;

    /// Returns facts with RoCE HCAs, an interface for each, ten routes for each interface, and a default
    /// route.
    fn hcas(count: usize) -> Facts {
        let pci = |n: usize| Some(format!("0000:{:02x}:{:02x}.0", n / 32, n % 32));
        let route = |interface: usize, destination: String| {
            let route = json!({"interface": format!("eth{interface}"), "destination": destination});
            serde_json::from_value(route).unwrap()
        };
        let mut facts = Facts::default();
        facts.net.routes.push(route(count - 1, "0.0.0.0/0".to_owned()));
        for n in 0..count {
            let address: IpNet = format!("20.{n}.0.9/24").parse().unwrap();
            let IpAddr::V4(own) = address.addr() else { unreachable!("{address}") };
            let gid = Gid { index: 3, gid: own.to_ipv6_mapped(), kind: GidType::RoceV2, netdev: None };
            let port = Port {
                number: 1,
                gids: GidTable { size: 255, scanned: 255, slots: vec![gid] },
                link_layer: LinkLayer::Ethernet,
                state: "ACTIVE".to_owned(),
                rate: "200 Gb/sec".to_owned(),
                ..Port::default()
            };
            let uverbs = Some(Uverbs::default());
            let (name, interface) = (format!("mlx5_{n}"), format!("eth{n}"));
            facts.rdma.push(Hca { name, pci_address: pci(n), uverbs, ports: vec![port], ..Hca::default() });
            facts.net.interfaces.push(Interface {
                name: interface,
                pci_address: pci(n),
                flags: ["UP", "RUNNING"].map(str::to_owned).to_vec(),
                addresses: vec![address],
                ..Interface::default()
            });
            let net = |subnet| format!("20.{n}.{subnet}.0/24");
            facts.net.routes.extend((0..10).map(|subnet| route(n, net(subnet))));
        }
        facts
    }

    /// Returns facts with variables that no library recognizes.
    fn variables(prefix: &str, count: usize) -> Facts {
        let setting = |n| UserSetting::new(&format!("{prefix}_ODD_{n}"), "1", Source::Environment);
        Facts { settings: Settings((0..count).map(setting).collect()), ..hcas(2) }
    }

    /// Returns the factor by which the number of comparisons grows if the input doubles.
    fn growth(host: impl Fn(usize) -> Facts, options: &Options) -> f64 {
        let profiles = Profiles::load(None).unwrap();
        let steps = |count| {
            let facts = host(count);
            steps::of(|| findings::add(plan::decide(&facts, &profiles, options)))
        };
        steps(128) as f64 / steps(64) as f64
    }

    /// Returns facts in which each HCA carries a default route and its GIDs name the interfaces.
    fn with_default_routes(count: usize) -> Facts {
        let mut facts = hcas(count);
        facts.net.routes.retain(|route| !route.is_default());
        for (n, hca) in facts.rdma.iter_mut().enumerate() {
            hca.ports[0].gids.slots[0].netdev = Some(format!("eth{n}"));
            let route = json!({"interface": format!("eth{n}"), "destination": "0.0.0.0/0", "metric": n});
            facts.net.routes.push(serde_json::from_value(route).unwrap());
        }
        facts
    }

    #[test]
    fn the_steps_of_a_decision_grow_linearly_with_the_host() {
        let used = Options { default_route_hca: DefaultRouteOption::Use, ..Options::default() };
        for (what, growth) in [
            ("HCAs", growth(hcas, &Options::default())),
            ("HCAs, with default-route-hca = use", growth(hcas, &used)),
            ("HCAs with default routes, which are used", growth(with_default_routes, &used)),
            ("NCCL's variables", growth(|count| variables("NCCL", count), &Options::default())),
            ("UCX's variables", growth(|count| variables("UCX", count), &Options::default())),
        ] {
            assert!(growth < 2.2, "{what}: {growth}");
        }
    }
}
