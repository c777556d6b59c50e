//! Fixes that name this program, as this start itself runs: by its path if the container's PATH does not lead to it, and
//! for a container whose engine started it as its init: the image has no rdma-init of its own, and is to stay as it is.

use std::path::Path;

use crate::cli::usage::{own_name, path_of_engine};
use crate::config::Config;
use crate::finding::{Finding, Id};
use crate::findings::nccl_conf::fix;
use crate::plan::Plan;
use crate::state::StateDir;

/// Names the program as it is there in the fixes that are about it. If this start writes no conf file at all, no process
/// misses a variable in it.
pub(super) fn amend(plan: &mut Plan, config: &Config) {
    let is_of_conf = |finding: &Finding| finding.id == Id::NcclConfValue;
    if config.write_nccl_conf == Some(false) && config.state_dir == StateDir::Nowhere {
        plan.findings.retain(|finding| !is_of_conf(finding));
    }
    let mut findings = std::mem::take(&mut plan.findings);
    for finding in findings.iter_mut().filter(|finding| is_of_conf(finding)) {
        finding.fix = finding.about.variables.first().map(|name| fix(plan, name, &own_name()));
    }
    plan.findings = findings;
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
