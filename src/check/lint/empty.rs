//! Empty values that do not mean what unset means. (An empty `NCCL_COMM_ID` is with
//! the interfaces.)

use super::Subject;
use crate::nccl::version::LISTS_PLUGINS;
use crate::plan::Finding;

pub fn findings(subject: &Subject) -> Vec<Finding> {
    let is_empty = |variable: &str| subject.user.get(variable).filter(|setting| setting.value.is_empty());
    let mut findings = Vec::new();
    // `src/init.cc`, `envConfigOverride`: it looks for a network of this name.
    if let Some(setting) = is_empty("NCCL_NET") {
        let message = format!(
            "NCCL_NET is set and empty ({}): NCCL looks for a network of that name, and ends with \"network not found\".",
            setting.origin
        );
        findings.push(Finding::error("empty-value", message).with_fix("Remove NCCL_NET."));
    }
    if let Some(setting) = is_empty("NCCL_NET_PLUGIN").filter(|_| subject.version() >= LISTS_PLUGINS) {
        let message = format!(
            "NCCL_NET_PLUGIN is set and empty ({}): {} loads no net plugin then, not the default one.",
            setting.origin,
            subject.nccl()
        );
        findings.push(Finding::info("empty-value", message));
    }
    findings
}
