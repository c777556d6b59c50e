//! What is wrong with libraries beside NCCL, and with their variables: a file for each kind of remark.

pub(crate) mod copies;
mod meeting;
mod node_address;
mod own_verbs;
mod ucx;
mod vllm;

use crate::finding::Finding;
use crate::libraries::LibraryRemark;
use crate::libraries::own_verbs::{self as of_own_verbs, What};
use crate::plan::Decided;
use crate::plan::remark::Remark as OfPlan;

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let remarks = decided.of_libraries.iter().filter(|remark| !is_of_missing_gids(decided, remark));
    let remarks = remarks.map(|remark| of_remark(decided, remark));
    let remarks = remarks.filter(|finding| !is_about_fills(decided, finding));
    let of_image = decided.facts.image.iter().flat_map(copies::findings);
    remarks.chain(vllm::node_list(decided)).chain(of_image).collect()
}

/// Whether a library chooses a wrong slot by itself, and no index is right, because a rail has no GID of this
/// container: that has an error of its own ([`super::gid`]).
fn is_of_missing_gids(decided: &Decided, remark: &LibraryRemark) -> bool {
    let is_missing = |remark: &OfPlan| matches!(remark, OfPlan::WithoutOwnGid(_));
    matches!(
        remark,
        LibraryRemark::OwnVerbs(of_own_verbs::Remark { what: What::OwnSlot { right: None, .. }, .. })
    ) && decided.remarks.iter().any(is_missing)
}

/// Whether a finding is about variables of ours alone. They are right, or they are not filled in: what
/// is wrong then is wrong with the fabric, which has findings of its own, or has changed since the container
/// started ([`super::gid_changed`]).
fn is_about_fills(decided: &Decided, finding: &Finding) -> bool {
    let is_filled = |variable: &String| decided.plan.filled().any(|(name, _)| name == variable);
    !finding.about.variables.is_empty() && finding.about.variables.iter().all(is_filled)
}

/// The finding for what deciding has shown about a library: each remark is told.
fn of_remark(decided: &Decided, remark: &LibraryRemark) -> Finding {
    match remark {
        LibraryRemark::Meeting(remark) => meeting::finding(decided, remark),
        LibraryRemark::Ucx(remark) => ucx::finding(decided, remark),
        LibraryRemark::OwnVerbs(remark) => own_verbs::finding(decided, remark),
        LibraryRemark::Vllm(remark) => vllm::finding(decided, remark),
        LibraryRemark::NodeAddress(remark) => node_address::finding(decided, remark),
    }
}

/// A variable as it is set, and where: `GLOO_SOCKET_IFNAME=^lo (environment)`.
fn shown(decided: &Decided, variable: &str) -> String {
    match decided.user.get(variable) {
        Some(setting) => super::values::shown(setting),
        None => format!("{variable}={}", decided.plan.value(variable).unwrap_or_default()),
    }
}
