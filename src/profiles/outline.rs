//! The part of a profile that is needed to choose one. Creating all profiles in full would take longer than
//! choosing one.

use std::borrow::Cow;

use super::format::{Condition, Profile, Text};

#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    pub name: Text,
    pub priority: i32,
    /// Every variable that the profile may fill in.
    pub variables: Cow<'static, [Text]>,
    pub evidence: Cow<'static, [Condition]>,
    /// Every variable of the platform whose value the profile uses.
    pub sources: Cow<'static, [Text]>,
    /// Every variable, or pattern of variables, whose presence the profile checks.
    pub markers: Cow<'static, [Text]>,
    /// Every file whose presence the profile checks.
    pub files: Cow<'static, [Text]>,
}

impl From<&Profile> for Outline {
    fn from(profile: &Profile) -> Outline {
        let texts = |all: Vec<&str>| all.into_iter().map(|text| text.to_owned().into()).collect();
        Outline {
            name: profile.name.clone().into(),
            priority: profile.priority,
            variables: texts(profile.may_fill().collect()),
            evidence: profile.evidence.clone().into(),
            sources: texts(profile.from_environment.values().map(String::as_str).collect()),
            markers: texts(profile.markers().collect()),
            files: texts(profile.files().collect()),
        }
    }
}
