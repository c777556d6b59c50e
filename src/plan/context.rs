//! The inputs of every decision in the plan.

use super::{Options, ProfileOption, User};
use crate::facts::Facts;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::version::{NEWEST, Version};
use crate::libraries::vllm;
use crate::profiles::{self, Profile};

#[derive(Clone)]
pub struct Context<'a> {
    pub facts: &'a Facts,
    pub options: &'a Options,
    pub user: User,
    /// The profile in `Plan::profile`, or the rules for a host without a profile.
    pub profile: Profile,
}

impl Context<'_> {
    /// Returns the release of NCCL that reads the variables. If it is unknown, returns the newest, for
    /// questions on which releases hardly differ.
    pub fn version(&self) -> Version {
        self.user.version().unwrap_or(NEWEST)
    }

    /// Returns the job's library, which reads the variables.
    pub fn library(&self) -> Flavor {
        Flavor::of(self.facts)
    }

    /// Returns whether the plan must not decide on a variable.
    pub fn leaves_alone(&self, variable: &str) -> bool {
        self.options.profile == ProfileOption::None
            || self.user.get(variable).is_some()
            || self.options.keep.contains(variable)
            || self.hands_off(variable)
            // Processes that are not workers need a list anyway, and NCCL finds the nearest HCA in it.
            || variable != LIST && self.is_set_by_worker(variable)
    }

    /// Returns whether the user lets each vLLM worker set a variable. The worker then puts its own value and
    /// a comma in front of the existing value.
    pub fn is_set_by_worker(&self, variable: &str) -> bool {
        let selection = self.user.get(vllm::SELECTION);
        selection.is_some_and(|selection| vllm::is_set_by_worker(&selection.value, variable))
    }

    /// Returns whether the profile leaves a variable to other programs. A pattern does not count for a variable that
    /// the profile itself has.
    pub fn hands_off(&self, variable: &str) -> bool {
        self.profile.hands_off.iter().any(|pattern| {
            profiles::fits(pattern, variable)
                && (pattern == variable || !self.profile.variables.contains_key(variable))
        })
    }

    /// Returns whether the platform's script has yet to run: the variable that the script sets is not set.
    pub fn awaits_script(&self) -> bool {
        self.profile.script.as_ref().is_some_and(|script| self.user.get(&script.sets).is_none())
    }

    /// Returns whether the command runs the platform's script before the job. If it does, it is unknown here
    /// which values NCCL will get.
    pub fn command_runs_script(&self) -> bool {
        let named = &self.facts.platform.files_in_command;
        let script = self.profile.script.as_ref().filter(|_| self.awaits_script());
        script.is_some_and(|script| script.paths.iter().any(|path| named.contains(path)))
    }

    pub fn uses_verbs(&self) -> bool {
        matches!(self.profile.fabric, None | Some(profiles::Fabric::Verbs))
    }
}
