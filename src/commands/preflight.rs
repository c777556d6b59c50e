//! Implements `rdma-init preflight`: the nodes of a job test the fabric between all of them, as a separate
//! step.

use std::io::{self, Write};

use crate::cli::PreflightArguments;
use crate::config::{Config, Excluded};
use crate::facts::environment::Environment;
use crate::json;
use crate::log::{self, say};
use crate::pipeline::preflight::{self, Files, SIZE};
use crate::pipeline::read;
use crate::preflight::job;
use crate::preflight::judge::judging::Judged;
use crate::preflight::who::own::Network;
use crate::preflight::who::part::Overrides;
use crate::report::preflight::write;
use crate::self_test::kinds::Level;
use crate::self_test::known;
use crate::self_test::run::{Scope, report};

/// The exit code if the fabric is not fit for the job.
const FAILED: i32 = 1;

/// Runs the preflight, and returns the exit code.
pub(super) fn run(
    out: &mut impl Write,
    arguments: &PreflightArguments,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<i32> {
    let asked = Overrides {
        nodes: config.preflight_nodes,
        node: config.preflight_node,
        meet: config.preflight_meet.as_deref(),
        prefix: "",
    };
    let files = Files::of(config);
    anyhow::ensure!(
        files.excluded.is_some() || config.preflight_exclude_format == Excluded::default(),
        "--exclude-format is for the list of faulty nodes; name its file with --exclude-file"
    );
    let part = preflight::part(&asked, environment, &[])?;
    let super::PlannedHost { mut facts, plan, .. } = super::decide(None, config, environment)?;
    read::add_extra(&mut facts);
    let scope = Scope::new(Level::Verbs, SIZE, config.preflight_each);
    let report = report(&known::host_name(), &facts, &plan, scope, |_| true);
    // The preflight takes minutes, so this checks first whether the files can be written.
    if part.judges() {
        let unwritten = files.prepare();
        anyhow::ensure!(unwritten.is_empty(), "{}", unwritten.join("; "));
    }
    // `prepare` has emptied an old list of nodes, so that no job can start from it.
    if let Some(why) = preflight::untrusted_list(&files, environment, &part) {
        anyhow::bail!(why);
    }
    let note = |text: &str| {
        if config.log_level >= log::Level::Warn {
            say(text);
        }
    };
    let ending = preflight::with_line(config, environment, &note, |say, show, clear| {
        let terms = preflight::terms(config, environment, &part, say, show);
        let mut publish = |judged: &Judged| {
            clear();
            publish(out, arguments, &files, judged)
        };
        job::run(&terms, &facts, &plan, &report, &mut publish)
    });
    let ending = match ending {
        Ok(ending) => ending,
        Err(why) => {
            say(&format!("preflight: {why}."));
            return Ok(FAILED);
        }
    };
    let unwritten = ending.unpublished.unwrap_or_else(|| {
        let said = match arguments.json {
            // Node 0 may write its document to the same file, so this node writes nothing.
            true if ending.told.passed => Ok(()),
            true => {
                say(&ending.told.line);
                Ok(())
            }
            false => writeln!(out, "{}", ending.told.line),
        };
        unsaid(said.and_then(|()| out.flush())).into_iter().collect()
    });
    if !ending.told.passed {
        unwritten.iter().for_each(|why| say(&format!("preflight: {why}.")));
        return Ok(FAILED);
    }
    anyhow::ensure!(unwritten.is_empty(), "{}", unwritten.join("; "));
    let over_tcp = preflight::over_tcp(&Network::from_plan(&plan), facts.gpu.count);
    over_tcp.filter(|_| part.nodes > 1 && part.local_rank == 0).iter().for_each(|said| note(said));
    Ok(0)
}

/// Writes the verdict of node 0. It took minutes to reach, so if one file or output cannot be written, the others still
/// are. Returns a sentence about each one that cannot.
fn publish(
    out: &mut impl Write,
    arguments: &PreflightArguments,
    files: &Files,
    judged: &Judged,
) -> Vec<String> {
    let verdict = judged.verdict();
    let mut unwritten = files.write(&verdict);
    let said = match arguments.json {
        true => json::write_line(out, &verdict),
        false => write(out, &verdict),
    };
    // The process that publishes ends without the usual handlers.
    unwritten.extend(unsaid(said.and_then(|()| out.flush())));
    if let Some(gap) = files.gap(&verdict) {
        say(&format!("preflight: {gap}."));
    }
    unwritten
}

fn unsaid(said: io::Result<()>) -> Option<String> {
    said.err().map(|error| format!("cannot write the standard output: {error}"))
}
