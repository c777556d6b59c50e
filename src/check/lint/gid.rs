//! The GID that NCCL will take, where the user has a hand in it.

use super::{Subject, shown};
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::Port;
use crate::nccl::gid::{BadRange, FAMILY, Family, INDEX, RANGE, Range};
use crate::nccl::number::integer;
use crate::nccl::predict::{GidUse, PortUse};
use crate::nccl::version::{CHECKS_RANGE, SEARCHES_GIDS};
use crate::plan::{Finding, own_slots};
use crate::report::style::condensed;

/// A queue pair keeps eight bits of the index (`ibv_global_route`).
const LARGEST: i64 = 255;

pub fn findings(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(range(subject));
    findings.extend(too_large(subject));
    findings.extend(wrong(subject));
    findings
}

/// `NCCL_IB_ADDR_RANGE` that is none.
fn range(subject: &Subject) -> Option<Finding> {
    let setting = subject.of_verbs(RANGE)?;
    let family = match subject.user.get(FAMILY) {
        Some(family) if family.value == "AF_INET6" => Family::Inet6,
        _ => Family::Inet,
    };
    let version = subject.version();
    let why = match Range::parse(&setting.value, family).err()? {
        _ if version < SEARCHES_GIDS => return None,
        BadRange::NoSlash if version < CHECKS_RANGE => {
            return Some(
                Finding::error(
                    "addr-range",
                    format!("{} has no slash, on which {} crashes.", shown(setting), subject.nccl()),
                )
                .with_fix(format!("Write {RANGE}={}/24, with the length that fits.", setting.value)),
            );
        }
        BadRange::NoSlash => "it has no slash",
        BadRange::Address if family == Family::Inet && setting.value.contains(':') => {
            "it is of IPv6, and NCCL_IB_ADDR_FAMILY is not AF_INET6"
        }
        BadRange::Address if family == Family::Inet6 => {
            "it is no IPv6 address, and NCCL_IB_ADDR_FAMILY is AF_INET6"
        }
        BadRange::Address => "it is no address",
        BadRange::TooLong => "its length is more than an address has bits",
    };
    Some(
        Finding::warning("addr-range", format!("{} is ignored by NCCL: {why}.", shown(setting)))
            .with_fix(format!("Write it as {RANGE}=10.0.0.0/8; one range, without a list.")),
    )
}

/// An index that loses bits.
fn too_large(subject: &Subject) -> Option<Finding> {
    let setting = subject.of_verbs(INDEX)?;
    let index = integer(&setting.value, subject.version()).filter(|index| *index > LARGEST)?;
    Some(
        Finding::error(
            "gid-index",
            format!(
                "{} is out of range: a queue pair has eight bits for it, and would take slot {}.",
                shown(setting),
                index & LARGEST
            ),
        )
        .with_fix(format!("Remove {INDEX}, and the right one is filled in.")),
    )
}

/// Slots that hold no GID of ours.
fn wrong(subject: &Subject) -> Option<Finding> {
    // Where the plan decides, it has said what there is to say.
    let setting = subject.user.gid().filter(|_| subject.user.ib_disabled().is_none())?;
    let ports = subject.prediction()?.transport.ports()?;
    let mut fails = None;
    let mut wrong: Vec<(String, Vec<&str>)> = Vec::new();
    for used in ports {
        let what = match (&used.gid, find(subject, used)) {
            (Some(GidUse::Fails(why)), _) => {
                fails.get_or_insert(why);
                continue;
            }
            // Of a larger one has been said.
            (Some(GidUse::Slot { index, gid }), Some(port)) if *index <= LARGEST => {
                what_is_wrong(subject, port, *index, gid.as_ref())
            }
            _ => None,
        };
        let Some(what) = what else { continue };
        match wrong.iter_mut().find(|(known, _)| *known == what) {
            Some((_, names)) => names.push(&used.hca),
            None => wrong.push((what, vec![&used.hca])),
        }
    }
    let wrong: Vec<String> =
        wrong.iter().map(|(what, names)| format!("{} {what}", condensed(names))).collect();
    if let Some(why) = fails {
        let message = format!("With {}, {}'s search for a GID {why}.", shown(setting), subject.nccl());
        return Some(
            Finding::error("gid-search", message)
                .with_fix(format!("Remove {}, and the right index is filled in.", setting.variable)),
        );
    }
    if wrong.is_empty() {
        return None;
    }
    let is_index = setting.variable == INDEX;
    let leads = if is_index { "is wrong here" } else { "leads NCCL to a wrong GID" };
    let fix = format!(
        "Remove {}, and the right {} filled in.",
        setting.variable,
        if is_index { "one is" } else { "index is" }
    );
    Some(
        Finding::warning(
            "gid-index",
            format!("{} {leads}: {}. RoCE will not connect there.", shown(setting), wrong.join("; ")),
        )
        .with_fix(fix),
    )
}

fn find<'a>(subject: &Subject<'a>, used: &PortUse) -> Option<&'a Port> {
    let hca = subject.facts.rdma.iter().find(|hca| hca.name == used.hca)?;
    hca.ports.iter().find(|port| port.number == used.port)
}

fn what_is_wrong(subject: &Subject, port: &Port, index: i64, gid: Option<&Gid>) -> Option<String> {
    let right = own_slots(subject.facts, port);
    if right.iter().any(|gid| i64::from(gid.index) == index) {
        return None;
    }
    let there = match gid {
        None => "is empty".to_owned(),
        Some(gid) if gid.is_link_local() => "is link-local".to_owned(),
        Some(gid) if gid.kind == GidType::IbOrRoceV1 => "is RoCE v1".to_owned(),
        Some(gid) => format!("is {}, not an address of this container", gid.address()),
    };
    let instead = right.first().map(|gid| format!(", slot {} is right", gid.index)).unwrap_or_default();
    Some(format!("slot {index} {there}{instead}"))
}
