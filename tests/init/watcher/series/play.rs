//! Plays what the ports of a job show, and returns the watcher's lines.

use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::super::NAME;
use crate::support::clock::{Clock, Player, Step};
use crate::support::executable::executable;
use crate::support::rails::Rails;
use crate::support::running::children;
use crate::support::skip;

pub const MINUTE: u64 = 60;
pub const HOUR: u64 = 3600;
pub const DAY: u64 = 24 * HOUR;

/// The usual time between two ticks of the player, in seconds.
pub const TICK: u64 = 5;

/// What a rail moves in such a tick of training: 2 GB a second.
pub const TRAINING: u64 = 10_000_000_000;

/// The environment of a node of a job that certainly has several, and of one whose launcher does not say how many.
pub const TWO_NODES: &[(&str, &str)] = &[("NNODES", "2"), ("NODE_RANK", "0")];
pub const UNKNOWN: &[(&str, &str)] = &[];

/// How far the time is from one tick to the next until the watcher is there.
const MOMENT: Duration = Duration::from_millis(100);

/// A job, and how it is started.
pub struct Series {
    rails: Rails,
    seconds: u64,
    tick: u64,
    options: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    /// The command, which gets the number of seconds as its last argument.
    command: Vec<String>,
}

impl Series {
    /// A job of two nodes that lasts so many seconds.
    pub fn new(rails: Rails, seconds: u64) -> Series {
        let environment = TWO_NODES.to_vec();
        let command = vec!["sleep".to_owned()];
        Series { rails, seconds, tick: TICK, options: Vec::new(), environment, command }
    }

    /// Sets the time between two ticks, in seconds.
    pub fn tick(self, tick: u64) -> Series {
        Series { tick, ..self }
    }

    pub fn options(mut self, options: &[&str]) -> Series {
        self.options.extend(options.iter().map(|&option| option.to_owned()));
        self
    }

    /// Starts it with these variables alone.
    pub fn environment(self, variables: &[(&'static str, &'static str)]) -> Series {
        Series { environment: variables.to_vec(), ..self }
    }

    /// Starts it by a script of this name, with these arguments.
    pub fn command(self, name: &str, arguments: &[&str]) -> Series {
        let folder = self.rails.place().join("bin");
        fs::create_dir_all(&folder).unwrap();
        let script = folder.join(name);
        executable(&script, "#!/bin/sh\nfor last; do :; done\nexec sleep \"$last\"\n");
        let mut command = vec![script.to_str().unwrap().to_owned()];
        command.extend(arguments.iter().map(|&argument| argument.to_owned()));
        Series { command, ..self }
    }

    /// Plays the job: at each tick, `shape` changes what the rails show, and gets the seconds since the job began. Returns
    /// what the watcher has said; nothing where no program can be traced.
    pub fn play(self, shape: impl FnMut(&mut Rails, u64) + Send + 'static) -> Lines {
        let Series { rails, seconds, tick, options, environment, command } = self;
        let seconds = seconds.to_string();
        let mut arguments = vec!["--log-format", "json"];
        arguments.extend(options.iter().map(String::as_str));
        arguments.push("--");
        arguments.extend(command.iter().map(String::as_str));
        arguments.push(&seconds);
        let mut start = rails.shows(&arguments);
        start.envs(environment);
        let Some(clock) = Clock::stepped(Job { rails, shape, tick, second: None }) else {
            skip("only the clock of a program for x86-64 can be advanced, on such a machine");
            return Lines { all: Vec::new(), is_played: false };
        };
        let ended = clock.as_pid_1(start).end().expect_code(0);
        Lines::read(&ended.stderr)
    }
}

/// The player of a job.
struct Job<S> {
    rails: Rails,
    shape: S,
    tick: u64,
    /// The seconds of the next tick since the job began; `None` before that.
    second: Option<u64>,
}

impl<S: FnMut(&mut Rails, u64) + Send> Player for Job<S> {
    /// All ticks but the first are half a tick early, so that a look that is due at the same time sees them, and not
    /// either this one or the one before.
    fn tick(&mut self, _: Duration, main: i32) -> Step {
        if self.second.is_none() && watcher(main).is_some() {
            self.second = Some(0);
        }
        let Some(second) = self.second else { return Step::After(MOMENT) };
        (self.shape)(&mut self.rails, second);
        if let Some(time) = self.rails.frozen.take() {
            self.second = Some(second + time.as_secs());
            return Step::Frozen(time);
        }
        self.second = Some(second + self.tick);
        let tick = Duration::from_secs(self.tick);
        let tick = if second == 0 { tick / 2 } else { tick };
        match self.rails.signal.take() {
            Some(signal) => Step::Signal(signal, tick),
            None => Step::After(tick),
        }
    }

    fn answers(&mut self, main: i32) -> bool {
        let Some(server) = self.rails.ras.as_mut().filter(|_| self.second.is_some()) else { return false };
        watcher(main).is_some_and(|watcher| server.serve(watcher))
    }
}

/// Returns the watcher, if it runs.
fn watcher(main: i32) -> Option<i32> {
    let is_watcher =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == NAME);
    children(main).into_iter().find(is_watcher)
}

/// A line of the watcher.
pub struct Line {
    /// The minutes since the start.
    minute: f64,
    pub level: String,
    pub id: String,
    pub message: String,
    /// As `mlx5_0:1`.
    pub ports: Vec<String>,
}

impl Line {
    pub fn minute(&self) -> f64 {
        self.minute
    }

    /// Returns whether it is above a note: then it also starts the command of `on-finding`.
    pub fn is_warning(&self) -> bool {
        self.level != "INFO"
    }

    pub fn is_about(&self, rail: usize) -> bool {
        self.ports.contains(&format!("mlx5_{rail}:1"))
    }

    /// Returns whether it says that a port is there, and not active.
    pub fn is_of_inactive(&self) -> bool {
        self.id == "link-down"
            && ["no longer active", "not active"].iter().any(|words| self.message.contains(words))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        write!(to, "{:6.1} min {} {} {:?}: {}", self.minute, self.level, self.id, self.ports, self.message)
    }
}

/// What the watcher has said about a job, in the order of time.
pub struct Lines {
    pub all: Vec<Line>,
    /// Whether the job was played.
    pub is_played: bool,
}

impl fmt::Debug for Lines {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        const MOST: usize = 60;
        writeln!(to, "{} lines:", self.all.len())?;
        self.all.iter().take(MOST).try_for_each(|line| writeln!(to, "{line:?}"))?;
        if self.all.len() > MOST { writeln!(to, "... {:?}", self.all.last()) } else { Ok(()) }
    }
}

impl Lines {
    fn read(errors: &str) -> Lines {
        let values: Vec<Value> = errors.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let time = |value: &Value| {
            let text = value["timestamp"].as_str().unwrap();
            let since = humantime::parse_rfc3339(text).unwrap().duration_since(SystemTime::UNIX_EPOCH);
            since.unwrap().as_secs_f64()
        };
        let start = values.first().map(time).unwrap_or_default();
        // While the job runs.
        let lines = values.iter().filter(|value| value["phase"] == "run").map(|value| {
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            let ports = value["about"]["ports"].as_array().cloned().unwrap_or_default();
            Line {
                minute: (time(value) - start) / 60.0,
                level: text("level"),
                id: text("id"),
                message: text("message"),
                ports: ports.iter().filter_map(|port| Some(port.as_str()?.to_owned())).collect(),
            }
        });
        let is_account = |value: &Value| value["event"] == "account" && value["watched"] == true;
        assert!(values.iter().any(is_account), "the watcher has not looked: {errors}");
        Lines { all: lines.collect(), is_played: true }
    }

    pub fn warnings(&self) -> impl Iterator<Item = &Line> {
        self.all.iter().filter(|line| line.is_warning())
    }

    /// Expects nothing at all.
    #[track_caller]
    pub fn expect_silence(self) {
        assert!(self.all.is_empty(), "a job without a change has lines: {self:?}");
    }

    /// Expects nothing above a note.
    #[track_caller]
    pub fn expect_notes(self) -> Lines {
        self.expect_warnings(0)
    }

    /// Expects no more lines above a note than this.
    #[track_caller]
    pub fn expect_warnings(self, most: usize) -> Lines {
        let count = self.warnings().count();
        assert!(count <= most, "{count} lines are above a note, and not {most} at the most: {self:?}");
        self
    }

    /// Expects a line above a note of this kind, and returns all of them.
    #[track_caller]
    pub fn expect_warning(&self, id: &str) -> Vec<&Line> {
        let found: Vec<&Line> = self.warnings().filter(|line| line.id == id).collect();
        assert!(!self.is_played || !found.is_empty(), "no warning of {id}: {self:?}");
        found
    }

    /// Expects a line of this kind about a rail, whatever its level.
    #[track_caller]
    pub fn expect_line(&self, id: &str, rail: usize) {
        let is = |line: &Line| line.id == id && line.is_about(rail);
        assert!(!self.is_played || self.all.iter().any(is), "no line of {id} about rail {rail}: {self:?}");
    }

    /// Expects no line above a note of another kind.
    #[track_caller]
    pub fn expect_only(&self, id: &str) {
        let others = self.warnings().filter(|line| line.id != id).count();
        assert_eq!(others, 0, "there are warnings of something else than {id}: {self:?}");
    }

    /// Expects the last line about a rail to be like this.
    #[track_caller]
    pub fn expect_last(&self, rail: usize, what: &str, is: impl Fn(&Line) -> bool) {
        let last = self.all.iter().rfind(|line| line.is_about(rail));
        let is_so = last.is_some_and(is);
        assert!(
            !self.is_played || is_so,
            "the last line about rail {rail} is not that {what}: {last:?}, of {self:?}"
        );
    }
}
