//! Reports that GIDs have changed since rdma-init chose them for NCCL and other libraries at the container's
//! start. One finding covers all of them, because one change of the tables causes all of it.

use super::slots::{self, Slots};
use crate::fabric::gid::{OwnAddresses, RailGids, common_index, of_one_family};
use crate::facts::Facts;
use crate::finding::{Finding, Id, Severity, Source};
use crate::libraries::nccl::gid::INDEX;
use crate::libraries::nccl::predict::PortUse;
use crate::libraries::{LibraryFinding, WrongGid};
use crate::plan::{Context, Decided};

/// A variable from the start that is wrong now.
struct Changed {
    variable: String,
    /// Clauses that say what the library uses with this value.
    wrong: Vec<String>,
    /// An error if no other node can be reached with this value.
    severity: Severity,
    ports: Vec<String>,
    /// The variable, with its value, that makes a new process use the right indexes.
    instead: Option<(&'static str, u32)>,
}

pub(super) fn finding(decided: &Decided) -> Option<Finding> {
    // If the interfaces cannot be listed, it is unknown which addresses belong to this container.
    if decided.facts.net.interfaces.is_empty() {
        return None;
    }
    let of_libraries = decided.of_libraries.iter().filter_map(|found| of_library(decided, found));
    let all: Vec<Changed> = of_nccl(decided).into_iter().chain(of_libraries).collect();
    let set = |changed: &Changed| {
        let value = decided.user.get(&changed.variable).map(|setting| setting.value.as_str());
        format!("{}={}", changed.variable, value.unwrap_or_default())
    };
    let (is, variables) = match all.as_slice() {
        [] => return None,
        [one] => ("is", set(one)),
        several => ("are", several.iter().map(set).collect::<Vec<String>>().join(" and ")),
    };
    let wrong: Vec<&str> = all.iter().flat_map(|changed| &changed.wrong).map(String::as_str).collect();
    let message = format!(
        "The GIDs have changed since this container started: {variables}, which rdma-init filled in then, {is} wrong now: {}.",
        wrong.join("; ")
    );
    let instead: Option<Vec<String>> =
        all.iter().map(|changed| changed.instead.map(|(name, index)| format!("{name}={index}"))).collect();
    let fix = match instead {
        Some(instead) => format!(
            "Restart the container: rdma-init then decides again. To start a process before that, set {} for it; a running process keeps its values.",
            instead.join(" and ")
        ),
        None => "Check the links and the addresses of the RoCE interfaces, and restart the container: rdma-init then decides again.".to_owned(),
    };
    let severity = all.iter().map(|changed| changed.severity).fold(Severity::Warning, Severity::max);
    let mut ports: Vec<String> = all.iter().flat_map(|changed| changed.ports.clone()).collect();
    ports.dedup();
    let variables = all.iter().map(|changed| changed.variable.as_str());
    let finding = Finding::warning(Id::GidChanged, message).about_variables(variables).about_ports(ports);
    Some(Finding { severity, ..finding }.with_fix(fix))
}

fn is_of_start(decided: &Decided, variable: &str) -> bool {
    decided.user.get(variable).is_some_and(|setting| setting.origin == Source::AtStart)
}

fn of_nccl(decided: &Decided) -> Option<Changed> {
    let Decided { context: Context { facts, user, .. }, plan, .. } = decided;
    let setting = user.gid().filter(|setting| is_of_start(decided, &setting.variable))?;
    // The forecast for the job's NCCL; if its release is unknown, for the newest one.
    let used = plan.forecasts.last()?.prediction.transport.ports()?;
    let Slots { wrong, severity, ports, .. } = slots::of(facts, used);
    let (variable, instead) = (setting.variable.clone(), right_for(facts, used).map(|index| (INDEX, index)));
    (!wrong.is_empty()).then_some(Changed { variable, wrong, severity, ports, instead })
}

/// Returns the index that is right on all of these ports.
fn right_for(facts: &Facts, used: &[PortUse]) -> Option<u32> {
    let roce = used.iter().filter(|used| used.gid.is_some());
    let own = OwnAddresses::of(facts);
    let rail = |used: &PortUse| {
        let (_, port) = facts.port(&used.hca, used.port)?;
        Some(RailGids { name: used.name(), port, slots: own.slots(port) })
    };
    common_index(&of_one_family(&roce.map(rail).collect::<Option<Vec<RailGids>>>()?))
}

fn of_library(decided: &Decided, found: &LibraryFinding) -> Option<Changed> {
    let Some(WrongGid::OfVariable { variable, what, port, instead }) = &found.gid else { return None };
    is_of_start(decided, variable).then(|| Changed {
        variable: (*variable).to_owned(),
        wrong: vec![what.clone()],
        severity: Severity::Warning,
        ports: vec![port.clone()],
        instead: *instead,
    })
}
