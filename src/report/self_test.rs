//! A self-test, for people: a line for each check, and below what did not pass, the fix.

use std::io::{self, Write};

use super::style::{counted, visible};
use crate::self_test::check::{Check, Outcome};
use crate::self_test::kinds::{KINDS, Level};
use crate::self_test::report::Report;

/// Writes the table.
///
/// # Errors
/// Whatever the sink gives.
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}", visible(&headline(report)))?;
    let names: Vec<String> = report.checks.iter().map(name).collect();
    let width = names.iter().map(String::len).max().unwrap_or_default();
    for (check, name) in report.checks.iter().zip(&names) {
        let evidence = match (check.outcome, &check.message) {
            (Outcome::Skipped, Some(why)) => why.clone(),
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
    let mut bad: Vec<&Check> =
        report.checks.iter().filter(|check| check.outcome > Outcome::Skipped).collect();
    bad.sort_by_key(|check| std::cmp::Reverse(check.outcome));
    for check in bad {
        let message = check.message.as_deref().unwrap_or("did not pass");
        writeln!(out, "  {}: {}: {}", word(check.outcome), visible(&name(check)), visible(message))?;
        if let Some(fix) = &check.fix {
            writeln!(out, "      fix: {}", visible(fix))?;
        }
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
        };
        writeln!(out, "{:width$}  {level}  {}", kind.id, kind.title)
    })
}

fn headline(report: &Report) -> String {
    let count = |outcome| report.checks.iter().filter(|check| check.outcome == outcome).count();
    let (failed, warned) = (count(Outcome::Failed), count(Outcome::Warning));
    let verdict = match (failed, warned) {
        (0, 0) => "passed".to_owned(),
        (0, _) => format!("passed, with {}", counted(warned, "warning")),
        _ => format!("{} failed", counted(failed, "check")),
    };
    let rails = counted(report.hcas.len(), "port");
    format!(
        "rdma-init {} self-test of {}: {verdict} ({} on {rails}, {})",
        report.program,
        report.host,
        counted(report.checks.len(), "check"),
        time(report.took_us)
    )
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
