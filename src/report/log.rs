//! Standard error at start-up: text for people, or a JSON line for each thing.

use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::forecast;
use super::plan::{self, Detail, Memlock};
use super::self_test;
use super::traffic::{self, Moved};
use crate::config::{LogFormat, LogLevel};
use crate::facts::traffic::Traffic;
use crate::plan::{Fabric, Finding, Outcome, Plan, Severity};
use crate::self_test::report::Report;
use crate::sys::stdio::Stderr;

/// How long all messages together wait for somebody to read them.
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

/// What reports go through.
pub struct Log {
    stderr: Stderr,
    format: LogFormat,
    level: LogLevel,
}

/// The format of this process, once it is known.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// A sentence that is always shown, from whatever part of the program.
pub fn say(message: &str) {
    match FORMAT.get() {
        Some(LogFormat::Json) => tracing::error!("{message}"),
        Some(LogFormat::Text) | None => {
            Stderr::with_patience(PATIENCE).put(format!("rdma-init: {message}\n").as_bytes());
        }
    }
}

impl Log {
    /// Standard error for a start-up that may wait a little.
    pub fn patient() -> Stderr {
        Stderr::with_patience(PATIENCE)
    }

    /// Sets up tracing, once, where something goes through it: as text, the report
    /// and what is always shown do not.
    pub fn start(format: LogFormat, level: LogLevel, stderr: Stderr) -> Log {
        if format == LogFormat::Json || level == LogLevel::Debug {
            Log::trace(&stderr, format, level);
        }
        let _ = FORMAT.set(format);
        Log { stderr, format, level }
    }

    fn trace(stderr: &Stderr, format: LogFormat, level: LogLevel) {
        let most = match level {
            LogLevel::Error => tracing::Level::ERROR,
            LogLevel::Warn => tracing::Level::WARN,
            LogLevel::Info => tracing::Level::INFO,
            LogLevel::Debug => tracing::Level::DEBUG,
        };
        let builder = tracing_subscriber::fmt()
            .with_max_level(most)
            .with_writer(Sink(stderr.clone()))
            .with_target(false);
        // Only the first of a process counts, and there is only one.
        let _ = match format {
            LogFormat::Text => {
                tracing::subscriber::set_global_default(builder.with_ansi(false).without_time().finish())
            }
            LogFormat::Json => {
                tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish())
            }
        };
    }

    /// A sentence that is shown unless only errors are.
    pub fn warn(&self, message: &str) {
        match self.format {
            _ if self.level < LogLevel::Warn => {}
            LogFormat::Json => tracing::warn!("{message}"),
            LogFormat::Text => self.stderr.put(format!("rdma-init: {message}\n").as_bytes()),
        }
    }

    /// A sentence that is shown unless there is to be less.
    pub fn note(&self, message: &str) {
        match self.format {
            _ if self.level < LogLevel::Info => {}
            LogFormat::Json => tracing::info!("{message}"),
            LogFormat::Text => self.stderr.put(format!("rdma-init: {message}\n").as_bytes()),
        }
    }

    /// The decision and the findings.
    pub fn plan(&self, plan: &Plan, memlock: Option<&Memlock>) {
        match self.format {
            LogFormat::Json => events(plan, memlock),
            LogFormat::Text => self.put(|out| {
                let shown = Plan {
                    findings: plan
                        .findings
                        .iter()
                        .filter(|finding| plan::shows(self.level, finding.severity))
                        .cloned()
                        .collect(),
                    ..plan.clone()
                };
                if self.level >= LogLevel::Info {
                    plan::write(out, &shown, memlock, Detail::Compact)
                } else {
                    under_the_headline(out, &shown)
                }
            }),
        }
    }

    /// What came out of a self-test, after its plan was shown.
    pub fn self_test(&self, report: &Report, plan: &Plan) {
        match self.format {
            LogFormat::Json => self_test::events(report),
            LogFormat::Text => self.put(|out| self_test::write_brief(out, report, plan, self.level)),
        }
    }

    /// What went over RDMA, and what is wrong with that.
    pub fn traffic(&self, moved: &[Moved], finding: Option<Finding>) {
        let lines = traffic::lines(moved);
        match self.format {
            LogFormat::Json => {
                for (port, line) in moved.iter().filter(|port| port.traffic.is_known()).zip(lines) {
                    let Traffic { sent, received } = port.traffic;
                    tracing::info!(
                        event = "traffic",
                        hca = port.hca,
                        port = port.port,
                        sent_bytes = sent.bytes,
                        sent_packets = sent.packets,
                        received_bytes = received.bytes,
                        received_packets = received.packets,
                        "{line}"
                    );
                }
                finding.iter().for_each(event);
            }
            LogFormat::Text => self.put(|out| {
                for line in lines.iter().filter(|_| self.level >= LogLevel::Info) {
                    writeln!(out, "rdma-init: {line}.")?;
                }
                if let Some(finding) = finding {
                    writeln!(out, "rdma-init: {}: {}", finding.severity.as_str(), finding.message)?;
                    writeln!(out, "      fix: {}", finding.fix.unwrap_or_default())?;
                }
                Ok(())
            }),
        }
    }

    /// In one piece, so that lines of several containers do not mix.
    fn put(&self, write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
        let mut text = Vec::new();
        if write(&mut text).is_ok() {
            self.stderr.put(&text);
        }
    }
}

/// The findings alone, and above them who speaks, and of what.
fn under_the_headline(out: &mut Vec<u8>, plan: &Plan) -> std::io::Result<()> {
    if plan.findings.is_empty() {
        return Ok(());
    }
    plan::write_headline(out, plan)?;
    plan::write_findings(out, plan.findings.iter())
}

fn events(plan: &Plan, memlock: Option<&Memlock>) {
    let profile = plan.profile.as_ref().map(|choice| choice.name.as_str());
    let used = plan.ports.iter().filter(|port| port.used).count();
    let (fabric, why_none) = match &plan.fabric {
        Fabric::Verbs => ("verbs", None),
        Fabric::Interface(_) => ("interface", None),
        Fabric::Plugin(_) => ("plugin", None),
        Fabric::None(why) => ("none", Some(why)),
    };
    tracing::info!(
        event = "plan",
        fabric,
        why_none,
        profile,
        ports_used = used,
        ports = plan.ports.len(),
        "decided"
    );
    for port in &plan.ports {
        tracing::info!(
            event = "port",
            hca = port.hca,
            port = port.port,
            used = port.used,
            reason = port.reason,
            rate = port.rate,
            "port"
        );
    }
    for setting in &plan.settings {
        let outcome = match setting.outcome {
            Outcome::Filled => "filled",
            Outcome::User => "user",
            Outcome::Unset => "unset",
        };
        tracing::info!(
            event = "variable",
            variable = setting.variable,
            value = setting.value,
            outcome,
            source = setting.source,
            rule = setting.rule,
            "variable"
        );
    }
    for (release, what) in forecast::lines(plan) {
        tracing::info!(event = "forecast", release, what, "forecast");
    }
    if let Some(memlock) = memlock {
        let [before, after] = [memlock.before, memlock.after].map(|limit| plan::limit(limit.soft));
        tracing::info!(event = "memlock", before, after, pinning = ?memlock.pinning, "memlock");
    }
    plan.findings.iter().for_each(event);
}

fn event(finding: &Finding) {
    let (id, fix, message) = (finding.id, finding.fix.as_deref(), &finding.message);
    match finding.severity {
        Severity::Error => tracing::error!(event = "finding", id, fix, "{message}"),
        Severity::Warning => tracing::warn!(event = "finding", id, fix, "{message}"),
        Severity::Info => tracing::info!(event = "finding", id, fix, "{message}"),
    }
}
