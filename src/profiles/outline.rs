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
    /// Every variable of the platform whose value it takes.
    pub sources: Cow<'static, [Text]>,
    /// Every variable whose presence it asks for, or pattern of such.
    pub markers: Cow<'static, [Text]>,
    /// Every file whose presence it asks for.
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
