//! Implements `rdma-init self-test`: tests limits, image, and fabric.

use std::io::Write;
use std::time::Instant;

use anyhow::bail;

use crate::apply::memlock as raise;
use crate::cli::SelfTestArguments;
use crate::config::{Config, Demand, TOKEN_VARIABLE, kept_token};
use crate::facts::Facts;
use crate::facts::environment::Environment;
use crate::facts::state::may_be_made;
use crate::finding::{Finding, Id};
use crate::findings::memlock;
use crate::json;
use crate::libraries::leads_to_gid;
use crate::log::{self, say};
use crate::pipeline::{changed_since, read};
use crate::plan::Plan;
use crate::profiles::Profiles;
use crate::report;
use crate::self_test::check::{Check, Outcome};
use crate::self_test::kinds::{self, KINDS, Level};
use crate::self_test::known;
use crate::self_test::pair::{self, Meeting, Role};
use crate::self_test::run::{self, Scope};
use crate::self_test::took_us;
use crate::state::StateDir;
use crate::state::find::find;

/// Runs the self-test. Returns whether no check failed.
pub(super) fn run(
    out: &mut impl Write,
    arguments: &SelfTestArguments,
    captured: Option<&Facts>,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<bool> {
    let started = Instant::now();
    if arguments.list {
        report::self_test::write_kinds(out)?;
        return Ok(true);
    }
    let is_wanted = |id: &str| {
        let listed = |ids: &[String]| ids.iter().any(|known| known == id);
        (arguments.only.is_empty() || listed(&arguments.only)) && !listed(&arguments.skip)
    };
    let level = match (arguments.level, &arguments.host.facts) {
        (Some(Level::Verbs), Some(_)) => {
            bail!("the devices of a captured host cannot be tested: with --facts, the level is quick")
        }
        (_, Some(_)) => Level::Quick,
        (level, None) => level.unwrap_or(Level::Verbs),
    };
    let extent = Scope::new(level, arguments.size, arguments.each);
    let role =
        arguments.listen.clone().map(Role::Listen).or_else(|| arguments.peer.clone().map(Role::Connect));
    let farthest = if role.is_some() { Level::Pair } else { level };
    refuse_nothing(arguments, farthest, is_wanted)?;
    if arguments.any_peer && role.is_none() {
        bail!("--any-peer needs --listen or --peer");
    }
    let given = environment.get(TOKEN_VARIABLE).unwrap_or_default();
    let token = role.as_ref().map(|role| pair::token(given, arguments.any_peer, role));
    let token =
        token.transpose().map_err(|why| kept_token(environment).map_or(why.to_string(), str::to_owned));
    let token = token.map_err(anyhow::Error::msg)?.unwrap_or_default();
    let met = role.map(|role| pair::meet(&Meeting { role, wait: arguments.wait, token, extent }, &say));
    let super::PlannedHost { profiles, mut facts, mut plan } = super::decide(captured, config, environment)?;
    let is_here = arguments.host.facts.is_none();
    if is_here {
        read::add_extra(&mut facts);
        facts.state_writable = match &config.state_dir {
            StateDir::Default => facts.state_writable,
            StateDir::At(folder) => Some(may_be_made(folder)),
            StateDir::Nowhere => None,
        };
    }
    if is_here && !plan.findings.iter().any(|finding| finding.id == Id::GidChanged) {
        plan.findings.extend(changed(config, &profiles, &facts));
    }
    plan.findings.extend(memlock_finding(config, &facts, &plan, is_here));
    let name = match &arguments.host.facts {
        None => known::host_name(),
        Some(source) => source.display().to_string(),
    };
    let mut report = run::report(&name, &facts, &plan, extent, is_wanted);
    if let Some(met) = met {
        let found = pair::test(met, &facts, &plan, extent, &mut report).into_iter();
        // If the other node did not connect, the checks that need it have also failed.
        let counts = |check: &Check| {
            is_wanted(&check.id) || check.outcome == Outcome::Failed && check.id == pair::CONNECT
        };
        report.checks.extend(found.filter(counts));
        report.passed = known::passed(&report.checks);
        report.took_us = took_us(started);
    }
    match arguments.json {
        true => {
            // `compare` reads such documents from many nodes, one on each line.
            json::write_line(out, &report)?;
        }
        false if arguments.quiet => report::self_test::write_brief(out, &report, log::Level::Warn)?,
        false => report::self_test::write(out, &report)?,
    }
    Ok(report.passed)
}

/// Reports values that the container's start filled in but that are wrong now, for a process that did not
/// get them. If the process sets a GID itself, this reports nothing: the process is judged by its own
/// values, which may be the fix for this finding.
fn changed(config: &Config, profiles: &Profiles, facts: &Facts) -> Option<Finding> {
    if facts.settings.of_user().0.iter().any(|setting| leads_to_gid(&setting.variable)) {
        return None;
    }
    let run = find(&config.state_dir).ok()?.run;
    run.filled_itself().any(|filled| leads_to_gid(&filled.variable)).then_some(())?;
    changed_since(&run, facts.clone(), profiles, config)
}

/// Reports what is wrong with pinned memory. On this host, the limit is raised and tested as at start-up;
/// for a captured host, the result is computed.
fn memlock_finding(config: &Config, facts: &Facts, plan: &Plan, is_here: bool) -> Option<Finding> {
    let before = facts.limits.memlock.filter(|_| config.memlock != Demand::Off)?;
    let pinning = if is_here {
        let (after, pinning) = raise::raise(before, &facts.process);
        raise::proven(pinning, after)
    } else {
        memlock::pinning(memlock::raised(before, &facts.process), &facts.process)
    };
    memlock::finding(pinning, facts).filter(|_| plan.fabric.pins_memory())
}

/// Fails if no check would run, because a self-test without checks would pass.
fn refuse_nothing(
    arguments: &SelfTestArguments,
    level: Level,
    is_wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let beyond = |id: &&String| kinds::find(id).is_some_and(|kind| kind.level > level);
    if let Some(id) = arguments.only.iter().find(beyond) {
        let needs = match kinds::find(id).map(|kind| kind.level) {
            Some(Level::Pair) => "--listen or --peer",
            _ => "--level verbs, on a live host",
        };
        bail!("the check {id} needs {needs}");
    }
    if !KINDS.iter().any(|kind| kind.level <= level && is_wanted(kind.id)) {
        bail!("--only and --skip leave no check to run");
    }
    Ok(())
}
