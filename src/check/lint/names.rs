//! Names of variables that NCCL does not know.

use super::{Subject, shown};
use crate::facts::settings::UserSetting;
use crate::nccl::variables;
use crate::plan::Finding;

/// Set for others than NCCL: PyTorch, builds, plugins, images.
const OTHERS: &[&str] = &[
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_AVOID_RECORD_STREAMS",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING",
    "NCCL_HOME",
    "NCCL_IBEXT_DISABLE",
    "NCCL_INCLUDE_DIR",
    "NCCL_LIB_DIR",
    "NCCL_PLUGIN_P2P",
    "NCCL_PXN_DISABLE",
    "NCCL_ROOT",
    "NCCL_ROOT_DIR",
    "NCCL_TRACE_BUFFER_SIZE",
    "NCCL_TUNER_CONFIG_PATH",
    "NCCL_VERSION",
];

/// What plugins' own variables begin with.
const OTHERS_PREFIXES: &[&str] =
    &["NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_SHARP_", "NCCL_SHIMNET_", "NCCL_TESTS_", "NCCL_UCX_"];

pub fn findings(subject: &Subject) -> Vec<Finding> {
    subject
        .user
        .effective()
        .filter(|setting| setting.variable.starts_with("NCCL_") && !is_of_others(&setting.variable))
        .filter_map(|setting| match variables::find(&setting.variable) {
            None => Some(unknown(setting)),
            Some(variable) => other_release(subject, setting, variable),
        })
        .collect()
}

fn is_of_others(name: &str) -> bool {
    (OTHERS.contains(&name) && variables::find(name).is_none())
        || OTHERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn unknown(setting: &UserSetting) -> Finding {
    match variables::nearest(&setting.variable) {
        Some(meant) => Finding::warning(
            "misspelt-variable",
            format!("{}: no NCCL reads a variable of this name; was {meant} meant?", shown(setting)),
        )
        .with_fix(format!("Write it as {meant}, or remove it.")),
        None => Finding::info(
            "unknown-variable",
            format!("{}: no NCCL up to 2.32 reads it; a net plugin may.", shown(setting)),
        ),
    }
}

fn other_release(subject: &Subject, setting: &UserSetting, variable: variables::Variable) -> Option<Finding> {
    let version = subject.user.version()?;
    // Later patches of a release series may have gained it.
    if variable.is_known_to(version) {
        return None;
    }
    let (when, fix) = match (variable.since, variable.until) {
        (Some(since), _) if version < since => (
            format!("does not know it; NCCL {since} and later do"),
            format!("Remove {}, or use such an NCCL.", setting.variable),
        ),
        (_, Some(until)) => (
            format!("does not know it any more; NCCL {until} was the last that did"),
            format!("Remove {}.", setting.variable),
        ),
        _ => return None,
    };
    Some(
        Finding::warning("variable-of-other-release", format!("{}: NCCL {version} {when}.", shown(setting)))
            .with_fix(fix),
    )
}
