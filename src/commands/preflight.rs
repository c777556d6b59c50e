//! `rdma-init preflight`: the nodes of a job prove the fabric between all of them, as a step of its
//! own.

use std::io::Write;

use crate::cli::{PreflightArguments, RoundsOption};
use crate::config::Config;
use crate::facts::environment::Environment;
use crate::log::say;
use crate::pipeline::preflight::{self, SIZE};
use crate::pipeline::read;
use crate::preflight::job;
use crate::preflight::part::Asked;
use crate::preflight::schedule::Extent;
use crate::self_test::kinds::Level;
use crate::self_test::known;
use crate::self_test::run::{Scope, report};
use crate::text::sentence;

/// The exit code where the fabric is not fit for the job.
const FAILED: i32 = 1;

/// Returns the exit code.
pub fn run(
    out: &mut impl Write,
    arguments: &PreflightArguments,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<i32> {
    let asked = Asked {
        nodes: arguments.nodes.or(config.preflight_nodes),
        node: arguments.node.or(config.preflight_node),
        meet: arguments.meet.as_deref().or(config.preflight_meet.as_deref()),
    };
    let part = preflight::part(&asked, environment, &[]).map_err(anyhow::Error::msg)?;
    let host = crate::cli::Host { facts: None };
    let super::Decision { mut facts, plan, .. } = super::decide(&host, config, environment)?;
    read::add_extra(&mut facts);
    let scope = Scope::new(Level::Verbs, SIZE, *arguments.each);
    let report = report(&known::host_name(), &facts, &plan, scope, |_| true);
    let terms = job::Terms {
        rounds: match arguments.rounds {
            RoundsOption::Log => Extent::Doubling,
            RoundsOption::Full => Extent::Full,
        },
        scope,
        ..preflight::terms(config, environment, &part, &say)
    };
    let outcome = match job::run(&terms, &facts, &plan, &report) {
        Ok(outcome) => outcome,
        Err(why) => {
            say(&sentence(&format!("preflight: {why}")));
            return Ok(FAILED);
        }
    };
    writeln!(out, "{}", outcome.told.line)?;
    Ok(if outcome.told.passed { 0 } else { FAILED })
}
