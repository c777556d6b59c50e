//! `NCCL_IB_HCA`.

use super::interfaces::user_values;
use super::{Decided, conf_file, lists, shown};
use crate::fabric::{Candidate, SkipReason, claims};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::{LIST, visible};
use crate::libraries::nccl::interfaces;
use crate::libraries::nccl::list::{Entry, Pattern};
use crate::libraries::nccl::version::TAKES_32_HCAS;
use crate::plan::{Fabric, PortVerdict};
use crate::text::{condensed, counted};

/// What may be wrong with a list that selects no HCA. The finding about a stale name says itself what follows.
const WRONG_LISTS: &[(Id, &str)] = &[
    (Id::StaleHca, ""),
    (Id::ListSeparator, NONE_SELECTED),
    (Id::RepeatedSign, NONE_SELECTED),
    (Id::ConfLine, NONE_SELECTED),
];
const NONE_SELECTED: &str = " So no HCA is selected, and the job will run on TCP.";

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    // With any other fabric, NCCL does not read the variable.
    if !matches!(decided.plan.fabric, Fabric::Verbs | Fabric::None(_)) || decided.user.ib_disabled().is_some()
    {
        return Vec::new();
    }
    let Some((pattern, setting)) = decided.user.hcas() else { return Vec::new() };
    let visible: Vec<&str> = decided
        .facts
        .rdma
        .iter()
        .filter(|hca| hca.ports.iter().any(|port| visible(hca, port)))
        .map(|hca| hca.name.as_str())
        .collect();
    let mut findings: Vec<Finding> = Vec::new();
    let library = decided.library();
    let is_as_meant = !conf_file::is_cause(setting);
    if is_as_meant {
        findings.extend(lists::separators(library, &pattern, setting));
        findings.extend(lists::repeated_signs(library, &pattern, setting));
    }
    let is_readable = is_as_meant && findings.is_empty();
    findings.extend(lists::prefixes(&pattern, setting, &visible));
    let fix = match decided.version() < TAKES_32_HCAS {
        true => format!("Use {library} 2.19 or later, which reads 32 names and takes 32 HCAs."),
        false => format!("Name a prefix that the HCAs share; no {library} takes more than 32 HCAs."),
    };
    findings.extend(lists::dropped(decided, &pattern, setting, &fix));
    if is_readable {
        findings.extend(stale(decided, &pattern));
    }
    findings.extend(foreign(decided, setting));
    // A finding above explains why HCAs are idle.
    if findings.is_empty() {
        findings.extend(idle(decided, setting));
    }
    findings.extend(none_selected(decided, setting));
    findings
}

/// Reports a list that excludes every port.
fn none_selected(decided: &Decided, setting: &UserSetting) -> Option<Finding> {
    let is_none = matches!(decided.plan.fabric, Fabric::None(_));
    (is_none && decided.ports.iter().any(Candidate::is_not_named)).then(|| {
        let message =
            format!("{} excludes every usable RDMA device: the job will run on TCP.", shown(setting));
        Finding::error(Id::NoHcaSelected, message)
            .about_variables([LIST])
            .explained_by(WRONG_LISTS)
            .with_fix(format!("Remove or correct {LIST}."))
    })
}

/// Reports HCAs of other Pods that the user's list takes.
fn foreign(decided: &Decided, setting: &UserSetting) -> Option<Finding> {
    let is_used = |name: &str| decided.plan.ports.iter().any(|port| port.used && port.full_name() == name);
    let foreign = claims::of_other_pods(decided.facts).into_iter().filter(|(name, _)| is_used(name));
    let (names, reasons): (Vec<String>, Vec<SkipReason>) = foreign.unzip();
    let given = match reasons.first()? {
        SkipReason::NotClaimed => "the Pod's resource claims hold other HCAs",
        _ => "Kubernetes has given other HCAs to the Pod",
    };
    let message = format!(
        "{} takes {}, but {given}: another Pod may hold {}.",
        shown(setting),
        condensed(&names),
        if names.len() == 1 { "it" } else { "them" }
    );
    Some(
        Finding::warning(Id::ForeignHcas, message)
            .about_variables([&setting.variable])
            .about_ports(names)
            .with_fix(Id::ForeignHcas.remedy().replace('`', "")),
    )
}

/// Reports HCAs that the job could use, but that the user's list excludes.
fn idle(decided: &Decided, setting: &UserSetting) -> Option<Finding> {
    let ports = &decided.plan.ports;
    let left_idle: Vec<&PortVerdict> = ports.iter().filter(|port| port.left_idle).collect();
    let idle: Vec<&str> = left_idle.iter().map(|port| port.hca.as_str()).collect();
    let used = ports.iter().filter(|port| port.used).count();
    // If the list selects no HCA, `no-hca-selected` reports it.
    if idle.is_empty() || used == 0 {
        return None;
    }
    let gpus = decided.facts.gpu.count.filter(|count| *count > 0).map(|count| count as usize);
    // If each GPU has its own HCA, the others may be for storage.
    if gpus.is_some_and(|gpus| used >= gpus) {
        return None;
    }
    let of_gpus = gpus.map(|gpus| format!(", for {}", counted(gpus, "GPU"))).unwrap_or_default();
    let message = format!(
        "{}: the job uses {} of {} usable ports{of_gpus}, and leaves {} idle.",
        shown(setting),
        used,
        used + idle.len(),
        condensed(&idle)
    );
    let fix = "Remove NCCL_IB_HCA: rdma-init then fills in all of them. Keep it if the others are for something else.";
    let finding = match gpus {
        Some(_) => Finding::warning(Id::IdleHcas, message).with_fix(fix),
        // Without the number of GPUs, it is unknown whether these are too few.
        None => Finding::info(Id::IdleHcas, message),
    };
    let names = left_idle.iter().map(|port| port.full_name());
    Some(finding.about_variables([&setting.variable]).about_ports(names))
}

/// Returns whether NCCL fails before it looks for HCAs.
fn ends_at_bootstrap(decided: &Decided) -> bool {
    let net = &decided.facts.net;
    !net.interfaces.is_empty() && interfaces::first(net, user_values(decided), decided.version()).is_err()
}

/// Reports names in the list that match no HCA here.
fn stale(decided: &Decided, pattern: &Pattern) -> Option<Finding> {
    let rdma = &decided.facts.rdma;
    let setting = decided.user.get("NCCL_IB_HCA")?;
    let is_here = |entry: &Entry| {
        rdma.iter()
            .any(|hca| hca.ports.iter().any(|port| pattern.matches(entry, &hca.name, Some(port.number))))
    };
    let missing: Vec<String> =
        pattern.entries.iter().filter(|entry| !is_here(entry)).map(Entry::to_string).collect();
    if missing.is_empty() {
        return None;
    }
    let here: Vec<&str> = rdma.iter().map(|hca| hca.name.as_str()).collect();
    let here = if here.is_empty() { "no HCA".to_owned() } else { condensed(&here) };
    let library = decided.library();
    let consequence = match (pattern.exclude, pattern.entries.len() > missing.len()) {
        (true, _) => "so this excludes nothing".to_owned(),
        (false, true) => format!("{library} runs without them"),
        (false, false) if ends_at_bootstrap(decided) => format!("{library} would find none"),
        (false, false) => format!("{library} finds none and silently falls back to TCP"),
    };
    let fix = match (pattern.exclude, rdma.is_empty()) {
        (true, _) => "Correct the names in NCCL_IB_HCA.",
        (false, true) => "Remove NCCL_IB_HCA, or give the container its RDMA devices.",
        (false, false) => "Remove NCCL_IB_HCA: rdma-init then fills in the usable HCAs.",
    };
    Some(
        Finding::warning(
            Id::StaleHca,
            format!(
                "{} names {}, which this container does not have (it has {here}); {consequence}.",
                shown(setting),
                condensed(&missing)
            ),
        )
        .about_variables([&setting.variable])
        .with_fix(fix),
    )
}
