//! What a supervisor says: on standard error, waiting for nobody.

use super::orders::Voice;
use crate::config::{LogFormat, LogLevel};
use crate::report::log::Log;
use crate::sys::stdio::Stderr;

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    Error,
    Warning,
}

impl Voice {
    /// One line.
    pub fn say(self, weight: Weight, message: &str) {
        if self.quiet && weight == Weight::Warning {
            return;
        }
        if !self.json {
            Stderr::at_once().put(format!("rdma-init: {message}\n").as_bytes());
            return;
        }
        self.start_log();
        match weight {
            Weight::Error => tracing::error!("{message}"),
            Weight::Warning => tracing::warn!("{message}"),
        }
    }

    /// Only now: most supervisors never say a word, and keep the memory free.
    pub fn start_log(self) {
        let level = if self.quiet { LogLevel::Error } else { LogLevel::Warn };
        Log::start(LogFormat::Json, level, Stderr::at_once());
    }
}
