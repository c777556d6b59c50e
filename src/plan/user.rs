//! The user's own decisions.

use std::collections::HashSet;

use super::Options;
use crate::facts::Facts;
use crate::facts::environment::is_variable_name;
use crate::facts::home::Homes;
use crate::facts::settings::{Settings, UserSetting};
use crate::finding::Source;
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::version::{NEWEST, READS_CONF_FILE, REWROTE_PARSERS, SEARCHES_GIDS, Version};
use crate::libraries::nccl::{gid, installed, predict};

/// The user's variables in order of precedence: the environment, rdma-init's configuration, and the conf
/// files that the job's NCCL reads.
#[derive(Debug, Clone)]
pub struct User {
    settings: Settings,
    own_file: Option<String>,
    homes: Option<Homes>,
    version: Option<Version>,
    of_rccl: bool,
}

impl User {
    pub fn new(facts: &Facts, options: &Options) -> User {
        let version = installed::release(facts);
        let of_rccl = installed::is_rccl(facts);
        let (environment, files): (Vec<_>, Vec<_>) =
            facts.settings.0.iter().cloned().partition(|s| s.origin.is_environment());
        let own_file = environment
            .iter()
            .find(|setting| setting.variable == "NCCL_CONF_FILE" && !setting.value.is_empty())
            .map(|setting| setting.value.clone());
        let set = options
            .set
            .iter()
            .map(|(variable, value)| UserSetting::new(variable, value, Source::Configuration));
        let files = files
            .into_iter()
            .filter(|setting| {
                let file = setting.origin.conf_file().unwrap_or_default();
                is_read(file, own_file.as_deref(), facts.homes.as_ref(), version, of_rccl)
            })
            .map(|setting| as_read(setting, version));
        // All of the user's variables enter the plan here. A name that no shell, file, or launcher can
        // contain is dropped.
        let all = environment.into_iter().chain(set).chain(files);
        let settings = Settings(all.filter(|setting| is_variable_name(&setting.variable)).collect());
        User { settings, own_file, homes: facts.homes.clone(), version, of_rccl }
    }

    /// Returns the setting that counts, if the user has set the variable.
    pub fn get(&self, variable: &str) -> Option<&UserSetting> {
        self.settings.get(variable)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the same settings without this variable.
    pub fn without(&self, variable: &str) -> User {
        let mut user = self.clone();
        user.settings.0.retain(|setting| setting.variable != variable);
        user
    }

    /// Returns every place where the user has set the variable; the first one counts.
    pub fn all(&self, variable: &str) -> impl Iterator<Item = &UserSetting> {
        self.settings.0.iter().filter(move |setting| setting.variable == variable)
    }

    /// Returns every variable once, with the setting that counts.
    pub fn effective(&self) -> impl Iterator<Item = &UserSetting> {
        let mut known = HashSet::new();
        self.settings.0.iter().filter(move |setting| known.insert(setting.variable.as_str()))
    }

    /// Returns the release of NCCL that reads the variables.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Returns whether the job's NCCL reads a conf file.
    pub fn reads(&self, file: &str) -> bool {
        is_read(file, self.own_file.as_deref(), self.homes.as_ref(), self.version, self.of_rccl)
    }

    /// Returns the user's choice of HCAs. An empty value means all HCAs, as does an unset variable.
    pub fn hcas(&self) -> Option<(Pattern, &UserSetting)> {
        let setting = self.get("NCCL_IB_HCA")?;
        Some((Pattern::of_hcas(&setting.value, self.version.unwrap_or(NEWEST)), setting))
    }

    /// Returns the setting that turns verbs off.
    pub fn ib_disabled(&self) -> Option<&UserSetting> {
        self.get("NCCL_IB_DISABLE")
            .filter(|setting| predict::is_disabled(Some(&setting.value), self.version.unwrap_or(NEWEST)))
    }

    /// Returns the user's variable that decides on the GID, if any.
    pub fn gid(&self) -> Option<&UserSetting> {
        let steer = [gid::INDEX, gid::RANGE, gid::FAMILY, gid::ROCE_VERSION];
        // Earlier releases read only the index.
        let searches = self.version.is_none_or(|version| version >= SEARCHES_GIDS);
        steer[..if searches { steer.len() } else { 1 }].iter().find_map(|variable| self.get(variable))
    }
}

/// Returns whether a release reads a conf file. A file in `NCCL_CONF_FILE` replaces the one in the home
/// directory; which home directory NCCL uses has changed between releases. An unknown release counts as a
/// recent one. RCCL's files have their own names (`src/misc/param.cc`).
fn is_read(
    file: &str,
    own_file: Option<&str>,
    homes: Option<&Homes>,
    version: Option<Version>,
    of_rccl: bool,
) -> bool {
    let (hidden, of_all) =
        if of_rccl { ("/.rccl.conf", "/etc/rccl.conf") } else { ("/.nccl.conf", "/etc/nccl.conf") };
    let since = |change: Version| version.is_none_or(|version| version >= change);
    let own_file = own_file.filter(|_| since(READS_CONF_FILE));
    if own_file == Some(file) {
        return true;
    }
    let Some(home) = file.strip_suffix(hidden) else {
        // The other files are the one in /etc, those of the other library, and one that an old release does
        // not read.
        return file == of_all;
    };
    let is_of_home = homes.is_none_or(|homes| match since(REWROTE_PARSERS) {
        true => homes.variable.as_deref() == Some(home),
        false => homes.database.as_deref() == Some(home),
    });
    own_file.is_none() && is_of_home
}

/// Removes the carriage return at the end of a value as NCCL 2.30 and later do; before 2.30, it is part of
/// the value.
fn as_read(setting: UserSetting, version: Option<Version>) -> UserSetting {
    match setting.value.strip_suffix('\r') {
        Some(value) if version.is_some_and(|version| version >= REWROTE_PARSERS) => {
            UserSetting { value: value.to_owned(), ..setting }
        }
        _ => setting,
    }
}
