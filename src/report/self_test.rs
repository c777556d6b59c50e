//! Writes a self-test for people: one line for each check, and the fix below each check that did not pass.

use std::io::{self, Write};

use crate::log;
use crate::self_test::check::{Check, Outcome};
use crate::self_test::kinds::{self, KINDS, Level};
use crate::self_test::report::{Figures, Pair, Report};
use crate::text::{WIDEST, condensed_to, counted, microseconds, visible};

/// Up to this many checks that do not apply are listed one by one.
const FEW: usize = 3;

/// Checks with the same message, such as a check that fails in the same way on all ports.
struct Group<'a> {
    check: &'a Check,
    subjects: Vec<&'a str>,
}

impl Group<'_> {
    /// Returns the name of the group: `verbs-open mlx5_0:1..mlx5_7:1`.
    fn name(&self) -> String {
        match self.subjects[..] {
            [] => self.check.id.clone(),
            ref subjects => format!("{} {}", self.check.id, condensed_to(subjects, MOST_RUNS)),
        }
    }
}

/// The most runs of names shown for one group.
const MOST_RUNS: usize = 8;

/// Groups checks, in the order of each group's first check. Checks that passed are not grouped, because
/// each has its own figures.
fn groups<'a>(checks: impl IntoIterator<Item = &'a Check>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for check in checks {
        let is_same = |group: &&mut Group| {
            let other = group.check;
            (&other.id, other.outcome, &other.message, &other.fix)
                == (&check.id, check.outcome, &check.message, &check.fix)
        };
        let known = groups.iter_mut().filter(|_| check.outcome != Outcome::Passed).find(is_same);
        match known {
            Some(group) => group.subjects.extend(check.subject.as_deref()),
            None => groups.push(Group { check, subjects: check.subject.as_deref().into_iter().collect() }),
        }
    }
    groups
}

/// Writes the table.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (program, host) = (visible(&report.program), visible(&report.host));
    writeln!(out, "rdma-init {program} self-test of {host}: {}", verdict(report))?;
    // A check that was skipped for one port tells something about that port.
    let is_void = |check: &&Check| check.outcome == Outcome::Skipped && check.subject.is_none();
    let void = report.checks.iter().filter(is_void).count();
    let shown = groups(report.checks.iter().filter(|check| void <= FEW || !is_void(check)));
    let names: Vec<String> = shown.iter().map(|group| visible(&group.name())).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default().min(WIDEST);
    let times: Vec<String> = shown.iter().map(|group| took(group.check)).collect();
    let column = times.iter().map(|time| time.len()).max().unwrap_or_default();
    for ((group, name), took) in shown.iter().zip(&names).zip(&times) {
        let evidence = match (group.check.outcome, &group.check.message) {
            (Outcome::Skipped, Some(why)) => why.clone(),
            // The evidence usually describes what is right about the other checks.
            (Outcome::Warning | Outcome::Failed, _) => "see below".to_owned(),
            _ => group.check.evidence.join("; "),
        };
        let took = if column == 0 { String::new() } else { format!("{took:>column$}  ") };
        let row = format!("  {:7}  {name:width$}  {took}{}", word(group.check.outcome), visible(&evidence));
        writeln!(out, "{}", row.trim_end())?;
    }
    if void > FEW {
        writeln!(out, "  skipped  {void} checks do not apply to this host (--json: each with its reason)")?;
    }
    bad(report).into_iter().try_for_each(|group| explain(out, &group))?;
    report.pair.as_ref().map_or(Ok(()), |pair| write_rails(out, pair))
}

/// Returns how long a check of a device or of another node took. The other checks only examine facts that
/// were read before.
fn took(check: &Check) -> String {
    let is_timed = kinds::find(&check.id).is_none_or(|kind| kind.level > Level::Quick);
    if is_timed && check.took_us > 0 { microseconds(check.took_us) } else { String::new() }
}

/// Writes a line for each rail to the other node.
fn write_rails(out: &mut impl Write, pair: &Pair) -> io::Result<()> {
    let names = |figures: &Figures| visible(&format!("{} - {}", figures.near, figures.far));
    let width =
        pair.rails.iter().map(|figures| names(figures).len()).max().unwrap_or_default().clamp(4, WIDEST);
    if !pair.rails.is_empty() {
        writeln!(out, "  {:width$}  {:>10}  {:>14}  {:>14}", "rail", "latency", "to", "from")?;
    }
    pair.rails.iter().try_for_each(|figures| {
        let latency = format!("{}.{} us", figures.latency_ns / 1000, figures.latency_ns % 1000 / 100);
        let [to, from] = [figures.to_mbps, figures.from_mbps].map(|mbps| format!("{mbps} Mbit/s"));
        writeln!(out, "  {:width$}  {latency:>10}  {to:>14}  {from:>14}", names(figures))
    })
}

/// Writes one summary line, and the checks that did not pass, unless the plan's report has just shown the
/// same.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_brief(out: &mut impl Write, report: &Report, level: log::Level) -> io::Result<()> {
    let shown: Vec<Group> = bad(report)
        .into_iter()
        .filter(|group| group.check.outcome == Outcome::Failed || level >= log::Level::Warn)
        .collect();
    if shown.is_empty() && level < log::Level::Info {
        return Ok(());
    }
    let names: Vec<String> =
        shown.iter().map(|group| format!("{} {}", word(group.check.outcome), group.name())).collect();
    let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
    writeln!(out, "rdma-init: self-test {}{}", verdict(report), visible(&names))?;
    shown.iter().filter(|group| !group.check.is_in_plan).try_for_each(|group| explain(out, group))
}

/// Emits the checks that did not pass as log events.
pub(crate) fn events(report: &Report) {
    let took_us = report.took_us;
    for check in report.checks.iter().filter(|check| check.outcome > Outcome::Skipped) {
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

/// Returns the checks that did not pass, worst first.
fn bad(report: &Report) -> Vec<Group<'_>> {
    let mut bad = groups(report.checks.iter().filter(|check| check.outcome > Outcome::Skipped));
    bad.sort_by_key(|group| std::cmp::Reverse(group.check.outcome));
    bad
}

fn explain(out: &mut impl Write, group: &Group) -> io::Result<()> {
    let check = group.check;
    let message = check.message.as_deref().unwrap_or(&check.title);
    writeln!(out, "  {}: {}: {}", word(check.outcome), visible(&group.name()), visible(message))?;
    if let Some(fix) = &check.fix {
        writeln!(out, "      fix: {}", visible(fix))?;
    }
    Ok(())
}

/// Writes the list of all checks.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write_kinds(out: &mut impl Write) -> io::Result<()> {
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

/// Returns the verdict: `passed, with 1 warning (24 checks on 2 ports, 3.1 ms)`.
fn verdict(report: &Report) -> String {
    let count = |outcome| report.checks.iter().filter(|check| check.outcome == outcome).count();
    let (failed, warned) = (count(Outcome::Failed), count(Outcome::Warning));
    let verdict = match (failed, warned) {
        (0, 0) => "passed".to_owned(),
        (0, _) => format!("passed, with {}", counted(warned, "warning")),
        _ => "failed".to_owned(),
    };
    let (checks, ports) = (counted(report.checks.len(), "check"), counted(report.hcas.len(), "port"));
    format!("{verdict} ({checks} on {ports}, {})", microseconds(report.took_us))
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "ok",
        Outcome::Skipped => "skipped",
        Outcome::Warning => "warning",
        Outcome::Failed => "FAILED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: Vec<Check>) -> String {
        let report = Report { program: "0".to_owned(), host: "node".to_owned(), checks, ..Report::default() };
        let mut text = Vec::new();
        write(&mut text, &report).unwrap();
        String::from_utf8(text).unwrap()
    }

    fn check(id: &str, outcome: Outcome, subject: Option<&str>, message: &str) -> Check {
        Check {
            subject: subject.map(str::to_owned),
            message: Some(message.to_owned()),
            took_us: 7,
            ..kinds::check(id, outcome)
        }
    }

    #[test]
    fn ports_that_fail_in_the_same_way_are_one_row_and_one_message() {
        let ports: Vec<String> = (0..8).map(|number| format!("mlx5_{number}:1")).collect();
        let failed =
            ports.iter().map(|port| check("verbs-open", Outcome::Failed, Some(port), "open failed."));
        let other = check("verbs-open", Outcome::Failed, Some("mlx5_9:1"), "it hangs.");
        let text = report(failed.chain([other]).collect());
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  FAILED   verbs-open mlx5_0:1..mlx5_7:1  7 us  see below",
                "  FAILED   verbs-open mlx5_9:1            7 us  see below",
                "  FAILED: verbs-open mlx5_0:1..mlx5_7:1: open failed.",
                "  FAILED: verbs-open mlx5_9:1: it hangs.",
            ]
        );
    }

    #[test]
    fn checks_that_do_not_apply_are_counted_and_a_few_are_named() {
        let void = |id| check(id, Outcome::Skipped, None, "no port is in use");
        let readable = Check { message: None, ..check("readable", Outcome::Passed, None, "") };
        let many = ["provider", "uverbs", "port", "device"].map(void).into_iter().chain([readable]).collect();
        let text = report(many);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let all = "  skipped  4 checks do not apply to this host (--json: each with its reason)";
        // No time is shown for a check that only examines facts.
        assert_eq!(lines, ["  ok       readable", all]);
        let text = report(["provider", "uverbs"].map(void).to_vec());
        assert!(
            text.ends_with(
                "  skipped  provider  no port is in use\n  skipped  uverbs    no port is in use\n"
            ),
            "{text}"
        );
    }
}
