//! Facts that could not be read, as findings.

use crate::facts::Unreadable;
use crate::plan::Finding;
use crate::sorted;

/// More than this many are summed up.
const SHOWN: usize = 5;

/// `said` are the findings that were made before.
pub fn findings(unreadable: &[Unreadable], said: &[Finding]) -> Vec<Finding> {
    // A conf file that the user has named wrongly has a finding of its own.
    let is_said = |u: &Unreadable| {
        let path = u.path.to_string_lossy();
        said.iter().any(|finding| finding.id == "conf-file" && finding.message.contains(&*path))
    };
    let mut unreadable: Vec<&Unreadable> = unreadable.iter().filter(|u| !is_said(u)).collect();
    // What matters most comes first.
    sorted::by_key(&mut unreadable, |u| !u.is_of_rdma());
    let mut findings: Vec<Finding> = unreadable
        .iter()
        .take(SHOWN)
        .map(|u| {
            let finding =
                Finding::warning("unreadable", format!("Cannot use {}: {}.", u.path.display(), u.error));
            match u.path.to_string_lossy().ends_with("nccl.conf") {
                true => finding
                    .with_fix("Make the file readable, or remove it: rdma-init does not know what it sets, and may fill in variables that win over it."),
                false => finding,
            }
        })
        .collect();
    if unreadable.len() > SHOWN {
        findings.push(
            Finding::warning(
                "unreadable",
                format!("{} more files could not be read.", unreadable.len() - SHOWN),
            )
            .with_fix("See \"unreadable\" in `rdma-init inspect --json`."),
        );
    }
    findings
}
