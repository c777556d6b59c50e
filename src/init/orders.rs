//! The orders for a supervisor. The preparation reads the configuration and derives them from it.

use std::time::Duration;

use super::signal_map::{Remap, Rewrite};
use crate::log::{Format, Level, Log};
use crate::sys::stdio::Stderr;
use crate::sys::terminal;
use crate::text::name_program;

/// How long the preparation may take before the command starts without it.
pub(crate) const DEFAULT_PREPARE_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that a supervisor needs to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders {
    pub terms: FailureOrders,
    pub supervision: Supervision,
    pub voice: Voice,
}

/// What PID 1 does if the preparation does not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureOrders {
    /// How long the preparation may take, from the start; `None` for no deadline.
    pub deadline: Option<Duration>,
    /// How to refuse the command; `None` to start it without the preparation.
    pub refuse: Option<Refusal>,
}

/// How the command is refused if the requested checks could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The exit code.
    pub code: i32,
    pub asked_by: Enforcing,
}

/// The keys of the configuration that ask for a refusal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enforcing {
    pub require_rdma: bool,
    pub memlock: bool,
    pub self_test: bool,
    pub preflight: bool,
}

impl Enforcing {
    /// Returns the keys as they appear in the configuration file.
    fn keys(self) -> Vec<&'static str> {
        let all = [
            (self.require_rdma, "require-rdma"),
            (self.memlock, "memlock = \"enforce\""),
            (self.self_test, "self-test = \"enforce\""),
            (self.preflight, "preflight = \"enforce\""),
        ];
        all.into_iter().filter(|(asks, _)| *asks).map(|(_, key)| key).collect()
    }
}

impl Refusal {
    /// Returns the reason as a clause: what went wrong, and which keys forbid the start in this case.
    pub fn because(self, what: &str) -> String {
        let keys = self.asked_by.keys();
        let (names, verb) = match &keys[..] {
            [] => ("the configuration".to_owned(), "does"),
            [one] => ((*one).to_owned(), "does"),
            [first @ .., last] => (format!("{} and {last}", first.join(", ")), "do"),
        };
        format!("{what}, and {names} {verb} not let the command start in that case")
    }
}

/// How the command is supervised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supervision {
    /// Whether signals go to the command's process group.
    pub kill_group: bool,
    /// How long after the first forwarded stop signal all remaining processes are killed.
    pub stop_timeout: Option<Duration>,
    /// How long processes may outlive the command before they are killed.
    pub drain_timeout: Option<Duration>,
    pub rewrite: Rewrite,
    pub remap: Remap,
    /// The signal that the kernel sends to the supervisor when its own parent ends.
    pub parent_death_signal: Option<i32>,
    /// Whether to report each reaped process that is not the command.
    pub warn_on_reap: bool,
    /// Whether to start a watcher of the job's ports.
    pub watch: bool,
    /// The exit code in place of the command's, if that fails after the fabric broke.
    pub fabric_exit_code: Option<i32>,
}

impl Supervision {
    /// Returns the keys that are set but have no effect if no supervisor stays with the command. The watcher is on
    /// by default, so [`crate::config::Config::without_effect_in_place`] adds it.
    pub fn without_effect_in_place(&self) -> Vec<&'static str> {
        let default = Supervision::default();
        let set = [
            ("kill-group", self.kill_group),
            ("stop-timeout", self.stop_timeout.is_some()),
            ("drain-timeout", self.drain_timeout.is_some()),
            ("rewrite-signal", self.rewrite != default.rewrite),
            ("remap-exit", self.remap != default.remap),
            ("warn-on-reap", self.warn_on_reap),
            ("fabric-exit-code", self.fabric_exit_code.is_some()),
        ];
        set.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }
}

/// How a supervisor reports: it writes lines to standard error, and never waits for a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Voice {
    pub json: bool,
    /// Report only errors (`log-level = "error"`).
    pub quiet: bool,
}

impl Voice {
    /// Reports one line: an error or a warning.
    pub fn say(self, level: Level, message: &str) {
        if self.quiet && level == Level::Warn {
            return;
        }
        if !self.json {
            let message = name_program(message);
            Stderr::at_once().put(terminal::fit(format!("rdma-init: {message}\n")).as_bytes());
            return;
        }
        self.start_log();
        match level {
            Level::Error => tracing::error!("{message}"),
            Level::Warn | Level::Info | Level::Debug => tracing::warn!("{message}"),
        }
    }

    /// Starts the log. This happens with the first message: most supervisors never report anything, and
    /// save the memory.
    pub fn start_log(self) {
        // The watcher inherits this log, and also reports notes.
        let level = if self.quiet { Level::Error } else { Level::Info };
        Log::start(Format::Json, level, Stderr::at_once());
    }
}

/// As the configuration is without any key: a supervisor that starts with these orders is not woken for others.
impl Default for Supervision {
    fn default() -> Supervision {
        Supervision {
            kill_group: false,
            stop_timeout: None,
            drain_timeout: None,
            rewrite: Rewrite::default(),
            remap: Remap::default(),
            parent_death_signal: None,
            warn_on_reap: false,
            watch: true,
            fabric_exit_code: None,
        }
    }
}

impl Default for FailureOrders {
    fn default() -> FailureOrders {
        FailureOrders { deadline: Some(DEFAULT_PREPARE_TIMEOUT), refuse: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_effect_in_place_are_named() {
        let full = Supervision {
            kill_group: true,
            stop_timeout: Some(Duration::from_secs(1)),
            drain_timeout: Some(Duration::from_secs(1)),
            rewrite: Rewrite::new(&["TERM:INT"]).unwrap(),
            remap: Remap::new(&["143"]).unwrap(),
            parent_death_signal: Some(9),
            warn_on_reap: true,
            watch: true,
            fabric_exit_code: Some(42),
        };
        assert_eq!(
            full.without_effect_in_place(),
            [
                "kill-group",
                "stop-timeout",
                "drain-timeout",
                "rewrite-signal",
                "remap-exit",
                "warn-on-reap",
                "fabric-exit-code"
            ]
        );
        let parent = Supervision { parent_death_signal: Some(9), ..Supervision::default() };
        assert!(parent.without_effect_in_place().is_empty());
    }

    #[test]
    fn a_refusal_names_the_keys_that_ask_for_it_and_no_other() {
        let because = |require_rdma, memlock, self_test| {
            Refusal { code: 121, asked_by: Enforcing { require_rdma, memlock, self_test, preflight: false } }
                .because("it hangs")
        };
        let end = "not let the command start in that case";
        assert_eq!(because(false, false, true), format!("it hangs, and self-test = \"enforce\" does {end}"));
        assert_eq!(
            because(true, false, true),
            format!("it hangs, and require-rdma and self-test = \"enforce\" do {end}")
        );
        assert_eq!(
            because(true, true, true),
            format!("it hangs, and require-rdma, memlock = \"enforce\" and self-test = \"enforce\" do {end}")
        );
    }
}
