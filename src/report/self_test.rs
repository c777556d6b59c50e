//! A self-test, for people: a line for each check, and below what did not pass, the fix.

use std::io::{self, Write};

use crate::log;
use crate::self_test::check::{Check, Outcome};
use crate::self_test::kinds::{KINDS, Level};
use crate::self_test::report::{Figures, Pair, Report};
use crate::text::{counted, visible};

/// Writes the table.
///
/// # Errors
/// Whatever the sink gives.
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (program, host) = (visible(&report.program), visible(&report.host));
    writeln!(out, "rdma-init {program} self-test of {host}: {}", verdict(report))?;
    let names: Vec<String> = report.checks.iter().map(name).collect();
    let width = names.iter().map(String::len).max().unwrap_or_default();
    for (check, name) in report.checks.iter().zip(&names) {
        let evidence = match (check.outcome, &check.message) {
            (Outcome::Skipped, Some(why)) => why.clone(),
            // What was looked at is mostly what is right about the others.
            (Outcome::Warning | Outcome::Failed, _) => "see below".to_owned(),
            _ => check.evidence.join("; "),
        };
        writeln!(
            out,
            "  {:7}  {:width$}  {:>8}  {}",
            word(check.outcome),
            visible(name),
            time(check.took_us),
            visible(&evidence)
        )?;
    }
    bad(report).into_iter().try_for_each(|check| explain(out, check))?;
    report.pair.as_ref().map_or(Ok(()), |pair| write_rails(out, pair))
}

/// A line for each rail to the other node.
fn write_rails(out: &mut impl Write, pair: &Pair) -> io::Result<()> {
    let names = |figures: &Figures| visible(&format!("{} - {}", figures.near, figures.far));
    let width = pair.rails.iter().map(|figures| names(figures).len()).max().unwrap_or_default().max(4);
    if !pair.rails.is_empty() {
        writeln!(out, "  {:width$}  {:>10}  {:>14}  {:>14}", "rail", "latency", "to", "from")?;
    }
    pair.rails.iter().try_for_each(|figures| {
        let latency = format!("{}.{} us", figures.latency_ns / 1000, figures.latency_ns % 1000 / 100);
        let [to, from] = [figures.to_mbps, figures.from_mbps].map(|mbps| format!("{mbps} Mbit/s"));
        writeln!(out, "  {:width$}  {latency:>10}  {to:>14}  {from:>14}", names(figures))
    })
}

/// Writes a line for it all, and what did not pass unless the plan's report has just
/// said the same.
///
/// # Errors
/// Whatever the sink gives.
pub fn write_brief(out: &mut impl Write, report: &Report, level: log::Level) -> io::Result<()> {
    let shown: Vec<&Check> = bad(report)
        .into_iter()
        .filter(|check| check.outcome == Outcome::Failed || level >= log::Level::Warn)
        .collect();
    if shown.is_empty() && level < log::Level::Info {
        return Ok(());
    }
    let names: Vec<String> =
        shown.iter().map(|check| format!("{} {}", word(check.outcome), name(check))).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    writeln!(out, "rdma-init: self-test {}{}", verdict(report), visible(&names))?;
    shown.into_iter().filter(|check| !check.is_in_plan).try_for_each(|check| explain(out, check))
}

/// The same as events.
pub fn events(report: &Report) {
    let took_us = report.took_us;
    for check in bad(report) {
        let (id, subject, fix) = (&check.id, check.subject.as_deref(), check.fix.as_deref());
        let message = check.message.as_deref().unwrap_or(&check.title);
        match check.outcome {
            Outcome::Failed => tracing::error!(event = "check", id, subject, fix, "{message}"),
            _ => tracing::warn!(event = "check", id, subject, fix, "{message}"),
        }
    }
    let (passed, checks) = (report.passed, report.checks.len());
    tracing::info!(event = "self-test", passed, checks, took_us, "tested");
}

/// What did not pass, the worst first.
fn bad(report: &Report) -> Vec<&Check> {
    let mut bad: Vec<&Check> =
        report.checks.iter().filter(|check| check.outcome > Outcome::Skipped).collect();
    bad.sort_by_key(|check| std::cmp::Reverse(check.outcome));
    bad
}

fn explain(out: &mut impl Write, check: &Check) -> io::Result<()> {
    let message = check.message.as_deref().unwrap_or(&check.title);
    writeln!(out, "  {}: {}: {}", word(check.outcome), visible(&name(check)), visible(message))?;
    if let Some(fix) = &check.fix {
        writeln!(out, "      fix: {}", visible(fix))?;
    }
    Ok(())
}

/// Writes the checks that there are.
///
/// # Errors
/// Whatever the sink gives.
pub fn write_kinds(out: &mut impl Write) -> io::Result<()> {
    let width = KINDS.iter().map(|kind| kind.id.len()).max().unwrap_or_default();
    KINDS.iter().try_for_each(|kind| {
        let level = match kind.level {
            Level::Quick => "quick",
            Level::Verbs => "verbs",
            Level::Pair => "pair",
        };
        writeln!(out, "{:width$}  {level:5}  {}", kind.id, kind.title)
    })
}

/// `passed, with 1 warning (24 checks on 2 ports, 3.1 ms)`
fn verdict(report: &Report) -> String {
    let count = |outcome| report.checks.iter().filter(|check| check.outcome == outcome).count();
    let (failed, warned) = (count(Outcome::Failed), count(Outcome::Warning));
    let verdict = match (failed, warned) {
        (0, 0) => "passed".to_owned(),
        (0, _) => format!("passed, with {}", counted(warned, "warning")),
        _ => "failed".to_owned(),
    };
    let (checks, ports) = (counted(report.checks.len(), "check"), counted(report.hcas.len(), "port"));
    format!("{verdict} ({checks} on {ports}, {})", time(report.took_us))
}

fn name(check: &Check) -> String {
    match &check.subject {
        Some(subject) => format!("{} {subject}", check.id),
        None => check.id.clone(),
    }
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "ok",
        Outcome::Skipped => "skipped",
        Outcome::Warning => "warning",
        Outcome::Failed => "FAILED",
    }
}

/// `12 us`, `3.4 ms`, `1.2 s`.
fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}
