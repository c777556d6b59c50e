//! The part of a profile that is needed to choose one. Creating all profiles in full would take longer than
//! choosing one.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::format::{Condition, Profile, Text, fits};

#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    pub name: Text,
    pub priority: i32,
    pub evidence: Cow<'static, [Condition]>,
    /// Every file whose presence the profile checks.
    pub files: Cow<'static, [Text]>,
}

impl From<&Profile> for Outline {
    fn from(profile: &Profile) -> Outline {
        Outline {
            name: profile.name.clone().into(),
            priority: profile.priority,
            evidence: profile.evidence.clone().into(),
            files: profile.files().map(|file| file.to_owned().into()).collect(),
        }
    }
}

/// The variables that the profiles use. Each list is sorted: a container may have hundreds of variables, and each of
/// them is looked up.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UsedVariables {
    /// Every variable that a profile may fill in.
    pub filled: Cow<'static, [Text]>,
    /// Every variable of a platform whose value a profile uses.
    pub sources: Cow<'static, [Text]>,
    /// Every variable whose presence a profile checks.
    pub markers: Cow<'static, [Text]>,
    /// Every pattern of variables whose presence a profile checks.
    pub patterns: Cow<'static, [Text]>,
}

impl UsedVariables {
    pub(super) fn of<'a>(profiles: impl Iterator<Item = &'a Profile> + Clone) -> UsedVariables {
        let texts = |all: BTreeSet<&str>| all.into_iter().map(|text| text.to_owned().into()).collect();
        let (patterns, markers) =
            profiles.clone().flat_map(Profile::markers).partition(|marker| marker.contains('*'));
        UsedVariables {
            filled: texts(profiles.clone().flat_map(Profile::may_fill).collect()),
            sources: texts(
                profiles.flat_map(|profile| profile.from_environment.values().map(String::as_str)).collect(),
            ),
            markers: texts(markers),
            patterns: texts(patterns),
        }
    }

    pub(super) fn may_fill(&self, variable: &str) -> bool {
        has(&self.filled, variable)
    }

    pub(super) fn is_source(&self, variable: &str) -> bool {
        has(&self.sources, variable)
    }

    pub(super) fn is_marker(&self, variable: &str) -> bool {
        has(&self.markers, variable) || self.patterns.iter().any(|pattern| fits(pattern, variable))
    }
}

fn has(sorted: &[Text], name: &str) -> bool {
    sorted.binary_search_by(|known| (**known).cmp(name)).is_ok()
}
