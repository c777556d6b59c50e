//! The commands that print, each a thin line from facts and plan to a report.

mod compare;
mod env;
mod inspect;
mod install;
mod plan;
mod preflight;
mod profiles;
mod self_test;
mod stat;
mod status;
mod verbs_probe;
mod why;

use std::io::{self, Write};

use crate::cli::Action;
use crate::config::Config;
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::pipeline::{self, read};
use crate::plan::Plan;
use crate::profiles::Profiles;
use crate::report::plan::Detail;

/// Runs the command, printing to standard output. Returns the exit code.
///
/// # Errors
/// A sentence for the user.
pub fn run(action: &Action, config: &Config, environment: &Environment) -> anyhow::Result<i32> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut code = 0;
    match action {
        Action::Inspect { host, json } => inspect::run(&mut out, host, *json, config, environment),
        Action::Plan { host, why: Some(variable), json, .. } => {
            why::run(&mut out, host, variable, *json, config, environment)
        }
        Action::Plan { host, evidence, json, why: None } => {
            let form = match (json, evidence) {
                (true, _) => plan::Form::Json,
                (false, true) => plan::Form::Text(Detail::Full),
                (false, false) => plan::Form::Text(Detail::Compact),
            };
            plan::run(&mut out, host, form, config, environment)
        }
        Action::Env(arguments) => {
            env::run(&mut out, arguments, config, environment).map(|found| code = found)
        }
        Action::SelfTest(arguments) => {
            self_test::run(&mut out, arguments, config, environment).map(|passed| code = i32::from(!passed))
        }
        // What cannot be written must not hide that the fabric is not fit.
        Action::Preflight(arguments) => return preflight::run(&mut out, arguments, config, environment),
        Action::Profiles { name, json } => profiles::run(&mut out, name.as_deref(), *json, config),
        Action::Compare { files, expect, json } => {
            compare::run(&mut out, files, *expect, *json).map(|found| code = found)
        }
        Action::Install { folder } => install::run(&mut out, folder),
        Action::Status { json } => status::run(&mut out, *json, config).map(|found| code = found),
        Action::Stat(arguments) => stat::run(&mut out, arguments),
        // `crate::start` handles this one, which becomes the command.
        Action::Exec { .. } => Ok(()),
        Action::VerbsProbe => verbs_probe::run(&mut out),
    }?;
    out.flush()?;
    Ok(code)
}

/// What `plan` and `env` decide and show.
struct Decision {
    profiles: Profiles,
    facts: Facts,
    plan: Plan,
}

fn decide(host: &crate::cli::Host, config: &Config, environment: &Environment) -> anyhow::Result<Decision> {
    let profiles = read::profiles(config)?;
    let mut facts = facts(host, &profiles, config, environment)?;
    if config.asks_anew {
        facts.settings = facts.settings.of_user();
        facts.filled_at_start.clear();
    }
    let plan = pipeline::decide(&facts, &profiles, config);
    Ok(Decision { profiles, facts, plan })
}

/// The facts of this container, or those captured elsewhere.
fn facts(
    host: &crate::cli::Host,
    profiles: &Profiles,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<Facts> {
    let filled = read::filled_at_start(config, profiles, environment);
    match &host.facts {
        None => Ok(read::live_facts(profiles, environment, &filled)),
        // What an earlier start filled in for this container is not meant for the captured one.
        Some(source) => read::captured_facts(source, profiles, &environment.without(&filled)),
    }
}
