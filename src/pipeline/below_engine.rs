//! Fixes for a container whose engine started this program as its init: the image has no rdma-init of its own, and is
//! to stay as it is.

use std::path::Path;

use crate::cli::usage::path_of_engine;
use crate::finding::{Finding, Id};

/// Names the program that is there in the fixes that are about it.
pub(super) fn amend(findings: &mut [Finding]) {
    let Some(own) = path_of_engine() else { return };
    for finding in findings.iter_mut().filter(|finding| finding.id == Id::NcclConfValue) {
        finding.fix = Some(format!(
            "Start processes that enter the container with {own} exec, or let a shell source /run/rdma-init/env.sh."
        ));
    }
}

/// Does the same for the finding that NCCL's conf file cannot be written. `state` is a file with the same lines that
/// all users may read.
pub(super) fn amend_not_written(finding: &mut Finding, state: Option<&Path>) {
    let Some(own) = path_of_engine() else { return };
    let fix = match state {
        Some(state) => format!(
            "Start the container with NCCL_CONF_FILE={} (NCCL 2.23 and later), or start these processes with {own} exec.",
            state.display()
        ),
        None => format!("Start them with {own} exec."),
    };
    finding.fix = Some(fix);
}
