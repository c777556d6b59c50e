//! Findings about libraries other than NCCL. [`crate::libraries`] finds what is wrong with their variables;
//! this module drops findings that repeat another one.

pub(crate) mod copies;
mod node_list;
mod releases;

use crate::finding::{Finding, Id, Source};
use crate::libraries::{LibraryFinding, WrongGid};
use crate::plan::{Decided, SettingOutcome};

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let of_libraries = decided.of_libraries.iter().filter(|found| !is_of_missing_gids(decided, found));
    let of_libraries = of_libraries.map(|found| &found.finding);
    let of_libraries = of_libraries.filter(|finding| !is_about_fills(decided, finding)).cloned();
    let image = || decided.facts.image.iter();
    let of_image = image().flat_map(copies::findings);
    let faults = image().flat_map(|image| releases::findings(decided, image));
    of_libraries.chain(node_list::finding(decided)).chain(of_image).chain(faults).collect()
}

/// Returns whether a library chooses a wrong index by itself, but no index is right, because a rail has no
/// GID of this container. This has its own error ([`super::gid`]).
fn is_of_missing_gids(decided: &Decided, found: &LibraryFinding) -> bool {
    let is_missing = |finding: &Finding| finding.id == Id::NoOwnGid;
    found.gid == Some(WrongGid::WithoutRemedy) && decided.findings.iter().any(is_missing)
}

/// Returns whether a finding is only about variables that rdma-init fills in of its own accord. It fills in only correct
/// values, so the cause is the fabric, which has its own findings, or a change since the container started
/// ([`super::gid_changed`]).
fn is_about_fills(decided: &Decided, finding: &Finding) -> bool {
    let fills = || decided.plan.settings.iter().filter(|setting| setting.outcome == SettingOutcome::Filled);
    let ours = || fills().filter(|setting| setting.source != Source::Configuration);
    let is_filled = |variable: &String| ours().any(|setting| setting.variable == *variable);
    !finding.about.variables.is_empty() && finding.about.variables.iter().all(is_filled)
}
