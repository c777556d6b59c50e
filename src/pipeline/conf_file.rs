//! `NCCL_CONF_FILE` as an earlier start has advised it: it names the file that this start has yet to write.

use std::path::Path;

use crate::config::Config;
use crate::facts::Facts;
use crate::finding::{Finding, Id, Phase};
use crate::log::Log;
use crate::plan::Plan;
use crate::report;
use crate::state::NCCL_CONF;
use crate::sys::user;

/// The finding that NCCL cannot read the file that the variable names, until this start has written it.
pub(super) struct Expected<'a> {
    file: &'a Path,
    finding: Finding,
}

impl<'a> Expected<'a> {
    /// Takes the finding out of the plan, if the file may be one that this start writes.
    pub(super) fn take(plan: &mut Plan, facts: &'a Facts, config: &Config) -> Option<Expected<'a>> {
        let file = Path::new(&facts.settings.get("NCCL_CONF_FILE")?.value);
        if !config.state_dir.folders(user::effective()).any(|folder| file == folder.join(NCCL_CONF)) {
            return None;
        }
        let place = plan.findings.iter().position(|finding| finding.id == Id::ConfFile)?;
        Some(Expected { file, finding: plan.findings.remove(place) })
    }

    /// Reports the finding, if the file is still not there.
    pub(super) fn tell(self, log: &Log) {
        if !self.file.exists() {
            report::start::finding(log, &self.finding, Phase::Start);
        }
    }
}
