//! Facts that could not be read, as findings.

use crate::facts::Unreadable;
use crate::finding::{Finding, Id};

/// More than this many are summed up.
const SHOWN: usize = 5;

/// `said` are the findings that there are already.
pub fn findings(unreadable: &[Unreadable], said: &[Finding]) -> Vec<Finding> {
    // A conf file that the user has named wrongly has a finding of its own.
    let is_said = |u: &Unreadable| {
        let path = u.path.to_string_lossy();
        said.iter().any(|finding| finding.id == Id::ConfFile && finding.message.contains(&*path))
    };
    let mut unreadable: Vec<&Unreadable> = unreadable.iter().filter(|u| !is_said(u)).collect();
    // What matters most comes first.
    unreadable.sort_by_key(|u| !u.is_of_rdma());
    let mut findings: Vec<Finding> = unreadable
        .iter()
        .take(SHOWN)
        .map(|u| {
            let finding =
                Finding::warning(Id::Unreadable, format!("Cannot use {}: {}.", u.path.display(), u.error));
            match u.path.to_string_lossy().ends_with("nccl.conf") {
                true => finding
                    .with_fix("What it sets is not known, and variables that are filled in win over it."),
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
            .with_fix("See \"unreadable\" in `rdma-init inspect --json`."),
        );
    }
    findings
}
