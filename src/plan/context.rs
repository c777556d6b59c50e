//! What every part of the plan decides on.

use super::{Options, ProfileOption, User};
use crate::facts::Facts;
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::version::{NEWEST, Version};
use crate::libraries::vllm;
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
            // Processes that are no workers need a list all the same, and NCCL finds the nearest in it.
            || variable != LIST && self.is_set_by_worker(variable)
    }

    /// Whether the user lets each worker of vLLM set a variable. What it holds already then comes
    /// after the worker's value, with a comma between them.
    pub fn is_set_by_worker(&self, variable: &str) -> bool {
        let selection = self.user.get(vllm::SELECTION);
        selection.is_some_and(|selection| vllm::is_set_by_worker(&selection.value, variable))
    }

    /// Whether the profile leaves a variable to others.
    pub fn hands_off(&self, variable: &str) -> bool {
        self.profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable))
    }

    pub fn uses_verbs(&self) -> bool {
        self.profile.fabric == Some(profiles::Fabric::Verbs)
    }
}
