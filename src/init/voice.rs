//! What a supervisor says: on standard error, waiting for nobody.

use super::orders::Voice;
use crate::log::Log;
use crate::log::{Format, Level};
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
        let level = if self.quiet { Level::Error } else { Level::Warn };
        Log::start(Format::Json, level, Stderr::at_once());
    }
}
