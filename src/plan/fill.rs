//! Turns proposals into settings, and keeps the user's decisions.

use super::context::Context;
use super::rule::Rule;
use super::setting::{Proposal, Setting, SettingOutcome};
use crate::facts::Facts;
use crate::facts::environment::Filled;
use crate::facts::settings::UserSetting;
use crate::finding::Source;
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::{network, plugin};
use crate::profiles::Profile;

/// Variables whose value depends on the host, and not on a constant alone.
pub(crate) const SELECTION: &[&str] =
    &["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY"];

/// Lets NCCL use SHARP, which a net plugin has (`NCCL_PARAM(CollnetEnable, ...)`, `src/init.cc`).
const SHARP: &str = "NCCL_COLLNET_ENABLE";

/// Returns the constants of the profile that do not depend on facts, and the variables that it leaves
/// unset.
pub(super) fn tuning(context: &Context) -> Vec<Proposal> {
    let profile = context.profile;
    let loads_no_plugin = |variable: &str| variable == plugin::VARIABLE && needs_plugin(context);
    let constants = profile
        .variables
        .iter()
        .filter(|(variable, _)| !SELECTION.contains(&variable.as_str()) && !loads_no_plugin(variable))
        .map(|(variable, value)| Proposal::from_profile(&profile.name, variable, value, Rule::Published));
    let unset = profile.unset.iter().map(|variable| Proposal {
        value: None,
        ..Proposal::from_profile(&profile.name, variable, "", Rule::PublishedAsUnset)
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
pub(super) fn settings(context: &Context, proposals: impl IntoIterator<Item = Proposal>) -> Vec<Setting> {
    let mut settings: Vec<Setting> = context
        .user
        .effective()
        .filter(|setting| concerns(context, setting))
        .map(|setting| of_user(context, setting))
        .collect();
    for variable in context.options.keep.iter().filter(|variable| context.user.get(variable).is_none()) {
        settings.push(Setting::left(
            variable.clone(),
            None,
            SettingOutcome::Unset,
            Source::Configuration,
            Rule::Keep,
        ));
    }
    for proposal in proposals {
        let is_there = settings.iter().any(|setting| setting.variable == proposal.variable);
        if !is_there && !context.leaves_alone(&proposal.variable) {
            settings.push(of_proposal(with_source(context.profile, proposal)));
        }
    }
    settings
}

/// Adds the platform's variable to the reason, if the value comes from one.
fn with_source(profile: &Profile, proposal: Proposal) -> Proposal {
    let is_published = matches!(proposal.source, Source::Profile(_));
    match profile.from_environment.get(&proposal.variable).filter(|_| is_published) {
        Some(source) => {
            Proposal { rule: Rule::OfVariable(source.clone(), Box::new(proposal.rule)), ..proposal }
        }
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

fn of_user(context: &Context, setting: &UserSetting) -> Setting {
    if let Some(setting) = of_start(context.facts, setting) {
        return setting;
    }
    let UserSetting { variable, value, origin, .. } = setting.clone();
    // The configuration of rdma-init sets this variable, so it is not in the environment yet.
    match context.options.set.get(&variable).filter(|_| origin == Source::Configuration) {
        Some(configured) => Setting::filled(variable, configured.clone(), origin, Rule::SetByUser),
        None => Setting::left(variable, Some(value), SettingOutcome::User, origin, Rule::SetByUser),
    }
}

/// Returns a value that rdma-init filled in when the container started, with the reason that it had then.
fn of_start(facts: &Facts, setting: &UserSetting) -> Option<Setting> {
    let is_it = |filled: &&Filled| filled.variable == setting.variable;
    let filled = facts.filled_at_start.iter().find(is_it).filter(|_| setting.origin == Source::AtStart)?;
    let Filled { source, rule, .. } = filled.clone();
    let (variable, value) = (setting.variable.clone(), setting.value.clone());
    Some(Setting { at_start: true, ..Setting::filled(variable, value, source, Rule::AsWritten(rule)) })
}

/// Returns the setting for a variable that only rdma-init decides on.
pub(super) fn of_proposal(proposal: Proposal) -> Setting {
    let Proposal { variable, value, source, rule, evidence } = proposal;
    let setting = match value {
        Some(value) => Setting::filled(variable, value, source, rule),
        None => {
            let is_found = matches!(rule, Rule::SearchFinds { .. });
            let outcome = if is_found { SettingOutcome::Left } else { SettingOutcome::Unset };
            Setting::left(variable, None, outcome, source, rule)
        }
    };
    Setting { evidence, ..setting }
}
