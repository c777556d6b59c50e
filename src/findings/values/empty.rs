//! Empty values that do not have the same effect as an unset variable. (The module `interfaces` handles an
//! empty `NCCL_COMM_ID`.)

use super::Subject;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::version::LISTS_PLUGINS;
use crate::plan::Fabric;

const HOST_ID: &str = "NCCL_HOSTID";

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
    findings.extend(is_empty(HOST_ID).and_then(|setting| one_host(subject, setting)));
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

/// Reports an empty ID of the host: NCCL takes it as it is (`src/misc/utils.cc`, `getHostHash`), so the ID is the
/// same on all nodes, and `src/init.cc` refuses two ranks of one host whose GPUs have the same PCI address.
fn one_host(subject: &Subject, setting: &UserSetting) -> Option<Finding> {
    let nodes = subject.facts.platform.nodes.map(|nodes| nodes.count);
    let may_have_several = matches!(subject.plan.fabric, Fabric::Verbs | Fabric::Plugin(_));
    let message = format!(
        "{HOST_ID} is set but empty ({}), so {} takes all nodes of the job for one host: it fails with \"Duplicate GPU detected\", or connects GPUs of different nodes over shared memory.",
        setting.origin,
        subject.nccl()
    );
    let finding = match nodes {
        Some(0 | 1) => return None,
        Some(_) => Finding::error(Id::EmptyValue, message),
        None if may_have_several => Finding::warning(Id::EmptyValue, message),
        // Without RDMA, the job may have only one node.
        None => return None,
    };
    Some(finding.about_variables([HOST_ID]).with_fix("Remove NCCL_HOSTID."))
}
