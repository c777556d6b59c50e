//! Which profile applies: the named one, or the one with evidence on this host.

use serde::Serialize;

use super::remark::Remark;
use super::rule::Sign;
use super::{Options, ProfileOption, User, evidence, no_profile, over_tcp};
use crate::fabric::Candidate;
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::facts::secret::shown;
use crate::facts::settings::UserSetting;
use crate::libraries::nccl::{installed, network};
use crate::profiles::{self, Outline, Profile, Profiles, WrongConstant};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileChoice {
    pub name: String,
    /// What matched; empty for a profile that the user named.
    pub evidence: Vec<Sign>,
    /// The names of other profiles that also fit and have the same priority, so that the order of names
    /// decided.
    #[serde(skip)]
    pub equals: Vec<String>,
    /// The oldest release of NCCL that the platform says it supports.
    #[serde(skip)]
    pub nccl_min: Option<String>,
    /// The oldest version of CUDA that the platform says it supports.
    #[serde(skip)]
    pub cuda_min: Option<String>,
}

impl ProfileChoice {
    pub fn is_named(&self) -> bool {
        self.evidence.is_empty()
    }

    /// Returns what matched, in words.
    pub fn signs(&self) -> String {
        self.evidence.iter().map(Sign::to_string).collect::<Vec<String>>().join(", ")
    }
}

pub(super) fn choose(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &Profiles,
    options: &Options,
) -> (Option<ProfileChoice>, Profile, Vec<Remark>) {
    let found = match &options.profile {
        ProfileOption::None => None,
        ProfileOption::Named(name) => profiles.get(name).map(|profile| (profile, Vec::new(), Vec::new())),
        ProfileOption::Auto => by_evidence(facts, candidates, profiles),
    };
    match found {
        Some((profile, evidence, equals)) => {
            let choice = ProfileChoice {
                name: profile.name.clone(),
                evidence,
                equals,
                nccl_min: profile.constraints.nccl_min.clone(),
                cuda_min: profile.constraints.cuda_min.clone(),
            };
            let (profile, remarks) = on_this_host(profile, facts, candidates);
            (Some(choice), profile, remarks)
        }
        None => (None, no_profile(), Vec::new()),
    }
}

/// Returns the profile that fits, what matched, and the names of profiles that fit equally well.
fn by_evidence<'a>(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &'a Profiles,
) -> Option<(&'a Profile, Vec<Sign>, Vec<String>)> {
    let mut best: Option<(&Outline, Vec<Sign>)> = None;
    let mut equals = Vec::new();
    for outline in profiles.outlines() {
        let Some(signs) = outline.evidence.iter().find_map(|c| evidence::signs(facts, candidates, c)) else {
            continue;
        };
        match &best {
            Some((known, _)) if outline.priority < known.priority => {}
            // The first profile by name wins.
            Some((known, _)) if outline.priority == known.priority => equals.push(outline.name.to_string()),
            _ => {
                best = Some((outline, signs));
                equals.clear();
            }
        }
    }
    let (best, signs) = best?;
    Some((profiles.get(&best.name)?, signs, equals))
}

/// The vendor in the firmware of the only cloud whose firmware also has the instance type.
const NAMES_INSTANCES: &str = "Amazon EC2";

/// Returns the profile that publishes how many devices for a net plugin this type of instance has, and the number.
pub(crate) fn of_instance<'a>(facts: &Facts, profiles: &'a Profiles) -> Option<(&'a Profile, u32)> {
    // To ask a profile takes time, because all of them have to be created in full.
    facts.dmi.vendor.as_deref().filter(|vendor| *vendor == NAMES_INSTANCES)?;
    let product = facts.dmi.product.as_deref()?;
    let mut of_plugins = profiles.iter().filter(|profile| profile.fabric == Some(profiles::Fabric::Plugin));
    of_plugins.find_map(|profile| Some((profile, *profile.constraints.nics.get(product)?)))
}

/// Returns a remark if the machine has devices for a net plugin, the image has the plugin, and the container has none
/// of the devices. A user who names another network wants none.
pub(super) fn devices_missing(facts: &Facts, profiles: &Profiles, user: &User) -> Option<Remark> {
    over_tcp::nodes(facts)?;
    let (profile, nics) = of_instance(facts, profiles)?;
    let is_one = |hca: &Hca| profile.evidence.iter().any(|condition| evidence::is_hca_of(condition, hca));
    let names_other = |setting: &UserSetting| network::is_built_in(&setting.value);
    if facts.rdma.iter().any(is_one) || user.get(network::VARIABLE).is_some_and(names_other) {
        return None;
    }
    let plugins = &installed::image(facts)?.net_plugins;
    let plugin = plugins.iter().find(|plugin| network::is_of_aws(&plugin.path.display().to_string()))?;
    Some(Remark::DevicesMissing {
        profile: profile.name.clone(),
        hint: profile.hint.clone(),
        product: facts.dmi.product.clone().unwrap_or_default(),
        nics,
        plugin: plugin.path.clone(),
    })
}

/// Returns the profile with the constants that count on this host alone, and those that the platform's own
/// variables hold; `from_environment` keeps only these variables. A value of these that cannot be right counts
/// as absent, and is a remark.
fn on_this_host(profile: &Profile, facts: &Facts, candidates: &[Candidate]) -> (Profile, Vec<Remark>) {
    let mut variables = profile.variables.clone();
    let mut from_environment = profile.from_environment.clone();
    let mut remarks = Vec::new();
    for only in &profile.only {
        if evidence::counts(facts, candidates, only) {
            variables.extend(only.variables.clone());
        }
    }
    for PlatformValue { variable, source, found } in platform_values(profile, facts) {
        if !matches!(found, Some((_, Ok(())))) {
            from_environment.shift_remove(variable);
        }
        match found {
            None => {}
            Some((value, Ok(()))) => {
                variables.insert(variable.to_owned(), value.to_owned());
            }
            Some((value, Err(wrong))) => remarks.push(Remark::PlatformValueWrong {
                variable: variable.to_owned(),
                source: source.to_owned(),
                value: shown(source, value).to_owned(),
                wrong,
            }),
        }
    }
    (Profile { variables, from_environment, ..profile.clone() }, remarks)
}

/// A variable that a profile takes from one of the platform's own variables.
pub(crate) struct PlatformValue<'a> {
    pub variable: &'a str,
    /// The platform's variable.
    pub source: &'a str,
    /// The value, and whether it can be right; `None` if the platform's variable is not set, or empty.
    pub found: Option<(&'a str, Result<(), WrongConstant>)>,
}

/// Returns the variables that a profile takes from the platform's.
pub(crate) fn platform_values<'a>(
    profile: &'a Profile,
    facts: &'a Facts,
) -> impl Iterator<Item = PlatformValue<'a>> {
    profile.from_environment.iter().map(|(variable, source)| {
        let of_platform = facts.settings.get(source).filter(|setting| setting.origin.is_environment());
        let value = of_platform.map(|setting| setting.value.trim()).filter(|value| !value.is_empty());
        let found = value.map(|value| (value, profiles::check_constant(variable, value)));
        PlatformValue { variable, source, found }
    })
}
