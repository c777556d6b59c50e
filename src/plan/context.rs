//! What every part of the plan decides on.

use super::{Options, ProfileOption, User};
use crate::facts::Facts;
use crate::libraries::nccl::version::{NEWEST, Version};
use crate::profiles::{self, Profile};

pub struct Context<'a> {
    pub facts: &'a Facts,
    pub profile: &'a Profile,
    pub user: &'a User,
    pub options: &'a Options,
}

impl Context<'_> {
    /// The release of NCCL that reads the variables; the newest where it is not known, for
    /// questions on which releases hardly differ.
    pub fn version(&self) -> Version {
        self.user.version().unwrap_or(NEWEST)
    }

    /// Whether a variable is not for the plan to decide.
    pub fn leaves_alone(&self, variable: &str) -> bool {
        self.options.profile == ProfileOption::None
            || self.user.get(variable).is_some()
            || self.options.keep.contains(variable)
            || self.hands_off(variable)
    }

    /// Whether the profile leaves a variable to others.
    pub fn hands_off(&self, variable: &str) -> bool {
        self.profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable))
    }

    pub fn uses_verbs(&self) -> bool {
        self.profile.fabric == Some(profiles::Fabric::Verbs)
    }
}
