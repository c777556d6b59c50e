//! `NCCL_NET`, `NCCL_DEBUG`, and a job that would run without RDMA.

use super::{Subject, conf_file, costs, plugin, shown};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::{Transport, net_plugin};
use crate::libraries::nccl::version::REWROTE_PARSERS;
use crate::libraries::nccl::{installed, network};
use crate::plan::Fabric;
use crate::profiles::Profile;

pub(super) fn findings(subject: &Subject, profile: &Profile) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(unknown_network(subject, profile));
    findings.extend(fallback(subject));
    findings.extend(debug(subject));
    findings
}

/// Reports that `NCCL_NET` names a network that NCCL will not find.
fn unknown_network(subject: &Subject, profile: &Profile) -> Option<Finding> {
    let setting = subject.user.get("NCCL_NET").filter(|setting| !setting.value.is_empty())?;
    let (message, is_certain) = match subject.prediction().map(|prediction| &prediction.transport) {
        Some(Transport::Fails(message)) => (message.as_str(), true),
        Some(Transport::Plugin { found: false, otherwise, .. }) => match otherwise.as_ref() {
            Transport::Fails(message) if !network::is_of_some_plugin(&setting.value) => {
                (message.as_str(), false)
            }
            _ => return None,
        },
        // Without any RDMA device there is no prediction, but the outcome is clear.
        None if setting.value.eq_ignore_ascii_case("IB") => ("no InfiniBand or RoCE device found", true),
        _ => return None,
    };
    let of_platform = profile.hint.as_deref().filter(|_| profile.script.is_some());
    let library = subject.library();
    let fix = match (setting.value.eq_ignore_ascii_case("IB"), of_platform) {
        _ if costs::has_efa(subject) => fix_on_efa(subject, setting, profile),
        (true, _) => format!(
            "Check why {library} cannot use any HCA here (see the other findings). NCCL_NET=IB only turns the silent use of TCP into an error."
        ),
        // The platform's script has set the variable, but the loader does not find the platform's plugin.
        (false, Some(hint)) => hint.to_owned(),
        (false, None) => {
            "Name IB or Socket, or the network of a net plugin that the image has; or remove NCCL_NET."
                .to_owned()
        }
    };
    let shown = shown(setting);
    let finding = match is_certain {
        true => Finding::error(Id::NoNetwork, format!("{shown}: {library} will fail with \"{message}\".")),
        false => Finding::warning(
            Id::NoNetwork,
            format!(
                "{shown} is no network that rdma-init knows: unless the image has a net plugin that calls its network so, {library} will fail with \"{message}\"."
            ),
        ),
    };
    Some(finding.about_variables(["NCCL_NET"]).with_fix(fix))
}

/// Returns what to do about a name that is not that of the plugin for EFA.
fn fix_on_efa(subject: &Subject, setting: &UserSetting, profile: &Profile) -> String {
    let (library, name) = (subject.library(), network::OF_AWS);
    let get = |variable: &str| match variable {
        network::VARIABLE => None,
        _ => subject.user.get(variable).map(|setting| setting.value.as_str()),
    };
    let is_found = net_plugin(subject.facts, &get, subject.version()).is_some();
    if let Some(image) = installed::image(subject.facts).filter(|_| !is_found) {
        let plugin = plugin::get(subject, image, profile);
        // With another name, NCCL would fail even if it found the plugin.
        return match network::is_network_of_aws(&setting.value) {
            true => plugin,
            false => format!("{plugin} Also remove NCCL_NET, or set it to {name:?}."),
        };
    }
    match network::is_built_in(&setting.value) {
        true => format!(
            "Remove NCCL_NET, or set it to {name:?}: {library}'s own transport cannot use EFA, and the net plugin can."
        ),
        false => format!(
            "Remove NCCL_NET, or set it to {name:?}, which is what the plugin calls its network. The name of its file (ofi for libnccl-net-ofi.so) belongs in NCCL_NET_PLUGIN."
        ),
    }
}

/// Reports that HCAs are usable, but the user's `NCCL_NET` keeps NCCL from using them. (Other findings report
/// what is missing from the image.)
fn fallback(subject: &Subject) -> Option<Finding> {
    let setting =
        subject.user.get("NCCL_NET").filter(|setting| setting.value.eq_ignore_ascii_case("Socket"))?;
    matches!(subject.plan.fabric, Fabric::Verbs | Fabric::Plugin(_)).then(|| {
        Finding::warning(
            Id::RunsOnTcp,
            format!(
                "{}: the RDMA devices are usable, but {} will still run on TCP.",
                shown(setting),
                subject.nccl()
            ),
        )
        .about_variables(["NCCL_NET"])
        .with_fix("Remove NCCL_NET, unless this is intended.")
    })
}

/// The levels that `ncclDebugInit` (`src/debug.cc`) knows; it ignores case.
const DEBUG: &[&str] = &["VERSION", "WARN", "INFO", "ABORT", "TRACE"];

fn debug(subject: &Subject) -> Option<Finding> {
    let setting = subject.user.get("NCCL_DEBUG").filter(|setting| !setting.value.is_empty())?;
    // NCCL 2.30 and later ignore white space around the value.
    let value = if subject.version() >= REWROTE_PARSERS { setting.value.trim() } else { &setting.value };
    let is_known = DEBUG.iter().any(|level| value.eq_ignore_ascii_case(level));
    let library = subject.library();
    (!is_known && !conf_file::is_cause(setting)).then(|| {
        Finding::warning(
            Id::DebugLevel,
            format!("{} is not a level that {library} knows, so {library} logs nothing.", shown(setting)),
        )
        .about_variables(["NCCL_DEBUG"])
        .with_fix(format!("Write one of {}.", DEBUG.join(", ")))
    })
}
