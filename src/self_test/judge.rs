//! The quick checks: the plan's findings, check by check, with what was looked at.

use std::time::Instant;

use super::check::{Check, Outcome};
use super::evidence::{self, Evidence};
use super::kinds::{KINDS, Kind, Level};
use super::took_us;
use crate::facts::Facts;
use crate::plan::{Finding, Plan, Severity};
use crate::sorted;

/// All quick checks that are wanted.
pub fn quick(facts: &Facts, plan: &Plan, is_wanted: impl Fn(&str) -> bool) -> Vec<Check> {
    let quick = KINDS.iter().filter(|kind| kind.level == Level::Quick && is_wanted(kind.id));
    quick
        .map(|kind| {
            let started = Instant::now();
            let check = judge(kind, evidence::of(kind.id, facts, plan), &plan.findings);
            Check { took_us: took_us(started), ..check }
        })
        .collect()
}

/// The worst that is known decides.
fn judge(kind: &Kind, evidence: Evidence, findings: &[Finding]) -> Check {
    let mut own: Vec<&Finding> =
        findings.iter().filter(|finding| kind.findings.contains(&finding.id)).collect();
    sorted::by_key(&mut own, |finding| std::cmp::Reverse(finding.severity));
    let mut check = Check {
        id: kind.id.to_owned(),
        title: kind.title.to_owned(),
        outcome: Outcome::Passed,
        subject: None,
        evidence: evidence.lines,
        message: None,
        fix: None,
        took_us: 0,
    };
    if let Some(finding) = own.first() {
        check.outcome = match finding.severity {
            Severity::Error => Outcome::Failed,
            Severity::Warning => Outcome::Warning,
            Severity::Info => Outcome::Passed,
        };
        let messages: Vec<&str> = own.iter().map(|finding| finding.message.as_str()).collect();
        check.message = Some(messages.join(" "));
        check.fix = finding.fix.clone();
    } else if let Some((outcome, message, fix)) = evidence.wrong {
        check.outcome = outcome;
        check.message = Some(message);
        check.fix = (!fix.is_empty()).then_some(fix);
    } else if let Some(why) = evidence.skip {
        check.outcome = Outcome::Skipped;
        check.message = Some(why);
    }
    check
}
