//! From proposals to settings: what the user decided stands.

use super::options::Options;
use super::setting::{Outcome, Proposal, Setting};
use super::user::{CONFIGURATION, User};
use crate::profiles::{self, Profile};

/// Variables that selection decides, not a constant alone.
const SELECTION: &[&str] =
    &["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ADDR_FAMILY"];

/// What the user set among the variables that concern us, as settings.
pub fn user_settings(user: &User, profile: &Profile, options: &Options) -> Vec<Setting> {
    user.effective()
        .filter(|setting| {
            setting.variable.starts_with("NCCL_")
                || profile.variables.contains_key(&setting.variable)
                || profile.companions.contains(&setting.variable)
                || options.set.contains_key(&setting.variable)
        })
        .map(|setting| {
            let from_configuration = setting.origin == CONFIGURATION;
            Setting {
                variable: setting.variable.clone(),
                value: Some(setting.value.clone()),
                // The configuration's own variables still have to be put there.
                outcome: if from_configuration { Outcome::Filled } else { Outcome::User },
                source: setting.origin.clone(),
                rule: "set by the user".to_owned(),
                evidence: Vec::new(),
            }
        })
        .collect()
}

/// The profile's constants that no facts decide, and what it wants left unset.
pub fn tuning(profile: &Profile) -> Vec<Proposal> {
    let constants = profile
        .variables
        .iter()
        .filter(|(variable, _)| !SELECTION.contains(&variable.as_str()))
        .map(|(variable, value)| Proposal::from_profile(&profile.name, variable, value, "published"));
    let unset = profile.unset.iter().map(|variable| Proposal {
        value: None,
        ..Proposal::from_profile(&profile.name, variable, "", "published as left unset")
    });
    constants.chain(unset).collect()
}

/// Adds a proposal, unless the variable is decided already.
pub fn fill(settings: &mut Vec<Setting>, proposal: Proposal, profile: &Profile, options: &Options) {
    if settings.iter().any(|setting| setting.variable == proposal.variable) {
        return;
    }
    let (value, rule, source) = if options.keep.contains(&proposal.variable) {
        (None, "not to be filled (keep)".to_owned(), CONFIGURATION.to_owned())
    } else if hands_off(profile, &proposal.variable) {
        return;
    } else {
        (proposal.value, proposal.rule, proposal.source)
    };
    settings.push(Setting {
        variable: proposal.variable,
        outcome: if value.is_some() { Outcome::Filled } else { Outcome::Unset },
        value,
        source,
        rule,
        evidence: proposal.evidence,
    });
}

fn hands_off(profile: &Profile, variable: &str) -> bool {
    profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable))
}
