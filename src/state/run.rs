//! What is known about a start. It is part of `plan.json`.

use std::ffi::CStr;
use std::fmt;

use indexmap::IndexMap;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::env_plugin::answer::MARKER;
use crate::facts::environment::Filled;
use crate::facts::identity::{Identity, parent, started};
use crate::facts::reader::of_kernel;
use crate::facts::secret::is_secret;
use crate::finding::Source;
use crate::json;
use crate::libraries::nccl::env_plugin::VARIABLE;
use crate::plan::{Plan, SCHEMA, Setting, SettingOutcome};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    pub identity: Identity,
    /// Whether rdma-init's own init is the container's PID 1.
    pub by_init: bool,
    /// When the preparation was done, in seconds since 1970.
    pub since: u64,
    /// The command's process: its ID in its own namespace.
    pub pid: i32,
    /// The start time of that process; `None` if it is unknown, or if `by_init` is set: the command then lasts as long
    /// as the container, which `identity` names.
    pub pid_started: Option<u64>,
    /// The decision in one line.
    pub headline: String,
    /// `passed` or `failed`; `None` if there was no self-test.
    pub self_test: Option<String>,
    /// The filled variables, in this order.
    pub filled: Variables,
    /// Why each of these variables was filled in, except those that the user's configuration sets.
    pub reasons: IndexMap<String, Reason>,
    /// The variables that were already in the environment: those of NCCL and its companions, never any other.
    pub inherited: Variables,
    /// Why no watcher was to be started beside the command; `None` if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwatched: Option<Unwatched>,
}

/// The name of the watcher's process: by it, other processes tell it from a start that is under way. The kernel keeps
/// 15 bytes.
pub(crate) const WATCHER: &CStr = c"rdma-init-watch";

/// Why no watcher looks at the ports of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unwatched {
    /// The configuration says so.
    Off,
    /// No init of ours stays with the command.
    NoInit,
    /// RDMA is not planned.
    NoPort,
    /// A reason of a later version.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Unwatched {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Unwatched::Off => "watch is \"off\"",
            Unwatched::NoInit => "rdma-init is not PID 1 here, and --supervise is not set",
            Unwatched::NoPort => "no port is used for RDMA",
            Unwatched::Unknown => "the start had a reason that this version does not know",
        })
    }
}

/// Names and values.
pub(crate) type Variables = IndexMap<String, String>;

/// Why a variable has its value, as in a [`Setting`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reason {
    pub source: Source,
    pub rule: String,
}

impl Run {
    /// Returns a start with only its variables set: the ones of this plan that others may see.
    pub fn of(plan: &Plan) -> Run {
        Run {
            filled: plan.public().map(owned).collect(),
            reasons: reasons(&plan.settings),
            inherited: plan.inherited().map(owned).collect(),
            ..Run::default()
        }
    }

    /// Does the same as [`Run::of`], but with secrets, for a process that has the plan itself.
    pub fn with_secrets(plan: &Plan) -> Run {
        Run { filled: plan.filled().map(owned).collect(), ..Run::of(plan) }
    }

    /// Returns the env plugin that NCCL loads, if it is rdma-init's.
    pub fn env_plugin(&self) -> Option<&str> {
        self.filled.get(VARIABLE).filter(|_| self.filled.contains_key(MARKER)).map(String::as_str)
    }

    /// Returns how many variables were filled in, not counting those that make NCCL load the env plugin.
    pub fn decided(&self) -> usize {
        self.filled.len() - if self.env_plugin().is_some() { 2 } else { 0 }
    }

    /// Returns all variables related to NCCL that the command got.
    pub fn given(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.filled.iter().chain(&self.inherited);
        all.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the variables that rdma-init decided to fill in.
    pub fn filled_itself(&self) -> impl Iterator<Item = Filled> {
        // A state of an older version also contains secrets.
        let reasons = self.reasons.iter().filter(|(variable, _)| !is_secret(variable));
        reasons.filter_map(|(variable, Reason { source, rule })| {
            Some(Filled {
                variable: variable.clone(),
                value: self.filled.get(variable)?.clone(),
                source: source.clone(),
                rule: rule.clone(),
            })
        })
    }

    /// Returns whether this start's command is still running.
    pub fn is_running(&self) -> bool {
        match started(self.pid) {
            None => is_hidden(self.pid),
            now => self.pid_started.is_none() || now == self.pid_started,
        }
    }

    /// Returns the process that watches the job's ports: another child of the init that has started the command.
    pub fn watcher(&self) -> Option<i32> {
        let init = parent(self.pid)?;
        let children = of_kernel(format!("/proc/{init}/task/{init}/children"))?;
        let name = |pid: i32| of_kernel(format!("/proc/{pid}/comm"));
        // One that has ended keeps its name until it is reaped.
        let is_watcher = |pid: &i32| {
            name(*pid).is_some_and(|name| name.trim_end().as_bytes() == WATCHER.to_bytes())
                && started(*pid).is_some()
        };
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_watcher)
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn reasons(settings: &[Setting]) -> IndexMap<String, Reason> {
    let own = settings.iter().filter(|setting| setting.outcome == SettingOutcome::Filled);
    own.filter(|setting| setting.source != Source::Configuration)
        .map(|Setting { variable, source, rule, .. }| {
            (variable.clone(), Reason { source: source.clone(), rule: rule.clone() })
        })
        .collect()
}

/// Returns whether this process exists although this user may not see it in /proc (`hidepid`, proc(5)).
fn is_hidden(pid: i32) -> bool {
    let is_shown = std::path::Path::new(&format!("/proc/{pid}")).exists();
    !is_shown && kill(Pid::from_raw(pid), None) == Err(Errno::EPERM)
}

/// The parts of `plan.json` that are read.
#[derive(Debug, Deserialize)]
struct Kept {
    schema: String,
    run: Option<Run>,
}

/// More variables than any start saves: NCCL has some three hundred.
const MOST_VARIABLES: usize = 1024;

/// # Errors
/// Returns a sentence if the text is not a document of this kind.
pub(crate) fn parse(text: &[u8]) -> Result<Run, String> {
    let kept: Kept = json::read(text).map_err(|error| format!("it is not a plan: {error}"))?;
    match kept.run {
        _ if kept.schema != SCHEMA => Err(format!("its schema is {:?}, not {SCHEMA:?}", kept.schema)),
        None => Err("it has no record of a start".to_owned()),
        Some(run)
            if [run.filled.len(), run.inherited.len(), run.reasons.len()]
                .into_iter()
                .any(|count| count > MOST_VARIABLES) =>
        {
            Err(format!("it has more than {MOST_VARIABLES} variables"))
        }
        Some(run) => Ok(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_more_variables_than_any_start_leaves_is_none() {
        let run = |count: usize| {
            let filled = (0..count).map(|number| (format!("NCCL_{number}"), String::new())).collect();
            let run = Run { filled, ..Run::default() };
            parse(serde_json::json!({"schema": SCHEMA, "run": run}).to_string().as_bytes())
        };
        assert!(run(MOST_VARIABLES).is_ok());
        assert_eq!(run(MOST_VARIABLES + 1).unwrap_err(), "it has more than 1024 variables");
    }

    #[test]
    fn only_a_plan_saved_by_a_start_is_accepted() {
        let run = Run { pid: 7, ..Run::default() };
        let text = |schema: &str| serde_json::json!({"schema": schema, "ports": [], "run": run}).to_string();
        assert_eq!(parse(text(SCHEMA).as_bytes()), Ok(run.clone()));
        assert!(parse(text("rdma-init/plan/9").as_bytes()).unwrap_err().contains("plan/9"));
        assert!(
            parse(format!("{{\"schema\": {SCHEMA:?}}}").as_bytes())
                .unwrap_err()
                .contains("no record of a start")
        );
        assert!(parse(b"{").unwrap_err().contains("not a plan"));
    }

    #[test]
    fn what_the_user_had_it_set_is_not_its_own() {
        let setting = |variable: &str, outcome, source: Source| Setting {
            variable: variable.to_owned(),
            value: Some("1".to_owned()),
            secret: None,
            outcome,
            source,
            rule: "r".to_owned(),
            evidence: Vec::new(),
            library: None,
            at_start: false,
        };
        let settings = vec![
            setting("A", SettingOutcome::Filled, Source::Facts),
            setting("B", SettingOutcome::Filled, Source::Configuration),
            setting("C", SettingOutcome::User, Source::Environment),
            Setting { value: None, ..setting("D", SettingOutcome::Unset, Source::Facts) },
        ];
        let filled = settings.iter().filter(|setting| setting.outcome == SettingOutcome::Filled);
        let run = Run {
            filled: filled.map(|setting| (setting.variable.clone(), "1".to_owned())).collect(),
            reasons: reasons(&settings),
            ..Run::default()
        };
        let own = Filled { variable: "A".into(), value: "1".into(), source: Source::Facts, rule: "r".into() };
        assert_eq!(run.filled_itself().collect::<Vec<_>>(), [own]);
        // A variable that was not used from the state has no reason, either.
        assert_eq!(Run { filled: Variables::new(), ..run }.filled_itself().count(), 0);
    }

    #[test]
    fn a_number_that_another_process_has_by_now_is_no_command() {
        let pid = std::process::id() as i32;
        let own = Run { pid, pid_started: started(pid), ..Run::default() };
        assert!(own.is_running());
        assert!(!Run { pid_started: Some(1), ..own.clone() }.is_running());
        assert!(!Run { pid: i32::MAX, ..own }.is_running());
    }
}
