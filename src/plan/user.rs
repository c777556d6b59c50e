//! What the user has decided already.

use super::Options;
use crate::facts::Facts;
use crate::facts::settings::{ENVIRONMENT, Settings, UserSetting};
use crate::nccl::list::Pattern;
use crate::nccl::number;

/// The origin of a variable that our own configuration sets.
pub const CONFIGURATION: &str = "configuration";

/// The user's variables in the order in which they count: the environment, our
/// own configuration, NCCL's conf files.
#[derive(Debug, Clone)]
pub struct User(Settings);

impl User {
    pub fn new(facts: &Facts, options: &Options) -> User {
        let (environment, files): (Vec<_>, Vec<_>) =
            facts.settings.0.iter().cloned().partition(|s| s.origin == ENVIRONMENT);
        let set = options.set.iter().map(|(variable, value)| UserSetting {
            variable: variable.clone(),
            value: value.clone(),
            origin: CONFIGURATION.to_owned(),
        });
        User(Settings(environment.into_iter().chain(set).chain(files).collect()))
    }

    /// The setting that counts, if the user has set the variable at all.
    pub fn get(&self, variable: &str) -> Option<&UserSetting> {
        self.0.get(variable)
    }

    /// Every variable once, with the setting that counts.
    pub fn effective(&self) -> impl Iterator<Item = &UserSetting> {
        self.0.0.iter().filter(|s| self.get(&s.variable) == Some(s))
    }

    /// The user's choice of HCAs. An empty value means all of them, as unset does.
    pub fn hcas(&self) -> Option<(Pattern, &UserSetting)> {
        let setting = self.get("NCCL_IB_HCA")?;
        Some((Pattern::parse(&setting.value), setting))
    }

    /// Where the user has turned verbs off.
    pub fn ib_disabled(&self) -> Option<&UserSetting> {
        let setting = self.get("NCCL_IB_DISABLE")?;
        (number::strtoll(&setting.value)? != 0).then_some(setting)
    }

    /// The variable with which the user has decided on the GID, if any.
    pub fn gid(&self) -> Option<&UserSetting> {
        ["NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ROCE_VERSION_NUM"]
            .iter()
            .find_map(|variable| self.get(variable))
    }
}
