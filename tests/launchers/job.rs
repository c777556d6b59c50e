//! Runs a launcher with two workers. Each worker writes down what happens to it.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::libc;
use tempfile::TempDir;

use crate::support::poll_for;
use crate::support::running::{Ended, Running, as_pid_1, descendants, in_place, lives, rdma_init, send};

/// Two cores that are busy with other work need this long to import PyTorch three times.
const START: Duration = Duration::from_secs(180);

/// Whether the program runs as PID 1 or as a subreaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    Pid1,
    Subreaper,
}

impl Init {
    pub const BOTH: [Init; 2] = [Init::Pid1, Init::Subreaper];
}

/// A launcher that runs under the program, and the directory into which its workers write.
pub struct Job {
    everybody: Everybody,
    pub running: Running,
    folder: TempDir,
}

/// How a job ended, and how long that took after the request.
pub struct Outcome {
    ended: Ended,
    took: Duration,
    folder: TempDir,
}

impl Job {
    /// Starts the launcher. Its arguments may depend on the directory.
    pub fn start<A: AsRef<OsStr>>(
        init: Init,
        options: &[&str],
        path: &str,
        launcher: impl FnOnce(&Path) -> Vec<A>,
    ) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let mut command = rdma_init(options);
        if init == Init::Subreaper {
            command.arg("--supervise");
        }
        command.arg("--").args(launcher(folder.path()));
        surroundings(&mut command, path, folder.path());
        let running = match init {
            Init::Pid1 => as_pid_1(command),
            Init::Subreaper => in_place(command),
        };
        Job { everybody: Everybody { init: running.pid, seen: Vec::new() }, running, folder }
    }

    /// Waits until each of the two workers has written at least `count` lines to its file `what`.
    #[track_caller]
    pub fn wait_for(mut self, what: &str, count: usize) -> Job {
        let there = poll_for(START, || {
            let both = [0, 1].iter().all(|rank| self.lines(what, *rank).len() >= count);
            (both || self.running.has_ended()).then_some(both)
        });
        if there == Some(true) {
            return self;
        }
        let Job { mut everybody, running, folder } = self;
        everybody.look();
        running.kill(libc::SIGKILL);
        drop(everybody);
        let found = written(folder.path());
        panic!("not {count} lines {what:?} of both workers: {found:#?}, {:#?}", running.end());
    }

    /// Returns the lines that a worker has written to its file `what`.
    pub fn lines(&self, what: &str, rank: usize) -> Vec<String> {
        lines(self.folder.path(), what, rank)
    }

    /// Does what makes the job end, and waits for the end. Fails if any process of the job is left.
    #[track_caller]
    pub fn end_by(self, act: impl FnOnce(&Running)) -> Outcome {
        let Job { mut everybody, running, folder } = self;
        everybody.look();
        assert!(everybody.seen.len() >= 3, "a launcher and two workers: {:?}", everybody.seen);
        let start = Instant::now();
        act(&running);
        let ended = running.end();
        let took = start.elapsed();
        let left = everybody.left();
        assert!(left.is_empty(), "{left:?} of {:?} are left: {ended:#?}", everybody.seen);
        Outcome { ended, took, folder }
    }

    #[track_caller]
    pub fn end_by_signal(self, signal: i32) -> Outcome {
        self.end_by(|running| running.kill(signal))
    }

    /// Kills the launcher, and then does the same as [`Job::end_by`].
    #[track_caller]
    pub fn end_by_killing_the_launcher(self) -> Outcome {
        self.end_by(|running| send(running.command(), libc::SIGKILL))
    }
}

impl Outcome {
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Outcome {
        assert_eq!(self.ended.status.code(), Some(code), "{:#?}", self.ended);
        self
    }

    /// Checks the last line that the program itself has written.
    #[track_caller]
    pub fn expect_end_line<const N: usize>(self, parts: [&str; N]) -> Outcome {
        let last = self.ended.stderr.lines().rfind(|line| line.starts_with("rdma-init: "));
        let holds_all = last.is_some_and(|line| parts.iter().all(|part| line.contains(part)));
        assert!(holds_all, "{parts:?} are not in {last:?}: {:#?}", self.ended);
        self
    }

    /// Checks that the program did not have to kill any process.
    #[track_caller]
    pub fn expect_no_process_killed(self) -> Outcome {
        assert!(!self.ended.stderr.contains("the processes left after"), "{:#?}", self.ended);
        self
    }

    /// Checks that each of the two workers has written exactly `count` lines to its file
    /// `what`.
    #[track_caller]
    pub fn expect_of_both(self, what: &str, count: usize) -> Outcome {
        for rank in [0, 1] {
            let found = lines(self.folder.path(), what, rank);
            let all = written(self.folder.path());
            assert_eq!(found.len(), count, "{what} of worker {rank}: {all:#?}, {:#?}", self.ended);
        }
        self
    }

    /// Checks that the program has waited for this time at least.
    #[track_caller]
    pub fn expect_wait(self, least: Duration) -> Outcome {
        assert!(self.took >= least, "{:?}: {:#?}", self.took, self.ended);
        self
    }
}

/// The processes below the program. They are killed if a failed test leaves them behind.
struct Everybody {
    init: i32,
    seen: Vec<i32>,
}

impl Everybody {
    fn look(&mut self) {
        self.seen = descendants(self.init);
    }

    fn left(&self) -> Vec<i32> {
        self.seen.iter().copied().filter(|pid| lives(*pid)).collect()
    }
}

impl Drop for Everybody {
    fn drop(&mut self) {
        for pid in self.left().into_iter().chain(descendants(self.init)) {
            send(pid, libc::SIGKILL);
        }
    }
}

/// Sets the search path, and makes `folder` the place for all files that a launcher would create in /tmp.
pub fn surroundings(command: &mut Command, path: &str, folder: &Path) {
    command.env("PATH", path).env("TMPDIR", folder).env("HOME", folder);
}

fn lines(folder: &Path, what: &str, rank: usize) -> Vec<String> {
    let text = fs::read_to_string(folder.join(format!("{what}-{rank}"))).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Returns everything that the workers have written, for the message of a failure.
fn written(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().filter_map(Result::ok);
    let files = files.filter_map(|file| {
        Some(format!("{}: {:?}", file.file_name().display(), fs::read_to_string(file.path()).ok()?))
    });
    files.collect()
}
