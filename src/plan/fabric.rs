//! What carries the job's traffic.

use serde::Serialize;

use super::devices::{Candidate, Reason, Verdict};
use super::interface::{self, Obstacle};
use super::{Context, ProfileChoice};
use crate::finding::{Finding, Id};
use crate::profiles::{self, Profile};
use crate::text::counted;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// NCCL's InfiniBand and RoCE transport over the used ports.
    Verbs,
    /// RDMA behind this network interface, without verbs.
    Interface(String),
    /// A net plugin over this number of HCAs.
    Plugin(usize),
    /// TCP, and why.
    None(String),
}

impl Fabric {
    pub fn is_there(&self) -> bool {
        !matches!(self, Fabric::None(_))
    }

    /// Whether programs register memory with the HCAs themselves.
    pub fn pins_memory(&self) -> bool {
        matches!(self, Fabric::Verbs | Fabric::Plugin(_))
    }
}

pub fn find(context: &Context, ports: &[Candidate]) -> Fabric {
    let used = ports.iter().filter(|port| port.is_used()).count();
    match context.profile.fabric.as_ref().unwrap_or(&profiles::Fabric::Verbs) {
        profiles::Fabric::Verbs if used > 0 => Fabric::Verbs,
        profiles::Fabric::Verbs => Fabric::None(why_none(context, ports)),
        profiles::Fabric::Interface(name) => match interface::obstacle(context.facts, name) {
            None => Fabric::Interface(name.clone()),
            Some(Obstacle::NotThere) => Fabric::None(format!("there is no interface {name}")),
            Some(obstacle) => Fabric::None(format!("the interface {name} {obstacle}")),
        },
        profiles::Fabric::Plugin if used > 0 => Fabric::Plugin(used),
        profiles::Fabric::Plugin => Fabric::None("no device for the net plugin is usable".to_owned()),
    }
}

/// Says that there is no RDMA device, or why none of them is used.
fn why_none(context: &Context, ports: &[Candidate]) -> String {
    let hidden = context.facts.unreadable.iter().find(|unreadable| unreadable.is_of_rdma());
    if let Some(hidden) = hidden.filter(|_| ports.is_empty()) {
        return format!("the RDMA devices cannot be seen ({} {})", hidden.path.display(), hidden.error);
    }
    if ports.is_empty() {
        return "there is no RDMA device in this container".to_owned();
    }
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for port in ports {
        if let Verdict::LeftOut(reason) = &port.verdict {
            let reason = reason.to_string();
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, names)) => names.push(port.name()),
                None => reasons.push((reason, vec![port.name()])),
            }
        }
    }
    let list: Vec<String> =
        reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", "))).collect();
    format!("no RDMA device here is used ({})", list.join("; "))
}

pub fn findings(
    context: &Context,
    fabric: &Fabric,
    ports: &[Candidate],
    choice: Option<&ProfileChoice>,
) -> Vec<Finding> {
    let profile = context.profile;
    let Fabric::None(why) = fabric else { return unexpected_hcas(fabric, ports, profile) };
    let all = |is: fn(&Reason) -> bool| {
        let mut reasons = ports.iter().filter_map(|port| match &port.verdict {
            Verdict::LeftOut(reason) => Some(reason),
            Verdict::Used => None,
        });
        !ports.is_empty() && reasons.all(is)
    };
    let turned_off = ports.iter().any(|port| matches!(port.verdict, Verdict::LeftOut(Reason::TurnedOff(_))));
    if let Some(setting) = context.user.ib_disabled().filter(|_| turned_off) {
        let message = format!(
            "This container has usable RDMA devices, but the job will run on TCP, because NCCL_IB_DISABLE={} ({}) turns verbs off.",
            setting.value, setting.origin
        );
        return vec![
            Finding::warning(Id::IbDisabled, message)
                .with_fix("Remove NCCL_IB_DISABLE, unless this is intended."),
        ];
    }
    // On a host with RDMA, sysfs shows the devices to containers without RDMA as well.
    if all(|reason| *reason == Reason::NotAllotted) {
        return vec![
            Finding::warning(Id::NotAllotted, "The host has RDMA devices, but none is allotted to this container: the job will run on TCP.")
                .with_fix("Request RDMA devices for the container. Kubernetes: the resource rdma/... or that of the platform. Docker: --device /dev/infiniband."),
        ];
    }
    let not_selected =
        ports.iter().any(|port| matches!(port.verdict, Verdict::LeftOut(Reason::NotInUsersList(_))));
    if let Some(setting) = context.user.get("NCCL_IB_HCA").filter(|_| not_selected) {
        let message = format!(
            "NCCL_IB_HCA={} ({}) leaves out every usable RDMA device: the job will run on TCP.",
            setting.value, setting.origin
        );
        return vec![Finding::error(Id::NoHcaSelected, message).with_fix("Remove or correct NCCL_IB_HCA.")];
    }
    let skipped = |port: &&Candidate| {
        matches!(port.verdict, Verdict::LeftOut(Reason::CarriesDefaultRoute { by_user: true, .. }))
    };
    let skipped: Vec<String> = ports.iter().filter(skipped).map(Candidate::name).collect();
    if !skipped.is_empty() {
        let message = format!(
            "default-route-hca = \"skip\" leaves out {}, and no other RDMA device is usable: the job will run on TCP.",
            skipped.join(", ")
        );
        return vec![
            Finding::error(Id::DefaultRouteHcaSkipped, message).with_fix(
                "Check why the other RDMA devices are missing, or set default-route-hca = \"use\".",
            ),
        ];
    }
    let consequence = match context.user.get("NCCL_NET") {
        Some(setting) if setting.value.eq_ignore_ascii_case("IB") => {
            "NCCL will end with an error, because NCCL_NET=IB allows no other network"
        }
        _ => "the job will run on TCP",
    };
    let finding = match choice {
        Some(choice) if choice.is_named() => Finding::error(
            Id::NoFabric,
            format!("Profile {} was asked for, but {why}: {consequence}.", choice.name),
        ),
        Some(choice) if matches!(profile.fabric, Some(profiles::Fabric::Interface(_))) => Finding::error(
            Id::NoFabric,
            format!(
                "Profile {} was chosen ({}), but {why}: {consequence}.",
                choice.name,
                choice.evidence.join(", ")
            ),
        ),
        _ if ports.is_empty() && choice.is_none() => return Vec::new(),
        _ => Finding::error(Id::NoUsableHca, format!("No RDMA device is usable: {consequence}.")),
    };
    // Each port then has a finding with a fix of its own.
    let explained = all(|reason| !matches!(reason, Reason::NotAllotted));
    vec![match &profile.hint {
        Some(hint) if !explained => finding.with_fix(hint.clone()),
        _ => finding,
    }]
}

fn unexpected_hcas(fabric: &Fabric, ports: &[Candidate], profile: &Profile) -> Vec<Finding> {
    let idle = |port: &&Candidate| matches!(port.verdict, Verdict::LeftOut(Reason::WithoutVerbs(_)));
    let usable = ports.iter().filter(idle).count();
    if !matches!(fabric, Fabric::Interface(_)) || usable == 0 {
        return Vec::new();
    }
    let message = format!(
        "Profile {} is for hosts without verbs, but this container has {}: NCCL will not use {}.",
        profile.name,
        counted(usable, "usable port"),
        if usable == 1 { "it" } else { "them" }
    );
    let fix = "Choose the profile for these NICs, or let rdma-init choose one (profile = \"auto\").";
    vec![Finding::warning(Id::UnexpectedHcas, message).with_fix(fix)]
}
