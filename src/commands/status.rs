//! `rdma-init status`: whether the container is prepared, and its command runs.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::config::Config;
use crate::json;
use crate::state::find::{Found, find};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    /// Whether nobody outside this container can have written the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    trusted: Option<bool>,
    /// Seconds since the preparation was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test: Option<&'a str>,
    /// How many variables were filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    filled: Option<usize>,
    /// The number of the command's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<i32>,
}

/// Returns the exit code.
pub fn run(out: &mut impl Write, json: bool, config: &Config) -> anyhow::Result<i32> {
    let found = find(&config.state_dir);
    let why = why_not(found.as_ref());
    if json {
        json::write_line(out, &document(found.as_ref().ok(), why.as_deref()))?;
    } else {
        if let Ok(Found { run, .. }) = &found {
            let tested =
                run.self_test.as_ref().map(|verdict| format!(", self-test {verdict}")).unwrap_or_default();
            let age = humantime::format_duration(Duration::from_secs(age(run.since)));
            writeln!(
                out,
                "prepared {age} ago: {}; {} filled in{}",
                visible(&run.headline),
                crate::text::counted(run.filled.len(), "variable"),
                visible(&tested)
            )?;
        }
        match &why {
            None => writeln!(out, "the command runs")?,
            Some(why) => writeln!(out, "not ready: {}", visible(why))?,
        }
    }
    Ok(if why.is_none() { 0 } else { NOT_READY })
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

fn document<'a>(found: Option<&'a Found>, why: Option<&'a str>) -> Document<'a> {
    let run = found.map(|found| &found.run);
    Document {
        schema: "rdma-init/status/1",
        ready: why.is_none(),
        why,
        folder: found.and_then(|found| Some(found.folder.as_ref()?.display().to_string())),
        trusted: found.map(|found| found.doubt.is_none()),
        age: run.map(|run| age(run.since)),
        decided: run.map(|run| run.headline.as_str()),
        self_test: run.and_then(|run| run.self_test.as_deref()),
        filled: run.map(|run| run.filled.len()),
        pid: run.map(|run| run.pid),
    }
}

/// The time since then, in seconds.
fn age(since: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    now.saturating_sub(since)
}
