//! What NCCL will really do with the user's own values, which rdma-init never changes.

mod class;
mod conf_file;
mod costs;
mod devices;
mod efa;
mod empty;
mod family;
mod files;
mod gid;
mod hcas;
mod interfaces;
mod levels;
mod lists;
pub(super) mod names;
mod network;
mod numbers;
mod plugin;
mod plugins;
mod switches;
mod tuning;

use crate::facts::Facts;
use crate::facts::settings::UserSetting;
use crate::finding::Finding;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::predict::Prediction;
use crate::libraries::nccl::version::{NEWEST, Version};
use crate::plan::{Decided, Fabric, Plan, User};

/// The inputs of a finding.
struct Subject<'a> {
    facts: &'a Facts,
    user: &'a User,
    plan: &'a Plan,
    decided: &'a Decided<'a>,
}

impl Subject<'_> {
    /// Returns the release that reads the values; the newest if it is unknown.
    fn version(&self) -> Version {
        self.user.version().unwrap_or(NEWEST)
    }

    /// Returns the library that reads the values.
    fn library(&self) -> Flavor {
        self.plan.library
    }

    /// Returns the library with its release if that is known: `NCCL 2.21.5` or `NCCL`.
    fn nccl(&self) -> String {
        self.library().of_release(self.user.version())
    }

    /// Returns what the job's NCCL will do; if its release is unknown, what the newest release will do.
    fn prediction(&self) -> Option<&Prediction> {
        self.plan.forecasts.last().map(|forecast| &forecast.prediction)
    }

    /// Returns a variable that the user has set to a non-empty value, if the job uses NCCL's own InfiniBand
    /// and RoCE transport, or should use it.
    fn of_verbs(&self, variable: &str) -> Option<&UserSetting> {
        let matters = matches!(self.plan.fabric, Fabric::Verbs | Fabric::None(_));
        self.user
            .get(variable)
            .filter(|setting| matters && !setting.value.is_empty() && self.user.ib_disabled().is_none())
    }
}

pub(super) fn findings(decided: &Decided) -> Vec<Finding> {
    let Decided { facts, user, plan, profile, .. } = decided;
    let subject = Subject { facts, user, plan, decided };
    let mut findings = Vec::new();
    findings.extend(hcas::findings(&subject));
    findings.extend(interfaces::findings(&subject));
    findings.extend(gid::findings(&subject));
    findings.extend(family::findings(&subject));
    findings.extend(numbers::findings(&subject));
    findings.extend(class::findings(&subject, profile));
    findings.extend(switches::findings(&subject));
    findings.extend(levels::findings(&subject));
    findings.extend(tuning::findings(&subject));
    findings.extend(network::findings(&subject, profile));
    findings.extend(plugin::findings(&subject, profile));
    findings.extend(plugins::findings(&subject));
    findings.extend(devices::findings(&subject));
    findings.extend(costs::findings(&subject, profile));
    findings.extend(efa::findings(&subject));
    findings.extend(files::findings(&subject));
    findings.extend(empty::findings(&subject));
    findings.extend(names::findings(&subject));
    findings.extend(conf_file::findings(&subject));
    findings
}

pub(super) fn shown(setting: &UserSetting) -> String {
    setting.to_string()
}
