//! Which profile: the named one, or the one whose evidence is there.

use serde::Serialize;

use super::rule::Sign;
use super::{Options, ProfileOption, evidence, no_profile};
use crate::fabric::Candidate;
use crate::facts::Facts;
use crate::libraries::nccl::installed;
use crate::libraries::nccl::version::Version;
use crate::profiles::{Profile, Profiles};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileChoice {
    pub name: String,
    /// What matched; empty for a profile that was asked for by name.
    pub evidence: Vec<Sign>,
    /// The oldest release of NCCL that the platform says it supports.
    #[serde(skip)]
    pub nccl_min: Option<String>,
    /// The same of CUDA.
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
) -> (Option<ProfileChoice>, Profile) {
    let found = match &options.profile {
        ProfileOption::None => None,
        ProfileOption::Named(name) => profiles.get(name).map(|profile| (profile, Vec::new())),
        ProfileOption::Auto => by_evidence(facts, candidates, profiles),
    };
    match found {
        Some((profile, evidence)) => {
            let choice = ProfileChoice {
                name: profile.name.clone(),
                evidence,
                nccl_min: profile.constraints.nccl_min.clone(),
                cuda_min: profile.constraints.cuda_min.clone(),
            };
            (Some(choice), on_this_host(profile, facts, candidates))
        }
        None => (None, no_profile()),
    }
}

fn by_evidence<'a>(
    facts: &Facts,
    candidates: &[Candidate],
    profiles: &'a Profiles,
) -> Option<(&'a Profile, Vec<Sign>)> {
    let matching = profiles.outlines().filter_map(|outline| {
        let signs = outline.evidence.iter().find_map(|c| evidence::signs(facts, candidates, c))?;
        Some((outline, signs))
    });
    // Of profiles with the same priority, the first by name.
    let (best, signs) =
        matching.reduce(|best, next| if next.0.priority > best.0.priority { next } else { best })?;
    Some((profiles.get(&best.name)?, signs))
}

/// Returns the profile with the constants that count on this host alone, and those that the platform's own
/// variables hold.
fn on_this_host(profile: &Profile, facts: &Facts, candidates: &[Candidate]) -> Profile {
    let mut variables = profile.variables.clone();
    for only in &profile.only {
        let is_recent = |least: &String| {
            let release = installed::release(facts);
            release.zip(Version::parse(least)).is_some_and(|(found, least)| found >= least)
        };
        if only.nccl_min.as_ref().is_none_or(is_recent)
            && evidence::signs(facts, candidates, &only.condition).is_some()
        {
            variables.extend(only.variables.clone());
        }
    }
    for (variable, source) in &profile.from_environment {
        let of_platform = facts.settings.get(source).filter(|setting| setting.origin.is_environment());
        if let Some(setting) = of_platform.filter(|setting| !setting.value.is_empty()) {
            variables.insert(variable.clone(), setting.value.clone());
        }
    }
    Profile { variables, ..profile.clone() }
}
