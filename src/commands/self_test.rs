//! `rdma-init self-test`: limits, image and fabric, proven.

use std::io::Write;
use std::time::Instant;

use anyhow::bail;

use crate::apply::memlock as raise;
use crate::check::memlock::{self, Mode};
use crate::cli::SelfTestArguments;
use crate::config::{Config, TOKEN_VARIABLE};
use crate::facts::settings::Environment;
use crate::host;
use crate::report;
use crate::report::log::say;
use crate::self_test::kinds::{self, Level};
use crate::self_test::pair::{self, Meeting, Role};
use crate::self_test::quick;
use crate::self_test::whole::{self, Extent};

/// Whether all passed.
pub fn run(
    out: &mut impl Write,
    arguments: &SelfTestArguments,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<bool> {
    let started = Instant::now();
    if arguments.list {
        report::self_test::write_kinds(out)?;
        return Ok(true);
    }
    for id in arguments.skip.iter().chain(&arguments.only) {
        if kinds::find(id).is_none() {
            bail!("there is no check {id:?}; `rdma-init self-test --list` shows them");
        }
    }
    let is_wanted = |id: &str| {
        let listed = |ids: &[String]| ids.iter().any(|known| known == id);
        (arguments.only.is_empty() || listed(&arguments.only)) && !listed(&arguments.skip)
    };
    let level = match (arguments.level, &arguments.host.facts) {
        (Some(Level::Verbs), Some(_)) => {
            bail!("the devices of a captured host cannot be tried: --level quick")
        }
        (_, Some(_)) => Level::Quick,
        (level, None) => level.unwrap_or(Level::Verbs),
    };
    let extent = Extent { level, size: arguments.size, each: *arguments.each };
    let role = arguments.listen.as_deref().map(Role::Listen).or(arguments.peer.as_deref().map(Role::Connect));
    let met = role.map(|role| {
        let token = environment.get(TOKEN_VARIABLE).unwrap_or_default();
        pair::meet(Meeting { role, wait: *arguments.wait, token, extent }, &say)
    });
    let super::Decision { mut facts, mut plan, .. } = super::decide(&arguments.host, config, environment)?;
    if arguments.host.facts.is_none() {
        host::add_extra(&mut facts);
    }
    if config.memlock != Mode::Off
        && let Some(before) = facts.limits.memlock
    {
        // As at start-up, but not of a process that is elsewhere.
        let pinning = match arguments.host.facts {
            None => {
                let (after, pinning) = raise::raise(before, &facts.process);
                raise::proven(pinning, after)
            }
            Some(_) => memlock::pinning(memlock::raised(before, &facts.process), &facts.process),
        };
        if plan.fabric.pins_memory() {
            plan.findings.extend(memlock::finding(pinning, &facts.process));
        }
    }
    let name = match &arguments.host.facts {
        None => quick::host_name(),
        Some(source) => source.display().to_string(),
    };
    let mut report = whole::report(&name, &facts, &plan, extent, is_wanted);
    if let Some(met) = met {
        let found = pair::test(met, &facts, &plan, extent, &mut report).into_iter();
        report.checks.extend(found.filter(|check| is_wanted(&check.id)));
        report.passed = quick::passed(&report.checks);
        report.took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    }
    match arguments.json {
        true => {
            // On one line, as `compare` reads them from many nodes.
            serde_json::to_writer(&mut *out, &report)?;
            writeln!(out)?;
        }
        false => report::self_test::write(out, &report)?,
    }
    Ok(report.passed)
}
