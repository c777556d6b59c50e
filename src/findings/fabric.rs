//! Whether there is a fabric for the job, and if not, why.

use crate::fabric::{Candidate, SkipReason, Verdict};
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::mnnvl::{Mnnvl, mnnvl};
use crate::libraries::nccl::predict::{Bootstrap, Transport};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::{Context, Fabric, Forecast, NoRdmaReason, Plan, evidence, over_tcp};
use crate::profiles::{self, Profile};
use crate::text::{condensed, counted};

pub(super) fn findings(context: &Context, plan: &Plan, ports: &[Candidate]) -> Vec<Finding> {
    let profile = &context.profile;
    let choice = plan.profile.as_ref();
    let library = plan.library;
    let Fabric::None(why) = &plan.fabric else { return unexpected_hcas(plan, ports, profile) };
    let all = |is: fn(&SkipReason) -> bool| {
        let mut reasons = ports.iter().filter_map(|port| match &port.verdict {
            Verdict::LeftOut(reason) => Some(reason),
            Verdict::Used => None,
        });
        !ports.is_empty() && reasons.all(is)
    };
    // `namespace` reports it.
    if matches!(why, NoRdmaReason::OtherNamespace(_)) {
        return Vec::new();
    }
    let turned_off =
        ports.iter().any(|port| matches!(port.verdict, Verdict::LeftOut(SkipReason::TurnedOff { .. })));
    if let Some(setting) = context.user.ib_disabled().filter(|_| turned_off) {
        let unless = match plan.has_env_plugin() {
            true => format!(", unless {library}'s env plugin decides otherwise"),
            false => String::new(),
        };
        let message = format!(
            "This container has usable RDMA devices, but the job will run on TCP, because NCCL_IB_DISABLE={} ({}) turns verbs off{unless}.",
            setting.value, setting.origin
        );
        return vec![
            Finding::warning(Id::IbDisabled, message)
                .about_variables(["NCCL_IB_DISABLE"])
                .with_fix("Remove NCCL_IB_DISABLE, unless this is intended."),
        ];
    }
    // On a host with RDMA, sysfs shows the devices to containers without RDMA as well.
    if all(|reason| *reason == SkipReason::NotAllotted) {
        return vec![
            Finding::warning(Id::NotAllotted, "The host has RDMA devices, but none is allotted to this container: the job will run on TCP.")
                .about_ports(ports.iter().map(Candidate::name))
                .with_fix(match &profile.hint {
                    Some(hint) => format!("{hint} Docker: --device /dev/infiniband."),
                    None => "Request RDMA devices for the container. Kubernetes: the resource rdma/... or that of the platform. Docker: --device /dev/infiniband.".to_owned(),
                }),
        ];
    }
    // `values::hcas` reports it.
    if context.user.get(LIST).is_some() && ports.iter().any(Candidate::is_not_named) {
        return Vec::new();
    }
    let skipped = |port: &&Candidate| {
        matches!(port.verdict, Verdict::LeftOut(SkipReason::CarriesDefaultRoute { by: Some(_), .. }))
    };
    let skipped: Vec<String> = ports.iter().filter(skipped).map(Candidate::name).collect();
    if !skipped.is_empty() {
        let message = format!(
            "default-route-hca = \"skip\" excludes {}, and no other RDMA device is usable: the job will run on TCP.",
            condensed(&skipped)
        );
        return vec![
            Finding::error(Id::DefaultRouteHcaSkipped, message).about_ports(skipped).with_fix(
                "Check why the other RDMA devices are missing, or set default-route-hca = \"use\".",
            ),
        ];
    }
    // Such a machine has no RDMA network, just like a machine without any RDMA device.
    if choice.is_none() && all(|reason| matches!(reason, SkipReason::NvSwitch(_) | SkipReason::OfGaudi)) {
        return Vec::from_iter(no_rdma(context, plan));
    }
    let is_forced = |setting: &&UserSetting| setting.value.eq_ignore_ascii_case("IB");
    let forced = context.user.get("NCCL_NET").filter(is_forced);
    // A profile for other HCAs leaves those of this host to NCCL's own transport.
    let is_of_others =
        |port: &Candidate| matches!(port.verdict, Verdict::LeftOut(SkipReason::NotOfPlugin { .. }));
    let consequence = match forced {
        Some(_) => format!("{library} will fail, because NCCL_NET=IB allows no other network"),
        None if ports.iter().any(is_of_others) => {
            format!("{library}'s own transport decides by itself about the HCAs here")
        }
        None => "the job will run on TCP".to_owned(),
    };
    let finding = match choice {
        Some(choice) if choice.is_named() => Finding::error(
            Id::NoFabric,
            format!("Profile {} was requested, but {why}: {consequence}.", choice.name),
        ),
        Some(choice) if matches!(profile.fabric, Some(profiles::Fabric::Interface(_))) => Finding::error(
            Id::NoFabric,
            format!("Profile {} was chosen ({}), but {why}: {consequence}.", choice.name, choice.signs()),
        ),
        _ if ports.is_empty() && choice.is_none() => return Vec::from_iter(no_rdma(context, plan)),
        _ => Finding::error(Id::NoUsableHca, format!("No RDMA device is usable: {consequence}.")),
    };
    let finding = finding
        .about_variables(forced.map(|setting| &setting.variable))
        .about_ports(ports.iter().map(Candidate::name))
        .about_interfaces(why.interface());
    // In this case, each port has a finding with its own fix.
    let explained = all(|reason| !matches!(reason, SkipReason::NotAllotted));
    let is_for_others = choice.is_some_and(|choice| choice.is_named()) && ports.iter().any(is_of_others);
    let finding = if is_for_others { finding.with_fix(CHOOSE_PROFILE) } else { finding };
    vec![match &profile.hint {
        Some(hint) if !explained => finding.with_fix(hint.clone()),
        _ => finding,
    }]
}

const CHOOSE_PROFILE: &str =
    "Choose the profile for these HCAs, or let rdma-init choose one (profile = \"auto\").";

/// Returns whether the user keeps NCCL from all RDMA devices.
pub(super) fn asks_for_tcp(context: &Context) -> bool {
    let is_socket = |setting: &UserSetting| setting.value.eq_ignore_ascii_case("Socket");
    context.user.ib_disabled().is_some() || context.user.get("NCCL_NET").is_some_and(is_socket)
}

/// Reports a job with several nodes and GPUs that uses TCP, although the user has not asked for that.
fn no_rdma(context: &Context, plan: &Plan) -> Option<Finding> {
    if over_tcp::nodes(context.facts) != Some(over_tcp::Nodes::Several)
        || matches!(plan.fabric, Fabric::None(NoRdmaReason::Hidden { .. }))
        || context.user.ib_disabled().is_some()
        || context.user.get("NCCL_NET").is_some()
    {
        return None;
    }
    // If NCCL fails, another finding reports it.
    let is_tcp = |Forecast { prediction, .. }: &Forecast| {
        matches!(prediction.transport, Transport::Sockets { .. })
            && !matches!(prediction.bootstrap, Bootstrap::Fails(_))
    };
    if !plan.forecasts.iter().all(is_tcp) {
        return None;
    }
    let nodes = context.facts.platform.nodes?.count;
    let device = match plan.fabric {
        Fabric::None(NoRdmaReason::NoDevice) => "RDMA device",
        _ => "RDMA device that connects to a network",
    };
    let start = format!("This job has {nodes} nodes with GPUs, and this container has no {device}");
    let request = request(context.facts);
    if uses_nvlink(context.facts, plan) {
        let message = format!(
            "{start}: NCCL will use NVLink between the nodes of one NVLink domain, and TCP between others, which is many times slower. Only NVML knows which nodes are in one domain: see Fabric in the output of nvidia-smi -q."
        );
        let fix =
            format!("If all nodes of the job are in one NVLink domain, do nothing. Otherwise: {request}");
        return Some(Finding::info(Id::NoRdma, message).with_fix(fix));
    }
    let library = plan.library;
    let message =
        format!("{start}: {library} will silently run on TCP between the nodes, which is many times slower.");
    Some(Finding::warning(Id::NoRdma, message).with_fix(format!(
        "{request} If these nodes have no RDMA, set NCCL_NET=Socket: it requests TCP and silences this warning."
    )))
}

/// Returns how to request RDMA devices. On the firmware of Alibaba Cloud, these are the ways of ACS (documentation of the
/// high-performance network) and of ACK (documentation of eRDMA with Arena), which nothing else tells apart.
fn request(facts: &Facts) -> &'static str {
    match profiles::maker_of(&facts.dmi) {
        Some("Alibaba Cloud") => {
            "Request the node's RDMA devices for the container. ACS: the Pod's label alibabacloud.com/hpn-type: \"rdma\". ACK: the resource aliyun/erdma (arena submit --device=aliyun/erdma=1). Docker: --device /dev/infiniband."
        }
        _ => {
            "Request the node's RDMA devices for the container. Kubernetes: the resource rdma/... or that of the platform. Docker: --device /dev/infiniband."
        }
    }
}

/// Returns whether NCCL looks for GPUs on other nodes that it can reach over NVLink, and has what it needs to
/// use them.
fn uses_nvlink(facts: &Facts, plan: &Plan) -> bool {
    let version = plan.nccl.unwrap_or(NEWEST);
    facts.imex.usable().next().is_some()
        && matches!(mnnvl(|name| plan.value(name), version), Mnnvl::Wanted(_))
}

/// Reports a profile that the user has named, although it is for HCAs of another kind.
pub(super) fn of_others(facts: &Facts, plan: &Plan, profile: &Profile) -> Option<Finding> {
    plan.profile.as_ref().filter(|choice| choice.is_named())?;
    let is_of_others = |hca: &Hca| evidence::is_for_others(profile, hca);
    if facts.rdma.is_empty() || !facts.rdma.iter().all(is_of_others) {
        return None;
    }
    let wanted = profile.evidence.iter().filter_map(|condition| condition.hca.as_ref());
    let mut wanted: Vec<String> = wanted.map(evidence::of_hca).collect();
    wanted.dedup();
    let message = format!(
        "You have named profile {}, and no HCA here is one of its own ({}).",
        profile.name,
        wanted.join("; ")
    );
    let ports = facts
        .rdma
        .iter()
        .flat_map(|hca| hca.ports.iter().map(|port| format!("{}:{}", hca.name, port.number)));
    Some(Finding::warning(Id::UnexpectedHcas, message).about_ports(ports).with_fix(CHOOSE_PROFILE))
}

fn unexpected_hcas(plan: &Plan, ports: &[Candidate], profile: &Profile) -> Vec<Finding> {
    let idle = |port: &&Candidate| matches!(port.verdict, Verdict::LeftOut(SkipReason::WithoutVerbs { .. }));
    let idle: Vec<String> = ports.iter().filter(idle).map(Candidate::name).collect();
    if !matches!(plan.fabric, Fabric::Interface(_)) || idle.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "Profile {} is for hosts without verbs, but this container has {}: {} will not use {}.",
        profile.name,
        counted(idle.len(), "usable port"),
        plan.library,
        if idle.len() == 1 { "it" } else { "them" }
    );
    let fix = "Choose the profile for these NICs, or let rdma-init choose one (profile = \"auto\").";
    vec![Finding::warning(Id::UnexpectedHcas, message).about_ports(idle).with_fix(fix)]
}
