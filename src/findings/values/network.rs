//! `NCCL_NET`, `NCCL_DEBUG`, and a job that would run without RDMA.

use super::{Decided, conf_file, costs, plugin, shown};
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::{Transport, net_plugin};
use crate::libraries::nccl::version::REWROTE_PARSERS;
use crate::libraries::nccl::{installed, network};
use crate::plan::Fabric;

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(unknown_network(decided));
    findings.extend(fallback(decided));
    findings.extend(debug(decided));
    findings
}

/// Reports that `NCCL_NET` names a network that NCCL will not find.
fn unknown_network(decided: &Decided) -> Option<Finding> {
    let setting = decided.user.get("NCCL_NET").filter(|setting| !setting.value.is_empty())?;
    let (message, is_certain) = match decided.prediction().map(|prediction| &prediction.transport) {
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
    let of_platform = decided.profile.hint.as_deref().filter(|_| decided.profile.script.is_some());
    let library = decided.library();
    let fix = match (setting.value.eq_ignore_ascii_case("IB"), of_platform) {
        _ if costs::has_efa(decided) => fix_on_efa(decided, setting),
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
    // The finding about the fabric says how NCCL reacts to it.
    let finding = finding.explained_by(&[(Id::NoFabric, ""), (Id::NoUsableHca, "")]);
    Some(finding.about_variables(["NCCL_NET"]).with_fix(fix))
}

/// Returns what to do about a name that is not that of the plugin for EFA.
fn fix_on_efa(decided: &Decided, setting: &UserSetting) -> String {
    let (library, name) = (decided.library(), network::OF_AWS);
    let get = |variable: &str| match variable {
        network::VARIABLE => None,
        _ => decided.user.get(variable).map(|setting| setting.value.as_str()),
    };
    let is_found = net_plugin(decided.facts, &get, decided.version()).is_some();
    if let Some(image) = installed::image(decided.facts).filter(|_| !is_found) {
        let plugin = plugin::get(decided, image);
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
fn fallback(decided: &Decided) -> Option<Finding> {
    let setting =
        decided.user.get("NCCL_NET").filter(|setting| setting.value.eq_ignore_ascii_case("Socket"))?;
    matches!(decided.plan.fabric, Fabric::Verbs | Fabric::Plugin(_)).then(|| {
        Finding::warning(
            Id::RunsOnTcp,
            format!(
                "{}: the RDMA devices are usable, but {} will still run on TCP.",
                shown(setting),
                decided.nccl()
            ),
        )
        .about_variables(["NCCL_NET"])
        .with_fix("Remove NCCL_NET, unless this is intended.")
    })
}

/// The levels that `ncclDebugInit` (`src/debug.cc`) knows; it ignores case.
const DEBUG: &[&str] = &["VERSION", "WARN", "INFO", "ABORT", "TRACE"];

fn debug(decided: &Decided) -> Option<Finding> {
    let setting = decided.user.get("NCCL_DEBUG").filter(|setting| !setting.value.is_empty())?;
    // NCCL 2.30 and later ignore white space around the value.
    let value = if decided.version() >= REWROTE_PARSERS { setting.value.trim() } else { &setting.value };
    let is_known = DEBUG.iter().any(|level| value.eq_ignore_ascii_case(level));
    let library = decided.library();
    (!is_known && !conf_file::is_cause(setting)).then(|| {
        Finding::warning(
            Id::DebugLevel,
            format!("{} is not a level that {library} knows, so {library} logs nothing.", shown(setting)),
        )
        .about_variables(["NCCL_DEBUG"])
        .with_fix(format!("Write one of {}.", DEBUG.join(", ")))
    })
}
