//! Reports how the command ended, in one line.

use std::fmt::Write;
use std::time::Duration;

use super::orders::Voice;
use crate::exit;
use crate::log::Level;
use crate::sys::fork::Ended;
use crate::sys::signals;
use crate::text::duration as shown;

/// How the command ended, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandEnd {
    pub ended: Ended,
    /// The exit code of the container.
    pub code: i32,
    /// How long the command ran; or the preparation, if it never became the command.
    pub ran: Duration,
    /// The signal that ended the command, and how long before the end it was forwarded.
    pub signal: Option<(i32, Duration)>,
    /// Why all remaining processes were killed, if they were.
    pub killed: Option<Killed>,
    /// The processes that were killed with the timeout, or that the end of the container kills after a stop signal.
    pub left: Vec<String>,
    /// How many processes of the container the kernel killed because memory ran out, since the command started.
    pub oom_kills: u64,
    /// The code is that of the key `fabric-exit-code`, because the fabric broke while the command ran.
    pub is_of_fabric: bool,
}

/// Which timeout expired before the processes were killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Killed {
    StopTimeout(Duration),
    DrainTimeout(Duration),
}

impl Ended {
    /// Returns the exit code as a shell computes it: 128 plus the signal number if the process was killed.
    pub(crate) fn code(self) -> i32 {
        match self {
            Ended::Exited(code) => code,
            Ended::Killed(signal) => exit::of_signal(signal),
        }
    }
}

impl CommandEnd {
    /// Reports how the command ended, unless it ended on its own with code 0 and memory did not run out. `command` returns its name
    /// without the path; `None` if only the preparation ran.
    pub(super) fn report(&self, voice: Voice, command: impl FnOnce() -> Option<String>) {
        let plain = self.ended == Ended::Exited(0)
            && self.signal.is_none()
            && self.killed.is_none()
            && self.oom_kills == 0;
        if plain || voice.quiet {
            return;
        }
        let command = command();
        let line = self.line(command.as_deref());
        if !voice.json {
            voice.say(Level::Warn, &line);
            return;
        }
        voice.start_log();
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            event = "end",
            command,
            exit_code = self.code,
            killed_by = match self.ended {
                Ended::Killed(signal) => Some(signals::name(signal)),
                Ended::Exited(_) => None,
            },
            ran_ms = milliseconds(self.ran),
            forwarded = self.signal.map(|(signal, _)| signals::name(signal)),
            forwarded_ms_before = self.signal.map(|(_, before)| milliseconds(before)),
            killed_after = match self.killed {
                Some(Killed::StopTimeout(_)) => Some("stop-timeout"),
                Some(Killed::DrainTimeout(_)) => Some("drain-timeout"),
                None => None,
            },
            left = (!self.left.is_empty()).then(|| self.left.join(", ")),
            oom_kills = (self.oom_kills > 0).then_some(self.oom_kills),
            fabric_broke = self.is_of_fabric.then_some(true),
            "{line}"
        );
    }

    /// Returns the end with this code, because the fabric broke. A command that succeeded keeps its code, and so does
    /// one that was asked to end or that a forwarded signal killed.
    pub(super) fn of_broken_fabric(&self, code: Option<i32>) -> Option<CommandEnd> {
        let has_failed = self.ended != Ended::Exited(0) && self.code != 0;
        let code = code.filter(|_| has_failed && self.signal.is_none())?;
        Some(CommandEnd { code, is_of_fabric: true, ..self.clone() })
    }

    /// Says in a sentence how the command ended.
    pub(super) fn line(&self, command: Option<&str>) -> String {
        let who = command.unwrap_or("the preparation of the command");
        let ran = shown(self.ran);
        let own = self.ended.code();
        let why = if self.is_of_fabric { ", because the fabric broke while it ran" } else { "" };
        let remapped = |before, after| match self.code == own {
            true => String::new(),
            false => format!("{before}turned into {}{why}{after}", self.code),
        };
        let mut line = match self.ended {
            Ended::Exited(code) => {
                format!("{who} ended with exit code {code}{} after {ran}", remapped(" (", ")"))
            }
            Ended::Killed(signal) => {
                let name = signals::name(signal);
                format!("{who} was killed by {name} (exit code {own}{}) after {ran}", remapped(", ", ""))
            }
        };
        if let Some((signal, before)) = self.signal {
            let before = if before < Duration::from_millis(1) { "just".to_owned() } else { shown(before) };
            let _ = write!(line, "; {} was forwarded to it {before} before", signals::name(signal));
        }
        if let Some(killed) = self.killed {
            let (what, time) = match killed {
                Killed::StopTimeout(time) => ("stop-timeout", time),
                Killed::DrainTimeout(time) => ("drain-timeout", time),
            };
            let _ = write!(line, "; the processes left after the {what} of {} were killed", shown(time));
            if !self.left.is_empty() {
                let _ = write!(line, ": {}", self.left.join(", "));
            }
        }
        line.push('.');
        if self.oom_kills > 0 {
            let processes = if self.oom_kills == 1 { "process" } else { "processes" };
            let _ = write!(
                line,
                " Memory ran out meanwhile: the kernel killed {} {processes} of this container's memory cgroup (oom_kill). Give the container more memory, or let the job use less.",
                self.oom_kills
            );
        }
        if self.killed.is_none() && !self.left.is_empty() {
            let _ = write!(
                line,
                " It left these processes, which the end of the container kills: {}. To give them time to end, set drain-timeout.",
                self.left.join(", ")
            );
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHRUN: Option<&str> = Some("torchrun");

    fn end(ended: Ended) -> CommandEnd {
        let (code, ran) = (ended.code(), Duration::from_millis(7_384_512));
        let (left, oom_kills) = (Vec::new(), 0);
        CommandEnd { ended, code, ran, signal: None, killed: None, left, oom_kills, is_of_fabric: false }
    }

    #[test]
    fn a_broken_fabric_changes_the_code_of_a_command_that_failed_by_itself() {
        let broken =
            |end: &CommandEnd| end.of_broken_fabric(Some(42)).map(|end| (end.code, end.line(TORCHRUN)));
        let failed = "torchrun ended with exit code 1 (turned into 42, because the fabric broke while it ran) after 2h 3m 4s.";
        assert_eq!(broken(&end(Ended::Exited(1))), Some((42, failed.to_owned())));
        let killed = "torchrun was killed by SIGABRT (exit code 134, turned into 42, because the fabric broke while it ran) after 2h 3m 4s.";
        assert_eq!(broken(&end(Ended::Killed(6))), Some((42, killed.to_owned())));
        assert_eq!(broken(&end(Ended::Exited(0))), None);
        let remapped = CommandEnd { code: 5, ..end(Ended::Exited(0)) };
        assert_eq!(broken(&remapped), None, "the command succeeded");
        // remap-exit says that this code is a success.
        assert_eq!(broken(&CommandEnd { code: 0, ..end(Ended::Exited(3)) }), None);
        let stopped = CommandEnd { signal: Some((15, Duration::ZERO)), ..end(Ended::Exited(1)) };
        assert_eq!(broken(&stopped), None);
        assert_eq!(end(Ended::Exited(1)).of_broken_fabric(None), None);
    }

    #[test]
    fn the_line_tells_what_happened() {
        assert_eq!(end(Ended::Exited(1)).line(TORCHRUN), "torchrun ended with exit code 1 after 2h 3m 4s.");
        let stopped = CommandEnd { signal: Some((15, Duration::from_millis(3012))), ..end(Ended::Exited(0)) };
        assert_eq!(
            stopped.line(TORCHRUN),
            "torchrun ended with exit code 0 after 2h 3m 4s; SIGTERM was forwarded to it 3s 12ms before."
        );
        let killed = CommandEnd {
            signal: Some((15, Duration::from_secs(25))),
            killed: Some(Killed::StopTimeout(Duration::from_secs(25))),
            code: 0,
            ..end(Ended::Killed(9))
        };
        assert_eq!(
            killed.line(TORCHRUN),
            "torchrun was killed by SIGKILL (exit code 137, turned into 0) after 2h 3m 4s; SIGTERM was \
             forwarded to it 25s before; the processes left after the stop-timeout of 25s were killed."
        );
        let early = CommandEnd {
            ran: Duration::from_millis(3),
            signal: Some((15, Duration::from_micros(90))),
            ..end(Ended::Killed(15))
        };
        assert_eq!(
            early.line(None),
            "the preparation of the command was killed by SIGTERM (exit code 143) after 3ms; SIGTERM was \
             forwarded to it just before."
        );
    }
}
