//! Writes the decision in one line.

use crate::fabric::SkipReason;
use crate::facts::rdma::LinkLayer;
use crate::plan::NoRdmaReason;
use crate::plan::{Fabric, Plan, PortVerdict};
use crate::text::{condensed, counted};

/// Returns a line such as `RoCE, 8 of 9 ports, profile generic-roce (usable HCAs of link layer Ethernet)`.
pub(crate) fn headline(plan: &Plan) -> String {
    headline_because(plan, true)
}

/// Returns the same line without the contents of the user's values.
pub(crate) fn public_headline(plan: &Plan) -> String {
    headline_because(plan, false)
}

fn headline_because(plan: &Plan, with_reason: bool) -> String {
    let ports = || ports_used(&plan.ports);
    let against = || plan.outcome().clause(plan).map(|clause| format!(", {clause}")).unwrap_or_default();
    let fabric = match &plan.fabric {
        Fabric::Verbs => format!("{}, {}{}", transports(&plan.ports), ports(), against()),
        Fabric::Interface(name) => format!("RDMA behind the interface {name}, without verbs"),
        Fabric::PluginOverInterfaces(names) => {
            format!("a net plugin over {}{}", condensed(names), against())
        }
        Fabric::Plugin(_) => format!("RDMA through a net plugin, {}{}", ports(), against()),
        // The lines of the ports say why.
        Fabric::None(why) if !plan.ports.is_empty() => match turned_off_by(why, with_reason) {
            Some(by) => format!("no RDMA, because {by} turns it off, {}", ports()),
            None => format!("no RDMA, {}", ports()),
        },
        Fabric::None(_) if !with_reason => "no RDMA".to_owned(),
        Fabric::None(why) => format!("no RDMA: {why}"),
    };
    let fabric = match plan.has_env_plugin() {
        true => format!("{fabric}, unless {}'s env plugin decides otherwise", plan.library),
        false => fabric,
    };
    match &plan.profile {
        None if plan.fabric.is_there() => format!("{fabric}, no profile, so rdma-init chooses nothing"),
        None => fabric,
        Some(choice) if choice.is_named() => format!("{fabric}, profile {} (by name)", choice.name),
        Some(choice) => format!("{fabric}, profile {} ({})", choice.name, choice.signs()),
    }
}

/// Returns the user's variable that turns RDMA off, with its value only if others may see it.
fn turned_off_by(why: &NoRdmaReason, with_value: bool) -> Option<String> {
    let NoRdmaReason::NoneUsed(reasons) = why else { return None };
    let by = reasons.iter().find_map(|(reason, _)| match reason {
        SkipReason::TurnedOff { by } => Some(by.as_str()),
        _ => None,
    })?;
    let name = by.split('=').next().unwrap_or_default();
    Some(if with_value { by } else { name }.to_owned())
}

fn transports(ports: &[PortVerdict]) -> &'static str {
    let used = |link_layer| ports.iter().any(|port| port.used && port.link_layer == link_layer);
    match (used(LinkLayer::InfiniBand), used(LinkLayer::Ethernet)) {
        (true, true) => "InfiniBand and RoCE",
        (true, false) => "InfiniBand",
        (false, _) => "RoCE",
    }
}

fn ports_used(ports: &[PortVerdict]) -> String {
    let all = counted(ports.len(), "port");
    match ports.iter().filter(|port| port.used).count() {
        used if used == ports.len() => all,
        used => format!("{used} of {all}"),
    }
}
