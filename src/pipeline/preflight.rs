//! The preflight before the command starts: all nodes of the job test the fabric between them.

mod files;

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::config::{Config, Demand, Rounds, TOKEN_VARIABLE, WatchOption, kept_token};
use crate::facts::environment::Environment;
use crate::facts::{Facts, Reader};
use crate::log::{Format, Level, Log};
use crate::plan::Plan;
use crate::preflight::job::{self, Terms};
use crate::preflight::judge::judging::{Judged, Limits};
use crate::preflight::judge::verdict::FaultDocument;
use crate::preflight::meet::progress::Progress;
use crate::preflight::meet::schedule::Extent;
use crate::preflight::who::own::Network;
use crate::preflight::who::part::{self, Overrides, Part, Seen};
use crate::report;
use crate::self_test::kinds::Level as Depth;
use crate::self_test::known;
use crate::self_test::pair::sound;
use crate::self_test::report::Report;
use crate::self_test::run::Scope;
use crate::sys::terminal::{Line, columns};
use crate::watch::job::JobOrders;
use crate::wire::Address;

use super::under_way::UnderWay;
pub(crate) use files::Files;

/// In bytes: how much memory each pair registers with a device. The self-test has tried more.
pub(crate) const SIZE: u64 = 4 * 1024 * 1024;

/// The longest wait: a clock cannot represent an endless time.
const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// In bytes: the largest file that lists the participating nodes, such as a host list.
const LONGEST_FILE: u64 = 1024 * 1024;

/// Determines which nodes take part, based on this process's launcher.
///
/// # Errors
/// Fails as [`part::find`] does.
pub(crate) fn part(
    asked: &Overrides,
    environment: &Environment,
    command: &[CString],
) -> anyhow::Result<Part> {
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

/// Returns the options of the preflight from the configuration.
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

/// Returns why there can be no list of faulty nodes, if the user wants one: without a token, any process that
/// reaches one of the job's ports could put a node into it.
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

/// How to create a token, in one line.
const SLURM_TOKEN: &str = "export RDMA_INIT_TOKEN=$(openssl rand -hex 16)";
const KUBERNETES_TOKEN: &str =
    "kubectl create secret generic rdma-init-token --from-literal=RDMA_INIT_TOKEN=$(openssl rand -hex 16)";

/// Gives the work a function that shows its progress in a line of the terminal, if there is one, a function that prints
/// a message above that line, and one that clears it.
pub(crate) fn with_line<T>(
    config: &Config,
    environment: &Environment,
    say: &dyn Fn(&str),
    work: impl FnOnce(&dyn Fn(&str), Option<&dyn Fn(&Progress)>, &dyn Fn()) -> T,
) -> T {
    // Messages of other levels may come at any time and would end up on the same line.
    let is_alone = config.log_format == Format::Text && config.log_level == Level::Info;
    let line = if is_alone { Line::at_stderr(environment.get("TERM")) } else { None };
    let Some(line) = line else { return work(say, None, &|| {}) };
    let above = |text: &str| {
        line.clear();
        say(text);
    };
    let show = |progress: &Progress| line.show(&progress.bar(columns()));
    let done = work(&above, Some(&show), &|| line.clear());
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

/// What this node knows about itself.
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
    let mut files = Files::of(config);
    let mut is_first_of_many = false;
    let mut voice = Voice { log, node: None };
    let told = part(&asked(config), environment, command).map_err(|why| why.to_string()).and_then(|part| {
        voice.node = Some(part.node);
        is_first_of_many = part.nodes > 1 && part.local_rank == 0;
        if part.judges() || part.nodes > 1 {
            // An old list is also emptied: no job may be started with it.
            let mut unwritten = if part.judges() { files.prepare() } else { Vec::new() };
            if let Some(why) = untrusted_list(&files, environment, &part) {
                unwritten.push(why);
                files.excluded = None;
            }
            match config.preflight {
                Demand::Enforce if !unwritten.is_empty() => return Err(unwritten.join("; ")),
                _ => unwritten.iter().for_each(|why| voice.say(Level::Warn, &format!("preflight: {why}."))),
            }
        }
        with_line(config, environment, &|text| voice.say(Level::Info, text), |say, show, clear| {
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
            let mut publish = |judged: &Judged| {
                clear();
                tell_all(&files, judged, voice)
            };
            job::run(&terms, own.facts, own.plan, own.report, &mut publish).map_err(|why| why.to_string())
        })
    });
    let unpublished = told.iter().filter_map(|ending| ending.unpublished.as_ref()).flatten();
    unpublished.for_each(|why| voice.say(Level::Warn, &format!("preflight: {why}.")));
    let (why, line) = match told {
        Ok(ending) if ending.told.passed => {
            match ending.is_alone {
                true => voice.say(Level::Warn, &ending.told.line),
                false => voice.judge(Level::Info, true, &ending.told.line),
            }
            let over_tcp = over_tcp(&Network::from_plan(own.plan), own.facts.gpu.count);
            if let Some(said) = over_tcp.filter(|_| is_first_of_many) {
                voice.say(Level::Info, &said);
            }
            return None;
        }
        Ok(ending) => (ending.told.reason.unwrap_or_default(), ending.told.line),
        Err(why) => {
            let line = format!("preflight: {why}.");
            (why, line)
        }
    };
    voice.judge(Level::Warn, false, &line);
    (config.preflight == Demand::Enforce).then(|| format!("preflight = \"enforce\": {why}"))
}

/// Returns how this node's watcher finds the other ones of the job, if they are to speak with each other: the nodes of
/// a preflight know each other by its token. Node 0's watcher listens on the port after that of the preflight, which
/// stays free for the next one.
#[must_use]
pub(crate) fn of_watcher(
    config: &Config,
    environment: &Environment,
    command: &[CString],
) -> Option<JobOrders> {
    let is_wanted =
        config.watch != Some(WatchOption::Off) && config.watch_job && config.preflight != Demand::Off;
    let has_token = || environment.get(TOKEN_VARIABLE).is_some_and(|token| sound(token).is_ok());
    if !is_wanted || !has_token() {
        return None;
    }
    let part = part(&asked(config), environment, command)
        .ok()
        .filter(|part| part.nodes > 1 && part.local_rank == 0)?;
    let mut place = part.meet.as_deref().map_or(Ok(Address::everywhere()), str::parse).ok()?;
    place.port = place.port.checked_add(1)?;
    if part.node == 0 && !place.is_loopback() {
        place = Address::on_port(place.port);
    }
    let (name, place) = (known::host_name(), place.to_string());
    Some(JobOrders { node: part.node, nodes: part.nodes, job: part.job, name, place })
}

/// Returns what the user has said by hand of who takes part.
fn asked(config: &Config) -> Overrides<'_> {
    Overrides {
        nodes: config.preflight_nodes,
        node: config.preflight_node,
        meet: config.preflight_meet.as_deref(),
        prefix: "preflight-",
    }
}

/// Returns what a job over TCP that passes should know, if its nodes have GPUs.
pub(crate) fn over_tcp(network: &Network, gpus: Option<u32>) -> Option<String> {
    let Network::Sockets(why) = network else { return None };
    gpus.map(|_| format!("preflight: this node has GPUs, but NCCL will use TCP between the nodes: {why}."))
}

/// Writes lines about the preflight. In JSON, they have fields.
#[derive(Clone, Copy)]
struct Voice<'a> {
    log: &'a Log,
    /// This node's index, if it is known.
    node: Option<u32>,
}

#[derive(Serialize)]
struct Event<'a> {
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<bool>,
    /// The kind of the fault, as in the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'a str>,
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    nodes: &'a [u32],
    #[serde(skip_serializing_if = "str::is_empty")]
    fix: &'a str,
    message: &'a str,
}

impl<'a> Voice<'a> {
    fn event(self, message: &'a str) -> Event<'a> {
        Event { event: "preflight", node: self.node, passed: None, fault: None, nodes: &[], fix: "", message }
    }

    fn say(self, level: Level, message: &str) {
        self.write(level, &self.event(message));
    }

    /// Writes this node's line of the verdict.
    fn judge(self, level: Level, passed: bool, message: &str) {
        self.write(level, &Event { passed: Some(passed), ..self.event(message) });
    }

    fn write(self, level: Level, event: &Event) {
        match self.log.format() {
            Format::Json if self.log.level() >= level => self.log.object(level, event),
            Format::Json => {}
            Format::Text if level == Level::Warn => self.log.warn(event.message),
            Format::Text => self.log.note(event.message),
        }
    }
}

/// Returns what the preflight is doing before anything has happened.
fn beginning(part: &Part) -> String {
    let place = part.meet.as_deref().filter(|_| part.node > 0);
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    let waits = if part.node == 0 { "the other nodes" } else { "node 0" };
    format!("preflight: node {} of {} is waiting for {waits}{place}", part.node, part.nodes)
}

/// Reports what only node 0 can report: the table, if it has something to show, and the faulty nodes. Returns a
/// sentence about each file that is missing or incomplete.
#[must_use]
fn tell_all(files: &Files, judged: &Judged, voice: Voice) -> Vec<String> {
    let verdict = judged.verdict();
    match voice.log.format() {
        _ if voice.log.level() < Level::Warn => {}
        Format::Text if verdict.passed && verdict.warning_count() == 0 => {}
        Format::Text => voice.log.put(|out| report::preflight::write(out, &verdict)),
        Format::Json => verdict.described_faults().for_each(|fault| {
            let FaultDocument { kind, message, fix, nodes, .. } = &fault;
            let event = Event { fault: Some(kind), nodes, fix, ..voice.event(message) };
            voice.log.object(Level::Warn, &event);
        }),
    }
    files.write(&verdict).into_iter().chain(files.gap(&verdict)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gpus_whose_data_goes_over_tcp_are_worth_a_note() {
        let sockets = Network::Sockets("there is no RDMA device in this container".to_owned());
        let said = "preflight: this node has GPUs, but NCCL will use TCP between the nodes: there is no RDMA device in this container.";
        assert_eq!(over_tcp(&sockets, Some(8)).as_deref(), Some(said));
        let others = [(sockets, None), (Network::Verbs("mlx5_0:1".to_owned()), Some(8))];
        for (network, gpus) in others.into_iter().chain([(Network::Unknown, Some(8))]) {
            assert_eq!(over_tcp(&network, gpus), None, "{network:?}");
        }
    }

    #[test]
    fn the_watchers_of_a_job_meet_on_the_port_after_that_of_its_preflight() {
        let config = |node, meet: &str| Config {
            preflight: Demand::Warn,
            preflight_nodes: Some(2),
            preflight_node: Some(node),
            preflight_meet: Some(meet.to_owned()),
            ..Config::default()
        };
        let place = |config: &Config, token: &str| {
            let environment = Environment::from([(TOKEN_VARIABLE, token)]);
            of_watcher(config, &environment, &[]).map(|orders| (orders.node, orders.place))
        };
        const TOKEN: &str = "0123456789abcdef";
        for (node, meet, wanted) in [
            (0, "gpu-0", ":18517"),
            (1, "gpu-0", "gpu-0:18517"),
            (1, "[fd00::1]:99", "[fd00::1]:100"),
            (0, "[fd00::1]:99", ":100"),
            (0, "127.0.0.1:99", "127.0.0.1:100"),
        ] {
            assert_eq!(place(&config(node, meet), TOKEN), Some((node, wanted.to_owned())), "{node} {meet}");
        }
        assert_eq!(place(&config(0, "gpu-0:65535"), TOKEN), None, "there is no port after it");
        for token in ["", "too short"] {
            assert_eq!(place(&config(0, "gpu-0"), token), None, "{token:?}");
        }
        let on = || config(0, "gpu-0");
        for off in [
            Config { watch: Some(WatchOption::Off), ..on() },
            Config { watch_job: false, ..on() },
            Config { preflight: Demand::Off, ..on() },
            Config { preflight_nodes: Some(1), ..on() },
        ] {
            assert_eq!(place(&off, TOKEN), None);
        }
    }
}
