//! The preflight before the command starts: all nodes of the job prove the fabric between them.

mod files;

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use crate::config::{Config, Demand, TOKEN_VARIABLE};
use crate::facts::environment::Environment;
use crate::facts::{Facts, Reader};
use crate::log::{Format, Level, Log};
use crate::plan::Plan;
use crate::preflight::job::{self, Terms};
use crate::preflight::judging::{Judged, Limits};
use crate::preflight::part::{self, Asked, Part, Seen};
use crate::preflight::progress::Progress;
use crate::preflight::schedule::Extent;
use crate::report;
use crate::self_test::kinds::Level as Depth;
use crate::self_test::known;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::sys::terminal::Line;
use crate::text::sentence;
use crate::verbs::port_test::DEFAULT_TIME;

pub use files::Files;

/// How many bytes each pair registers with a device. The self-test has tried more.
pub const SIZE: u64 = 4 * 1024 * 1024;

/// A clock cannot hold an endless time.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most bytes of a file that says who takes part, such as a list of hosts.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Finds out who takes part, from what starts this process.
///
/// # Errors
/// As for [`part::find`].
pub fn part(asked: &Asked, environment: &Environment, command: &[CString]) -> Result<Part, String> {
    let command: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let file = |path: &str| {
        let bytes = Reader::new(Path::new("/")).bytes(path, LONGEST_FILE)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let host = known::host_name();
    let part = part::find(asked, &Seen { environment, command: &command, host: &host, file: &file })?;
    tracing::debug!("preflight: node {} of {}: {}", part.node, part.nodes, part.evidence.join(", "));
    Ok(part)
}

/// The terms of the configuration.
pub fn terms<'a>(
    config: &Config,
    environment: &'a Environment,
    part: &'a Part,
    say: &'a dyn Fn(&str),
    show: Option<&'a dyn Fn(&Progress)>,
) -> Terms<'a> {
    Terms {
        part,
        wait: config.preflight_wait.min(LONGEST_WAIT),
        token: environment.get(TOKEN_VARIABLE).unwrap_or_default(),
        rounds: Extent::Doubling,
        scope: Scope::new(Depth::Verbs, SIZE, DEFAULT_TIME),
        limits: limits(config),
        say,
        show,
    }
}

/// Gives the work a way to show how far it is in a line of the terminal, where there is one, and a way
/// to say something above that line.
pub fn with_line<T>(
    config: &Config,
    environment: &Environment,
    say: &dyn Fn(&str),
    work: impl FnOnce(&dyn Fn(&str), Option<&dyn Fn(&Progress)>) -> T,
) -> T {
    // Messages of other levels come at any time, and would stand in the same line.
    let is_alone = config.log_format == Format::Text && config.log_level == Level::Info;
    let line = if is_alone { Line::at_stderr(environment.get("TERM")) } else { None };
    let Some(line) = line else { return work(say, None) };
    let above = |text: &str| {
        line.clear();
        say(text);
    };
    let done = work(&above, Some(&|progress| line.show(&progress.bar(line.columns()))));
    line.clear();
    done
}

pub fn limits(config: &Config) -> Limits {
    Limits {
        least_gbps: config.preflight_min_bandwidth.map(|gbps| gbps as f32),
        enforce_slow: config.preflight_enforce_slow,
    }
}

/// Takes part, if that is wanted, and tells the verdict. Gives why the command must not be started;
/// `None` if it may.
#[must_use]
pub fn refusal(
    config: &Config,
    environment: &Environment,
    command: &[CString],
    facts: &Facts,
    plan: &Plan,
    report: &Report,
    log: &Log,
) -> Option<String> {
    let asked = Asked {
        nodes: config.preflight_nodes,
        node: config.preflight_node,
        meet: config.preflight_meet.as_deref(),
        prefix: "preflight-",
    };
    let told = part(&asked, environment, command).and_then(|part| {
        if part.judges() {
            let unwritten = Files::of(config).prepare();
            unwritten.iter().for_each(|why| log.warn(&sentence(&format!("preflight: {why}"))));
        }
        with_line(config, environment, &|text| log.note(text), |say, show| {
            job::run(&terms(config, environment, &part, say, show), facts, plan, report)
        })
    });
    if let Ok(outcome) = &told
        && let Some(judged) = &outcome.judged
    {
        tell_all(config, judged, log);
    }
    let (why, line) = match told {
        Ok(outcome) if outcome.told.passed => {
            log.note(&outcome.told.line);
            return None;
        }
        Ok(outcome) => (outcome.told.reason.unwrap_or_default(), outcome.told.line),
        Err(why) => (why.clone(), sentence(&format!("preflight: {why}"))),
    };
    log.warn(&line);
    let why = why.trim_end_matches('.');
    (config.preflight == Demand::Enforce).then(|| format!("preflight = \"enforce\": {why}"))
}

/// What only node 0 can tell: the table, where there is something to see, and who is at fault.
fn tell_all(config: &Config, judged: &Judged, log: &Log) {
    let verdict = judged.verdict();
    if !verdict.passed || verdict.warning_count() > 0 {
        match log.format() {
            Format::Text if log.level() >= Level::Warn => {
                log.put(|out| report::preflight::write(out, &verdict));
            }
            _ => {}
        }
    }
    let files = Files::of(config);
    for why in files.write(&verdict).into_iter().chain(files.gap(&verdict)) {
        log.warn(&sentence(&format!("preflight: {why}")));
    }
}
