//! The whole chain of reasons behind one variable.

use serde::{Serialize, Serializer};

use super::env_plugin::is_answer;
use super::evidence;
use super::forecast::{Forecast, forecasts};
use super::{Options, Outlook, Plan, Setting, User};
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
    pub published: Vec<String>,
    /// Each rule and its result, in order.
    pub tried: Vec<(String, String)>,
    /// What NCCL knows about the name.
    pub known: Option<String>,
    /// What NCCL does.
    pub forecasts: Vec<Forecast>,
    /// What NCCL would do without the variable; empty if there is no difference.
    pub without: Vec<Forecast>,
    /// What a process of the container gets, and from which source; empty for a variable that is not NCCL's.
    pub process: Vec<String>,
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

/// Returns the sentences about what a process of this container gets for one of NCCL's variables, in the order in which
/// they apply.
fn for_process(variable: &str, plan: &Plan) -> Vec<String> {
    let library = plan.library;
    if !is_asked(variable) || (library == Flavor::Nccl && !variable.starts_with("NCCL_")) {
        return Vec::new();
    }
    let read_before = format!("{library} reads this variable before it loads a plugin");
    let why_not = match plan.env_plugin.why_not() {
        None => is_read_before(variable).then_some(read_before.as_str()),
        why_not => why_not,
    };
    if let Some(why) = why_not {
        return vec![format!(
            "what its environment has, else what {library}'s conf file has: {library} does not ask rdma-init's env plugin, because {why}"
        )];
    }
    let setting = plan.settings.iter().find(|setting| setting.variable == variable);
    let is_of_user = setting.is_some_and(|setting| !is_answer(setting));
    let value = setting.and_then(|setting| setting.value.as_deref());
    let own = match (value, is_of_user) {
        (Some(value), true) => format!("{value}, which you set on this node"),
        (Some(value), false) => format!("{value}, which rdma-init decided for this node"),
        (None, _) => format!("none, so {library} decides"),
    };
    let late: Vec<&str> = plan.late.iter().map(|late| late.entry.as_str()).collect();
    let also = match late.as_slice() {
        _ if variable != LIST => String::new(),
        [] => String::new(),
        [one] => format!("; also {one} if its port is ACTIVE by then"),
        several => format!("; also {} if their ports are ACTIVE by then", several.join(", ")),
    };
    let mut sentences = vec![
        format!("{library} asks rdma-init's env plugin"),
        format!("a process without a value: {own}{also}"),
        "a process with a value that another node filled in, and a tool copied: the same".to_owned(),
    ];
    if names_devices(variable.as_bytes()) && value.is_some() && !is_of_user {
        sentences.push("a process with a list of devices that this node does not have: the same".to_owned());
    }
    sentences.push("a process with any other value: its own".to_owned());
    sentences
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
                .map(|tried| (tried.rule.clone(), tried.result.clone()))
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

/// Returns what the configuration and the profile say about a variable.
fn published(variable: &str, facts: &Facts, profile: Option<&Profile>, options: &Options) -> Vec<String> {
    let mut said = Vec::new();
    if options.keep.contains(variable) {
        said.push("the configuration says not to fill it in (keep)".to_owned());
    }
    let Some(profile) = profile else {
        said.push("no profile is in use, so nothing is filled in".to_owned());
        return said;
    };
    let written = |value: &str| match shown(variable, value) {
        "" => "an empty value".to_owned(),
        value => value.to_owned(),
    };
    let mut of_profile = Vec::new();
    if let Some(value) = profile.variables.get(variable) {
        of_profile.push(format!("publishes {}", written(value)));
    }
    for only in &profile.only {
        let Some(value) = only.variables.get(variable) else { continue };
        let conditions: Vec<String> = evidence::asked_by(only).map(|asked| asked.to_string()).collect();
        let counts = match evidence::counts(facts, &candidates(facts), only) {
            true => "which holds here",
            false => "which does not hold here",
        };
        let (value, conditions) = (written(value), conditions.join(" and "));
        of_profile.push(format!("publishes {value} only if {conditions}, {counts}"));
    }
    if let Some(source) = profile.from_environment.get(variable) {
        of_profile.push(format!("gives it the value of the platform's variable {source}, if that is set"));
    }
    if profile.unset.iter().any(|unset| unset == variable) {
        of_profile.push("says to leave it unset".to_owned());
    }
    if profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable)) {
        of_profile.push("never sets it".to_owned());
    }
    if profile.companions.iter().any(|companion| companion == variable) {
        of_profile.push("asks for it, to follow NCCL's variable".to_owned());
    }
    if said.is_empty() && of_profile.is_empty() {
        of_profile.push("says nothing about it".to_owned());
    }
    said.extend(of_profile.into_iter().map(|what| format!("profile {} {what}", profile.name)));
    said
}

/// Returns whether a profile mentions a variable.
fn names(profile: &Profile, variable: &str) -> bool {
    profile.may_fill().any(|name| name == variable)
        || profile.unset.iter().any(|name| name == variable)
        || profile.hands_off.iter().any(|pattern| profiles::fits(pattern, variable))
}

/// Returns which releases of NCCL read a variable.
fn known(variable: &str) -> Option<String> {
    if !variable.starts_with("NCCL_") {
        return None;
    }
    let Some(known) = variables::find(variable) else {
        let similar = variables::nearest(variable).map(|name| format!("; {name} has a similar name"));
        return Some(format!("no NCCL up to 2.32 reads it{}", similar.unwrap_or_default()));
    };
    Some(match (known.since, known.until) {
        (None, None) => "every NCCL reads it".to_owned(),
        (Some(since), None) => format!("NCCL {since} and later read it"),
        (None, Some(until)) => format!("NCCL read it up to {until}"),
        (Some(since), Some(until)) => format!("NCCL read it from {since} to {until}"),
    })
}
