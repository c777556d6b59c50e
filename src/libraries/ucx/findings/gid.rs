//! Findings about the GIDs that UCX selects.

use super::super::alone::{Lost, lost};
use super::super::index::{self, GidIndex};
use super::super::mend::wrong_rail;
use super::super::release::{HAS_LOCAL_SUBNET, HAS_SUBNETS, all};
use super::super::subnets::{Filter, read_bool};
use super::super::taken::{taken, without_gid};
use super::super::{GID_INDEX, LOCAL_SUBNET, SUBNETS, slot_of};
use crate::fabric::gid::{common_index, of_one_family, rails};
use crate::finding::{Finding, Id};
use crate::libraries::{LibraryContext, LibraryFinding, WrongGid};

/// The consequence of a GID that is not this container's; the worst is last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    /// UCX finds no route to the GID's address and uses TCP.
    GoesOverTcp,
    /// UCX skips the port.
    PassesOver,
    /// Connections fail.
    Fails,
    /// UCX finds no route to the GID's address, and it has no TCP.
    HasNothing,
}

pub(super) fn finding(subject: &LibraryContext) -> Option<LibraryFinding> {
    let index = subject.value(GID_INDEX).map(index::read);
    if index == Some(None) {
        let fix = format!("Remove {GID_INDEX}, and rdma-init fills it in if it is needed.");
        return Some(no_such_value(subject, GID_INDEX, "a number or auto").with_fix(fix).into());
    }
    let of_subnets = |id: Id, what: String| {
        let fix = format!("Remove {SUBNETS}, and rdma-init fills in what is right here.");
        subject.warning(id, SUBNETS, what).with_fix(fix)
    };
    let releases = all(subject);
    let mut is_filtered = false;
    if let Some(value) = subject.value(SUBNETS)
        && let Some(newest) = releases.last().copied().filter(|release| *release >= HAS_SUBNETS)
    {
        match Filter::read(value) {
            Err(entry) => {
                let what =
                    format!("\"{entry}\" is not a subnet such as 10.0.0.0/24 or fd00::/64, so UCX fails.");
                return Some(of_subnets(Id::LibraryValue, what).into());
            }
            Ok(Filter::All) => {}
            Ok(_) if matches!(index, Some(Some(GidIndex::Slot(_)))) => {
                let what = format!("{} is also set, and UCX fails if both are.", subject.shown(GID_INDEX));
                let finding = of_subnets(Id::LibraryValue, what).about_variables([GID_INDEX]);
                return Some(
                    finding.with_fix("Remove both, and rdma-init fills in what is right here.").into(),
                );
            }
            Ok(_) => {
                is_filtered = true;
                if let Some(port) = without_gid(subject, newest) {
                    let what = format!("no GID of {port} is in these subnets, so UCX fails.");
                    let finding = of_subnets(Id::LibraryGid, what).about_ports([&port]);
                    let what = format!("they leave UCX no GID on {port}");
                    let gid = WrongGid::OfVariable { variable: SUBNETS, what, port, instead: None };
                    return Some(LibraryFinding { finding, gid: Some(gid) });
                }
            }
        }
    }
    let chooses = |name: &&str| match *name {
        GID_INDEX => matches!(index, Some(Some(GidIndex::Slot(_)))),
        _ => is_filtered,
    };
    let is_set = |name: &&str| subject.value(name).is_some();
    let names = [GID_INDEX, SUBNETS];
    let set = names.into_iter().find(chooses).or_else(|| names.into_iter().find(is_set));
    let wrong = releases.into_iter().filter_map(|release| {
        let taken = taken(subject, release)?;
        let wrong = wrong_rail(&taken)?.clone();
        let is_passed_over = taken.passed_over.contains(&wrong);
        let then = match lost(subject, &taken, release) {
            _ if is_passed_over => Then::PassesOver,
            Some(Lost::Gid { .. }) if taken.tcp.is_empty() => Then::HasNothing,
            Some(Lost::Gid { .. }) => Then::GoesOverTcp,
            _ => Then::Fails,
        };
        Some((then, wrong))
    });
    let (then, port) = wrong.max_by_key(|(then, _)| *then)?;
    let slot = port.slot?;
    let slot = slot_of(&port.name, slot.index, slot.address);
    Some(wrong_gid(subject, set, port.name, &slot, then))
}

/// Returns the finding that UCX selects a GID entry that is not this container's, because of a variable or on
/// its own.
fn wrong_gid(
    subject: &LibraryContext,
    set: Option<&'static str>,
    port: String,
    slot: &str,
    then: Then,
) -> LibraryFinding {
    let (takes, follows) = match then {
        Then::Fails => ("takes", "its connections over RoCE fail or time out"),
        Then::GoesOverTcp => ("takes", "it finds no route there, and uses TCP"),
        Then::PassesOver => ("looks at", "it skips the port"),
        Then::HasNothing => {
            ("takes", "it finds no route there and has no TCP, so NIXL fails with a backend error")
        }
    };
    let what = format!("UCX {takes} {slot}");
    let (because, fix) = match set {
        Some(variable) => (
            format!("With {},", subject.shown(variable)),
            format!("Remove {variable}, and rdma-init fills in what is right here."),
        ),
        None => (
            "No single index is right for all HCAs, so".to_owned(),
            "Use UCX 1.18 or later, which can choose by the subnet, or give the HCAs of the job a common GID index.".to_owned(),
        ),
    };
    let message = format!("{because} {what}: {follows}.");
    let finding =
        Finding::warning(Id::LibraryGid, message).about_variables(set).about_ports([&port]).with_fix(fix);
    let gid = set.map(|variable| {
        // UCX would fail with both an index and subnets.
        let right = || common_index(&of_one_family(&rails(subject.facts, subject.rails.ports)));
        let instead = if variable == GID_INDEX { right() } else { None };
        WrongGid::OfVariable { variable, what, port, instead: instead.map(|right| (GID_INDEX, right)) }
    });
    LibraryFinding { finding, gid }
}

pub(super) fn local_subnet(subject: &LibraryContext) -> Option<Finding> {
    let is_read = all(subject).last().is_some_and(|newest| *newest >= HAS_LOCAL_SUBNET);
    let value = subject.value(LOCAL_SUBNET).filter(|_| is_read)?;
    let fix = format!("Write y or n, or remove {LOCAL_SUBNET}.");
    read_bool(value).is_none().then(|| no_such_value(subject, LOCAL_SUBNET, "y or n").with_fix(fix))
}

fn no_such_value(subject: &LibraryContext, variable: &str, takes: &str) -> Finding {
    subject.warning(Id::LibraryValue, variable, format!("UCX accepts {takes} and fails on anything else."))
}
