//! The preflight before the command starts: all nodes of the job test the fabric between them.

mod files;

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use crate::config::{Config, Demand, Rounds, TOKEN_VARIABLE, kept_token};
use crate::facts::environment::Environment;
use crate::facts::{Facts, Reader};
use crate::log::{Format, Level, Log};
use crate::plan::Plan;
use crate::preflight::job::{self, Terms};
use crate::preflight::judge::judging::{Judged, Limits};
use crate::preflight::meet::progress::Progress;
use crate::preflight::meet::schedule::Extent;
use crate::preflight::who::part::{self, Overrides, Part, PartError, Seen};
use crate::report;
use crate::self_test::kinds::Level as Depth;
use crate::self_test::known;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::sys::terminal::Line;

use super::under_way::UnderWay;
pub(crate) use files::Files;

/// How many bytes each pair registers with a device. The self-test has tried more.
pub(crate) const SIZE: u64 = 4 * 1024 * 1024;

/// A clock cannot hold an endless time.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most bytes of a file that says who takes part, such as a list of hosts.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Determines which nodes take part, from the launcher of this process.
///
/// # Errors
/// As for [`part::find`].
pub(crate) fn part(
    asked: &Overrides,
    environment: &Environment,
    command: &[CString],
) -> Result<Part, PartError> {
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

/// Returns the terms of the configuration.
pub(crate) fn terms<'a>(
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
        kept_token: kept_token(environment),
        rounds: match config.preflight_rounds {
            Rounds::Log => Extent::Doubling,
            Rounds::Full => Extent::Full,
        },
        scope: Scope::new(Depth::Verbs, SIZE, config.preflight_each),
        may_be_alone: false,
        limits: limits(config),
        say,
        show,
    }
}

/// Returns why there can be no list of faulty nodes, if one is wanted: without a token, any process that
/// reaches a port of the job could put a node into it.
#[must_use]
pub(crate) fn untrusted_list(files: &Files, environment: &Environment, part: &Part) -> Option<String> {
    let has_token = environment.get(TOKEN_VARIABLE).is_some_and(|token| !token.is_empty());
    if files.excluded.is_none() || has_token || part.nodes == 1 {
        return None;
    }
    Some(format!(
        "the list of faulty nodes (--exclude-file, preflight-exclude-file) needs {TOKEN_VARIABLE} on all nodes, because without it any process can take part and have nodes excluded. Make one: {SLURM_TOKEN} before srun; {KUBERNETES_TOKEN}, and take {TOKEN_VARIABLE} from it in each Pod (valueFrom.secretKeyRef)"
    ))
}

/// How to make a token, in one line.
const SLURM_TOKEN: &str = "export RDMA_INIT_TOKEN=$(openssl rand -hex 16)";
const KUBERNETES_TOKEN: &str =
    "kubectl create secret generic rdma-init --from-literal=token=$(openssl rand -hex 16)";

/// Gives the work a way to show how far it is in a line of the terminal, if there is one, and a way
/// to say something above that line.
pub(crate) fn with_line<T>(
    config: &Config,
    environment: &Environment,
    say: &dyn Fn(&str),
    work: impl FnOnce(&dyn Fn(&str), Option<&dyn Fn(&Progress)>) -> T,
) -> T {
    // Messages of other levels come at any time, and would end up on the same line.
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

pub(crate) fn limits(config: &Config) -> Limits {
    Limits {
        least_gbps: config.preflight_min_bandwidth.map(|gbps| gbps as f32),
        enforce_slow: config.preflight_enforce_slow,
        together: config.preflight_bisection,
    }
}

/// What this node knows of itself.
#[derive(Clone, Copy)]
pub(crate) struct Own<'a> {
    pub facts: &'a Facts,
    pub plan: &'a Plan,
    pub report: &'a Report,
}

/// Takes part, if that is wanted, and reports the verdict. Returns why the command must not be started;
/// `None` if it may.
#[must_use]
pub(crate) fn refusal(
    config: &Config,
    environment: &Environment,
    command: &[CString],
    own: Own,
    under_way: &UnderWay,
    log: &Log,
) -> Option<String> {
    let asked = Overrides {
        nodes: config.preflight_nodes,
        node: config.preflight_node,
        meet: config.preflight_meet.as_deref(),
        prefix: "preflight-",
    };
    let mut files = Files::of(config);
    let told = part(&asked, environment, command).map_err(|why| why.to_string()).and_then(|part| {
        if part.judges() || part.nodes > 1 {
            // An old list goes, too: no job is to be started by it.
            let mut unwritten = if part.judges() { files.prepare() } else { Vec::new() };
            if let Some(why) = untrusted_list(&files, environment, &part) {
                unwritten.push(why);
                files.excluded = None;
            }
            match config.preflight {
                Demand::Enforce if !unwritten.is_empty() => return Err(unwritten.join("; ")),
                _ => unwritten.iter().for_each(|why| log.warn(&format!("preflight: {why}."))),
            }
        }
        with_line(config, environment, &|text| log.note(text), |say, show| {
            under_way.is_now(&beginning(&part));
            let say = |text: &str| {
                under_way.is_now(text);
                say(text);
            };
            let show = show.map(|show| {
                |progress: &Progress| {
                    under_way.is_by_now(|| format!("preflight: {progress}"));
                    show(progress);
                }
            });
            let show = show.as_ref().map(|show| show as &dyn Fn(&Progress));
            let terms = Terms { may_be_alone: true, ..terms(config, environment, &part, &say, show) };
            job::run(&terms, own.facts, own.plan, own.report).map_err(|why| why.to_string())
        })
    });
    if let Ok(outcome) = &told
        && let Some(judged) = &outcome.judged
    {
        tell_all(&files, judged, log);
    }
    let (why, line) = match told {
        Ok(outcome) if outcome.told.passed => {
            match outcome.is_alone {
                true => log.warn(&outcome.told.line),
                false => log.note(&outcome.told.line),
            }
            return None;
        }
        Ok(outcome) => (outcome.told.reason.unwrap_or_default(), outcome.told.line),
        Err(why) => {
            let line = format!("preflight: {why}.");
            (why, line)
        }
    };
    log.warn(&line);
    (config.preflight == Demand::Enforce).then(|| format!("preflight = \"enforce\": {why}"))
}

/// Returns what the preflight is doing before anything has happened.
fn beginning(part: &Part) -> String {
    let place = part.meet.as_deref().filter(|_| part.node > 0);
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    let waits = if part.node == 0 { "the other nodes" } else { "node 0" };
    format!("preflight: node {} of {} is waiting for {waits}{place}", part.node, part.nodes)
}

/// What only node 0 can report: the table, if there is something to see, and the faulty nodes.
fn tell_all(files: &Files, judged: &Judged, log: &Log) {
    let verdict = judged.verdict();
    if !verdict.passed || verdict.warning_count() > 0 {
        match log.format() {
            Format::Text if log.level() >= Level::Warn => {
                log.put(|out| report::preflight::write(out, &verdict));
            }
            _ => {}
        }
    }
    for why in files.write(&verdict).into_iter().chain(files.gap(&verdict)) {
        log.warn(&format!("preflight: {why}."));
    }
}
