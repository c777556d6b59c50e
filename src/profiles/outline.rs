//! What has to be known about a profile before it is chosen. To make all profiles whole would
//! take longer than to choose one.

use std::borrow::Cow;

use super::format::{Condition, Profile, Text};

#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    pub name: Text,
    pub priority: i32,
    /// Every variable that it may fill.
    pub variables: Cow<'static, [Text]>,
    pub evidence: Cow<'static, [Condition]>,
}

impl From<&Profile> for Outline {
    fn from(profile: &Profile) -> Outline {
        let variables = profile.variables.keys().chain(&profile.companions);
        Outline {
            name: profile.name.clone().into(),
            priority: profile.priority,
            variables: variables.map(|name| name.clone().into()).collect(),
            evidence: profile.evidence.clone().into(),
        }
    }
}
