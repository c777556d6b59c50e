//! `rdma-init exec`: runs a command with the variables that the container was started with.

use std::ffi::CString;
use std::time::{Duration, Instant};

use super::execute::raise_memlock;
use super::{Prepared, decide, read, starts};
use crate::apply::environment;

use crate::config::{Config, Demand};
use crate::env_plugin::copies;
use crate::facts::environment::Environment;
use crate::log::Log;
use crate::state::StateDir;
use crate::state::find::{Found, Without, find};
use crate::state::phase::{self, At};
use crate::state::preparation;
use crate::sys::exec::PreparedExec;
use crate::text::duration;

/// The interval for checking whether the container's start is done.
const LOOK: Duration = Duration::from_millis(20);

/// Does everything up to the exec. Waits at most this long for a start that is under way.
///
/// # Errors
/// Returns a sentence for the user if a profile is wrong.
pub fn enter(
    config: &Config,
    log: &Log,
    command: Vec<CString>,
    inherited: Vec<CString>,
    most: Option<Duration>,
) -> anyhow::Result<Prepared> {
    let known = Environment::new(&inherited);
    let profiles = read::profiles(config)?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let given: Vec<(String, String)> = match wait(config, log, most) {
        Ok(found) => {
            let folder = found.folder.as_ref().map(|folder| folder.display().to_string());
            let doubt = found.doubt.as_ref().map(ToString::to_string);
            tracing::debug!(folder, doubt, "state found");
            if let Some(loss) = found.loss() {
                log.warn(&loss);
            }
            found.run.given().map(owned).collect()
        }
        Err(missing) => {
            log.note(&missing.why_afresh());
            let facts = read::live_facts(&profiles, &known.without(&copies::of(&known)), &[]);
            let plan = decide(&facts, &profiles, config);
            plan.filled().map(owned).collect()
        }
    };
    if config.memlock != Demand::Off {
        raise_memlock();
    }
    // A variable that the entering process already has may differ on purpose, but not if it is a copy of a
    // value that another node filled in.
    let copied = copies::of(&known);
    let known = known.without(&copied);
    let new = given.iter().filter(|(name, _)| known.get(name).is_none());
    let new: Vec<(&str, &str)> = new.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let is_filled = !new.is_empty();
    let own = environment::without(inherited, &copied);
    Ok(Prepared::Command {
        image: PreparedExec::new(command, environment::with(own, new.into_iter())),
        filled: is_filled,
        note: Vec::new(),
        state: Vec::new(),
        under_way: None,
    })
}

/// Why no state was found.
struct Missing {
    /// The directories whose state is unusable.
    without: Vec<Without>,
    late: Option<Late>,
}

/// A start whose end `exec` did not wait for.
struct Late {
    after: Duration,
    /// What the start is doing, if it recorded that.
    phase: Option<At>,
}

/// How long to wait for a start before a message says so. Most starts are done by then.
const SILENT: Duration = Duration::from_secs(1);

/// Finds the state, and waits for a start that is not done yet.
fn wait(config: &Config, log: &Log, most: Option<Duration>) -> Result<Found, Missing> {
    let began = Instant::now();
    let mut usual = usual_start(config);
    let mut is_said = false;
    loop {
        // This must come before the search for the state, because the state is written before the preparation
        // ends.
        let UnderWay { is_under_way, phase, rest } = UnderWay::now(config);
        let elapsed = began.elapsed();
        usual = usual.max(rest.map_or(Duration::ZERO, |rest| elapsed.saturating_add(rest)));
        let longest = bound(usual, most, is_under_way);
        let may_come = elapsed < longest && config.state_dir != StateDir::Nowhere;
        // The directory may appear in one of several places, and no event reports that.
        match find(&config.state_dir) {
            Ok(found) => return Ok(found),
            Err(_) if may_come => {
                // A test may take long, so this says at once what the start is doing.
                if !is_said && (phase.is_some() || elapsed >= SILENT) {
                    is_said = true;
                    log.note(&waiting(longest, phase.as_ref()));
                }
                std::thread::sleep(LOOK);
            }
            Err(without) => {
                let after = if elapsed < longest { Duration::ZERO } else { longest };
                let late = (is_under_way == Some(true)).then_some(Late { after, phase });
                return Err(Missing { without, late });
            }
        }
    }
}

/// What is known about a start that is under way.
struct UnderWay {
    /// `None` if that cannot be determined.
    is_under_way: Option<bool>,
    /// What the start is doing, if it recorded that.
    phase: Option<At>,
    /// How much longer it may take, if it is not PID 1's start.
    rest: Option<Duration>,
}

impl UnderWay {
    fn now(config: &Config) -> UnderWay {
        // The start may have options that this process does not know, so the start states how long it may
        // take.
        if let Some(phase) = phase::find(&config.state_dir) {
            let rest = phase.longest.saturating_sub(phase.age);
            return UnderWay { is_under_way: Some(true), rest: Some(rest), phase: Some(phase) };
        }
        let of_another = if preparation::is_by_us() { None } else { starts::under_way() };
        UnderWay {
            is_under_way: if of_another.is_some() { Some(true) } else { preparation::is_under_way() },
            phase: None,
            rest: of_another.map(|age| config.longest_preparation().saturating_sub(age)),
        }
    }
}

/// Returns how much longer a start below rdma-init as PID 1 may take, according to this process's options.
fn usual_start(config: &Config) -> Duration {
    let age = preparation::age_of_our_init();
    age.map_or(Duration::ZERO, |age| config.longest_preparation().saturating_sub(age))
}

/// Returns how long to wait in total. The user's limit applies if a start is known to be under way. If that
/// cannot be determined, the wait ends when the start must be over.
fn bound(usual: Duration, most: Option<Duration>, is_under_way: Option<bool>) -> Duration {
    match is_under_way {
        Some(true) => most.unwrap_or(usual),
        Some(false) => Duration::ZERO,
        None => usual.min(most.unwrap_or(Duration::MAX)),
    }
}

fn waiting(longest: Duration, phase: Option<&At>) -> String {
    // A limit of a week or more is not worth mentioning.
    let bound = match longest < Duration::from_secs(7 * 24 * 3600) {
        true => format!(", for {} at most (--wait)", duration(Duration::from_secs(longest.as_secs()))),
        false => String::new(),
    };
    format!("is waiting until the container is prepared{bound}{}", phase_of(phase))
}

fn phase_of(phase: Option<&At>) -> String {
    phase.map(|phase| format!(": {}", phase.text)).unwrap_or_default()
}

impl Missing {
    /// Returns why the variables are decided again, and how to avoid that.
    fn why_afresh(&self) -> String {
        let Some(Late { after, phase }) = &self.late else { return self.why_nothing() };
        let after = match after.is_zero() {
            true => String::new(),
            false => format!(" after {} (--wait)", duration(*after)),
        };
        let phase = phase_of(phase.as_ref());
        format!(
            "the start of the container is still under way{after}{phase}. The variables are decided anew, and may differ from those that the command will get. For the same ones, enter again when rdma-init status reports that the command is running, or let exec wait longer (--wait)."
        )
    }

    fn why_nothing(&self) -> String {
        let start = "the start of the container saved no state here, so the variables are decided anew";
        let reasons: Vec<String> =
            self.without.iter().map(|one| format!("{}: {}", one.folder.display(), one.why)).collect();
        match reasons.is_empty() {
            true => format!("{start}."),
            false => format!("{start} ({}).", reasons.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_asks_for_is_shorter_or_longer_than_a_start_usually_takes() {
        let seconds = Duration::from_secs;
        let of = |most: Option<u64>, is_under_way| bound(seconds(10), most.map(seconds), is_under_way);
        assert_eq!(of(None, Some(true)), seconds(10));
        assert_eq!([1, 0, 1000].map(|most| of(Some(most), Some(true))), [1, 0, 1000].map(seconds));
        // No start is under way, or that cannot be determined.
        assert_eq!([None, Some(1000)].map(|most| of(most, Some(false))), [seconds(0); 2]);
        assert_eq!([None, Some(1), Some(1000)].map(|most| of(most, None)), [10, 1, 10].map(seconds));
    }
}
