//! Implements `rdma-init env`: prints the variables for other programs to read.

use std::io::Write;

use crate::cli::EnvArguments;
use crate::config::Config;
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::log::say;
use crate::report;
use crate::state::find::find;
use crate::state::run::Run;

/// Prints the variables, and returns the exit code.
pub(super) fn run(
    out: &mut impl Write,
    arguments: &EnvArguments,
    captured: Option<&Facts>,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<i32> {
    // If the user asks for another profile, the saved state does not answer: the plan is made anew.
    let state = match captured {
        None if !config.asks_anew => kept(config),
        _ => None,
    };
    let run = match state {
        Some(run) => run,
        None => {
            let super::PlannedHost { plan, .. } = super::decide(captured, config, environment)?;
            Run::with_secrets(&plan)
        }
    };
    let filled = run.filled.len();
    let is_wanted = |(index, (name, value)): &(usize, (&str, &str))| {
        (arguments.all || *index < filled)
            && !(arguments.changed_only && environment.get(name) == Some(*value))
    };
    let variables: Vec<(&str, &str)> =
        run.given().enumerate().filter(is_wanted).map(|(_, variable)| variable).collect();
    let left_out = report::environment::write(out, &variables, arguments.format)?;
    if left_out.is_empty() {
        return Ok(0);
    }
    let names: Vec<String> = left_out.iter().map(ToString::to_string).collect();
    say(&format!("this format cannot hold these variables, so they are omitted: {}.", names.join(", ")));
    Ok(INCOMPLETE)
}

/// The exit code if a variable was omitted.
const INCOMPLETE: i32 = 1;

/// Returns the state that the start of this container saved.
fn kept(config: &Config) -> Option<Run> {
    let found = find(&config.state_dir).ok()?;
    if let Some(loss) = found.loss() {
        say(&loss);
    }
    Some(found.run)
}
