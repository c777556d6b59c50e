//! Facts that could not be read, as findings.

use std::path::Path;

use crate::facts::{Facts, Unreadable};
use crate::finding::{Finding, Id};
use crate::plan::User;

/// The most findings; the rest is only counted.
const SHOWN: usize = 5;

/// Returns the findings. `said` are the findings so far.
pub(super) fn findings(facts: &Facts, user: &User, said: &[Finding]) -> Vec<Finding> {
    // If `NCCL_CONF_FILE` names an unreadable file, that has its own finding.
    let is_told = said.iter().any(|finding| finding.id == Id::ConfFile);
    let named = user.get("NCCL_CONF_FILE").filter(|_| is_told).map(|setting| Path::new(&setting.value));
    let mut unreadable: Vec<&Unreadable> =
        facts.unreadable.iter().filter(|u| named != Some(u.path.as_path())).collect();
    // RDMA files come first, because they matter most.
    unreadable.sort_by_key(|u| !u.is_of_rdma());
    let mut findings: Vec<Finding> = unreadable
        .iter()
        .take(SHOWN)
        .map(|u| {
            let finding =
                Finding::warning(Id::Unreadable, format!("Cannot use {}: {}.", u.path.display(), u.error));
            match u.path.to_string_lossy().ends_with("nccl.conf") {
                true => finding
                    .with_fix("Make it a readable file of at most 256 KiB, or remove it: rdma-init does not know what it sets, and may fill in variables that override it."),
                false => finding,
            }
        })
        .collect();
    if unreadable.len() > SHOWN {
        findings.push(
            Finding::warning(
                Id::Unreadable,
                format!("{} more files could not be read.", unreadable.len() - SHOWN),
            )
            .with_fix("Check \"unreadable\" in `rdma-init inspect --json`."),
        );
    }
    findings
}
