//! Implements `rdma-init status`: reports whether the container is prepared and its command is running.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::ras;
use crate::config::Config;
use crate::env_plugin::file::is_whole;
use crate::facts::environment::Environment;
use crate::finding::Finding;
use crate::json;
use crate::libraries::leads_to_gid;
use crate::pipeline::{account_so_far, changed_since, read, was_to_watch};
use crate::report::account::{self, When};
use crate::report::ras::Report;
use crate::state::find::{Found, find};
use crate::state::phase;
use crate::state::run::{Run, Unwatched};
use crate::text::name_program;
use crate::text::visible;

/// The exit code if the container is not ready.
const NOT_READY: i32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    ready: bool,
    /// Why the container is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    /// The fix, if the host has changed since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    /// Whether only this container can have written the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted: Option<bool>,
    /// Seconds since the preparation finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test: Option<&'a str>,
    /// How many variables were filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    filled: Option<usize>,
    /// The env plugin that NCCL queries in every process.
    #[serde(skip_serializing_if = "Option::is_none")]
    env_plugin: Option<&'a str>,
    /// The PID of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
    /// The process that watches the ports, or why there is none while the command runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    watcher: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_watcher: Option<String>,
    /// What the job has moved so far, and what was wrong, if its supervisor has noted the counters at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<account::Document>,
    /// What NCCL says about the ranks of the job, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    ras: Option<&'a Report>,
}

/// Returns the exit code. The state of the job's ranks does not change it, because a probe depends on it.
pub(super) fn run(
    out: &mut impl Write,
    json: bool,
    // How long to wait before asking RAS again; `None` if RAS is not asked.
    ask_ras: Option<Duration>,
    config: &Config,
    environment: &Environment,
) -> anyhow::Result<i32> {
    let found = find(&config.state_dir);
    let changed = found
        .as_ref()
        .ok()
        .filter(|found| found.run.is_running())
        .and_then(|found| changed(&found.run, config));
    let phase = if found.is_err() { phase::find(&config.state_dir) } else { None };
    let phase = phase.map(|phase| format!("the start is under way: {}", phase.text));
    let why = phase
        .or_else(|| why_not(found.as_ref()))
        .or_else(|| changed.as_ref().map(|finding| finding.message.clone()));
    let fix = changed.as_ref().and_then(|finding| finding.fix.as_deref());
    let run = found.as_ref().ok().map(|found| &found.run);
    let has_ended = |run: &Run| run.unwatched.is_none() && run.watcher().is_none();
    let so_far = run.filter(|run| run.is_running()).and_then(|run| account_so_far(run.pid, has_ended(run)));
    if json {
        let asked = ask_ras.map(|pause| ras::report(run, environment, pause, |_| Ok(()))).transpose()?;
        let account = so_far.map(|account| account::Document::new(&account, When::Running));
        let document =
            Document { account, ras: asked.as_ref(), ..document(found.as_ref().ok(), why.as_deref(), fix) };
        json::write_line(out, &document)?;
    } else {
        if let Ok(Found { run, .. }) = &found {
            let tested =
                run.self_test.as_ref().map(|verdict| format!(", self-test {verdict}")).unwrap_or_default();
            let age = humantime::format_duration(Duration::from_secs(age(run.since)));
            writeln!(
                out,
                "prepared {age} ago: {}; {} filled in{}{}",
                visible(&run.headline),
                crate::text::counted(run.decided(), "variable"),
                match (run.env_plugin(), env_plugin(run)) {
                    (_, Some(_)) => ", and NCCL asks the env plugin",
                    (Some(_), None) =>
                        ", and NCCL does not ask the env plugin, because its file is gone or cut",
                    (None, None) => "",
                },
                visible(&tested)
            )?;
        }
        match &why {
            None => {
                writeln!(out, "the command runs")?;
                // A job without RDMA has no ports.
                if let Some(Err(why)) = run.map(watcher)
                    && run.is_some_and(|run| run.unwatched != Some(Unwatched::NoPort))
                {
                    match why.as_str() {
                        UNSEEN => writeln!(out, "{why}")?,
                        why => writeln!(out, "no watcher: {why}")?,
                    }
                }
                // An init of ours has the counters, unless no port is used.
                if let Some(run) = run.filter(|run| run.unwatched.is_none())
                    && so_far.is_none()
                    && was_to_watch(run.pid).is_none()
                {
                    let advice = "Run rdma-init status as the user of the init.";
                    writeln!(out, "{NO_ACCOUNT} {}", name_program(advice))?;
                }
            }
            Some(why) => writeln!(out, "not ready: {}", visible(why))?,
        }
        if let Some(fix) = fix {
            writeln!(out, "    fix: {}", visible(fix))?;
        }
        for line in so_far.iter().flat_map(|account| account::lines(account, When::Running, &[])) {
            writeln!(out, "{line}")?;
        }
        if let Some(pause) = ask_ras {
            out.flush()?;
            let asked = ras::report(run, environment, pause, |line| ras::progress(out, line, pause))?;
            writeln!(out, "{}", asked.message)?;
        }
    }
    Ok(if why.is_none() { 0 } else { NOT_READY })
}

/// Why no watcher is shown to a user who may not look into the container's init. There may be one.
const UNSEEN: &str = "rdma-init cannot see the watcher as this user";

const NO_ACCOUNT: &str =
    "no account: this user cannot look into the container's init, which has the counters at the start.";

/// Returns the process that watches the ports of a job that runs, or why there is none.
fn watcher(run: &Run) -> Result<i32, String> {
    match (run.unwatched, run.watcher()) {
        (Some(why), _) => Err(why.to_string()),
        (None, Some(watcher)) => Ok(watcher),
        (None, None) => Err(match was_to_watch(run.pid) {
            Some(true) => "it has ended, and rdma-init does not start it again. The job runs on without it",
            Some(false) => "the job's ports show neither a state nor a counter",
            None => UNSEEN,
        }
        .to_owned()),
    }
}

/// Returns the env plugin that NCCL asks in every process.
fn env_plugin(run: &Run) -> Option<&str> {
    run.env_plugin().filter(|path| is_whole(Path::new(path)))
}

/// Reports what has become wrong since the start. If the start set no variable that selects a GID, this
/// reads nothing.
fn changed(run: &Run, config: &Config) -> Option<Finding> {
    run.filled_itself().any(|filled| leads_to_gid(&filled.variable)).then_some(())?;
    let profiles = read::profiles(config).ok()?;
    changed_since(run, read::fabric_facts(), &profiles, config)
}

fn why_not(found: Result<&Found, &Vec<crate::state::find::Without>>) -> Option<String> {
    match found {
        Ok(found) if found.run.is_running() => None,
        Ok(_) => Some("the command has ended".to_owned()),
        Err(without) if without.is_empty() => {
            Some("nothing was prepared yet, or the state cannot be kept anywhere".to_owned())
        }
        Err(without) => {
            let reasons: Vec<String> =
                without.iter().map(|one| format!("{}: {}", one.folder.display(), one.why)).collect();
            Some(format!("nothing was prepared ({})", reasons.join("; ")))
        }
    }
}

fn document<'a>(found: Option<&'a Found>, why: Option<&'a str>, fix: Option<&'a str>) -> Document<'a> {
    let run = found.map(|found| &found.run);
    let watcher = run.filter(|run| run.is_running()).map(watcher);
    Document {
        schema: "rdma-init/status/1",
        ready: why.is_none(),
        why,
        fix,
        folder: found.and_then(|found| Some(found.folder.as_ref()?.display().to_string())),
        trusted: found.map(|found| found.doubt.is_none()),
        age: run.map(|run| age(run.since)),
        decided: run.map(|run| run.headline.as_str()),
        self_test: run.and_then(|run| run.self_test.as_deref()),
        filled: run.map(Run::decided),
        env_plugin: run.and_then(env_plugin),
        pid: run.map(|run| run.pid),
        watcher: watcher.as_ref().and_then(|watcher| watcher.as_ref().ok().copied()),
        no_watcher: watcher.and_then(Result::err),
        account: None,
        ras: None,
    }
}

/// Returns the seconds since this time.
fn age(since: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    now.saturating_sub(since)
}
