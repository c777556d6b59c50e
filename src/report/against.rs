//! Finds what keeps a job from its planned fabric, so that the headline and the forecast agree with the
//! errors below them.

use crate::finding::{Finding, Id, Severity};
use crate::libraries::nccl::network;
use crate::libraries::nccl::predict::{Bootstrap, Fused, GidUse, PortUse, Prediction, Transport};
use crate::plan::{Fabric, Plan, PortVerdict, SettingOutcome};
use crate::text::condensed;

/// Why the job gets nothing, or only a part, of its fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FabricProblem {
    /// The user asked for TCP.
    AsksForTcp,
    /// No version of NCCL uses the ports.
    NotUsed,
    /// NCCL fails in every version.
    Ends,
    /// These ports do not connect to other nodes.
    NoConnection(Vec<String>),
    /// These ports connect to the machine's NVSwitches.
    ToNvSwitches(Vec<String>),
    /// A variable makes the job fail.
    EndedByVariable,
    /// RDMA needs to pin memory, but is not allowed to.
    NoMemory,
    /// NCCL uses only the other ports.
    SomeNotUsed(Vec<String>),
}

/// Finding ids that, at severity error, mean that ports do not connect.
const NO_CONNECTION: [Id; 3] = [Id::NoOwnGid, Id::GidIndex, Id::Pkey];

/// Finding ids that, at severity error, mean that NCCL fails.
const ENDS: [Id; 3] = [Id::TuningList, Id::MissingFile, Id::EmptyValue];

/// Returns the most important reason against the planned fabric; `None` if there is no reason, or no such
/// fabric.
#[must_use]
pub(super) fn find(plan: &Plan) -> Option<FabricProblem> {
    if !plan.fabric.is_lost_over_sockets() {
        return None;
    }
    let all = |is: fn(&Prediction) -> bool| {
        !plan.forecasts.is_empty() && plan.forecasts.iter().all(|forecast| is(&forecast.prediction))
    };
    if all(ends) {
        return Some(FabricProblem::Ends);
    }
    if all(|prediction| matches!(prediction.transport, Transport::Sockets { .. } | Transport::Fails(_))) {
        return Some(if asks_for_tcp(plan) { FabricProblem::AsksForTcp } else { FabricProblem::NotUsed });
    }
    let errors = || plan.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let unconnected = without_connection(plan, errors().filter(|error| NO_CONNECTION.contains(&error.id)));
    if !unconnected.is_empty() {
        return Some(FabricProblem::NoConnection(unconnected));
    }
    let to_nvswitches: Vec<String> =
        used(plan).filter(|port| port.to_nvswitch).map(PortVerdict::name).collect();
    if !to_nvswitches.is_empty() {
        return Some(FabricProblem::ToNvSwitches(to_nvswitches));
    }
    if errors().any(|error| ENDS.contains(&error.id)) {
        return Some(FabricProblem::EndedByVariable);
    }
    if errors().any(|error| error.id == Id::Memlock) {
        return Some(FabricProblem::NoMemory);
    }
    let not_used = not_used(plan);
    (!not_used.is_empty()).then_some(FabricProblem::SomeNotUsed(not_used))
}

fn asks_for_tcp(plan: &Plan) -> bool {
    plan.settings.iter().any(|setting| {
        setting.variable == network::VARIABLE
            && setting.outcome == SettingOutcome::User
            && setting.value.as_deref().is_some_and(|value| value.eq_ignore_ascii_case("Socket"))
    })
}

fn ends(prediction: &Prediction) -> bool {
    let fails = |ports: &[PortUse]| ports.iter().any(|port| matches!(port.gid, Some(GidUse::Fails(_))));
    matches!(prediction.bootstrap, Bootstrap::Fails(_))
        || matches!(prediction.fused, Fused::Fails(_))
        || match &prediction.transport {
            Transport::Verbs(ports) => fails(ports),
            Transport::Fails(_) => true,
            Transport::Plugin { .. } | Transport::Sockets { .. } => false,
        }
}

/// Returns the used ports that the errors name; an error that names none applies to all of them.
fn without_connection<'a>(plan: &Plan, errors: impl Iterator<Item = &'a Finding>) -> Vec<String> {
    let errors: Vec<&Finding> = errors.collect();
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

impl FabricProblem {
    /// Returns a clause for the headline, after the ports: `but they will not connect`.
    pub(super) fn clause(&self, plan: &Plan) -> String {
        let library = plan.library;
        match self {
            FabricProblem::AsksForTcp => format!("but {}=Socket asks for TCP", network::VARIABLE),
            FabricProblem::NotUsed if matches!(plan.fabric, Fabric::PluginOverInterfaces(_)) => {
                format!("but {library} will not load it")
            }
            FabricProblem::NotUsed => format!("but {library} will not use RDMA"),
            FabricProblem::Ends | FabricProblem::EndedByVariable => format!("but {library} will fail"),
            FabricProblem::NoConnection(ports) => match (is_all(plan, ports), ports.len()) {
                (true, 1) => "but it will not connect".to_owned(),
                (true, _) => "but they will not connect".to_owned(),
                (false, _) => format!("but {} will not connect", condensed(ports)),
            },
            FabricProblem::ToNvSwitches(ports) => match (is_all(plan, ports), ports.len()) {
                (true, 1) => "but it connects to the NVSwitches".to_owned(),
                (true, _) => "but they connect to the NVSwitches".to_owned(),
                (false, 1) => format!("but {} connects to the NVSwitches", condensed(ports)),
                (false, _) => format!("but {} connect to the NVSwitches", condensed(ports)),
            },
            FabricProblem::NoMemory => "but memory cannot be pinned".to_owned(),
            FabricProblem::SomeNotUsed(ports) => match is_all(plan, ports) {
                true => format!("but {library} will not use them"),
                false => format!("but {library} will not use {}", condensed(ports)),
            },
        }
    }

    /// Returns what happens to ports that NCCL tries, for use after their names: `and fail to connect`.
    pub(super) fn outcome(&self, plan: &Plan) -> Option<String> {
        Some(match self {
            FabricProblem::NoConnection(ports) | FabricProblem::ToNvSwitches(ports)
                if is_all(plan, ports) =>
            {
                "and fail to connect".to_owned()
            }
            FabricProblem::NoConnection(ports) | FabricProblem::ToNvSwitches(ports) => {
                format!("and fail to connect over {}", condensed(ports))
            }
            FabricProblem::EndedByVariable => "and fail".to_owned(),
            FabricProblem::NoMemory => "and fail to pin memory".to_owned(),
            FabricProblem::AsksForTcp
            | FabricProblem::NotUsed
            | FabricProblem::Ends
            | FabricProblem::SomeNotUsed(_) => return None,
        })
    }
}

fn is_all(plan: &Plan, ports: &[String]) -> bool {
    used(plan).count() == ports.len()
}
