//! NCCL's plugins other than net plugins: a named plugin that is missing, or an env plugin, whose answers
//! replace every variable.

use super::{Decided, costs, shown};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::image::named::PLUGINS;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::version::Version;
use crate::libraries::nccl::{env_plugin, plugin, variables};

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    // If no NCCL was found, it is unknown whether this is the job's image.
    if installed::image(decided.facts).is_none() {
        return Vec::new();
    }
    let named = PLUGINS.iter().filter(|(variable, _)| *variable != plugin::VARIABLE);
    let mut findings: Vec<Finding> =
        named.filter_map(|(variable, start)| missing(decided, variable, start)).collect();
    findings.extend(find_env_plugin(decided));
    findings.extend(tuner_of_efa(decided));
    findings
}

const TUNER: &str = "NCCL_TUNER_PLUGIN";

/// The releases that have tuners, and look for one only if the variable names it. Later releases also look in
/// the net plugin (`src/Makefile.am` of aws-ofi-nccl).
const NEEDS_NAME: std::ops::Range<Version> = Version::new(2, 19, 1)..Version::new(2, 21, 0);

/// The names under which aws-ofi-nccl installs its tuner.
const OF_EFA: [&str; 3] = ["libnccl-ofi-tuner.so", "libnccl-tuner-ofi.so", "libnccl-tuner-aws-ofi.so"];

/// Reports the tuner of aws-ofi-nccl if this release does not look for it.
fn tuner_of_efa(decided: &Decided) -> Option<Finding> {
    let version = decided.user.version().filter(|version| NEEDS_NAME.contains(version))?;
    let tuners = &decided.facts.image.as_ref()?.tuner_plugins;
    let name = OF_EFA.into_iter().find(|name| tuners.iter().any(|tuner| tuner.loads_as(name)))?;
    if !costs::has_efa(decided) || !decided.library().is_nccl() || decided.plan.value(TUNER).is_some() {
        return None;
    }
    let message = format!(
        "NCCL {version} loads a tuner only if {TUNER} names it. The image has the tuner of aws-ofi-nccl ({name}), which chooses the algorithms for EFA, and only newer releases of that plugin name it themselves."
    );
    Some(
        Finding::info(Id::TunerNotNamed, message)
            .about_variables([TUNER])
            .with_fix(format!("Set {TUNER}={name}, or use NCCL 2.21 or later.")),
    )
}

/// Reports a plugin that the dynamic loader does not find. NCCL continues without it, and only its log
/// mentions it (`src/plugin/plugin_open.cc`).
fn missing(decided: &Decided, variable: &str, start: &str) -> Option<Finding> {
    let is_read = variables::find(variable)?.is_known_to(decided.version());
    let setting: &UserSetting = decided.user.get(variable).filter(|_| is_read)?;
    if setting.value.eq_ignore_ascii_case("none") {
        return None;
    }
    // These two variables may contain lists.
    let is_list = ["NCCL_GIN_PLUGIN", "NCCL_RMA_PLUGIN"].contains(&variable);
    let names: Vec<&str> = match is_list {
        true => setting.value.split(',').collect(),
        false => vec![setting.value.as_str()],
    };
    let lost: Vec<String> = names
        .into_iter()
        .filter(|name| !name.is_empty() && !plugin::is_static(name))
        .map(|name| match variable {
            env_plugin::VARIABLE => env_plugin::files(decided.facts, name),
            _ => plugin::files_of(start, name),
        })
        .filter(|files| files.iter().all(|file| installed::named_plugin(decided.facts, file) == Some(None)))
        .map(|files| files.join(" or "))
        .collect();
    if lost.is_empty() {
        return None;
    }
    let instead = match variable {
        "NCCL_TUNER_PLUGIN" => "chooses algorithms by itself, or with the net plugin's tuner",
        "NCCL_PROFILER_PLUGIN" => "records nothing",
        "NCCL_ENV_PLUGIN" => "takes the variables of the environment",
        _ => "continues with its own",
    };
    let message = format!(
        "{}: the dynamic loader finds no {}; {} silently {instead}.",
        shown(setting),
        lost.join("; no "),
        decided.nccl()
    );
    Some(
        Finding::warning(Id::PluginNotFound, message)
            .about_variables([variable])
            .with_fix(format!("Install the plugin in the image, or remove {variable}.")),
    )
}

/// Reports an env plugin, whose answers replace the values of all variables.
fn find_env_plugin(decided: &Decided) -> Option<Finding> {
    let file = env_plugin::loaded(decided.facts, |name| decided.plan.value(name), decided.version())?;
    let message = format!(
        "{} loads the env plugin {file} (NCCL_ENV_PLUGIN): its answers replace the values of all variables, including those that rdma-init fills in, so the forecast stops there.",
        decided.nccl()
    );
    Some(
        Finding::info(Id::EnvPlugin, message)
            .about_variables([env_plugin::VARIABLE])
            .with_fix(format!("Set {}=none to disable it, unless it is intended.", env_plugin::VARIABLE)),
    )
}
