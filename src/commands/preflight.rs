//! `rdma-init preflight`: the nodes of a job prove the fabric between all of them.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::cli::{PreflightArguments, RoundsOption};
use crate::compare::brief::Brief;
use crate::config::{Config, TOKEN_VARIABLE};
use crate::facts::environment::Environment;
use crate::log::say;
use crate::pipeline::read;
use crate::preflight::node::Node;
use crate::preflight::own::Rails;
use crate::preflight::run;
use crate::preflight::schedule::Extent;
use crate::self_test::kinds::Level;
use crate::self_test::known;
use crate::self_test::run::{Scope, report};

/// The exit code where the fabric is not fit for the job.
const FAILED: i32 = 1;

/// Returns the exit code.
pub fn run(
    out: &mut impl Write,
    arguments: &PreflightArguments,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<i32> {
    let (nodes, node, meet) = (arguments.nodes, arguments.node, arguments.meet.clone());
    let (nodes, node) = (nodes.context("--nodes is missing")?, node.context("--node is missing")?);
    let meet = meet.context("--meet is missing")?;
    if node >= nodes {
        bail!("--node is {node}, and there are {nodes} nodes, counted from 0");
    }
    let host = crate::cli::Host { facts: None };
    let super::Decision { mut facts, plan, .. } = super::decide(&host, config, environment)?;
    read::add_extra(&mut facts);
    let scope = Scope::new(Level::Verbs, 4 * 1024 * 1024, *arguments.each);
    let report = report(&known::host_name(), &facts, &plan, scope, |_| true);
    let node = Node {
        node,
        nodes,
        job: None,
        meet,
        wait: Duration::from_secs(600),
        token: environment.get(TOKEN_VARIABLE).unwrap_or_default(),
        rails: Rails::of(&facts, &plan, &report, scope),
        report: Brief::from(&report),
        extent: scope,
        say: &say,
    };
    let extent = match arguments.rounds {
        RoundsOption::Log => Extent::Doubling,
        RoundsOption::Full => Extent::Full,
    };
    let outcome = run::run(&node, extent).map_err(anyhow::Error::msg)?;
    writeln!(out, "{}", outcome.told.line)?;
    Ok(if outcome.told.passed { 0 } else { FAILED })
}
