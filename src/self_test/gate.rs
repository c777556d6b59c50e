//! Whether a job may start after its self-test.

use super::check::{Check, Outcome};
use super::report::Report;
use crate::text::counted;

/// The number of failures that the line contains: people read a termination log in a small window.
const SHOWN: usize = 3;

/// Returns why the command must not be started, in one line; `None` if no check failed.
pub fn reason(report: &Report) -> Option<String> {
    let failed: Vec<&Check> = report.checks.iter().filter(|check| check.outcome == Outcome::Failed).collect();
    if failed.is_empty() {
        return None;
    }
    let sentences: Vec<String> = failed.iter().take(SHOWN).map(|check| sentence(check)).collect();
    let checks = counted(failed.len(), "check");
    let first = if failed.len() > SHOWN { " The first ones:" } else { "" };
    Some(format!("self-test = \"enforce\", and {checks} failed.{first} {}", sentences.join(" ")))
}

/// Returns a sentence about a failed check. Its message is a sentence, but its title is not.
fn sentence(check: &Check) -> String {
    let subject = check.subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
    match &check.message {
        Some(message) => format!("{}{subject}: {message}", check.id),
        None => format!("{}{subject}: {}.", check.id, check.title),
    }
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
    fn the_first_failures_are_shown() {
        let start = "self-test = \"enforce\", and";
        assert_eq!(reason(&report(1)).unwrap(), format!("{start} 1 check failed. check-0: It is 0."));
        assert_eq!(
            reason(&report(5)).unwrap(),
            format!(
                "{start} 5 checks failed. The first ones: check-0: It is 0. check-1 mlx5_1: It is 1. check-2: a title."
            )
        );
    }
}
