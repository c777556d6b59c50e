//! The main job, in order: configuration, facts, plan, checks, apply, exec.

mod account;
mod conf_file;
mod decide;
mod enter;
mod execute;
mod leave;
mod master;
mod metrics_file;
mod not_run;
mod own_program;
pub(crate) mod preflight;
pub mod read;
mod refuse;
mod starts;
mod traffic;
mod under_way;

pub(crate) use account::{account_so_far, give_account, was_to_watch};
pub use decide::{changed_since, decide, decide_here};
pub use enter::enter;
pub use execute::{PartialPreparation, execute, execute_decided, execute_filled, execute_untouched};
pub use not_run::exec_failed;
pub use refuse::{
    last_words, leave_reason, refuse, refuse_with_public_reason, refusing, write_termination_log,
};
pub(crate) use traffic::watch;
pub use under_way::UnderWay;

use std::ffi::CString;

use nix::unistd::Pid;

use crate::apply::{environment, memlock as raise};
use crate::config::{Config, Demand, WatchOption};
use crate::env_plugin::answer::MARKER;
use crate::env_plugin::copies;
use crate::facts::Facts;
use crate::facts::environment::{Environment, Filled};
use crate::facts::start::{Start, SupervisedBy};
use crate::finding::{Finding, Id, Severity};
use crate::findings::memlock;
use crate::init::Orders;
use crate::log::Log;
use crate::plan::Plan;
use crate::report;
use crate::report::plan::Memlock;
use crate::self_test;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::state::run::Unwatched;
use crate::sys::exec::PreparedExec;
use crate::sys::signals;

/// The result of the preparation.
#[must_use]
pub enum Prepared {
    /// The command, ready to be executed, and what its init gets: the note for the end, and the state for
    /// processes that enter. `under_way` ends when that state applies.
    Command {
        image: PreparedExec,
        filled: bool,
        note: Vec<u8>,
        state: Vec<u8>,
        under_way: Option<Box<UnderWay>>,
    },
    /// This process must supervise the command, and a child must prepare it.
    Supervise(Box<Orders>),
    /// The command must not be started. `public` is the reason for others; it contains only world-readable
    /// values.
    Refused { reason: String, public: String, code: i32 },
    /// There is nothing to start: exit with this code.
    Exit(i32),
}

/// Does everything up to the exec. Calls `decided` with what the command will get, as soon as nothing can
/// prevent the command's start.
///
/// # Errors
/// Returns a sentence for the user if the configuration or a profile is wrong.
pub fn prepare(
    config: &Config,
    log: &Log,
    command: Vec<CString>,
    mut inherited: Vec<CString>,
    keeper: SupervisedBy,
    decided: impl FnOnce(&PartialPreparation),
) -> anyhow::Result<Prepared> {
    let mut known = Environment::new(&inherited);
    let profiles = read::profiles(config)?;
    if let Some(sentence) = read::no_profile_in_folder(config, &profiles) {
        log.warn(&sentence);
    }
    let under_way = UnderWay::of(config);
    // If rdma-init's own init is PID 1, this is the container's start.
    let mut filled = match keeper {
        SupervisedBy::Pid1 => Vec::new(),
        SupervisedBy::Subreaper | SupervisedBy::NoProcess => read::filled_at_start(config, &profiles, &known),
    };
    if config.asks_anew {
        inherited = environment::without(inherited, &filled);
        known = known.without(&filled);
        filled.clear();
    }
    let copied = copies::of(&known);
    if !copied.is_empty() {
        log.note(&said_of_copies(&copied));
        inherited = environment::without(inherited, &copied);
        known = known.without(&copied);
    }
    let folder = std::env::current_dir().ok();
    let first = command.first().and_then(|word| word.to_str().ok());
    let start = Start {
        environment: &known,
        folder: folder.as_deref(),
        command: first,
        words: &command,
        filled: &filled,
        keeper,
    };
    let mut facts = match (config.self_test, config.preflight) {
        (Demand::Off, Demand::Off) => read::needed_facts(&profiles, start, config),
        _ => read::facts_to_prove(&profiles, start),
    };
    // This start moves the block to the end of the file.
    facts.settings.0.iter_mut().for_each(|setting| setting.below_block = false);
    // A copy of the saved facts is replayed with the same keys.
    facts.configuration = Some(config.captured());
    let mut plan = decide_here(&facts, &profiles, config);
    own_program::amend(&mut plan, config);
    let expected = conf_file::Expected::take(&mut plan, &facts, config);
    let memlock = raise_memlock(config, &facts, &mut plan);
    tracing::debug!(unreadable = facts.unreadable.len(), "facts read");

    report::start::plan(log, &plan, memlock.as_ref());
    if config.watch == Some(WatchOption::Off)
        && config.watch_metrics.is_some()
        && keeper != SupervisedBy::NoProcess
    {
        log.warn(
            "watch-metrics has no effect without the watcher, which writes the file. Set watch = \"warn\".",
        );
    }
    let refused = |reason: String| {
        let public = facts.settings.without_private_values(&reason);
        Ok(Prepared::Refused { reason, public, code: config.refuse_exit_code })
    };
    // The other nodes wait for this one and must learn what is wrong with it.
    let early = if config.preflight == Demand::Off { refusal(config, &plan) } else { None };
    if let Some(reason) = early {
        return refused(reason);
    }
    let report = test(config, &facts, &plan, &under_way, log);
    let proof = report.as_ref().filter(|_| config.self_test != Demand::Off);
    if let Some(report) = &report
        && config.preflight != Demand::Off
    {
        let own = preflight::Own { facts: &facts, plan: &plan, report };
        let of_job = preflight::refusal(config, &known, &command, own, &under_way, log);
        if let Some(reason) = refusal(config, &plan).or(of_job) {
            return refused(reason);
        }
    }
    if let Some(reason) = proof.and_then(|report| enforced(config, report)) {
        return refused(reason);
    }
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    decided(&PartialPreparation {
        raises_memlock: config.memlock != Demand::Off,
        filled: plan.filled().map(owned).collect(),
    });
    if let Some(master) = master::awaited(config, &facts) {
        master.wait(&under_way, log);
    } else if master::lacks_name(config, &facts) {
        log.note("The key wait-for-master has no effect, because MASTER_ADDR is not set.");
    }
    let job = preflight::of_watcher(config, &known, &command);
    let verdict = proof.map(|report| report.passed);
    let unwatched = traffic::unwatched(config, &plan, keeper);
    if unwatched == Some(Unwatched::Off) && !config.on_finding.is_empty() && keeper != SupervisedBy::NoProcess
    {
        log.warn(
            "the key on-finding has no effect, because watch is \"off\": no watcher starts the command.",
        );
    }
    let left = leave::leave(
        config,
        leave::Decided {
            facts: &facts,
            plan: &plan,
            memlock: memlock.as_ref(),
            verdict,
            by_init: keeper == SupervisedBy::Pid1,
            unwatched,
        },
        log,
    );
    if let Some(expected) = expected {
        expected.tell(log);
    }
    let filled = plan.filled().next().is_some();
    let of_plugin = left.of_plugin.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // The counters are read last of all, because a self-test moves data, too.
    let note = if keeper == SupervisedBy::NoProcess {
        Vec::new()
    } else {
        traffic::note(config, &facts, &plan, job, &command)
    };
    let image = PreparedExec::new(command, environment::with(inherited, plan.filled().chain(of_plugin)));
    // The process becomes the command, or exits, either of which frees all of this faster.
    std::mem::forget((facts, plan, profiles, report));
    Ok(Prepared::Command { image, filled, note, state: left.state, under_way: Some(Box::new(under_way)) })
}

/// Returns what a start says about values that it decides again.
fn said_of_copies(copied: &[Filled]) -> String {
    let names = copied.iter().map(|copy| copy.variable.as_str()).filter(|name| *name != MARKER);
    format!(
        "another start, probably on another node, filled in these variables, and a tool copied them here, so rdma-init decides them again: {}.",
        names.collect::<Vec<_>>().join(", ")
    )
}

/// Applies the remaining parts of the init's configuration in a process without an init, and says which parts
/// have no effect.
pub fn without_init(config: &Config, log: &Log, parent: Pid) {
    if let Some(signal) = config.parent_death_signal {
        signals::on_parent_death(signal, parent);
    }
    let lost = config.without_effect_in_place();
    if !lost.is_empty() {
        log.warn(&format!(
            "rdma-init is not PID 1 here and does not stay beside the command, so these settings have no effect: {}. Add --supervise, or make rdma-init the container's first process.",
            lost.join(", ")
        ));
    }
}

/// Raises the limit regardless of the fabric: another library may pin memory, too. Reports the result only if
/// RDMA is used.
fn raise_memlock(config: &Config, facts: &Facts, plan: &mut Plan) -> Option<Memlock> {
    if config.memlock == Demand::Off {
        return None;
    }
    let before = facts.limits.memlock?;
    let (after, pinning) = raise::raise(before, &facts.process);
    if !plan.fabric.pins_memory() {
        return None;
    }
    let pinning = raise::proven(pinning, after);
    plan.findings.extend(memlock::finding(pinning, facts));
    Some(Memlock { before, after, pinning })
}

/// Returns why the command must not be started; `None` if it may.
#[must_use]
fn refusal(config: &Config, plan: &Plan) -> Option<String> {
    if config.require_rdma
        && let Some(blocker) = plan.blockers().into_iter().next()
    {
        return Some(format!("RDMA is required (require-rdma). {}", blocker.message));
    }
    let failed = |finding: &&Finding| finding.id == Id::Memlock && finding.severity == Severity::Error;
    if config.memlock == Demand::Enforce
        && let Some(finding) = plan.findings.iter().find(failed)
    {
        return Some(format!("memlock = \"enforce\": {}", finding.message));
    }
    None
}

/// Tests limits, image and fabric if the user wants that, and reports the result. Only a preflight reports on
/// other nodes together with this one.
fn test(config: &Config, facts: &Facts, plan: &Plan, under_way: &UnderWay, log: &Log) -> Option<Report> {
    if (config.self_test, config.preflight) == (Demand::Off, Demand::Off) {
        return None;
    }
    under_way.is_now("self-test");
    let host = self_test::known::host_name();
    let report = self_test::run::report(&host, facts, plan, scope(config), |_| true);
    if config.self_test != Demand::Off {
        report::start::self_test(log, &report);
    }
    Some(report)
}

/// Returns how far the self-test of a start goes. That of a preflight has the time limits of the preflight.
fn scope(config: &Config) -> Scope {
    match config.preflight {
        Demand::Off => Scope::default(),
        Demand::Warn | Demand::Enforce => Scope { each: config.preflight_each, ..Scope::default() },
    }
}

/// Returns why the command must not be started after this self-test; `None` if it may.
#[must_use]
fn enforced(config: &Config, report: &Report) -> Option<String> {
    match config.self_test {
        Demand::Enforce => self_test::gate::reason(report),
        Demand::Off | Demand::Warn => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_self_test_of_a_preflight_has_its_time_limit() {
        let preflight_each = Duration::from_secs(77);
        let each = |preflight| scope(&Config { preflight, preflight_each, ..Config::default() }).each;
        assert_eq!([Demand::Warn, Demand::Enforce].map(each), [preflight_each; 2]);
        assert_eq!(each(Demand::Off), Scope::default().each);
    }
}
