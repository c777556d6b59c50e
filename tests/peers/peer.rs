//! The init under test, which is rdma-init or another one, and its options.

use std::ffi::{OsStr, OsString};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub use crate::support::running::wait_until_stopped;
use crate::support::running::{Ended, Running, as_pid_1, children, command_of, rests, send, status};
use crate::support::{self, poll_until, process, status_field};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Ours,
    Tini,
}

/// Returns the init under test, according to `RDMA_INIT_TEST_PEER`.
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

/// Features of an init that a case may need.
#[derive(Debug, Clone, Copy)]
pub enum Feature<'a> {
    KillGroup,
    Supervise,
    /// Turns this exit code into 0.
    RemapExit(u8),
    ParentDeath(&'a str),
    WarnOnReap,
    /// Forwards one signal as another: `A:B`.
    Rewrite(&'a str),
}

impl Feature<'_> {
    /// Returns the flags that turn the feature on; `None` if this init lacks it.
    fn flags(self, peer: Peer) -> Option<Vec<String>> {
        let flags: &[&str] = match (peer, self) {
            (Peer::Ours, Feature::KillGroup) => &["--kill-group"],
            (Peer::Ours, Feature::Supervise) => &["--supervise"],
            (Peer::Ours, Feature::RemapExit(code)) => &["--remap-exit", &code.to_string()],
            (Peer::Ours, Feature::ParentDeath(signal)) => &["--parent-death-signal", signal],
            (Peer::Ours, Feature::WarnOnReap) => &["--warn-on-reap"],
            // The flag and its value are one argument, because the value may start with a dash.
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

/// Returns whether the init under test is tini, to which a case does not apply, and prints why.
pub fn is_not_for_tini(why: &str) -> bool {
    let skipped = peer() == Peer::Tini;
    if skipped {
        eprintln!("SKIPPED under tini: {why}");
    }
    skipped
}

/// Where the init runs, and what makes it a subreaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The init is the first process of a PID namespace.
    Pid1,
    /// A shell is the first process, and an option turns the init below it into a subreaper.
    ByOption,
    /// The same, but a variable turns the init into a subreaper.
    ByVariable,
}

/// The two places that the kernel treats differently.
pub const PLACES: [Place; 2] = [Place::Pid1, Place::ByOption];

/// The script of the shell above an init that is not PID 1. The shell is PID 1, so no process outlives the
/// test.
pub const SHELL_ABOVE: &str = "\"$@\"; exit $?";

/// The same as [`SHELL_ABOVE`], but the shell stays after the init's end, so that the test can see which
/// processes are left.
pub const SHELL_THAT_STAYS: &str = "\"$@\"; echo \"ended with $?\"; exec sleep 1000";

/// An init with the flags for some features.
#[derive(Debug, Clone, Default)]
pub struct Init {
    flags: Vec<String>,
}

impl Init {
    pub fn plain() -> Init {
        Init::default()
    }

    /// Returns an init with these features. If the init under test lacks one, prints that and returns `None`.
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

    /// Returns the program and the arguments that start the command under the init.
    pub fn arguments(&self, place: Place, command: &[&str]) -> Vec<OsString> {
        let supervise = (place == Place::ByOption).then(|| Feature::Supervise.flags(peer())).flatten();
        let flags = supervise.iter().flatten().chain(&self.flags).map(OsString::from);
        let command = command.iter().map(OsString::from);
        std::iter::once(peer().program().into())
            .chain(flags)
            .chain([OsString::from("--")])
            .chain(command)
            .collect()
    }

    /// Returns the command for the namespace's first process, which runs this command under the init.
    pub fn command(&self, place: Place, command: &[&str]) -> Command {
        let arguments = self.arguments(place, command);
        match place {
            Place::Pid1 => first_process(&arguments[0], &arguments[1..]),
            Place::ByOption => below(SHELL_ABOVE, &arguments),
            Place::ByVariable => {
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
    pub fn start(&self, place: Place, command: &[&str]) -> Started {
        start(place, self.command(place, command))
    }

    /// Starts a shell script under the init.
    #[track_caller]
    pub fn shell(&self, place: Place, script: &str) -> Started {
        self.start(place, &["sh", "-c", script])
    }
}

/// Returns the command for a program with its own environment and captured output.
pub fn first_process<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = process::program(program, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the command for a shell script that gets these arguments. The shell is bash, because dash clears
/// the signal mask that it was started with.
pub fn below(script: &str, arguments: &[OsString]) -> Command {
    let mut command = first_process("/bin/bash", ["-c", script, "bash"]);
    command.args(arguments);
    command
}

/// An init that runs in a PID namespace. Dropping this value kills it with all its processes.
pub struct Started {
    place: Place,
    running: Running,
}

pub fn start(place: Place, command: Command) -> Started {
    Started { place, running: as_pid_1(command) }
}

impl Started {
    /// Returns the process of the init itself.
    #[track_caller]
    pub fn init(&self) -> i32 {
        match self.place {
            Place::Pid1 => self.running.pid,
            _ => self.running.child(),
        }
    }

    /// Returns the process that the init started, once it has become the command.
    #[track_caller]
    pub fn command(&self) -> i32 {
        command_of(self.init())
    }

    /// Sends a signal to the init.
    #[track_caller]
    pub fn kill(&self, signal: i32) {
        send(self.init(), signal);
    }

    /// Waits until the command reports that it is ready and the init has nothing left to do.
    #[track_caller]
    pub fn is_ready(&mut self) {
        self.wait_for("ready");
        self.rests();
    }

    #[track_caller]
    pub fn rests(&self) {
        rests(self.init());
    }

    /// Waits until the init has this many children in addition to the command, and returns them.
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

/// Returns a process's ID in its own PID namespace.
pub fn inner(pid: i32) -> i32 {
    let status = status(pid);
    let numbers = status_field(&status, "NSpid").unwrap_or_else(|| panic!("process {pid} is gone"));
    numbers.split_whitespace().next_back().unwrap().parse().unwrap()
}

/// Returns the first letter of a process's state; `None` if the process is gone.
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

/// Returns the signals that are pending for a process: bit n-1 stands for signal n.
pub fn pending(pid: i32) -> u64 {
    let status = status(pid);
    let mask = status_field(&status, "ShdPnd").unwrap_or_else(|| panic!("process {pid} is gone"));
    u64::from_str_radix(mask, 16).unwrap()
}

pub fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A command that blocks all signals, so that they stay pending and the test can read them.
pub const COLLECTOR: &[&str] = &[
    "perl",
    "-e",
    "use strict; use POSIX; $| = 1; my $all = POSIX::SigSet->new; $all->fillset; \
     sigprocmask(SIG_SETMASK, $all); print \"ready\\n\"; sleep 1000",
];
