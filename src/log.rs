//! Standard error: text for people, or one JSON line per message. This module knows nothing about the
//! messages' subjects.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tracing_subscriber::fmt::MakeWriter;

use crate::json;
use crate::sys::stdio::Stderr;
use crate::sys::terminal;
use crate::text::name_program;

/// How long all messages together wait for a reader.
const PATIENCE: Duration = Duration::from_millis(500);

/// The sink that never blocks, for tracing.
#[derive(Debug, Clone)]
struct Sink(Stderr);

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Stderr;

    fn make_writer(&'a self) -> Stderr {
        self.0.clone()
    }
}

/// The format of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// Which messages to show: those of this importance and above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

/// Writes reports to standard error.
pub struct Log {
    stderr: Stderr,
    format: Format,
    level: Level,
}

/// This process's format, once it is known.
static FORMAT: OnceLock<Format> = OnceLock::new();

pub(crate) fn is_json() -> bool {
    FORMAT.get() == Some(&Format::Json)
}

/// Writes a sentence that is always shown; any part of the program may use it.
pub(crate) fn say(message: &str) {
    let message = name_program(message);
    match FORMAT.get() {
        Some(Format::Json) => tracing::error!("{message}"),
        Some(Format::Text) | None => {
            Stderr::with_patience(PATIENCE).put(terminal::fit(format!("rdma-init: {message}\n")).as_bytes());
        }
    }
}

impl Log {
    /// Returns standard error for a start, which may wait a little.
    pub fn patient() -> Stderr {
        Stderr::with_patience(PATIENCE)
    }

    /// Sets up tracing, once, if messages will use it: text reports and messages that are always shown do
    /// not.
    pub fn start(format: Format, level: Level, stderr: Stderr) -> Log {
        if format == Format::Json || level == Level::Debug {
            Log::trace(&stderr, format, level);
        }
        let _ = FORMAT.set(format);
        Log { stderr, format, level }
    }

    fn trace(stderr: &Stderr, format: Format, level: Level) {
        let most = match level {
            Level::Error => tracing::Level::ERROR,
            Level::Warn => tracing::Level::WARN,
            Level::Info => tracing::Level::INFO,
            Level::Debug => tracing::Level::DEBUG,
        };
        let builder = tracing_subscriber::fmt()
            .with_max_level(most)
            .with_writer(Sink(stderr.clone()))
            .with_target(false);
        // Only the first call in a process has an effect, and there is only one.
        let _ = match format {
            Format::Text => {
                tracing::subscriber::set_global_default(builder.with_ansi(false).without_time().finish())
            }
            Format::Json => {
                tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish())
            }
        };
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Writes a sentence, unless only errors are shown.
    pub fn warn(&self, message: &str) {
        let message = name_program(message);
        match self.format {
            _ if self.level < Level::Warn => {}
            Format::Json => tracing::warn!("{message}"),
            Format::Text => self.stderr.put(terminal::fit(format!("rdma-init: {message}\n")).as_bytes()),
        }
    }

    /// Writes a sentence, unless only warnings and errors are shown.
    pub fn note(&self, message: &str) {
        let message = name_program(message);
        match self.format {
            _ if self.level < Level::Info => {}
            Format::Json => tracing::info!("{message}"),
            Format::Text => self.stderr.put(terminal::fit(format!("rdma-init: {message}\n")).as_bytes()),
        }
    }

    /// Writes an object with fields of any type as a line of JSON, as an event of this level: tracing has no arrays.
    pub fn object(&self, level: Level, event: &impl Serialize) {
        #[derive(Serialize)]
        struct Line<'a, T> {
            timestamp: String,
            level: &'static str,
            #[serde(flatten)]
            event: &'a T,
        }
        let timestamp = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let level = match level {
            Level::Error => "ERROR",
            Level::Warn => "WARN",
            Level::Info => "INFO",
            Level::Debug => "DEBUG",
        };
        self.stderr.put(&json::line(&Line { timestamp, level, event }));
    }

    /// Writes everything in one piece, so that lines of several containers do not mix.
    pub fn put(&self, write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
        let mut text = Vec::new();
        if write(&mut text).is_ok() {
            match String::from_utf8(text) {
                Ok(text) => self.stderr.put(terminal::fit(text).as_bytes()),
                Err(error) => self.stderr.put(error.as_bytes()),
            }
        }
    }
}
