//! `rdma-init preflight`: the nodes of a job prove the fabric between all of them, as a step of its
//! own.

use std::io::Write;

use crate::cli::{ExcludeFormat, PreflightArguments, RoundsOption};
use crate::config::{Config, Excluded};
use crate::facts::environment::Environment;
use crate::json;
use crate::log::{self, say};
use crate::pipeline::preflight::{self, Files, SIZE};
use crate::pipeline::read;
use crate::preflight::job;
use crate::preflight::judging::Limits;
use crate::preflight::part::Asked;
use crate::preflight::schedule::Extent;
use crate::report::preflight::write;
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
    let is_by_key = config.preflight_nodes.is_some()
        || config.preflight_node.is_some()
        || config.preflight_meet.is_some();
    let is_by_option = arguments.nodes.is_some() || arguments.node.is_some() || arguments.meet.is_some();
    let asked = Asked {
        nodes: arguments.nodes.or(config.preflight_nodes),
        node: arguments.node.or(config.preflight_node),
        meet: arguments.meet.as_deref().or(config.preflight_meet.as_deref()),
        prefix: if is_by_key && !is_by_option { "preflight-" } else { "" },
    };
    let part = preflight::part(&asked, environment, &[]).map_err(anyhow::Error::msg)?;
    let host = crate::cli::Host { facts: None };
    let super::Decision { mut facts, plan, .. } = super::decide(&host, config, environment)?;
    read::add_extra(&mut facts);
    let scope = Scope::new(Level::Verbs, SIZE, *arguments.each);
    let report = report(&known::host_name(), &facts, &plan, scope, |_| true);
    let limits = preflight::limits(config);
    let limits = Limits {
        least_gbps: arguments.min_bandwidth.or(limits.least_gbps),
        enforce_slow: arguments.enforce_slow || limits.enforce_slow,
    };
    let rounds = match arguments.rounds {
        RoundsOption::Log => Extent::Doubling,
        RoundsOption::Full => Extent::Full,
    };
    let files = Files::of(config);
    let files = Files {
        excluded: arguments.exclude_file.as_deref().or(files.excluded),
        format: match arguments.format {
            Some(ExcludeFormat::Lines) => Excluded::Lines,
            Some(ExcludeFormat::Slurm) => Excluded::Slurm,
            None => files.format,
        },
        html: arguments.html.as_deref().or(files.html),
        ..files
    };
    anyhow::ensure!(
        arguments.format.is_none() || files.excluded.is_some(),
        "--format is for the list of nodes at fault; name its file with --exclude-file"
    );
    // What all nodes do takes minutes, and is not thrown away for a file.
    if part.judges() {
        files.prepare().iter().for_each(|why| say(&sentence(&format!("preflight: {why}"))));
    }
    let note = |text: &str| {
        if config.log_level >= log::Level::Warn {
            say(text);
        }
    };
    let outcome = preflight::with_line(config, environment, &note, |say, show| {
        let terms = preflight::terms(config, environment, &part, say, show);
        job::run(&job::Terms { rounds, scope, limits, ..terms }, &facts, &plan, &report)
    });
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(why) => {
            say(&sentence(&format!("preflight: {why}")));
            return Ok(FAILED);
        }
    };
    let verdict = outcome.judged.as_ref().map(|judged| judged.verdict());
    // The verdict has taken minutes: neither a file nor an output that cannot be written costs the others.
    let mut unwritten: Vec<String> = verdict.iter().flat_map(|verdict| files.write(verdict)).collect();
    let said = match (&verdict, arguments.json) {
        (Some(verdict), true) => json::write_line(out, verdict),
        (Some(verdict), false) => write(out, verdict),
        // The document of node 0 may go to the same file.
        (None, true) if outcome.told.passed => Ok(()),
        (None, true) => {
            say(&outcome.told.line);
            Ok(())
        }
        (None, false) => writeln!(out, "{}", outcome.told.line),
    };
    let said = said.and_then(|()| out.flush());
    unwritten.extend(said.err().map(|error| format!("cannot write the standard output: {error}")));
    for gap in verdict.iter().filter_map(|verdict| files.gap(verdict)) {
        say(&sentence(&format!("preflight: {gap}")));
    }
    if !outcome.told.passed {
        unwritten.iter().for_each(|why| say(&sentence(&format!("preflight: {why}"))));
        return Ok(FAILED);
    }
    anyhow::ensure!(unwritten.is_empty(), "{}", unwritten.join("; "));
    Ok(0)
}
