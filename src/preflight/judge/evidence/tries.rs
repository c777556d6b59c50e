//! One try of one pair, with what both of its ends have said. Pure.

use crate::preflight::prove::pair::{Cause, Measured, PairFailure, PairOutcome, RailReport, Sent, Ways};

/// One try of one pair.
#[derive(Debug, PartialEq)]
pub struct Try {
    pub round: u16,
    /// The lower index first.
    pub nodes: [u32; 2],
    /// What each of them has said, in the same order.
    pub said: [Option<PairOutcome>; 2],
    /// How long it took, in seconds; the longer time of the two.
    pub seconds: f32,
}

/// What came of a try on one rail, or of the meeting of two nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TryOutcome<'a> {
    Passed,
    /// Which of the two ends says so, and why, as far as it says.
    Failed(usize, &'a str),
}

impl Try {
    /// Returns whether the two nodes have met; `None` if neither has said anything.
    pub fn meeting(&self) -> Option<TryOutcome<'_>> {
        let failed = |end: usize| match &self.said[end] {
            Some(PairOutcome::Failed(failure)) => Some(TryOutcome::Failed(end, sentence(failure))),
            _ => None,
        };
        let said = self.said.iter().any(Option::is_some);
        failed(0).or_else(|| failed(1)).or(said.then_some(TryOutcome::Passed))
    }

    /// Returns what came of a rail; `None` if it was not tried.
    pub fn rail(&self, rail: usize) -> Option<TryOutcome<'_>> {
        let [first, second] = [0, 1].map(|end| self.said_of(end, rail).map(|said| (end, said)));
        let said = [first, second].into_iter().flatten();
        let mut outcome = None;
        for (end, said) in said {
            match said {
                Ok(_) => outcome = outcome.or(Some(TryOutcome::Passed)),
                // An end that only waits for the other one knows less than that one.
                Err(why) => match outcome {
                    Some(TryOutcome::Failed(other, _)) if !self.waited(other, rail) => {}
                    _ => outcome = Some(TryOutcome::Failed(end, why)),
                },
            }
        }
        outcome
    }

    /// Returns how many rails there are reports of.
    pub fn rails(&self) -> usize {
        let of = |outcome: &PairOutcome| match outcome {
            PairOutcome::Rails(rails) => rails.iter().map(|report| usize::from(report.rail) + 1).max(),
            PairOutcome::Failed(_) => None,
        };
        self.said.iter().flatten().filter_map(of).max().unwrap_or_default()
    }

    /// Returns what one end has said of a rail.
    pub fn said_of(&self, end: usize, rail: usize) -> Option<Result<Measured, &str>> {
        Some(self.report(end, rail)?.result.as_ref().copied().map_err(String::as_str))
    }

    /// Returns whether one end has only waited for the other one, which knows more.
    pub fn waited(&self, end: usize, rail: usize) -> bool {
        self.report(end, rail).is_some_and(|report| report.seen.cause == Some(Cause::Waited))
    }

    /// Returns what one end has sent, if it is counted.
    pub fn sent(&self, end: usize, rail: usize) -> Option<Sent> {
        self.report(end, rail)?.seen.sent
    }

    /// Returns whether the data of one end has left by another interface.
    pub fn is_astray(&self, end: usize, rail: usize) -> bool {
        self.report(end, rail).is_some_and(|report| report.seen.astray)
    }

    /// Returns the nodes that the other one could not connect to on a rail over TCP. A node that fails only
    /// in this way still connects to others itself.
    pub fn not_reached(&self, rail: usize) -> Vec<u32> {
        let failed = |end: usize| match self.report(end, rail)?.seen.cause? {
            Cause::NoConnection(ways) => Some(ways),
            _ => None,
        };
        // What one end calls the way to its partner is the way from its partner for the other end.
        let is_listener = |end: usize| {
            matches!(failed(end), Some(Ways::FromPartner | Ways::Both))
                || matches!(failed(1 - end), Some(Ways::ToPartner | Ways::Both))
        };
        [0, 1].into_iter().filter(|end| is_listener(*end)).map(|end| self.nodes[end]).collect()
    }

    /// Returns the report of one end of a rail.
    fn report(&self, end: usize, rail: usize) -> Option<&RailReport> {
        let Some(PairOutcome::Rails(rails)) = &self.said[end] else { return None };
        // They are in their order, unless a rail is missing.
        let in_place = rails.get(rail).filter(|report| usize::from(report.rail) == rail);
        in_place.or_else(|| rails.iter().find(|report| usize::from(report.rail) == rail))
    }

    /// Latency in microseconds, and bandwidth in Gbit/s of the direction that is slower. `None`
    /// if the rail has not passed.
    pub fn measured(&self, rail: usize) -> Option<Measured> {
        if self.rail(rail)? != TryOutcome::Passed {
            return None;
        }
        let ends = [0, 1].map(|end| self.said_of(end, rail).and_then(Result::ok));
        // The same way there and back, so the shorter time is the one with less disturbance.
        ends.into_iter()
            .flatten()
            .reduce(|a, b| Measured { latency_us: a.latency_us.min(b.latency_us), gbps: a.gbps.min(b.gbps) })
    }
}

/// Returns a clause about a pair that did not come about.
fn sentence(failure: &PairFailure) -> &str {
    match failure {
        PairFailure::Unreachable(why) | PairFailure::Refused(why) => why,
        PairFailure::Silent => "it says nothing",
        PairFailure::Left => "it has closed the connection",
    }
}
