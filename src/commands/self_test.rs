//! `rdma-init self-test`: limits, image and fabric, proven.

use std::io::Write;

use anyhow::bail;

use crate::apply::memlock as raise;
use crate::check::memlock::{self, Mode};
use crate::cli::SelfTestArguments;
use crate::config::Config;
use crate::facts::settings::Environment;
use crate::report;
use crate::self_test::kinds::{self, Level};
use crate::self_test::quick;
use crate::self_test::whole::{self, Extent};

/// Whether all passed.
pub fn run(
    out: &mut impl Write,
    arguments: &SelfTestArguments,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<bool> {
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
    let super::Decision { facts, mut plan, .. } = super::decide(&arguments.host, config, environment)?;
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
    let host = match &arguments.host.facts {
        None => quick::host_name(),
        Some(source) => source.display().to_string(),
    };
    let extent = Extent { level, size: arguments.size, each: *arguments.each };
    let report = whole::report(&host, &facts, &plan, extent, is_wanted);
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
