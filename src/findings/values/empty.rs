//! Empty values that do not have the same effect as an unset variable. (The module `interfaces` handles an
//! empty `NCCL_COMM_ID`.)

use super::Subject;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::version::LISTS_PLUGINS;
use crate::plan::Fabric;

pub(super) fn findings(subject: &Subject) -> Vec<Finding> {
    let is_empty = |variable: &str| subject.user.get(variable).filter(|setting| setting.value.is_empty());
    let mut findings = Vec::new();
    // NCCL looks for a network with this empty name (`src/init.cc`, `envConfigOverride`).
    if let Some(setting) = is_empty("NCCL_NET") {
        let message = format!(
            "NCCL_NET is set but empty ({}): {} looks for a network with an empty name, and fails.",
            setting.origin,
            subject.nccl()
        );
        findings.push(
            Finding::error(Id::EmptyValue, message)
                .about_variables(["NCCL_NET"])
                .with_fix("Remove NCCL_NET."),
        );
    }
    // NCCL tries to open a file with an empty name (`ncclTopoGetXmlGraphFromFile`).
    if let Some(setting) = is_empty("NCCL_GRAPH_FILE") {
        let message = format!(
            "NCCL_GRAPH_FILE is set but empty ({}): {} looks for a file with an empty name, and fails.",
            setting.origin,
            subject.nccl()
        );
        findings.push(
            Finding::error(Id::EmptyValue, message)
                .about_variables(["NCCL_GRAPH_FILE"])
                .with_fix("Remove NCCL_GRAPH_FILE."),
        );
    }
    // If the devices need a plugin, the module `plugin` reports an error.
    let is_needed = matches!(subject.plan.fabric, Fabric::Plugin(_));
    let no_plugin = is_empty("NCCL_NET_PLUGIN").filter(|_| subject.version() >= LISTS_PLUGINS && !is_needed);
    if let Some(setting) = no_plugin {
        let message = format!(
            "NCCL_NET_PLUGIN is set but empty ({}): {} then loads no net plugin, not even the default one.",
            setting.origin,
            subject.nccl()
        );
        findings.push(Finding::info(Id::EmptyValue, message).about_variables(["NCCL_NET_PLUGIN"]));
    }
    findings
}
