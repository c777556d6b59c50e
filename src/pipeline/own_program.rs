//! Findings as this start itself runs: one without conf files, or in a container whose engine started it as its init: the
//! image has no rdma-init of its own, and is to stay as it is.

use std::path::Path;

use crate::cli::usage::path_of_engine;
use crate::config::Config;
use crate::finding::{Finding, Id};
use crate::plan::Plan;
use crate::state::StateDir;

/// If this start writes no conf file at all, no process misses a variable in it.
pub(super) fn amend(plan: &mut Plan, config: &Config) {
    if config.write_nccl_conf == Some(false) && config.state_dir == StateDir::Nowhere {
        plan.findings.retain(|finding| finding.id != Id::NcclConfValue);
    }
}

/// Fits the fix if NCCL's conf file cannot be written. `state` is a file with the same lines that
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
