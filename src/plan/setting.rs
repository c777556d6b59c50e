//! A variable with its value and its reason; and how proposals become settings, without the user's own decisions.

use std::fmt;

use serde::Serialize;

use super::context::Context;
use crate::facts::Facts;
use crate::facts::environment::Filled;
use crate::facts::secret::{HIDDEN, is_secret};
use crate::facts::settings::UserSetting;
use crate::finding::Source;
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::{network, plugin};
use crate::profiles::Profile;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    pub variable: String,
    /// The value in the form in which it may be shown; `None` if the variable stays unset.
    pub value: Option<String>,
    /// The value of a secret; only the command gets it.
    #[serde(skip)]
    pub secret: Option<Secret>,
    pub outcome: SettingOutcome,
    /// The source of the decision.
    pub source: Source,
    /// Why the variable has this value, or none.
    pub rule: String,
    /// The evidence for the decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The library other than NCCL that the value is for, by its name in the key `libraries`.
    #[serde(skip)]
    pub library: Option<&'static str>,
    /// Whether rdma-init already set this value when the container started.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingOutcome {
    /// The plan puts it into the command's environment.
    Filled,
    /// The user set it, and rdma-init keeps it.
    User,
    /// The variable stays unset, because the library finds the right value itself.
    Left,
    /// The variable stays unset.
    Unset,
}

/// A value that is never shown or written.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Setting {
    /// Makes a setting for a variable that goes into the command's environment.
    pub fn filled(
        variable: impl Into<String>,
        value: impl Into<String>,
        source: Source,
        rule: impl Into<String>,
    ) -> Setting {
        let (variable, value) = (variable.into(), value.into());
        let (value, secret) = match is_secret(&variable) {
            true => (HIDDEN.to_owned(), Some(Secret(value))),
            false => (value, None),
        };
        Setting { secret, ..Setting::left(variable, Some(value), SettingOutcome::Filled, source, rule) }
    }

    pub(crate) fn from_facts(variable: &str, value: impl Into<String>, rule: impl Into<String>) -> Setting {
        Setting::filled(variable, value, Source::Facts, rule)
    }

    pub(crate) fn from_profile(
        profile: &str,
        variable: &str,
        value: &str,
        rule: impl Into<String>,
    ) -> Setting {
        Setting::filled(variable, value, Source::Profile(profile.to_owned()), rule)
    }

    /// Makes a setting for a variable that rdma-init does not fill in.
    pub fn left(
        variable: impl Into<String>,
        value: Option<String>,
        outcome: SettingOutcome,
        source: Source,
        rule: impl Into<String>,
    ) -> Setting {
        Setting {
            variable: variable.into(),
            value,
            secret: None,
            outcome,
            source,
            rule: rule.into(),
            evidence: Vec::new(),
            library: None,
            at_start: false,
        }
    }

    pub(crate) fn because(self, evidence: Vec<String>) -> Setting {
        Setting { evidence, ..self }
    }

    /// Returns the value that the command gets, even if it is a secret.
    pub fn for_command(&self) -> Option<&str> {
        self.secret.as_ref().map(|Secret(value)| value.as_str()).or(self.value.as_deref())
    }
}

/// Variables whose value depends on the host, and not on a constant alone.
pub(crate) const SELECTION: &[&str] =
    &["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY"];

/// Lets NCCL use SHARP, which a net plugin has (`NCCL_PARAM(CollnetEnable, ...)`, `src/init.cc`).
const SHARP: &str = "NCCL_COLLNET_ENABLE";

/// Returns the constants of the profile that do not depend on facts, and the variables that it leaves
/// unset.
pub(super) fn tuning(context: &Context) -> Vec<Setting> {
    let profile = &context.profile;
    let loads_no_plugin = |variable: &str| variable == plugin::VARIABLE && needs_plugin(context);
    let constants = profile
        .variables
        .iter()
        .filter(|(variable, _)| !SELECTION.contains(&variable.as_str()) && !loads_no_plugin(variable))
        .map(|(variable, value)| Setting::from_profile(&profile.name, variable, value, "published"));
    let unset = profile.unset.iter().map(|variable| {
        let source = Source::Profile(profile.name.clone());
        Setting::left(variable, None, SettingOutcome::Unset, source, "the platform says to leave it unset")
    });
    constants.chain(unset).collect()
}

/// Returns whether the user asks for what only a net plugin has, which a published `NCCL_NET_PLUGIN=none` would
/// take away: SHARP (`src/transport/coll_net.cc`), or the network that the plugin calls by this name.
fn needs_plugin(context: &Context) -> bool {
    let value = |variable: &str| context.user.get(variable).map(|setting| setting.value.as_str());
    let is_on = |value: &str| integer(value, context.version()).is_some_and(|number| number != 0);
    value(SHARP).is_some_and(is_on)
        || value(network::VARIABLE).is_some_and(|name| !name.is_empty() && !network::is_built_in(name))
}

/// Returns what the user set, then the proposals for other variables. If there are two proposals for one
/// variable, the first one counts.
pub(super) fn settings(context: &Context, proposals: impl IntoIterator<Item = Setting>) -> Vec<Setting> {
    let mut settings: Vec<Setting> = context
        .user
        .effective()
        .filter(|setting| concerns(context, setting))
        .map(|setting| from_user(context, setting))
        .collect();
    for variable in context.options.keep.iter().filter(|variable| context.user.get(variable).is_none()) {
        let (unset, by) = (SettingOutcome::Unset, Source::Configuration);
        settings.push(Setting::left(variable, None, unset, by, "not to be filled in (keep)"));
    }
    for proposal in proposals {
        let is_there = settings.iter().any(|setting| setting.variable == proposal.variable);
        if !is_there && !context.leaves_alone(&proposal.variable) {
            settings.push(with_source(&context.profile, proposal));
        }
    }
    settings
}

/// Adds the platform's variable to the reason, if the value comes from one.
fn with_source(profile: &Profile, proposal: Setting) -> Setting {
    let is_published = matches!(proposal.source, Source::Profile(_));
    match profile.from_environment.get(&proposal.variable).filter(|_| is_published) {
        Some(source) => Setting { rule: format!("the platform's {source}: {}", proposal.rule), ..proposal },
        None => proposal,
    }
}

/// Returns whether a variable of the user or of the container's start deserves a line.
fn concerns(context: &Context, setting: &UserSetting) -> bool {
    let variable = &setting.variable;
    setting.origin == Source::AtStart
        || variable.starts_with("NCCL_")
        || context.profile.variables.contains_key(variable)
        || context.profile.companions.contains(variable)
        || context.options.set.contains_key(variable)
        || context.hands_off(variable)
}

fn from_user(context: &Context, setting: &UserSetting) -> Setting {
    if let Some(setting) = from_start(context.facts, setting) {
        return setting;
    }
    let UserSetting { variable, value, origin, .. } = setting.clone();
    let rule = "set by the user";
    // The configuration of rdma-init sets this variable, so it is not in the environment yet.
    match context.options.set.get(&variable).filter(|_| origin == Source::Configuration) {
        Some(configured) => Setting::filled(variable, configured, origin, rule),
        None => Setting::left(variable, Some(value), SettingOutcome::User, origin, rule),
    }
}

/// Returns a value that rdma-init filled in when the container started, with the reason that it had then.
fn from_start(facts: &Facts, setting: &UserSetting) -> Option<Setting> {
    let is_it = |filled: &&Filled| filled.variable == setting.variable;
    let filled = facts.filled_at_start.iter().find(is_it).filter(|_| setting.origin == Source::AtStart)?;
    let Filled { source, rule, .. } = filled.clone();
    let (variable, value) = (setting.variable.clone(), setting.value.clone());
    Some(Setting { at_start: true, ..Setting::filled(variable, value, source, rule) })
}
