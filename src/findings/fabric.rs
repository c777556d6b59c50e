//! Whether there is a fabric for the job, and why not.

use crate::fabric::{Candidate, Reason, Verdict};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::plan::{Context, Fabric, ProfileChoice};
use crate::profiles::{self, Profile};
use crate::text::counted;

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
    let turned_off =
        ports.iter().any(|port| matches!(port.verdict, Verdict::LeftOut(Reason::TurnedOff { .. })));
    if let Some(setting) = context.user.ib_disabled().filter(|_| turned_off) {
        let message = format!(
            "This container has usable RDMA devices, but the job will run on TCP, because NCCL_IB_DISABLE={} ({}) turns verbs off.",
            setting.value, setting.origin
        );
        return vec![
            Finding::warning(Id::IbDisabled, message)
                .about_variables(["NCCL_IB_DISABLE"])
                .with_fix("Remove NCCL_IB_DISABLE, unless this is intended."),
        ];
    }
    // On a host with RDMA, sysfs shows the devices to containers without RDMA as well.
    if all(|reason| *reason == Reason::NotAllotted) {
        return vec![
            Finding::warning(Id::NotAllotted, "The host has RDMA devices, but none is allotted to this container: the job will run on TCP.")
                .about_ports(ports.iter().map(Candidate::name))
                .with_fix("Request RDMA devices for the container. Kubernetes: the resource rdma/... or that of the platform. Docker: --device /dev/infiniband."),
        ];
    }
    let not_selected =
        ports.iter().any(|port| matches!(port.verdict, Verdict::LeftOut(Reason::NotNamed { .. })));
    if let Some(setting) = context.user.get("NCCL_IB_HCA").filter(|_| not_selected) {
        let message = format!(
            "NCCL_IB_HCA={} ({}) leaves out every usable RDMA device: the job will run on TCP.",
            setting.value, setting.origin
        );
        let finding = Finding::error(Id::NoHcaSelected, message).about_variables(["NCCL_IB_HCA"]);
        return vec![finding.with_fix("Remove or correct NCCL_IB_HCA.")];
    }
    let skipped = |port: &&Candidate| {
        matches!(port.verdict, Verdict::LeftOut(Reason::CarriesDefaultRoute { by: Some(_), .. }))
    };
    let skipped: Vec<String> = ports.iter().filter(skipped).map(Candidate::name).collect();
    if !skipped.is_empty() {
        let message = format!(
            "default-route-hca = \"skip\" leaves out {}, and no other RDMA device is usable: the job will run on TCP.",
            skipped.join(", ")
        );
        return vec![
            Finding::error(Id::DefaultRouteHcaSkipped, message).about_ports(skipped).with_fix(
                "Check why the other RDMA devices are missing, or set default-route-hca = \"use\".",
            ),
        ];
    }
    let is_forced = |setting: &&UserSetting| setting.value.eq_ignore_ascii_case("IB");
    let forced = context.user.get("NCCL_NET").filter(is_forced);
    let consequence = match forced {
        Some(_) => "NCCL will end with an error, because NCCL_NET=IB allows no other network",
        None => "the job will run on TCP",
    };
    let finding = match choice {
        Some(choice) if choice.is_named() => Finding::error(
            Id::NoFabric,
            format!("Profile {} was asked for, but {why}: {consequence}.", choice.name),
        ),
        Some(choice) if matches!(profile.fabric, Some(profiles::Fabric::Interface(_))) => Finding::error(
            Id::NoFabric,
            format!("Profile {} was chosen ({}), but {why}: {consequence}.", choice.name, choice.signs()),
        ),
        _ if ports.is_empty() && choice.is_none() => return Vec::new(),
        _ => Finding::error(Id::NoUsableHca, format!("No RDMA device is usable: {consequence}.")),
    };
    let finding = finding
        .about_variables(forced.map(|setting| &setting.variable))
        .about_ports(ports.iter().map(Candidate::name))
        .about_interfaces(why.interface());
    // Each port then has a finding with a fix of its own.
    let explained = all(|reason| !matches!(reason, Reason::NotAllotted));
    vec![match &profile.hint {
        Some(hint) if !explained => finding.with_fix(hint.clone()),
        _ => finding,
    }]
}

fn unexpected_hcas(fabric: &Fabric, ports: &[Candidate], profile: &Profile) -> Vec<Finding> {
    let idle = |port: &&Candidate| matches!(port.verdict, Verdict::LeftOut(Reason::WithoutVerbs { .. }));
    let idle: Vec<String> = ports.iter().filter(idle).map(Candidate::name).collect();
    if !matches!(fabric, Fabric::Interface(_)) || idle.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "Profile {} is for hosts without verbs, but this container has {}: NCCL will not use {}.",
        profile.name,
        counted(idle.len(), "usable port"),
        if idle.len() == 1 { "it" } else { "them" }
    );
    let fix = "Choose the profile for these NICs, or let rdma-init choose one (profile = \"auto\").";
    vec![Finding::warning(Id::UnexpectedHcas, message).about_ports(idle).with_fix(fix)]
}
