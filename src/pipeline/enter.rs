//! `rdma-init exec`: a command with the variables that the container was started with.

use std::ffi::CString;
use std::time::{Duration, Instant};

use super::execute::raise_memlock;
use super::{Prepared, decide, read};
use crate::apply::environment;
use crate::config::{Config, Demand};
use crate::facts::environment::Environment;
use crate::log::Log;
use crate::state::StateDir;
use crate::state::find::{Found, Without, find};
use crate::state::preparation;
use crate::sys::exec::Image;

/// The time between two looks whether the container's start is done.
const LOOK: Duration = Duration::from_millis(20);

/// Everything up to the exec.
///
/// # Errors
/// A sentence for the user: a profile is at fault.
pub fn enter(
    config: &Config,
    log: &Log,
    command: Vec<CString>,
    inherited: Vec<CString>,
) -> anyhow::Result<Prepared> {
    let known = Environment::new(&inherited);
    let profiles = read::profiles(config)?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let given: Vec<(String, String)> = match wait(config) {
        Ok(found) => {
            tracing::debug!(folder = ?found.folder, doubt = ?found.doubt, "state found");
            if let Some(loss) = found.loss() {
                log.warn(&loss);
            }
            found.run.given().map(owned).collect()
        }
        Err(without) => {
            log.note(&why_afresh(&without));
            let facts = read::live_facts(&profiles, &known, &[]);
            let plan = decide(&facts, &profiles, config);
            plan.filled().map(owned).collect()
        }
    };
    if config.memlock != Demand::Off {
        raise_memlock();
    }
    // A variable that the entering process has already may be meant to differ.
    let new = given.iter().filter(|(name, _)| known.get(name).is_none());
    let new: Vec<(&str, &str)> = new.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let is_filled = !new.is_empty();
    Ok(Prepared::Command {
        image: Image::new(command, environment::with(inherited, new.into_iter())),
        filled: is_filled,
        note: Vec::new(),
        state: Vec::new(),
    })
}

/// Finds the state, and waits for a start that is not done yet.
fn wait(config: &Config) -> Result<Found, Vec<Without>> {
    // `None` if the time is longer than the clock can tell: there is no end then.
    let end = Instant::now().checked_add(left(config));
    loop {
        // Asked before the state is looked for, because the state is written before the
        // preparation ends.
        let may_come = end.is_none_or(|end| Instant::now() < end)
            && config.state_dir != StateDir::Nowhere
            && preparation::is_under_way() != Some(false);
        let found = find(&config.state_dir);
        // The folder may come up in one of several places, and no event tells of that.
        match found {
            Err(_) if may_come => std::thread::sleep(LOOK),
            found => return found,
        }
    }
}

/// How long the preparation of this container may still take, if PID 1 is rdma-init.
fn left(config: &Config) -> Duration {
    let age = preparation::age_of_our_init();
    age.map_or(Duration::ZERO, |age| config.longest_preparation().saturating_sub(age))
}

fn why_afresh(without: &[Without]) -> String {
    let start = "the start of the container has left nothing here, so the variables are decided anew";
    let reasons: Vec<String> =
        without.iter().map(|one| format!("{}: {}", one.folder.display(), one.why)).collect();
    match reasons.is_empty() {
        true => format!("{start}."),
        false => format!("{start} ({}).", reasons.join("; ")),
    }
}
