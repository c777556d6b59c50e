//! The init under test, ours or another one, and its options.

use std::ffi::{OsStr, OsString};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::running::{Ended, Running, as_pid_1, children, command_of, rests, send, status};
use crate::support::{self, poll_until, process, status_field};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Ours,
    Tini,
}

/// Which one it is, as `RDMA_INIT_TEST_PEER` says.
pub fn peer() -> Peer {
    match std::env::var("RDMA_INIT_TEST_PEER").as_deref() {
        Err(_) | Ok("" | "rdma-init") => Peer::Ours,
        Ok("tini") => Peer::Tini,
        Ok(other) => panic!("RDMA_INIT_TEST_PEER={other}: the cases run against rdma-init or tini"),
    }
}

impl Peer {
    pub fn program(self) -> PathBuf {
        match self {
            Peer::Ours => support::binary(),
            Peer::Tini => {
                let path = PathBuf::from("/usr/bin/tini");
                assert!(path.exists(), "{} is missing: apt-get install tini", path.display());
                path
            }
        }
    }
}

/// What an init can be asked for.
#[derive(Debug, Clone, Copy)]
pub enum Feature<'a> {
    KillGroup,
    Supervise,
    /// This exit code becomes 0.
    RemapExit(u8),
    ParentDeath(&'a str),
    WarnOnReap,
    /// From one signal to another, as `A:B`.
    Rewrite(&'a str),
}

impl Feature<'_> {
    /// The flags for it; `None` where there are none.
    fn flags(self, peer: Peer) -> Option<Vec<String>> {
        let flags: &[&str] = match (peer, self) {
            (Peer::Ours, Feature::KillGroup) => &["--kill-group"],
            (Peer::Ours, Feature::Supervise) => &["--supervise"],
            (Peer::Ours, Feature::RemapExit(code)) => &["--remap-exit", &code.to_string()],
            (Peer::Ours, Feature::ParentDeath(signal)) => &["--parent-death-signal", signal],
            (Peer::Ours, Feature::WarnOnReap) => &["--warn-on-reap"],
            // In one word: it may start with a dash.
            (Peer::Ours, Feature::Rewrite(rewrite)) => &[&format!("--rewrite-signal={rewrite}")],
            (Peer::Tini, Feature::KillGroup) => &["-g"],
            (Peer::Tini, Feature::Supervise) => &["-s"],
            (Peer::Tini, Feature::RemapExit(code)) => &["-e", &code.to_string()],
            (Peer::Tini, Feature::ParentDeath(signal)) => &["-p", &format!("SIG{signal}")],
            (Peer::Tini, Feature::WarnOnReap) => &["-w"],
            (Peer::Tini, Feature::Rewrite(_)) => return None,
        };
        Some(flags.iter().map(|flag| (*flag).to_owned()).collect())
    }
}

/// Says that a case means nothing for this peer, where it is tini.
pub fn is_not_for_tini(why: &str) -> bool {
    let skipped = peer() == Peer::Tini;
    if skipped {
        eprintln!("SKIPPED under tini: {why}");
    }
    skipped
}

/// Where the init runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateDir {
    /// The first process of a PID namespace.
    Pid1,
    /// Below a shell that is, as a subreaper because an option says so.
    ByOption,
    /// The same, because a variable says so.
    ByVariable,
}

/// The two that differ in what the kernel does for an init.
pub const PLACES: [StateDir; 2] = [StateDir::Pid1, StateDir::ByOption];

/// For an init that is not PID 1: a shell that is, so that nothing outlives the test.
pub const SHELL_ABOVE: &str = "\"$@\"; exit $?";

/// The same, but it stays, so that it can be seen what is left.
pub const SHELL_THAT_STAYS: &str = "\"$@\"; echo \"ended with $?\"; exec sleep 1000";

/// The init with some features.
#[derive(Debug, Clone, Default)]
pub struct Init {
    flags: Vec<String>,
}

impl Init {
    pub fn plain() -> Init {
        Init::default()
    }

    /// `None`, and a line that says so, where the peer lacks one of them.
    pub fn with(features: &[Feature]) -> Option<Init> {
        let mut init = Init::plain();
        for feature in features {
            let Some(flags) = feature.flags(peer()) else {
                assert!(is_not_for_tini(&format!("it has no option for {feature:?}")));
                return None;
            };
            init.flags.extend(flags);
        }
        Some(init)
    }

    /// Program and arguments to start the command with.
    pub fn arguments(&self, place: StateDir, command: &[&str]) -> Vec<OsString> {
        let supervise = (place == StateDir::ByOption).then(|| Feature::Supervise.flags(peer())).flatten();
        let flags = supervise.iter().flatten().chain(&self.flags).map(OsString::from);
        let command = command.iter().map(OsString::from);
        std::iter::once(peer().program().into())
            .chain(flags)
            .chain([OsString::from("--")])
            .chain(command)
            .collect()
    }

    /// The container's first process, with the init in front of the command.
    pub fn command(&self, place: StateDir, command: &[&str]) -> Command {
        let arguments = self.arguments(place, command);
        match place {
            StateDir::Pid1 => first_process(&arguments[0], &arguments[1..]),
            StateDir::ByOption => below(SHELL_ABOVE, &arguments),
            StateDir::ByVariable => {
                let (name, value) = match peer() {
                    Peer::Ours => ("RDMA_INIT_SUPERVISE", "1"),
                    Peer::Tini => ("TINI_SUBREAPER", ""),
                };
                let mut command = below(SHELL_ABOVE, &arguments);
                command.env(name, value);
                command
            }
        }
    }

    #[track_caller]
    pub fn start(&self, place: StateDir, command: &[&str]) -> Started {
        start(place, self.command(place, command))
    }

    /// In front of a shell script.
    #[track_caller]
    pub fn shell(&self, place: StateDir, script: &str) -> Started {
        self.start(place, &["sh", "-c", script])
    }
}

/// A program with an environment of its own, and its output kept.
pub fn first_process<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = process::program(program, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A shell script that finds these as its arguments. (Of bash, because dash empties
/// the mask of signals that it was started with.)
pub fn below(script: &str, arguments: &[OsString]) -> Command {
    let mut command = first_process("/bin/bash", ["-c", script, "bash"]);
    command.args(arguments);
    command
}

/// An init that runs in a PID namespace; killed with everything in it when it goes.
pub struct Started {
    place: StateDir,
    running: Running,
}

pub fn start(place: StateDir, command: Command) -> Started {
    Started { place, running: as_pid_1(command) }
}

impl Started {
    /// The init itself.
    #[track_caller]
    pub fn init(&self) -> i32 {
        match self.place {
            StateDir::Pid1 => self.running.pid,
            _ => self.running.child(),
        }
    }

    /// What the init started, once it has become the command.
    #[track_caller]
    pub fn command(&self) -> i32 {
        command_of(self.init())
    }

    /// Sends a signal to the init.
    #[track_caller]
    pub fn kill(&self, signal: i32) {
        send(self.init(), signal);
    }

    /// Waits until the command says that it is ready, and the init rests.
    #[track_caller]
    pub fn is_ready(&mut self) {
        self.wait_for("ready");
        self.rests();
    }

    #[track_caller]
    pub fn rests(&self) {
        rests(self.init());
    }

    /// The children of the init but the command, once there are so many.
    #[track_caller]
    pub fn orphans(&self, number: usize) -> Vec<i32> {
        let (init, command) = (self.init(), self.command());
        poll_until(&format!("the init has {number} children but the command"), || {
            let orphans: Vec<i32> = children(init).into_iter().filter(|pid| *pid != command).collect();
            (orphans.len() == number).then_some(orphans)
        })
    }

    pub fn end(self) -> Ended {
        self.running.end()
    }
}

impl Deref for Started {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

/// The number that a process has in its own PID namespace.
pub fn inner(pid: i32) -> i32 {
    let status = status(pid);
    let numbers = status_field(&status, "NSpid").unwrap_or_else(|| panic!("process {pid} is gone"));
    numbers.split_whitespace().next_back().unwrap().parse().unwrap()
}

/// The first letter of a process's state; `None` where it is gone.
pub fn state(pid: i32) -> Option<char> {
    status_field(&status(pid), "State")?.chars().next()
}

#[track_caller]
pub fn wait_for_state(pid: i32, what: &str, wanted: impl Fn(Option<char>) -> bool) {
    poll_until(&format!("process {pid} {what}"), || wanted(state(pid)).then_some(()));
}

pub fn is_over(state: Option<char>) -> bool {
    matches!(state, None | Some('Z' | 'X'))
}

#[track_caller]
pub fn wait_until_over(pid: i32) {
    wait_for_state(pid, "ends", is_over);
}

#[track_caller]
pub fn wait_until_stopped(pid: i32) {
    wait_for_state(pid, "is stopped", |state| state == Some('T'));
}

/// The signals that wait for a process: bit n-1 for signal n.
pub fn pending(pid: i32) -> u64 {
    let status = status(pid);
    let mask = status_field(&status, "ShdPnd").unwrap_or_else(|| panic!("process {pid} is gone"));
    u64::from_str_radix(mask, 16).unwrap()
}

pub fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A command for which every signal waits, to be looked at.
pub const COLLECTOR: &[&str] = &[
    "perl",
    "-e",
    "use strict; use POSIX; $| = 1; my $all = POSIX::SigSet->new; $all->fillset; \
     sigprocmask(SIG_SETMASK, $all); print \"ready\\n\"; sleep 1000",
];
