//! Runs a `docker` command, reads its output, and reports how it ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::support::DEADLINE;

/// How a `docker` command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks that one line on standard error contains all of these parts. Other suites check the exact
    /// wording.
    #[track_caller]
    pub fn expect_line<const N: usize>(self, parts: [&str; N]) -> Ended {
        let holds_all = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(self.stderr.lines().any(holds_all), "no line holds {parts:?}: {self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_said(self, text: &str) -> Ended {
        self.expect_line([text])
    }

    #[track_caller]
    pub fn expect_unsaid(self, text: &str) -> Ended {
        assert!(!self.stderr.contains(text), "{text:?} is in {self:#?}");
        self
    }

    #[track_caller]
    pub fn expect_stdout(self, text: &str) -> Ended {
        assert_eq!(self.stdout, text, "{self:#?}");
        self
    }

    /// Returns the value of a variable that the command `env` printed.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns whether the client gave up before it did anything: on a busy machine, the engine may need longer than the
    /// 2 s in which `docker run` wants to know what it is.
    fn is_unanswered(&self) -> bool {
        self.engine_failed() && self.stderr.contains("unknown server OS")
    }

    /// Returns whether the engine, rather than the program, failed. Both use exit code 125.
    pub fn engine_failed(&self) -> bool {
        self.code == Some(125) && self.stderr.contains("docker: ")
    }
}

/// A process with captured output.
pub struct Attached {
    pub child: Child,
    command: Command,
    lines: Receiver<String>,
    stdout: String,
    stderr: JoinHandle<String>,
}

impl Attached {
    #[track_caller]
    pub fn start(mut command: Command) -> Attached {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut stdout, mut stderr) =
            (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Attached { child, command, lines, stdout: String::new(), stderr }
    }

    /// Reads lines until one equals this text.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.stdout += &line;
                    if line.trim_end() == text {
                        return;
                    }
                }
                Err(error) => {
                    let _ = self.child.kill();
                    let code = self.child.wait().unwrap().code();
                    let stderr = std::mem::replace(&mut self.stderr, thread::spawn(String::new)).join();
                    let (stdout, stderr) = (std::mem::take(&mut self.stdout), stderr.unwrap());
                    let ended = Ended { code, stdout, stderr };
                    assert!(ended.is_unanswered(), "{text:?} did not come ({error}): {ended:#?}");
                    let command = std::mem::replace(&mut self.command, Command::new(""));
                    *self = Attached::start(command);
                }
            }
        }
    }

    /// Reads the output to its end and waits for the process.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let until = Instant::now() + DEADLINE;
        let in_time = loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.stdout += &line,
                Err(error) => break error == RecvTimeoutError::Disconnected,
            }
        };
        if !in_time {
            let _ = self.child.kill();
        }
        let status = self.child.wait().unwrap();
        let stderr = self.stderr.join().unwrap();
        let ended = Ended { code: status.code(), stdout: self.stdout, stderr };
        assert!(in_time, "does not end: {ended:#?}");
        if ended.is_unanswered() {
            return Attached::start(self.command).wait();
        }
        ended
    }
}
