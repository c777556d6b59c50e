//! One try of one pair, with the reports of both its ends. Pure.

use crate::preflight::prove::pair::{Cause, Measured, PairFailure, PairOutcome, RailReport, Sent, Ways};

/// One try of one pair.
#[derive(Debug, PartialEq)]
pub struct Try {
    pub round: u16,
    /// The lower index first.
    pub nodes: [u32; 2],
    /// What each of them reported, in the same order.
    pub said: [Option<PairOutcome>; 2],
    /// How long it took, in seconds; the longer one of both times.
    pub seconds: f32,
}

/// How a try ended on one rail, or how the connection of two nodes ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TryOutcome<'a> {
    Passed,
    /// Which of the two ends reports the failure, and why, as far as it says.
    Failed(usize, &'a str),
}

impl Try {
    /// Returns whether the two nodes connected; `None` if neither has reported anything.
    pub fn meeting(&self) -> Option<TryOutcome<'_>> {
        let failed = |end: usize| match &self.said[end] {
            Some(PairOutcome::Failed(failure)) => Some(TryOutcome::Failed(end, sentence(failure))),
            _ => None,
        };
        let said = self.said.iter().any(Option::is_some);
        failed(0).or_else(|| failed(1)).or(said.then_some(TryOutcome::Passed))
    }

    /// Returns the outcome of a rail; `None` if it was not tested.
    pub fn rail(&self, rail: usize) -> Option<TryOutcome<'_>> {
        let [first, second] = [0, 1].map(|end| self.said_of(end, rail).map(|said| (end, said)));
        let said = [first, second].into_iter().flatten();
        let mut outcome = None;
        for (end, said) in said {
            match said {
                Ok(_) => outcome = outcome.or(Some(TryOutcome::Passed)),
                // An end that only waited for the other one knows less than that one.
                Err(why) => match outcome {
                    Some(TryOutcome::Failed(other, _)) if !self.waited(other, rail) => {}
                    _ => outcome = Some(TryOutcome::Failed(end, why)),
                },
            }
        }
        outcome
    }

    /// Returns the number of rails in the reports.
    pub fn rails(&self) -> usize {
        let of = |outcome: &PairOutcome| match outcome {
            PairOutcome::Rails(rails) => rails.iter().map(|report| usize::from(report.rail) + 1).max(),
            PairOutcome::Failed(_) => None,
        };
        self.said.iter().flatten().filter_map(of).max().unwrap_or_default()
    }

    /// Returns what one end reported about a rail.
    pub fn said_of(&self, end: usize, rail: usize) -> Option<Result<Measured, &str>> {
        Some(self.report(end, rail)?.result.as_ref().copied().map_err(String::as_str))
    }

    /// Returns whether an end says that a rail passed, or that the two nodes connected. If the other end
    /// says that it failed, the pair has failed, but that is no evidence against this end.
    pub fn has_passed(&self, end: usize, rail: Option<usize>) -> bool {
        match (rail, &self.said[end]) {
            (Some(rail), _) => self.said_of(end, rail).is_some_and(|said| said.is_ok()),
            (None, Some(PairOutcome::Rails(rails))) => rails.iter().any(|report| report.result.is_ok()),
            (None, _) => false,
        }
    }

    /// Returns whether one end only waited for the other one, which knows more.
    pub fn waited(&self, end: usize, rail: usize) -> bool {
        self.report(end, rail).is_some_and(|report| report.seen.cause == Some(Cause::Waited))
    }

    /// Returns what one end sent, if it is counted.
    pub fn sent(&self, end: usize, rail: usize) -> Option<Sent> {
        self.report(end, rail)?.seen.sent
    }

    /// Returns whether one end's data left through another interface.
    pub fn is_astray(&self, end: usize, rail: usize) -> bool {
        self.report(end, rail).is_some_and(|report| report.seen.astray)
    }

    /// Returns the nodes that the other end could not connect to on a rail over TCP. A node that fails
    /// only in this way can still connect to others itself.
    pub fn not_reached(&self, rail: usize) -> Vec<u32> {
        let failed = |end: usize| match self.report(end, rail)?.seen.cause? {
            Cause::NoConnection(ways) => Some(ways),
            _ => None,
        };
        // The connection that one end makes to its peer is, for the peer, the connection from its peer.
        let is_listener = |end: usize| {
            matches!(failed(end), Some(Ways::FromPartner | Ways::Both))
                || matches!(failed(1 - end), Some(Ways::ToPartner | Ways::Both))
        };
        [0, 1].into_iter().filter(|end| is_listener(*end)).map(|end| self.nodes[end]).collect()
    }

    /// Returns the report of one end of a rail.
    fn report(&self, end: usize, rail: usize) -> Option<&RailReport> {
        let Some(PairOutcome::Rails(rails)) = &self.said[end] else { return None };
        // The reports are in the order of the rails, unless a rail is missing.
        let in_place = rails.get(rail).filter(|report| usize::from(report.rail) == rail);
        in_place.or_else(|| rails.iter().find(|report| usize::from(report.rail) == rail))
    }

    /// Returns the latency in microseconds, and the bandwidth of the slower direction in Gbit/s. `None`
    /// if the rail did not pass.
    pub fn measured(&self, rail: usize) -> Option<Measured> {
        if self.rail(rail)? != TryOutcome::Passed {
            return None;
        }
        let ends = [0, 1].map(|end| self.said_of(end, rail).and_then(Result::ok));
        // Both ends measure the same round trip, so the shorter time is the less disturbed one.
        ends.into_iter()
            .flatten()
            .reduce(|a, b| Measured { latency_us: a.latency_us.min(b.latency_us), gbps: a.gbps.min(b.gbps) })
    }
}

/// Returns a clause that says why a pair failed.
fn sentence(failure: &PairFailure) -> &str {
    match failure {
        PairFailure::Unreachable(why) | PairFailure::Refused(why) => why,
        PairFailure::Silent => "it says nothing",
        PairFailure::Left => "it has closed the connection",
    }
}
