//! The commands that print. Each is a thin layer that takes facts and a plan to a report.

mod compare;
mod env;
mod inspect;
mod install;
mod licenses;
mod plan;
mod preflight;
mod process;
mod profiles;
mod ras;
mod self_test;
mod stat;
mod status;
mod why;

use std::io::{self, Write};

use crate::cli::{Action, print};
use crate::config::{Config, PROFILE_DIR};
use crate::env_plugin::copies;
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::json;
use crate::log::say;
use crate::pipeline::{self, read};
use crate::plan::Plan;
use crate::profiles::Profiles;
use crate::report::plan::Detail;
use crate::text::visible;
use crate::verbs;

/// Runs the command, printing to standard output. Returns the exit code.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn run(action: &Action, config: &Config, environment: &Environment) -> anyhow::Result<i32> {
    // Variables that were copied here from another node are not the user's settings.
    let environment = &environment.without(&copies::of(environment));
    let captured = action.facts().map(read::captured_facts).transpose()?;
    let replayed = replayed(captured.as_ref(), config)?;
    let (captured, config) = (captured.as_ref(), replayed.as_ref().unwrap_or(config));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut code = 0;
    match action {
        Action::Inspect { json, .. } => inspect::run(&mut out, captured, *json, config, environment),
        Action::Plan { process: Some(pid), .. } => process::run(&mut out, *pid, config),
        Action::Plan { why: Some(variable), json, .. } => {
            why::run(&mut out, captured, variable, *json, config, environment)
        }
        Action::Plan { evidence, quiet, json, why: None, process: None, .. } => {
            let form = match (json, quiet, evidence) {
                (true, ..) => plan::PlanFormat::Json,
                (false, true, _) => plan::PlanFormat::Quiet,
                (false, false, true) => plan::PlanFormat::Text(Detail::Full),
                (false, false, false) => plan::PlanFormat::Text(Detail::Compact),
            };
            plan::run(&mut out, captured, form, config, environment)
        }
        Action::Env(arguments) => {
            env::run(&mut out, arguments, captured, config, environment).map(|found| code = found)
        }
        Action::SelfTest(arguments) => self_test::run(&mut out, arguments, captured, config, environment)
            .map(|passed| code = i32::from(!passed)),
        // This returns at once, so that a failure to write the output cannot replace the code for an unfit
        // fabric.
        Action::Preflight(arguments) => return preflight::run(&mut out, arguments, config, environment),
        Action::Profiles { why: true, names, .. } => {
            profiles::why(&mut out, names, captured, config, environment)
        }
        Action::Profiles { host: crate::cli::Host { facts: Some(_) }, .. } => Err(anyhow::anyhow!(
            "profiles reads --facts only with --why: the profiles themselves are the same for every host"
        )),
        Action::Profiles { names, json, .. } => profiles::run(&mut out, names, *json, config),
        Action::Compare { files, expect, json } => {
            compare::run(&mut out, files, *expect, *json).map(|found| code = found)
        }
        Action::Install { folder } => install::run(&mut out, folder),
        Action::Status { json, ras } => {
            status::run(&mut out, *json, *ras, config, environment).map(|found| code = found)
        }
        Action::Completions { shell } => Ok(print::completions(&mut out, *shell)?),
        Action::Man { command } => Ok(print::man(&mut out, command.as_deref())?),
        Action::Licenses => licenses::run(&mut out),
        // The command-line parser has already printed it.
        Action::Help { .. } => Ok(()),
        Action::Stat(arguments) => stat::run(&mut out, arguments),
        // `crate::start` handles this action, because the process becomes the command.
        Action::Exec { .. } => Ok(()),
        // Probes every RDMA device through the built-in libibverbs.
        Action::VerbsProbe => Ok(json::write(&mut out, &verbs::probe::all())?),
    }?;
    out.flush()?;
    Ok(code)
}

/// The decision that `plan` and `env` show.
struct PlannedHost {
    profiles: Profiles,
    facts: Facts,
    plan: Plan,
}

fn decide(
    captured: Option<&Facts>,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<PlannedHost> {
    let profiles = profiles(config)?;
    let mut facts = facts(captured, &profiles, config, environment);
    if config.asks_anew {
        facts.settings = facts.settings.of_user();
        facts.filled_at_start.clear();
    }
    let plan = match captured {
        None => pipeline::decide_here(&facts, &profiles, config),
        Some(_) => pipeline::decide(&facts, &profiles, config),
    };
    Ok(PlannedHost { profiles, facts, plan })
}

/// Returns all profiles, and says on standard error if the user's directory contains none.
fn profiles(config: &Config) -> anyhow::Result<Profiles> {
    let profiles = read::profiles(config)?;
    if let Some(sentence) = read::no_profile_in_folder(config, &profiles) {
        say(&sentence);
    }
    Ok(profiles)
}

/// Returns the configuration for a captured host whose document contains one.
fn replayed(captured: Option<&Facts>, config: &Config) -> anyhow::Result<Option<Config>> {
    let Some(configuration) = captured.and_then(|facts| facts.configuration.as_ref()) else {
        return Ok(None);
    };
    if let Some(folder) = configuration.get(PROFILE_DIR).and_then(|folder| folder.as_str())
        && config.profile_dir.is_none()
    {
        say(&format!(
            "the captured host has profiles in {} (profile-dir), which the document does not contain. Copy the directory here, and name it with --profile-dir.",
            visible(folder)
        ));
    }
    Ok(Some(config.replaying(configuration)?))
}

/// Returns the facts of this container, or those captured on another host.
fn facts(captured: Option<&Facts>, profiles: &Profiles, config: &Config, environment: &Environment) -> Facts {
    let filled = read::filled_at_start(config, profiles, environment);
    let Some(captured) = captured else { return read::live_facts(profiles, environment, &filled) };
    // The values that an earlier start filled in for this container do not apply to the captured one.
    let environment = environment.without(&filled);
    let (facts, sentence) = read::with_environment(captured.clone(), profiles, &environment, config);
    sentence.inspect(|sentence| say(sentence));
    facts
}
