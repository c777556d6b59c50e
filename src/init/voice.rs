//! What a supervisor says: lines on standard error, without waiting for a reader.

use super::orders::Voice;
use crate::log::{Format, Level, Log};
use crate::sys::stdio::Stderr;

impl Voice {
    /// Says one line: an error, or a warning.
    pub fn say(self, level: Level, message: &str) {
        if self.quiet && level == Level::Warn {
            return;
        }
        if !self.json {
            Stderr::at_once().put(format!("rdma-init: {message}\n").as_bytes());
            return;
        }
        self.start_log();
        match level {
            Level::Error => tracing::error!("{message}"),
            Level::Warn | Level::Info | Level::Debug => tracing::warn!("{message}"),
        }
    }

    /// The log is started with the first message: most supervisors never say a word, and save
    /// its memory.
    pub fn start_log(self) {
        let level = if self.quiet { Level::Error } else { Level::Warn };
        Log::start(Format::Json, level, Stderr::at_once());
    }
}
