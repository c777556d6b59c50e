//! Whether the job will get the fabric that the plan found for it. `outcome` says what becomes of the fabric, for the
//! headline and the watcher; `blockers` has all that certainly keeps the job from it, for `require-rdma` and the
//! self-test: also that it is not the fabric that the job should have.

use super::{Fabric, Plan, PortVerdict, SettingOutcome};
use crate::finding::{Blocks, Finding, Severity};
use crate::libraries::nccl::network;
use crate::libraries::nccl::predict::{Bootstrap, Fused, GidUse, PortUse, Prediction, Transport};
use crate::text::condensed;

/// What certainly keeps the job from RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// The check of the self-test that it belongs to.
    pub check: &'static str,
    /// A sentence.
    pub message: String,
}

/// What becomes of the fabric that the plan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The job uses all of it; or there is none that sockets would lose.
    AsPlanned,
    /// The user asked for TCP.
    AsksForTcp,
    /// No version of NCCL uses the ports.
    NotUsed,
    /// NCCL fails in every version, as the forecast says.
    Fails,
    /// A finding says that NCCL fails.
    FailsOnVariable,
    /// These ports do not connect to other nodes.
    NoConnection(Vec<String>),
    /// These ports connect to the machine's NVSwitches.
    ToNvSwitches(Vec<String>),
    /// RDMA needs to pin memory, but is not allowed to.
    NoMemory,
    /// NCCL uses only the other ports.
    SomeNotUsed(Vec<String>),
}

impl Plan {
    /// Returns what becomes of the planned fabric; of several reasons against it, the most important one.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if !self.fabric.is_lost_over_sockets() {
            return Outcome::AsPlanned;
        }
        let all = |is: fn(&Prediction) -> bool| {
            !self.forecasts.is_empty() && self.forecasts.iter().all(|forecast| is(&forecast.prediction))
        };
        if all(fails) {
            return Outcome::Fails;
        }
        if all(|prediction| matches!(prediction.transport, Transport::Sockets { .. } | Transport::Fails(_))) {
            return if asks_for_tcp(self) { Outcome::AsksForTcp } else { Outcome::NotUsed };
        }
        let blocked = |by: Blocks| self.findings.iter().filter(move |finding| is_error_of(finding, by));
        let unconnected = named_by(self, blocked(Blocks::Connection).collect());
        let to_nvswitches: Vec<String> =
            used(self).filter(|port| port.to_nvswitch).map(PortVerdict::name).collect();
        let not_used = not_used(self);
        match () {
            () if !unconnected.is_empty() => Outcome::NoConnection(unconnected),
            () if !to_nvswitches.is_empty() => Outcome::ToNvSwitches(to_nvswitches),
            () if blocked(Blocks::Job).next().is_some() => Outcome::FailsOnVariable,
            () if blocked(Blocks::Memory).next().is_some() => Outcome::NoMemory,
            () if !not_used.is_empty() => Outcome::SomeNotUsed(not_used),
            () => Outcome::AsPlanned,
        }
    }

    /// Returns all that certainly keeps the job from RDMA, in the order in which it would stop the job.
    #[must_use]
    pub fn blockers(&self) -> Vec<Blocker> {
        let mut blockers = Vec::new();
        let mut add = |check, message| blockers.push(Blocker { check, message });
        if let Fabric::None(why) = &self.fabric {
            add("fabric", format!("The job has no RDMA: {why}."));
        }
        if let (true, Some(why)) = self.check_releases(ends_at_bootstrap) {
            add("interface", format!("{why}."));
        }
        let is_fatal = |finding: &&Finding| {
            [Blocks::Connection, Blocks::Job, Blocks::Fabric].iter().any(|by| is_error_of(finding, *by))
        };
        if let Some(finding) = self.findings.iter().find(is_fatal) {
            add(finding.id.check().unwrap_or_default(), finding.message.clone());
        }
        if let (true, Some(why)) = self.check_releases(loses_network) {
            add("nccl-decides", format!("{why}."));
        }
        blockers
    }

    /// Returns why NCCL fails or runs without RDMA, although RDMA is available, if it does so only in some of the releases
    /// that the job may load, or if an env plugin may prevent it.
    #[must_use]
    pub fn perhaps_loses_network(&self) -> Option<String> {
        match self.check_releases(loses_network) {
            (true, _) => None,
            (false, why) => why,
        }
    }

    /// Returns whether something happens with every release that the job may load, and the sentence about the first.
    fn check_releases(&self, what: fn(&Plan, &Prediction) -> Option<String>) -> (bool, Option<String>) {
        let each = self.forecasts.iter().map(|forecast| what(self, &forecast.prediction));
        // What an env plugin answers is unknown.
        let is_known = !self.has_env_plugin() && !self.forecasts.is_empty();
        (is_known && each.clone().all(|why| why.is_some()), each.flatten().next())
    }
}

fn is_error_of(finding: &Finding, by: Blocks) -> bool {
    finding.severity == Severity::Error && finding.id.blocks() == by
}

fn loses_network(plan: &Plan, prediction: &Prediction) -> Option<String> {
    match &prediction.transport {
        Transport::Fails(message) => Some(ends_with(plan, message)),
        // If the RDMA has no verbs, NCCL uses sockets on it. That there is no fabric is a blocker of its own.
        Transport::Sockets { why, .. } if plan.fabric.is_lost_over_sockets() => Some(match plan.fabric {
            Fabric::PluginOverInterfaces(_) => {
                format!("{} will load no net plugin, and use TCP", plan.library)
            }
            _ => format!("{} will not use the RDMA devices: {why}", plan.library),
        }),
        Transport::Verbs(_) if matches!(plan.fabric, Fabric::Plugin(_)) => {
            let taken = plan.taken_instead(&prediction.transport)?;
            let names: Vec<String> = taken.iter().map(PortUse::name).collect();
            Some(format!("{} will take {} instead of the fabric's devices", plan.library, names.join(", ")))
        }
        Transport::Sockets { .. } | Transport::Verbs(_) | Transport::Plugin { .. } => None,
    }
}

fn ends_at_bootstrap(plan: &Plan, prediction: &Prediction) -> Option<String> {
    match &prediction.bootstrap {
        Bootstrap::Fails(message) => Some(ends_with(plan, message)),
        Bootstrap::On(_) | Bootstrap::DependsOnName(_) => None,
    }
}

fn ends_with(plan: &Plan, message: &str) -> String {
    format!("{} will fail with \"{}\"", plan.library, message)
}

fn asks_for_tcp(plan: &Plan) -> bool {
    plan.settings.iter().any(|setting| {
        setting.variable == network::VARIABLE
            && setting.outcome == SettingOutcome::User
            && setting.value.as_deref().is_some_and(|value| value.eq_ignore_ascii_case("Socket"))
    })
}

fn fails(prediction: &Prediction) -> bool {
    let has_no_gid = |ports: &[PortUse]| ports.iter().any(|port| matches!(port.gid, Some(GidUse::Fails(_))));
    matches!(prediction.bootstrap, Bootstrap::Fails(_))
        || matches!(prediction.fused, Fused::Fails(_))
        || match &prediction.transport {
            Transport::Verbs(ports) => has_no_gid(ports),
            Transport::Fails(_) => true,
            Transport::Plugin { .. } | Transport::Sockets { .. } => false,
        }
}

/// Returns the used ports that the errors name; an error that names none applies to all of them.
fn named_by(plan: &Plan, errors: Vec<&Finding>) -> Vec<String> {
    let is_named = |port: &&PortVerdict| {
        let name = port.full_name();
        errors.iter().any(|error| error.about.ports.is_empty() || error.about.ports.contains(&name))
    };
    used(plan).filter(is_named).map(PortVerdict::name).collect()
}

/// Returns the used ports that no version of NCCL takes.
fn not_used(plan: &Plan) -> Vec<String> {
    let taken: Option<Vec<&[PortUse]>> = plan
        .forecasts
        .iter()
        .map(|forecast| match (&forecast.prediction.transport, &plan.fabric) {
            // These devices are the plugin's; NCCL alone would take others.
            (Transport::Plugin { .. }, Fabric::Plugin(_)) => None,
            (transport, _) => transport.ports(),
        })
        .collect();
    let Some(taken) = taken.filter(|taken| !taken.is_empty()) else { return Vec::new() };
    let is_idle = |port: &&PortVerdict| {
        !taken.iter().any(|ports| ports.iter().any(|taken| taken.hca == port.hca && taken.port == port.port))
    };
    used(plan).filter(is_idle).map(PortVerdict::name).collect()
}

fn used(plan: &Plan) -> impl Iterator<Item = &PortVerdict> {
    plan.ports.iter().filter(|port| port.used)
}

impl Outcome {
    /// Returns a clause for the headline, after the ports: `but they will not connect`.
    pub fn clause(&self, plan: &Plan) -> Option<String> {
        let library = plan.library;
        Some(match self {
            Outcome::AsPlanned => return None,
            Outcome::AsksForTcp => format!("but {}=Socket asks for TCP", network::VARIABLE),
            Outcome::NotUsed if matches!(plan.fabric, Fabric::PluginOverInterfaces(_)) => {
                format!("but {library} will not load it")
            }
            Outcome::NotUsed => format!("but {library} will not use RDMA"),
            Outcome::Fails | Outcome::FailsOnVariable => format!("but {library} will fail"),
            Outcome::NoConnection(ports) => match (is_all(plan, ports), ports.len()) {
                (true, 1) => "but it will not connect".to_owned(),
                (true, _) => "but they will not connect".to_owned(),
                (false, _) => format!("but {} will not connect", condensed(ports)),
            },
            Outcome::ToNvSwitches(ports) => match (is_all(plan, ports), ports.len()) {
                (true, 1) => "but it connects to the NVSwitches".to_owned(),
                (true, _) => "but they connect to the NVSwitches".to_owned(),
                (false, 1) => format!("but {} connects to the NVSwitches", condensed(ports)),
                (false, _) => format!("but {} connect to the NVSwitches", condensed(ports)),
            },
            Outcome::NoMemory => "but memory cannot be pinned".to_owned(),
            Outcome::SomeNotUsed(ports) if is_all(plan, ports) => format!("but {library} will not use them"),
            Outcome::SomeNotUsed(ports) => format!("but {library} will not use {}", condensed(ports)),
        })
    }

    /// Returns what happens to ports that NCCL tries, for use after their names: `and fail to connect`.
    pub fn describe_tried_ports(&self, plan: &Plan) -> Option<String> {
        match self {
            Outcome::NoConnection(ports) | Outcome::ToNvSwitches(ports) if is_all(plan, ports) => {
                Some("and fail to connect".to_owned())
            }
            Outcome::NoConnection(ports) | Outcome::ToNvSwitches(ports) => {
                Some(format!("and fail to connect over {}", condensed(ports)))
            }
            Outcome::FailsOnVariable => Some("and fail".to_owned()),
            Outcome::NoMemory => Some("and fail to pin memory".to_owned()),
            _ => None,
        }
    }
}

fn is_all(plan: &Plan, ports: &[String]) -> bool {
    used(plan).count() == ports.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Id;
    use crate::plan::Forecast;

    fn plan(fabric: Fabric, transports: Vec<Transport>) -> Plan {
        let forecast = |transport| Forecast {
            log: None,
            since: None,
            prediction: Prediction {
                bootstrap: Bootstrap::DependsOnName("node1".to_owned()),
                transport,
                fused: Fused::Unknown,
                env_plugin: None,
            },
        };
        Plan {
            profile: None,
            fabric,
            ports: Vec::new(),
            settings: Vec::new(),
            nccl: None,
            library: Default::default(),
            forecasts: transports.into_iter().map(forecast).collect(),
            env_plugin: crate::plan::EnvPlugin::Used,
            late: Vec::new(),
            libraries: Vec::new(),
            findings: Vec::new(),
            tried: Vec::new(),
        }
    }

    fn sockets() -> Transport {
        Transport::Sockets { why: "it finds no usable HCA".to_owned(), interfaces: Vec::new() }
    }

    #[test]
    fn what_only_some_releases_do_is_not_certain() {
        let both = plan(Fabric::Verbs, vec![sockets(), Transport::Verbs(Vec::new())]);
        assert_eq!(both.blockers(), []);
        assert!(both.perhaps_loses_network().is_some_and(|why| why.ends_with("no usable HCA")));
        let one = plan(Fabric::Verbs, vec![sockets(), Transport::Fails("no network".to_owned())]);
        let message = "NCCL will not use the RDMA devices: it finds no usable HCA.".to_owned();
        assert_eq!(one.blockers(), [Blocker { check: "nccl-decides", message }]);
        assert_eq!(one.perhaps_loses_network(), None);
        assert_eq!(plan(Fabric::Verbs, Vec::new()).perhaps_loses_network(), None);
    }

    #[test]
    fn nothing_is_certain_of_a_job_with_an_env_plugin() {
        let mut one = plan(Fabric::Verbs, vec![sockets()]);
        assert_eq!(one.blockers().len(), 1);
        one.forecasts[0].prediction.env_plugin = Some("/usr/lib/libnccl-env.so".to_owned());
        assert_eq!(one.blockers(), []);
        assert!(one.perhaps_loses_network().is_some());
    }

    #[test]
    fn sockets_are_no_blocker_on_a_fabric_without_verbs() {
        assert_eq!(plan(Fabric::Interface("hpn0".to_owned()), vec![sockets()]).blockers(), []);
    }

    #[test]
    fn only_errors_are_certain() {
        let mut of_gid = plan(Fabric::Verbs, Vec::new());
        of_gid.findings =
            vec![Finding::warning(Id::GidIndex, "RoCE v1."), Finding::error(Id::Memlock, "64 KiB.")];
        assert_eq!(of_gid.blockers(), []);
        of_gid.findings.push(Finding::error(Id::GidIndex, "Slot 9 is empty."));
        let message = "Slot 9 is empty.".to_owned();
        assert_eq!(of_gid.blockers(), [Blocker { check: "gid", message }]);
    }
}
