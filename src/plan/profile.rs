//! Which profile applies: the named one, or the one with evidence on this host.

use serde::Serialize;

use super::{Options, ProfileOption, User, evidence, no_profile, over_tcp};
use crate::fabric::Candidate;
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::facts::secret::shown;
use crate::facts::settings::UserSetting;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::{installed, network};
use crate::profiles::{self, Outline, Profile, Profiles, WrongConstant};
use crate::text::{counted, shortened, visible};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileChoice {
    pub name: String,
    /// What matched; empty for a profile that the user named.
    pub evidence: Vec<String>,
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
        self.evidence.join(", ")
    }
}

/// Returns the profile, and for each variable of NCCL's for which the platform's own variable holds what it cannot be,
/// the finding.
pub(super) fn choose(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &Profiles,
    options: &Options,
) -> (Option<ProfileChoice>, Profile, Vec<(String, Finding)>) {
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
            let (profile, wrong) = on_this_host(profile, facts, candidates);
            (Some(choice), profile, wrong)
        }
        None => (None, no_profile(), Vec::new()),
    }
}

/// Returns the profile that fits, what matched, and the names of profiles that fit equally well.
fn by_evidence<'a>(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &'a Profiles,
) -> Option<(&'a Profile, Vec<String>, Vec<String>)> {
    let mut best: Option<(&Outline, Vec<String>)> = None;
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

/// Reports a machine with devices for a net plugin that the image has, none of which this container was given. A user who
/// names another network wants none.
pub(super) fn devices_missing(facts: &Facts, profiles: &Profiles, user: &User) -> Option<Finding> {
    over_tcp::nodes(facts)?;
    let (profile, nics) = of_instance(facts, profiles)?;
    let is_one = |hca: &Hca| profile.evidence.iter().any(|condition| evidence::is_hca_of(condition, hca));
    let names_other = |setting: &UserSetting| network::is_built_in(&setting.value);
    if facts.rdma.iter().any(is_one) || user.get(network::VARIABLE).is_some_and(names_other) {
        return None;
    }
    let plugins = &installed::image(facts)?.net_plugins;
    let plugin = plugins.iter().find(|plugin| network::is_of_aws(&plugin.path.display().to_string()))?;
    let message = format!(
        "{} has {} (profile {}), and the image has the net plugin for them ({}), but this container was given none of them: a job of several nodes will run on TCP.",
        facts.dmi.product.as_deref().unwrap_or_default(),
        counted(nics as usize, "RDMA NIC"),
        profile.name,
        plugin.path.display(),
    );
    let hint = profile.hint.as_deref().unwrap_or("Request the devices for the container.");
    Some(Finding::warning(Id::NoRdma, message).with_fix(format!(
        "{hint} Docker: --device /dev/infiniband. If the job is to use TCP, set NCCL_NET=Socket: it requests TCP and silences this finding."
    )))
}

/// Returns the profile with the constants that count on this host alone, and those that the platform's own
/// variables hold; `from_environment` keeps only these variables. A value of these that cannot be right counts
/// as absent, and has a finding.
fn on_this_host(
    profile: &Profile,
    facts: &Facts,
    candidates: &[Candidate],
) -> (Profile, Vec<(String, Finding)>) {
    let mut variables = profile.variables.clone();
    let mut from_environment = profile.from_environment.clone();
    let mut findings = Vec::new();
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
            Some((value, Err(wrong))) => {
                let finding = value_wrong(&profile.name, variable, (source, shown(source, value)), &wrong);
                findings.push((variable.to_owned(), finding));
            }
        }
    }
    (Profile { variables, from_environment, ..profile.clone() }, findings)
}

/// Reports a variable of the platform that holds what NCCL's cannot be.
fn value_wrong(
    profile: &str,
    variable: &str,
    (source, value): (&str, &str),
    wrong: &WrongConstant,
) -> Finding {
    let message = format!(
        "Profile {profile} takes {variable} from {source}, but {source}={} {wrong}. rdma-init does not use it.",
        shortened(&visible(value))
    );
    Finding::warning(Id::PlatformValue, message)
        .about_variables([variable, source])
        .with_fix(format!("Correct {source}, or set {variable} yourself."))
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

/// Returns the subject and the verb of a sentence about a published value: the profile, or the platform's variable that
/// it comes from.
pub(super) fn publishes(profile: &Profile, variable: &str) -> String {
    match profile.from_environment.get(variable) {
        Some(source) => format!("The platform's variable {source} (profile {}) gives", profile.name),
        None => format!("Profile {} publishes", profile.name),
    }
}

/// Adds the platform's variable to what a finding about a published value is about, if the value comes from one.
pub(crate) fn with_source(finding: Finding, profile: &Profile, variable: &str) -> Finding {
    finding.about_variables(profile.from_environment.get(variable))
}
