//! The quick checks: assigns the plan's findings to checks, and adds what each check examined.

use std::time::Instant;

use super::check::{Check, Outcome};
use super::evidence::Evidence;
use super::kinds::{self, KINDS, Kind, Level};
use super::took_us;
use crate::facts::Facts;
use crate::finding::{Finding, Id, Severity};
use crate::plan::Plan;

/// Returns all quick checks that are wanted.
pub(crate) fn quick(facts: &Facts, plan: &Plan, is_wanted: impl Fn(&str) -> bool) -> Vec<Check> {
    let quick = KINDS.iter().filter(|kind| kind.level == Level::Quick && is_wanted(kind.id));
    quick
        .map(|kind| {
            let started = Instant::now();
            let check = judge(kind, evidence(kind, facts, plan), &plan.findings);
            Check { took_us: took_us(started), ..check }
        })
        .collect()
}

/// Returns what a check examines, with any part of it that is known to prevent RDMA for the job.
fn evidence(kind: &Kind, facts: &Facts, plan: &Plan) -> Evidence {
    let evidence = (kind.look)(facts, plan);
    match plan.blockers().into_iter().find(|blocker| blocker.check == kind.id) {
        Some(blocker) if !plan.fabric.is_there() && kind.id == "fabric" && may_do_without(plan) => {
            evidence.warn(blocker.message, "")
        }
        Some(blocker) => evidence.fail(blocker.message),
        None => evidence,
    }
}

/// Returns whether something else may carry the whole job, as a finding says: NVLink (only NVML knows that for certain),
/// or the ports of Gaudi accelerators.
fn may_do_without(plan: &Plan) -> bool {
    let says_it = |finding: &Finding| {
        matches!(finding.id, Id::NoRdma | Id::UnknownDevice) && finding.severity == Severity::Info
    };
    plan.findings.iter().any(says_it)
}

/// Returns a check with the worst outcome of its findings and its evidence.
fn judge(kind: &Kind, evidence: Evidence, findings: &[Finding]) -> Check {
    let own = findings.iter().filter(|finding| finding.id.check() == Some(kind.id));
    let mut known: Vec<KnownFinding> = own
        .map(|finding| KnownFinding {
            outcome: match finding.severity {
                Severity::Error => Outcome::Failed,
                Severity::Warning => Outcome::Warning,
                Severity::Info => Outcome::Passed,
            },
            message: finding.message.clone(),
            fix: finding.fix.clone(),
        })
        .collect();
    let is_in_plan = !known.is_empty();
    if let Some((outcome, message, fix)) = evidence.wrong {
        // An error that is already known is the cause of this one.
        let is_known = outcome == Outcome::Failed && known.iter().any(|other| other.outcome == outcome);
        if !is_known {
            known.push(KnownFinding { outcome, message, fix: (!fix.is_empty()).then_some(fix) });
        }
    }
    known.sort_by_key(|one| std::cmp::Reverse(one.outcome));
    let check = Check { evidence: evidence.lines, ..kinds::check(kind.id, Outcome::Passed) };
    let Some(worst) = known.first() else {
        return match evidence.skip {
            Some(why) => Check { outcome: Outcome::Skipped, message: Some(why), ..check },
            None => check,
        };
    };
    let messages: Vec<&str> = known.iter().map(|one| one.message.as_str()).collect();
    Check {
        outcome: worst.outcome,
        message: Some(messages.join(" ")),
        fix: known.iter().find_map(|one| one.fix.clone()),
        is_in_plan,
        ..check
    }
}

/// One known fact about what a check examines.
struct KnownFinding {
    outcome: Outcome,
    message: String,
    fix: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        wrong: Option<(Outcome, &str, &str)>,
        findings: &[Finding],
    ) -> (Outcome, String, Option<String>) {
        let kind = kinds::find("fabric").unwrap();
        let wrong = wrong.map(|(outcome, message, fix)| (outcome, message.to_owned(), fix.to_owned()));
        let check = judge(kind, Evidence { wrong, ..Evidence::default() }, findings);
        (check.outcome, check.message.unwrap_or_default(), check.fix)
    }

    #[test]
    fn a_finding_does_not_hide_what_is_worse() {
        let disabled = Finding::warning(Id::IbDisabled, "It is off.").with_fix("Turn it on.");
        let note = Finding::info(Id::UnexpectedHcas, "There are others.");
        let elsewhere = Finding::error(Id::Memlock, "Another check's.");
        let tcp = Some((Outcome::Failed, "TCP.", ""));
        assert_eq!(
            judged(tcp, &[note.clone(), disabled.clone(), elsewhere.clone()]),
            (Outcome::Failed, "TCP. It is off. There are others.".to_owned(), Some("Turn it on.".to_owned()))
        );
        // If there is a finding about something, the check does not repeat it.
        let error = Finding::error(Id::NoFabric, "None.");
        assert_eq!(judged(tcp, &[disabled.clone(), error]).1, "None. It is off.");
        let slow = Some((Outcome::Warning, "Slow.", "Hurry."));
        assert_eq!(
            judged(slow, &[note, disabled]),
            (
                Outcome::Warning,
                "It is off. Slow. There are others.".to_owned(),
                Some("Turn it on.".to_owned())
            )
        );
        assert_eq!(judged(None, &[elsewhere]), (Outcome::Passed, String::new(), None));
    }
}
