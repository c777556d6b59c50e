//! What NCCL will really do with the user's own values, which rdma-init never changes.

mod checks;
mod class;
mod conf_file;
mod costs;
mod devices;
mod gid;
mod hcas;
mod interfaces;
mod lists;
pub(super) mod names;
mod network;
mod numbers;
mod plugin;
mod plugins;
mod tuning;

use crate::facts::settings::UserSetting;
use crate::finding::Finding;
use crate::plan::Decided;

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(hcas::findings(decided));
    findings.extend(interfaces::findings(decided));
    findings.extend(gid::findings(decided));
    findings.extend(numbers::findings(decided));
    findings.extend(class::findings(decided));
    findings.extend(checks::findings(decided));
    findings.extend(network::findings(decided));
    findings.extend(plugin::findings(decided));
    findings.extend(plugins::findings(decided));
    findings.extend(devices::findings(decided));
    findings.extend(costs::findings(decided));
    findings.extend(names::findings(decided));
    findings.extend(conf_file::findings(decided));
    findings
}

pub(super) fn shown(setting: &UserSetting) -> String {
    setting.to_string()
}
