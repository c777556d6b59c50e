//! Distances that NCCL ignores.

use super::{Subject, conf_file, shown};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::level;

/// The variables that `ncclGetLevel` reads (`src/graph/paths.cc`).
const VARIABLES: &[&str] = &["NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"];

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    VARIABLES
        .iter()
        .filter_map(|variable| subject.user.get(variable))
        .filter(|setting| !setting.value.is_empty() && !conf_file::is_cause(setting))
        .filter(|setting| level::parse(&setting.value, subject.version()).is_none())
        .map(|setting| {
            let known = level::names(subject.version());
            let upper = setting.value.trim().to_uppercase();
            let fix = match known.contains(&upper.as_str()) {
                true => format!("Write {}={upper}.", setting.variable),
                false => "Write one of these, or remove it.".to_owned(),
            };
            let message = format!(
                "{} is ignored by {}: the levels are {} (in capitals), or 0 to 4.",
                shown(setting),
                subject.nccl(),
                known.join(", ")
            );
            Finding::warning(Id::Level, message).about_variables([&setting.variable]).with_fix(fix)
        })
        .collect()
}
