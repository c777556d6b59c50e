//! From a host to a plan with its findings, as every command and the start itself make it.

use crate::config::Config;
use crate::facts::Facts;
use crate::facts::settings::UserSetting;
use crate::finding::Source;
use crate::findings;
use crate::plan::{self, Plan};
use crate::profiles::Profiles;

/// The plan with all findings that need nothing but the facts.
///
/// Variables that this container's start has filled in stand, as everything in the environment
/// does. They are no wish of the user: if they would be decided the same today, the plan is
/// made without them.
pub fn decide(facts: &Facts, profiles: &Profiles, config: &Config) -> Plan {
    if facts.filled_at_start.is_empty() {
        return plan_with_findings(facts, profiles, config);
    }
    let anew = Facts { settings: facts.settings.of_user(), ..facts.clone() };
    let mut plan = plan_with_findings(&anew, profiles, config);
    let of_start = facts.settings.0.iter().filter(|setting| setting.origin == Source::AtStart);
    let comes_out = |setting: &UserSetting| {
        plan.filled().any(|filled| filled == (setting.variable.as_str(), setting.value.as_str()))
    };
    if !of_start.clone().all(comes_out) {
        return plan_with_findings(facts, profiles, config);
    }
    for setting in &mut plan.settings {
        setting.at_start = of_start.clone().any(|known| known.variable == setting.variable);
    }
    plan
}

fn plan_with_findings(facts: &Facts, profiles: &Profiles, config: &Config) -> Plan {
    findings::add(plan::decide(facts, profiles, &config.plan_options()))
}
