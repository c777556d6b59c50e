//! The whole chain of reasons behind one variable.

use serde::{Serialize, Serializer};

use super::env_plugin::{ForProcess, NotUsedReason, is_answer};
use super::evidence;
use super::forecast::{Forecast, forecasts};
use super::rule::{NcclKnowledge, OfProfile, Published};
use super::{EnvPlugin, Options, Outlook, Plan, Setting, User};
use crate::env_plugin::answer::names_devices;
use crate::fabric::candidates;
use crate::facts::Facts;
use crate::facts::secret::shown;
use crate::facts::settings::UserSetting;
use crate::finding::Finding;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::devices::LIST;
use crate::libraries::nccl::env_plugin::{is_asked, is_read_before};
use crate::libraries::{self, nccl::variables};
use crate::profiles::{self, Profile};

/// Where a variable's value comes from, the rules that were tried, the one that decided, and the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Why {
    pub variable: String,
    /// `None` if the plan has not decided on it.
    pub setting: Option<Setting>,
    /// Every place where the user has set the variable; the first one counts.
    pub set_in: Vec<UserSetting>,
    /// What the profile or the configuration says about it.
    pub published: Vec<Published>,
    /// Each rule and its result, in order.
    pub tried: Vec<(String, String)>,
    /// What NCCL knows about the name.
    pub known: Option<NcclKnowledge>,
    /// What NCCL does.
    pub forecasts: Vec<Forecast>,
    /// What NCCL would do without the variable; empty if there is no difference.
    pub without: Vec<Forecast>,
    /// What a process of the container gets, and from which source; `None` for a variable that is not NCCL's.
    #[serde(serialize_with = "sentences")]
    pub process: Option<ForProcess>,
    /// What the library other than NCCL that reads the variable will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<Outlook>,
    /// Whether rdma-init considers this variable. It knows nothing about other variables.
    pub concerns: bool,
    /// The variable that this name probably means, if rdma-init does not consider it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meant: Option<String>,
    /// The findings about the variable. The document contains their severities and messages.
    #[serde(serialize_with = "messages")]
    pub findings: Vec<Finding>,
}

fn messages<S: Serializer>(findings: &[Finding], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        findings.iter().map(|finding| format!("{}: {}", finding.severity.as_str(), finding.message)),
    )
}

fn sentences<S: Serializer>(process: &Option<ForProcess>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(process.iter().flat_map(ForProcess::sentences))
}

fn for_process(variable: &str, plan: &Plan) -> Option<ForProcess> {
    let setting = plan.settings.iter().find(|setting| setting.variable == variable);
    let is_asked = is_asked(variable) && (plan.library == Flavor::Rccl || variable.starts_with("NCCL_"));
    is_asked.then(|| ForProcess {
        env_plugin: match plan.env_plugin == EnvPlugin::Used && is_read_before(variable) {
            true => EnvPlugin::NotUsed(NotUsedReason::ReadBefore),
            false => plan.env_plugin.clone(),
        },
        value: setting.and_then(|setting| setting.value.clone()),
        is_of_user: setting.is_some_and(|setting| !is_answer(setting)),
        names_devices: names_devices(variable.as_bytes()),
        library: plan.library,
        late: match variable == LIST {
            true => plan.late.iter().map(|late| late.entry.clone()).collect(),
            false => Vec::new(),
        },
    })
}

impl Why {
    pub fn new(
        variable: &str,
        facts: &Facts,
        profile: Option<&Profile>,
        options: &Options,
        plan: &Plan,
    ) -> Why {
        let user = User::new(facts, options);
        let others: Vec<Setting> =
            plan.settings.iter().filter(|setting| setting.variable != variable).cloned().collect();
        let is_set = others.len() < plan.settings.len();
        let without = match is_set && !plan.forecasts.is_empty() {
            true => {
                let script = profile.and_then(|profile| profile.script.as_ref());
                forecasts(facts, (&plan.fabric, script), &others, plan.nccl)
            }
            false => Vec::new(),
        };
        let reader = libraries::of_variable(variable).map(|library| library.name);
        let set_in: Vec<UserSetting> = user.all(variable).cloned().collect();
        let concerns = variable.starts_with("NCCL_")
            || reader.is_some()
            || !set_in.is_empty()
            || is_set
            || profile.is_some_and(|profile| names(profile, variable));
        Why {
            concerns,
            meant: if concerns { None } else { libraries::meant(variable) },
            variable: variable.to_owned(),
            setting: plan.settings.iter().find(|setting| setting.variable == variable).cloned(),
            set_in,
            published: published(variable, facts, profile, options),
            tried: plan
                .tried
                .iter()
                .filter(|tried| tried.variable == variable)
                .map(|tried| (tried.trial.rule(plan.library), tried.trial.result(plan.library)))
                .collect(),
            known: known(variable),
            library: plan.libraries.iter().find(|outlook| reader == Some(outlook.library)).cloned(),
            without: if without == plan.forecasts { Vec::new() } else { without },
            forecasts: plan.forecasts.clone(),
            process: for_process(variable, plan),
            findings: plan
                .findings
                .iter()
                .filter(|finding| finding.about.variables.iter().any(|about| about == variable))
                .cloned()
                .collect(),
        }
    }
}

fn published(variable: &str, facts: &Facts, profile: Option<&Profile>, options: &Options) -> Vec<Published> {
    let mut said = Vec::new();
    if options.keep.contains(variable) {
        said.push(Published::Keep);
    }
    let Some(profile) = profile else {
        said.push(Published::NoProfile);
        return said;
    };
    let mut of_profile = Vec::new();
    if let Some(value) = profile.variables.get(variable) {
        of_profile.push(OfProfile::Value(shown(variable, value).to_owned()));
    }
    for only in &profile.only {
        let Some(value) = only.variables.get(variable) else { continue };
        of_profile.push(OfProfile::Only {
            value: shown(variable, value).to_owned(),
            conditions: evidence::asked_by(only).map(|asked| asked.to_string()).collect(),
            counts: evidence::counts(facts, &candidates(facts), only),
        });
    }
    of_profile.extend(profile.from_environment.get(variable).cloned().map(OfProfile::FromVariable));
    if profile.unset.iter().any(|unset| unset == variable) {
        of_profile.push(OfProfile::Unset);
    }
    if profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable)) {
        of_profile.push(OfProfile::HandsOff);
    }
    if profile.companions.iter().any(|companion| companion == variable) {
        of_profile.push(OfProfile::Companion);
    }
    if said.is_empty() && of_profile.is_empty() {
        of_profile.push(OfProfile::Nothing);
    }
    said.extend(of_profile.into_iter().map(|what| Published::Profile(profile.name.clone(), what)));
    said
}

/// Returns whether a profile mentions a variable.
fn names(profile: &Profile, variable: &str) -> bool {
    profile.may_fill().any(|name| name == variable)
        || profile.unset.iter().any(|name| name == variable)
        || profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable))
}

/// Returns the releases in which NCCL reads a variable.
fn known(variable: &str) -> Option<NcclKnowledge> {
    if !variable.starts_with("NCCL_") {
        return None;
    }
    Some(match variables::find(variable) {
        Some(known) => NcclKnowledge::Read { since: known.since, until: known.until },
        None => NcclKnowledge::Never { similar: variables::nearest(variable).map(str::to_owned) },
    })
}
