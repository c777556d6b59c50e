//! Whether a job may start after its self-test.

use super::check::{Check, Outcome};
use super::report::Report;

/// The number of failures that are told in the line; a termination log is read in a small
/// window.
const TOLD: usize = 3;

/// Why the command must not be started, in one line; `None` if no check failed.
pub fn reason(report: &Report) -> Option<String> {
    let failed: Vec<&Check> = report.checks.iter().filter(|check| check.outcome == Outcome::Failed).collect();
    if failed.is_empty() {
        return None;
    }
    let mut told: Vec<String> = failed.iter().take(TOLD).map(|check| told(check)).collect();
    if failed.len() > TOLD {
        told.push(format!("and {} more", failed.len() - TOLD));
    }
    let checks = if failed.len() == 1 { "a check" } else { "checks" };
    Some(format!("self-test = \"enforce\", and {checks} failed: {}", told.join("; ")))
}

fn told(check: &Check) -> String {
    let subject = check.subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
    let message = check.message.as_deref().unwrap_or(&check.title).trim_end_matches('.');
    format!("{}{subject}: {message}", check.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(failed: usize) -> Report {
        let check = |number: usize| Check {
            id: format!("check-{number}"),
            title: "a title".to_owned(),
            outcome: if number < failed { Outcome::Failed } else { Outcome::Warning },
            subject: (number == 1).then(|| "mlx5_1".to_owned()),
            evidence: Vec::new(),
            message: (number != 2).then(|| format!("It is {number}.")),
            fix: None,
            took_us: 0,
            is_in_plan: false,
        };
        Report { checks: (0..6).map(check).collect(), ..Report::default() }
    }

    #[test]
    fn only_a_failure_keeps_the_job_from_its_start() {
        assert_eq!(reason(&report(0)), None);
    }

    #[test]
    fn the_first_failures_are_told() {
        let start = "self-test = \"enforce\", and";
        assert_eq!(reason(&report(1)).unwrap(), format!("{start} a check failed: check-0: It is 0"));
        assert_eq!(
            reason(&report(5)).unwrap(),
            format!(
                "{start} checks failed: check-0: It is 0; check-1 mlx5_1: It is 1; check-2: a title; and 2 more"
            )
        );
    }
}
