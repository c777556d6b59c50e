//! Variable names that NCCL does not know.

use super::{Decided, shown};
use crate::facts::environment::is_variable_name;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::variables;
use crate::libraries::nccl::version::KINDS;
use crate::libraries::{known, of_variable, rccl};
use crate::text::{condensed_to, shortened};

/// Variables for other programs than NCCL: PyTorch, builds, plugins, images.
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

/// The prefixes of plugins' own variables.
const OTHERS_PREFIXES: &[&str] =
    &["NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_", "NCCL_SHARP_", "NCCL_SHIMNET_", "NCCL_TESTS_", "NCCL_UCX_"];

/// Old names and their new names. (The thresholds of 2.4 have no new names: since then, NCCL decides with a
/// model of the topology.)
const SUCCESSORS: &[(&str, &str)] = &[
    ("NCCL_CHECKS_DISABLE", "NCCL_CHECK_POINTERS"),
    ("NCCL_GRAPH", "NCCL_GRAPH_FILE"),
    ("NCCL_IB_CUDA_SUPPORT", "NCCL_NET_GDR_LEVEL"),
    ("NCCL_IB_GDR_LEVEL", "NCCL_NET_GDR_LEVEL"),
    ("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS"),
    ("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS"),
    ("NCCL_MNNVL", "NCCL_MNNVL_ENABLE"),
    ("NCCL_THREAD_THRESHOLD", "NCCL_THREAD_THRESHOLDS"),
    ("NCCL_WORK_FIFO_DEPTH", "NCCL_WORK_FIFO_BYTES"),
];

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    decided
        .user
        .effective()
        .filter(|setting| setting.variable.starts_with("NCCL_") && !is_of_others(&setting.variable))
        .filter_map(|setting| match variables::find(&setting.variable) {
            None => Some(unknown(decided, setting)),
            Some(variable) => other_release(decided, setting, variable),
        })
        .chain(decided.user.effective().filter_map(of_rccl))
        .chain(decided.user.effective().filter_map(of_libraries))
        .chain(odd(decided))
        .collect()
}

/// Reports a typo in the name of one of RCCL's own variables. An unknown name that resembles none of them is
/// not a finding, because rdma-init does not know all variables that RCCL reads.
fn of_rccl(setting: &UserSetting) -> Option<Finding> {
    let name = setting.variable.as_str();
    if !name.starts_with("RCCL_") || rccl::knows(name) {
        return None;
    }
    let meant = rccl::nearest(name)?;
    let message = format!("{}: no RCCL is known to read it; did you mean {meant}?", shown(setting));
    Some(
        Finding::warning(Id::MisspeltVariable, message)
            .about_variables([name, meant])
            .with_fix(format!("Write it as {meant}, or remove it.")),
    )
}

/// Reports a typo in the name of a variable for a library other than NCCL.
fn of_libraries(setting: &UserSetting) -> Option<Finding> {
    let name = setting.variable.as_str();
    let meant = known::meant(name)?;
    let reader = of_variable(meant)?.title;
    let message = format!("{}: {reader} does not read it; did you mean {meant}?", shown(setting));
    Some(
        Finding::warning(Id::MisspeltVariable, message)
            .about_variables([name, meant])
            .with_fix(format!("Write it as {meant}, or remove it.")),
    )
}

/// The most names in a message.
const SHOWN: usize = 5;

/// Reports names that neither a shell nor a file can set. The environment may contain any name.
fn odd(decided: &Decided) -> Option<Finding> {
    let names = decided.facts.settings.0.iter().map(|setting| setting.variable.as_str());
    let odd: Vec<String> =
        names.filter(|name| !is_variable_name(name)).map(|name| format!("{:?}", shortened(name))).collect();
    if odd.is_empty() {
        return None;
    }
    let names: Vec<&str> = odd.iter().map(String::as_str).collect();
    let message = format!(
        "The environment has names that no shell can set: {}. {} does not read them. The command gets them unchanged, but rdma-init does not pass them on to processes that enter the container later.",
        condensed_to(&names, SHOWN),
        decided.library()
    );
    let fix = "Write the name with only letters, digits and _, or remove it.";
    Some(Finding::info(Id::VariableName, message).with_fix(fix))
}

/// What is known about the name of a variable.
pub(in crate::findings) enum Name {
    /// A program reads it, or it resembles no name that one reads.
    Known,
    /// No library reads it; this is the name that was probably meant.
    Misspelt(&'static str),
    /// It looks like one of NCCL's, and no NCCL reads it.
    Unknown,
}

/// Judges a name that is not the user's setting, such as one in a profile.
pub(in crate::findings) fn judge(name: &str) -> Name {
    if name.starts_with("NCCL_") {
        if is_of_others(name) || variables::find(name).is_some() {
            return Name::Known;
        }
        return variables::nearest(name).map_or(Name::Unknown, Name::Misspelt);
    }
    if name.starts_with("RCCL_") {
        let meant = if rccl::knows(name) { None } else { rccl::nearest(name) };
        return meant.map_or(Name::Known, Name::Misspelt);
    }
    known::meant(name).map_or(Name::Known, Name::Misspelt)
}

fn is_of_others(name: &str) -> bool {
    (OTHERS.contains(&name) && variables::find(name).is_none())
        || OTHERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn unknown(decided: &Decided, setting: &UserSetting) -> Finding {
    let library = decided.library();
    match variables::nearest(&setting.variable) {
        Some(meant) => Finding::warning(
            Id::MisspeltVariable,
            format!("{}: no {library} reads a variable of this name; did you mean {meant}?", shown(setting)),
        )
        .about_variables([setting.variable.as_str(), meant])
        .with_fix(format!("Write it as {meant}, or remove it.")),
        None => {
            // rdma-init does not know all variables that only RCCL reads.
            let may = if library.is_nccl() { "a net plugin" } else { "RCCL or a net plugin" };
            let message = format!("{}: no NCCL up to 2.32 reads it; {may} may.", shown(setting));
            Finding::info(Id::UnknownVariable, message).about_variables([&setting.variable])
        }
    }
}

fn other_release(
    decided: &Decided,
    setting: &UserSetting,
    variable: variables::NcclVariable,
) -> Option<Finding> {
    let name = setting.variable.as_str();
    let successor = SUCCESSORS.iter().find(|(old, _)| *old == name).map(|(_, new)| *new);
    // If the release is unknown, only facts about all modeled releases are reported.
    let is_known = match decided.user.version() {
        // Later patch releases in the same series may have gained the variable.
        Some(version) => variable.is_known_to(version),
        None => variable.until.is_none_or(|until| until >= KINDS[0]),
    };
    if is_known {
        return successor.and_then(|new| retired(decided, setting, new));
    }
    let (library, version) = (decided.library(), decided.version());
    let (when, fix) = match (variable.since, variable.until) {
        (Some(since), _) if version < since => {
            (format!("does not know it; {library} {since} and later do"), format!("or use such an {library}"))
        }
        (_, Some(until)) => (
            format!("no longer knows it; {library} {until} was the last that did"),
            successor.map(|new| format!("or set {new} instead")).unwrap_or_default(),
        ),
        _ => return None,
    };
    let fix = if fix.is_empty() { format!("Remove {name}.") } else { format!("Remove {name}, {fix}.") };
    Some(
        Finding::warning(
            Id::VariableOfOtherRelease,
            format!("{}: {} {when}.", shown(setting), decided.nccl()),
        )
        .about_variables([name])
        .with_fix(fix),
    )
}

/// Reports an old name that NCCL still reads if the new one is not set
/// (`src/graph/connect.cc`, `ncclMinNchannels`).
fn retired(decided: &Decided, setting: &UserSetting, new: &str) -> Option<Finding> {
    let name = setting.variable.as_str();
    if !name.ends_with("_NRINGS") {
        return None;
    }
    let library = decided.library();
    let finding = match decided.user.get(new).filter(|new| !new.value.is_empty()) {
        Some(new) => Finding::warning(
            Id::RetiredName,
            format!(
                "{}: this is an old name, and the new one is also set: {library} uses {}.",
                shown(setting),
                shown(new)
            ),
        )
        .with_fix(format!("Remove {name}.")),
        None => Finding::info(
            Id::RetiredName,
            format!("{}: this is the old name of {new}, which {library} still reads.", shown(setting)),
        )
        .with_fix(format!("Write {new}={}.", setting.value)),
    };
    Some(finding.about_variables([name, new]))
}
