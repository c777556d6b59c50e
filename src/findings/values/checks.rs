//! Checks of single values: a row has an id, the variables, and a function that returns what is wrong with a value of one of
//! them. [`super::costs`] has the values that only cost time.

use super::tuning;
use super::{Decided, conf_file, costs, shown};
use crate::facts::named_files;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id, Severity, Source};
use crate::libraries::nccl::number::{atoi, strtoll};
use crate::libraries::nccl::version::LISTS_PLUGINS;
use crate::libraries::nccl::{gid, level, variables};
use crate::plan::Fabric;

/// What is wrong with a value.
pub(super) struct Wrong {
    pub severity: Severity,
    pub message: String,
    /// `None` if nothing is to be done.
    pub fix: Option<String>,
}

impl Wrong {
    pub(super) fn warning(message: String, fix: impl Into<String>) -> Option<Wrong> {
        Some(Wrong { severity: Severity::Warning, message, fix: Some(fix.into()) })
    }
}

struct Check {
    id: Id,
    variables: &'static [&'static str],
    wrong: fn(&Decided, &UserSetting) -> Option<Wrong>,
}

const fn check(
    id: Id,
    variables: &'static [&'static str],
    wrong: fn(&Decided, &UserSetting) -> Option<Wrong>,
) -> Check {
    Check { id, variables, wrong }
}

const POLICY: &str = "NCCL_NETDEVS_POLICY";
const HOST_ID: &str = "NCCL_HOSTID";

/// Empty values are only the subject of the checks for [`Id::EmptyValue`].
const CHECKS: &[Check] = &[
    check(Id::AddressFamily, &["NCCL_SOCKET_FAMILY"], address_family),
    check(Id::AddressFamily, &[gid::FAMILY], |decided, setting| {
        decided.verbs_setting(gid::FAMILY).and_then(|_| address_family(decided, setting))
    }),
    check(
        Id::SwitchValue,
        &["NCCL_NET_DISABLE_INTRA", "NCCL_P2P_DISABLE", "NCCL_PXN_DISABLE"],
        other_than_one,
    ),
    check(Id::SwitchValue, &["NCCL_RAS_ENABLE", "NCCL_SHM_DISABLE"], other_than_one),
    // The variables that `ncclGetLevel` reads (`src/graph/paths.cc`).
    check(Id::Level, &["NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"], unknown_level),
    check(Id::TuningList, &["NCCL_ALGO", "NCCL_PROTO"], tuning::unknown_word),
    check(Id::UnknownPolicy, &[POLICY], unknown_policy),
    // AWS once asked for these on EFA, and asks for them no longer (aws-samples/awsome-distributed-training,
    // `1.architectures/efa-cheatsheet.md`). `FI_EFA_USE_HUGE_PAGE=0` is not among them: the presets for the newest
    // releases have it.
    check(Id::NotAsPublished, &["NCCL_PROTO"], |decided, setting| {
        let limit = "for aws-ofi-nccl 1.5.0 and earlier, and later releases choose the protocols themselves";
        old_advice(decided, setting, setting.value.eq_ignore_ascii_case("simple"), limit)
    }),
    check(Id::NotAsPublished, &["FI_PROVIDER"], |decided, setting| {
        let limit = "for aws-ofi-nccl 1.5.0 and earlier, and later releases ask for EFA themselves";
        old_advice(decided, setting, setting.value.eq_ignore_ascii_case(OF_EFA), limit)
    }),
    check(Id::NotAsPublished, &["FI_EFA_USE_DEVICE_RDMA"], |decided, setting| {
        let limit = "for releases before libfabric 1.18 and aws-ofi-nccl 1.7, and later ones use RDMA on each device that can";
        old_advice(decided, setting, strtoll(&setting.value) == Some(1), limit)
    }),
    check(Id::NotAsPublished, &["FI_EFA_SET_CUDA_SYNC_MEMOPS"], |decided, setting| {
        let limit = "for releases of the EFA installer before 1.29.1";
        old_advice(decided, setting, strtoll(&setting.value) == Some(0), limit)
    }),
    check(Id::RunsOnTcp, &["FI_PROVIDER"], without_efa),
    check(Id::MissingFile, &named_files::VARIABLES, missing_file),
    // NCCL looks for a network with this empty name (`src/init.cc`, `envConfigOverride`).
    check(Id::EmptyValue, &["NCCL_NET"], |decided, setting| {
        empty(decided, setting, Severity::Error, "looks for a network with an empty name, and fails")
    }),
    // NCCL tries to open a file with an empty name (`ncclTopoGetXmlGraphFromFile`).
    check(Id::EmptyValue, &["NCCL_GRAPH_FILE"], |decided, setting| {
        empty(decided, setting, Severity::Error, "looks for a file with an empty name, and fails")
    }),
    check(Id::EmptyValue, &[HOST_ID], one_host),
    // If the devices need a plugin, the module `plugin` reports an error.
    check(Id::EmptyValue, &["NCCL_NET_PLUGIN"], |decided, setting| {
        let is_needed = matches!(decided.plan.fabric, Fabric::Plugin(_));
        let then = "then loads no net plugin, not even the default one";
        let wrong = empty(decided, setting, Severity::Info, then)?;
        (decided.version() >= LISTS_PLUGINS && !is_needed).then_some(Wrong { fix: None, ..wrong })
    }),
];

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Check { id, variables, wrong } in CHECKS {
        let set = variables.iter().filter_map(|variable| decided.checked(variable));
        let set = set.filter(|setting| setting.value.is_empty() == (*id == Id::EmptyValue));
        findings.extend(set.filter_map(|setting| {
            let Wrong { severity, message, fix } = wrong(decided, setting)?;
            let finding = Finding { severity, ..Finding::info(*id, message) };
            let finding = finding.about_variables([&setting.variable]);
            Some(match fix {
                Some(fix) => finding.with_fix(fix),
                None => finding,
            })
        }));
    }
    findings
}

impl Decided<'_> {
    /// Returns the user's setting, if the job's release reads the variable, and no other finding explains the value.
    pub(super) fn checked(&self, variable: &str) -> Option<&UserSetting> {
        let is_read = variables::find(variable).is_none_or(|known| known.is_known_to(self.version()));
        self.user.get(variable).filter(|setting| is_read && !conf_file::is_cause(setting))
    }
}

fn address_family(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    if ["AF_INET", "AF_INET6"].contains(&setting.value.as_str()) {
        return None;
    }
    let library = decided.library();
    Wrong::warning(
        format!(
            "{} is ignored by {library}, which knows only AF_INET and AF_INET6, in capitals.",
            shown(setting)
        ),
        format!("Write {}=AF_INET6, or AF_INET, or remove it.", setting.variable),
    )
}

/// NCCL compares some switches with 1: `ncclTopoCheckNet` and `ncclTopoComputePaths` (`src/graph/paths.cc`),
/// `shmCanConnect` (`src/transport/shm.cc`), `bootstrapInit` (`src/bootstrap.cc`). For other switches, such as
/// `NCCL_IB_DISABLE`, any number except 0 counts as yes. The module `numbers` reports what is not a number.
fn other_than_one(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    strtoll(&setting.value).filter(|number| !(0..=1).contains(number))?;
    let stays = match setting.variable.as_str() {
        "NCCL_NET_DISABLE_INTRA" => "the network may still be used between the GPUs of a node",
        "NCCL_P2P_DISABLE" => "P2P stays on",
        "NCCL_PXN_DISABLE" => "PXN is not turned off",
        "NCCL_RAS_ENABLE" => "RAS is off",
        _ => "shared memory stays in use",
    };
    let library = decided.library();
    Wrong::warning(
        format!("{}: {library} accepts only 1 as a yes here, so {stays}.", shown(setting)),
        format!("Write {}=1, or remove it.", setting.variable),
    )
}

fn unknown_level(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    if level::parse(&setting.value, decided.version()).is_some() {
        return None;
    }
    let known = level::names(decided.version());
    let upper = setting.value.trim().to_uppercase();
    let fix = match known.contains(&upper.as_str()) {
        true => format!("Write {}={upper}.", setting.variable),
        false => "Write one of these, or remove it.".to_owned(),
    };
    let message = format!(
        "{} is ignored by {}: the levels are {} (in capitals), or 0 to 4.",
        shown(setting),
        decided.nccl(),
        known.join(", ")
    );
    Wrong::warning(message, fix)
}

/// NCCL's words for a policy: `src/graph/topo.cc`, `getNetDevsPolicyOnce`.
fn unknown_policy(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    let value = setting.value.to_ascii_uppercase();
    let is_known = ["AUTO", "ALL"].contains(&value.as_str())
        || value.strip_prefix("MAX:").is_some_and(|number| atoi(number) > 0);
    if is_known {
        return None;
    }
    let library = decided.library();
    Wrong::warning(
        format!("{} is not a policy that {library} knows, so {library} takes AUTO.", shown(setting)),
        format!("Write AUTO, ALL, or MAX: with a number behind it; or remove {POLICY}."),
    )
}

/// The provider of libfabric for EFA; libfabric ignores case.
const OF_EFA: &str = "efa";

/// `limit` is what AWS limits the value to, after "only". [`costs`] reports the values that slow the job.
fn old_advice(decided: &Decided, setting: &UserSetting, is_it: bool, limit: &str) -> Option<Wrong> {
    if !is_it || !costs::has_efa(decided) || setting.origin == Source::AtStart {
        return None;
    }
    let message = format!(
        "{} stands; AWS advises it only {limit} (efa-cheatsheet.md of awsome-distributed-training).",
        shown(setting)
    );
    let fix = format!("Remove {}, unless that is the case here.", setting.variable);
    Some(Wrong { severity: Severity::Info, message, fix: Some(fix) })
}

/// Reports a list of libfabric's providers without that of EFA. With `^`, the list names those to leave out
/// (`fi_provider(7)`).
fn without_efa(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    let (list, is_excluded) = match setting.value.strip_prefix('^') {
        Some(list) => (list, true),
        None => (setting.value.as_str(), false),
    };
    // A layered provider, such as `efa;ofi_rxd`, names EFA's as well.
    let has_efa = list
        .split(',')
        .any(|name| name.trim().split(';').any(|part| part.trim().eq_ignore_ascii_case(OF_EFA)));
    if has_efa != is_excluded || !costs::has_efa(decided) {
        return None;
    }
    Wrong::warning(
        format!(
            "{}: libfabric then offers no EFA device, so {} uses TCP, or fails.",
            shown(setting),
            decided.nccl()
        ),
        format!("Remove {}: aws-ofi-nccl asks for EFA itself.", setting.variable),
    )
}

/// Reports a file that NCCL, or its plugin, cannot read.
fn missing_file(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    let file = decided.facts.named_files.iter().find(|file| file.path == setting.value)?;
    let error = file.error.as_ref()?;
    let (shown, variable, nccl) = (shown(setting), setting.variable.as_str(), decided.nccl());
    if file.is_directory() {
        // `docker run -v` makes a directory if the file to mount is missing. NCCL opens it, reads nothing, and takes it
        // for a file without any content (`src/graph/xml.cc`, `xmlGetNode`).
        let follows = match variable {
            "NCCL_TUNER_CONFIG_PATH" => "The tuner plugin that reads it will find nothing in it.".to_owned(),
            _ => format!("{nccl} will find nothing in it."),
        };
        return Wrong::warning(
            format!("{shown} is a directory, and must be a file. {follows}"),
            format!(
                "Check that the file exists at the source of the mount (Docker's -v makes a directory of a missing source), or remove {variable}."
            ),
        );
    }
    let (severity, follows) = match variable {
        // `ncclTopoGetXmlGraphFromFile` returns ncclSystemError.
        "NCCL_GRAPH_FILE" => (Severity::Error, format!("{nccl} will fail.")),
        "NCCL_TOPO_FILE" => {
            (Severity::Warning, format!("{nccl} will continue with the topology that it detects."))
        }
        _ => (Severity::Warning, "The tuner plugin that reads it will not find it.".to_owned()),
    };
    let remedy = match file.is_missing() {
        true => "Mount the file into the container, write its whole path (~ is not expanded)",
        false => "Let the job's user read the file",
    };
    let message = format!("{shown}: the file cannot be opened: {error}. {follows}");
    Some(Wrong { severity, message, fix: Some(format!("{remedy}, or remove {variable}.")) })
}

/// Reports an empty value that does not have the same effect as an unset variable. (The module `interfaces` handles an
/// empty `NCCL_COMM_ID`.)
fn empty(decided: &Decided, setting: &UserSetting, severity: Severity, follows: &str) -> Option<Wrong> {
    let UserSetting { variable, origin, .. } = setting;
    let message = format!("{variable} is set but empty ({origin}): {} {follows}.", decided.nccl());
    Some(Wrong { severity, message, fix: Some(format!("Remove {variable}.")) })
}

/// Reports an empty ID of the host: NCCL takes it as it is (`src/misc/utils.cc`, `getHostHash`), so the ID is the
/// same on all nodes, and `src/init.cc` refuses two ranks of one host whose GPUs have the same PCI address.
fn one_host(decided: &Decided, setting: &UserSetting) -> Option<Wrong> {
    let may_have_several = matches!(decided.plan.fabric, Fabric::Verbs | Fabric::Plugin(_));
    let severity = match decided.facts.platform.nodes.map(|nodes| nodes.count) {
        Some(0 | 1) => return None,
        Some(_) => Severity::Error,
        None if may_have_several => Severity::Warning,
        // Without RDMA, the job may have only one node.
        None => return None,
    };
    let message = format!(
        "{HOST_ID} is set but empty ({}), so {} takes all nodes of the job for one host: it fails with \"Duplicate GPU detected\", or connects GPUs of different nodes over shared memory.",
        setting.origin,
        decided.nccl()
    );
    Some(Wrong { severity, message, fix: Some(format!("Remove {HOST_ID}.")) })
}
