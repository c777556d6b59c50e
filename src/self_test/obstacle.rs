//! What certainly prevents RDMA for the job. The self-test and `require-rdma` both use these answers.

use crate::finding::{Finding, Id, Severity};
use crate::libraries::nccl::predict::{Bootstrap, PortUse, Prediction, Transport};
use crate::plan::{Fabric, Plan};

/// Findings that, as errors, prevent RDMA or end the job before that. (If memory cannot be pinned, that
/// is also an error, but it has its own key. A missing provider may concern only one HCA of several.)
const FATAL: [Id; 14] = [
    Id::NvswitchHca,
    Id::NoOwnGid,
    Id::GidIndex,
    Id::GidChanged,
    Id::GidSearch,
    Id::AddrRange,
    Id::TuningList,
    Id::MissingFile,
    Id::EmptyValue,
    Id::NicFusion,
    Id::Pkey,
    Id::OtherArchitecture,
    Id::OutOfRange,
    Id::CardCount,
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaBlocker {
    pub about: About,
    /// A sentence.
    pub message: String,
}

/// What an obstacle is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// There is no fabric for the job.
    Fabric,
    /// The job's processes cannot find each other.
    Bootstrap,
    /// NCCL will not use the fabric, although there is one.
    Network,
    /// A finding.
    Finding(Id),
}

/// Returns all known obstacles, in the order in which they would stop the job.
#[must_use]
pub fn all(plan: &Plan) -> Vec<RdmaBlocker> {
    let mut all = Vec::new();
    let mut add = |about, message| all.push(RdmaBlocker { about, message });
    if let Fabric::None(why) = &plan.fabric {
        add(About::Fabric, format!("The job has no RDMA: {why}."));
    }
    if let Certainty::Yes(why) = of_releases(plan, ends_at_bootstrap) {
        add(About::Bootstrap, format!("{why}."));
    }
    if let Some(finding) = plan.findings.iter().find(|finding| is_fatal(finding)) {
        add(About::Finding(finding.id), finding.message.clone());
    }
    if let Certainty::Yes(why) = of_network(plan) {
        add(About::Network, format!("{why}."));
    }
    all
}

fn is_fatal(finding: &Finding) -> bool {
    finding.severity == Severity::Error && FATAL.contains(&finding.id)
}

/// Whether something happens for certain. If the version of NCCL is not known, versions may differ.
#[must_use]
pub enum Certainty {
    Yes(String),
    /// It happens with some versions.
    Perhaps(String),
    No,
}

/// Returns whether NCCL fails or runs without RDMA, although RDMA is available.
pub fn of_network(plan: &Plan) -> Certainty {
    of_releases(plan, |plan, prediction| match &prediction.transport {
        Transport::Fails(message) => Some(ends_with(plan, message)),
        // If the RDMA has no verbs, NCCL uses sockets on it. If there is no fabric, `About::Fabric`
        // already reports that.
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
    })
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

fn of_releases(plan: &Plan, what: fn(&Plan, &Prediction) -> Option<String>) -> Certainty {
    let each = plan.forecasts.iter().map(|forecast| what(plan, &forecast.prediction));
    // What an env plugin answers is unknown.
    let is_known = plan.forecasts.iter().all(|forecast| forecast.prediction.env_plugin.is_none());
    let certain = is_known && !plan.forecasts.is_empty() && each.clone().all(|why| why.is_some());
    match each.flatten().next() {
        Some(why) if certain => Certainty::Yes(why),
        Some(why) => Certainty::Perhaps(why),
        None => Certainty::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Forecast;

    fn plan(fabric: Fabric, transports: Vec<Transport>) -> Plan {
        let forecast = |transport| Forecast {
            log: None,
            since: None,
            prediction: Prediction {
                bootstrap: Bootstrap::DependsOnName("node1".to_owned()),
                transport,
                fused: crate::libraries::nccl::predict::Fused::Unknown,
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
        assert_eq!(all(&both), []);
        assert!(matches!(of_network(&both), Certainty::Perhaps(why) if why.ends_with("no usable HCA")));
        let one = plan(Fabric::Verbs, vec![sockets(), Transport::Fails("no network".to_owned())]);
        let message = "NCCL will not use the RDMA devices: it finds no usable HCA.".to_owned();
        assert_eq!(all(&one), [RdmaBlocker { about: About::Network, message }]);
        assert!(matches!(of_network(&plan(Fabric::Verbs, Vec::new())), Certainty::No));
    }

    #[test]
    fn nothing_is_certain_of_a_job_with_an_env_plugin() {
        let mut one = plan(Fabric::Verbs, vec![sockets()]);
        assert_eq!(all(&one).len(), 1);
        one.forecasts[0].prediction.env_plugin = Some("/usr/lib/libnccl-env.so".to_owned());
        assert_eq!(all(&one), []);
        assert!(matches!(of_network(&one), Certainty::Perhaps(_)));
    }

    #[test]
    fn sockets_are_no_blocker_on_a_fabric_without_verbs() {
        assert_eq!(all(&plan(Fabric::Interface("hpn0".to_owned()), vec![sockets()])), []);
    }

    #[test]
    fn only_errors_are_certain() {
        let mut of_gid = plan(Fabric::Verbs, Vec::new());
        of_gid.findings =
            vec![Finding::warning(Id::GidIndex, "RoCE v1."), Finding::error(Id::Memlock, "64 KiB.")];
        assert_eq!(all(&of_gid), []);
        of_gid.findings.push(Finding::error(Id::GidIndex, "Slot 9 is empty."));
        let message = "Slot 9 is empty.".to_owned();
        assert_eq!(all(&of_gid), [RdmaBlocker { about: About::Finding(Id::GidIndex), message }]);
    }
}
