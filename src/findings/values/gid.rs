//! The GID that NCCL will use, if a user's variable decides on it.

use super::{Decided, shown};
use crate::fabric::{Candidate, own_slots};
use crate::facts::rdma::{LinkLayer, Port};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id, Severity, Source};
use crate::findings::slots::{self, LARGEST, Slots};
use crate::libraries::nccl::gid::{BadRange, FAMILY, Family, INDEX, RANGE, Range};
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::predict::{PortUse, Transport};
use crate::libraries::nccl::version::{CHECKS_RANGE, READS_GIDS_FIRST, SEARCHES_GIDS};
use crate::plan::gid;
use crate::plan::gid::findings::GIVE_ADDRESSES;
use crate::text::condensed;

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(range(decided));
    findings.extend(too_large(decided));
    findings.extend(wrong(decided));
    findings.extend(searches_since(decided));
    findings.extend(on_infiniband(decided));
    findings
}

/// Reports a value of `NCCL_IB_ADDR_RANGE` that is not a range, or one that NCCL truncates.
fn range(decided: &Decided) -> Option<Finding> {
    let setting = decided.verbs_setting(RANGE)?;
    let (library, version) = (decided.library(), decided.version());
    if version < SEARCHES_GIDS {
        return None;
    }
    let family = match decided.user.get(FAMILY) {
        Some(family) if family.value == "AF_INET6" => Family::Inet6,
        _ => Family::Inet,
    };
    let (why, fix, family) = match Range::parse(&setting.value, family) {
        Ok(_) if has_plain_length(&setting.value) => return None,
        Ok(range) => {
            let message = format!("{}: {library} reads {range} and drops the rest.", shown(setting));
            let fix =
                format!("Write one range that holds the addresses of all HCAs; {library} knows no list.");
            return Some(Finding::warning(Id::AddrRange, message).about_variables([RANGE]).with_fix(fix));
        }
        Err(BadRange::NoSlash) if version < CHECKS_RANGE => {
            let message = format!("{} has no slash, and {} crashes on that.", shown(setting), decided.nccl());
            let fix = format!(
                "Write {RANGE}={}/24, with the prefix length that fits, or remove it.",
                setting.value
            );
            return Some(Finding::error(Id::AddrRange, message).about_variables([RANGE]).with_fix(fix));
        }
        Err(BadRange::NoSlash) => (
            "it has no slash",
            format!("Write {RANGE}={}/24, with the prefix length that fits, or remove it.", setting.value),
            None,
        ),
        Err(BadRange::Address) if family == Family::Inet && setting.value.contains(':') => (
            "it is an IPv6 range, and NCCL_IB_ADDR_FAMILY is not AF_INET6",
            format!("If the HCAs have IPv6 addresses, set {FAMILY}=AF_INET6; otherwise remove {RANGE}."),
            Some(FAMILY),
        ),
        Err(BadRange::Address) if family == Family::Inet6 => (
            "it is not an IPv6 range, and NCCL_IB_ADDR_FAMILY is AF_INET6",
            format!("Write one IPv6 range, as in {RANGE}=fd00::/8, or remove it."),
            Some(FAMILY),
        ),
        Err(BadRange::Address) => (
            "it does not begin with an address",
            format!("Write one range, as in {RANGE}=10.0.0.0/8, or remove it."),
            None,
        ),
        Err(BadRange::TooLong) => (
            "its prefix length is larger than the number of bits of an address",
            format!("Write one range, as in {RANGE}=10.0.0.0/8, or remove it."),
            None,
        ),
    };
    let message = format!("{} is ignored by {library}: {why}.", shown(setting));
    let finding = Finding::warning(Id::AddrRange, message).about_variables([RANGE]);
    Some(finding.about_variables(family).with_fix(fix))
}

/// Returns whether the text after the slash is nothing but a number.
fn has_plain_length(range: &str) -> bool {
    let length = range.split_once('/').map_or("", |(_, length)| length);
    !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reports an index that needs more bits than a queue pair stores.
fn too_large(decided: &Decided) -> Option<Finding> {
    let setting = decided.verbs_setting(INDEX)?;
    let index = integer(&setting.value, decided.version()).filter(|index| *index > LARGEST)?;
    Some(
        Finding::error(
            Id::GidIndex,
            format!(
                "{} is out of range: a queue pair keeps only eight bits of it, and would use index {}.",
                shown(setting),
                index & LARGEST
            ),
        )
        .about_variables([INDEX])
        .with_fix(fix(decided, setting)),
    )
}

/// Reports what NCCL will end on if that is not a GID that the plan would choose. The cause may be a variable
/// of the user, or NCCL itself because the configuration keeps rdma-init from deciding.
fn wrong(decided: &Decided) -> Option<Finding> {
    if decided.user.ib_disabled().is_some() {
        return None;
    }
    let setting = match decided.user.gid() {
        Some(setting) => Some(setting),
        None if is_kept_out(decided) => None,
        // If the plan decides on the GID, it reports its own findings.
        None => return None,
    };
    let transport = &decided.prediction()?.transport;
    let ports = match transport.ports() {
        Some(ports) => ports,
        None if matches!(transport, Transport::Sockets { .. }) => return beyond(decided, setting?),
        None => return None,
    };
    // A port without a right GID has its own finding if no variable of the user decides.
    let is_judged = |used: &&PortUse| {
        setting.is_some() || find(decided, &used.hca, used.port).is_some_and(|port| has_right(decided, port))
    };
    let ports: Vec<PortUse> = ports.iter().filter(is_judged).cloned().collect();
    let Slots { fails, wrong, severity, ports: ports_of_wrong } = slots::of(decided.facts, &ports);
    // If rdma-init itself set this value at the start, it was right then; `gid_changed` reports the change.
    if setting.is_some_and(|setting| setting.origin == Source::AtStart) && !wrong.is_empty() {
        return None;
    }
    let variable = setting.map_or(INDEX, |setting| &setting.variable);
    let fix = match setting {
        Some(setting) => fix(decided, setting),
        None if is_in_keep(decided) => {
            format!("Remove {INDEX} from keep, and rdma-init sets it; or set it yourself to the right index.")
        }
        None => format!("Set {INDEX} to that index, or let a profile decide (profile = auto)."),
    };
    if let Some(why) = fails {
        // `range` reports values that make NCCL crash.
        if range(decided).is_some_and(|finding| finding.severity == Severity::Error) {
            return None;
        }
        let with = setting.map_or_else(|| without(decided), |setting| format!("With {}", shown(setting)));
        let message = format!("{with}, {}'s search for a GID {why}.", decided.nccl());
        return Some(Finding::error(Id::GidSearch, message).about_variables([variable]).with_fix(fix));
    }
    if wrong.is_empty() {
        return None;
    }
    let library = decided.library();
    let wrong = wrong.join("; ");
    let message = match setting {
        Some(setting) if severity == Severity::Info => {
            format!("With {}, {library} uses the node's GIDs: {wrong}.", shown(setting))
        }
        None if severity == Severity::Info => {
            format!("{}, {library} uses the node's GIDs: {wrong}.", without(decided))
        }
        Some(setting) if setting.variable == INDEX => format!("{} is wrong here: {wrong}.", shown(setting)),
        Some(setting) => format!("{} does not make {library} find the right GID: {wrong}.", shown(setting)),
        None => format!("{}, {} finds a wrong GID: {wrong}.", without(decided), decided.nccl()),
    };
    let finding = Finding::warning(Id::GidIndex, message).about_variables([variable]);
    Some(Finding { severity, ..finding.about_ports(ports_of_wrong) }.with_fix(fix))
}

/// Returns whether the configuration keeps rdma-init from deciding on the GID.
fn is_kept_out(decided: &Decided) -> bool {
    is_in_keep(decided) || decided.plan.profile.is_none()
}

fn is_in_keep(decided: &Decided) -> bool {
    decided.options.keep.contains(INDEX) && decided.user.get(INDEX).is_none()
}

fn without(decided: &Decided) -> String {
    match is_in_keep(decided) {
        true => format!("Without {INDEX}, which keep leaves unset"),
        false => format!("Without {INDEX}, which no profile sets"),
    }
}

fn has_right(decided: &Decided, port: &Port) -> bool {
    !own_slots(decided.facts, port).is_empty()
}

/// Reports a negative index if NCCL's release is unknown: 2.21 and later then search for the index, but
/// earlier releases use the number as the index.
fn searches_since(decided: &Decided) -> Option<Finding> {
    let setting = decided.verbs_setting(INDEX).filter(|_| decided.user.version().is_none())?;
    let is_negative = integer(&setting.value, decided.version()).is_some_and(|index| index < 0);
    let mut used = decided.plan.ports.iter().filter(|port| port.used);
    if !is_negative || !used.any(|port| port.link_layer == LinkLayer::Ethernet) {
        return None;
    }
    let library = decided.library();
    let message = format!(
        "{}: {library} 2.21 and later then search for the right index, but an earlier {library} takes it as an index, which does not exist, so RoCE will not connect. The image does not show which release the job has.",
        shown(setting)
    );
    Some(Finding::info(Id::GidIndex, message).about_variables([INDEX]).with_fix(fix(decided, setting)))
}

/// What crusoecloud/solutions-library sets in `torchtitan-llama3_1-kubernetes-pytorchjob`, beside the topology
/// file of an InfiniBand machine.
const PUBLISHED_ON_INFINIBAND: &str = "3";

/// Reports an index on InfiniBand, as web pages about RoCE recommend it. There, NCCL connects by LID
/// (`ncclIbRtrQp`), or since 2.22 by index 0 or by the FLID's index (`ncclIbGetGidIndex`,
/// `src/transport/net_ib.cc`).
fn on_infiniband(decided: &Decided) -> Option<Finding> {
    let setting = decided.verbs_setting(INDEX)?;
    integer(&setting.value, decided.version()).filter(|index| (1..=LARGEST).contains(index))?;
    let mut used = decided.plan.ports.iter().filter(|port| port.used).peekable();
    used.peek()?;
    if !used.all(|port| port.link_layer == LinkLayer::InfiniBand) {
        return None;
    }
    let publisher = if setting.value == PUBLISHED_ON_INFINIBAND {
        " (Crusoe's example for torchtitan sets it on InfiniBand.)"
    } else {
        ""
    };
    let message = format!(
        "{} has no effect: the index is for RoCE, and {} does not use it on InfiniBand.{publisher}",
        shown(setting),
        decided.library()
    );
    Some(Finding::info(Id::GidIndex, message).about_variables([INDEX]).with_fix(format!("Remove {INDEX}.")))
}

/// Returns the fix if the user's own decision selects a wrong GID.
fn fix(decided: &Decided, setting: &UserSetting) -> String {
    let variable = &setting.variable;
    if !decided.used_roce().any(|rail| has_right(decided, rail.port)) {
        // The plan gives the same advice if the user sets no variable.
        return format!("{GIVE_ADDRESSES}; no index here is right.");
    }
    if gid::is_right_without(decided, variable) {
        return format!("Remove {variable}, and the right index is used.");
    }
    if let Some(index) = gid::find_right_index(decided) {
        return format!("Set {INDEX}={index}, the right index.");
    }
    let is_kept = |name: &&str| decided.options.keep.contains(*name);
    let kept: Vec<&str> = [INDEX, RANGE, FAMILY].into_iter().filter(is_kept).collect();
    let decides = match kept.is_empty() {
        false => format!(" and take {} out of keep, and rdma-init decides", kept.join(" and ")),
        true if decided.plan.profile.is_none() => " and let a profile decide (profile = auto)".to_owned(),
        true => ", and rdma-init decides".to_owned(),
    };
    format!("Remove {variable}{decides}: no index is right on every HCA.")
}

/// Reports an index beyond the end of a table: new releases then skip all HCAs.
fn beyond(decided: &Decided, setting: &UserSetting) -> Option<Finding> {
    let index = integer(&setting.value, decided.version()).filter(|_| setting.variable == INDEX)?;
    let is_beyond = |rail: &&Candidate| index >= rail.port.gids.size.into();
    let beyond: Vec<&Candidate> = decided.used_roce().filter(is_beyond).collect();
    let names: Vec<&str> = beyond.iter().map(|rail| rail.hca.name.as_str()).collect();
    if names.is_empty() || decided.version() < READS_GIDS_FIRST {
        return None;
    }
    let message = format!(
        "{}: there is no GID index {index} on {}, and {} then gives up on all HCAs: the job will run on TCP.",
        shown(setting),
        condensed(&names),
        decided.nccl()
    );
    let finding = Finding::error(Id::GidIndex, message).about_variables([INDEX]);
    let finding = finding.about_ports(beyond.iter().map(|rail| rail.name()));
    Some(finding.with_fix(fix(decided, setting)))
}

fn find<'a>(decided: &Decided<'a>, hca: &str, port: u32) -> Option<&'a Port> {
    Some(decided.facts.port(hca, port)?.1)
}
