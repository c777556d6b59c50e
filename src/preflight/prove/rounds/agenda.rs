//! Which pairs a node still has to test, and which results it has not reported yet. Pure.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::preflight::meet::message::{Partner, RAILS_AT_ONCE, REPORTS_AT_ONCE};
use crate::preflight::meet::times::Times;
use crate::preflight::prove::pair::{PairFailure, PairOutcome, PairReport};

/// This many reports, or one this old, are sent without further delay.
const BATCH: usize = 8;
const OLDEST: Duration = Duration::from_secs(1);

/// A pair, and the latest time at which it is over for this node.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub with: Partner,
    pub until: Instant,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Agenda {
    turns: VecDeque<Turn>,
    gone: HashSet<u32>,
    /// The results of the pairs that are over, for nodes that still ask.
    over: Vec<(u16, u32, PairFailure)>,
    reports: VecDeque<PairReport>,
    /// The time since which there is something to report.
    since: Option<Instant>,
}

impl Agenda {
    /// Takes the pairs of an order. Round `first` begins now.
    pub(crate) fn take(&mut self, pairs: Vec<Partner>, first: u16, times: Times, now: Instant) {
        self.turns.extend(pairs.into_iter().map(|with| {
            let rounds = u32::from(with.round.saturating_sub(first)) + 1;
            // If the time is too long for the clock, the pair ends with the first round.
            let until = now.checked_add(times.round().saturating_mul(rounds));
            Turn { with, until: until.unwrap_or(now + times.round()) }
        }));
    }

    /// Records that a node has disconnected: pairs with it fail.
    pub(crate) fn lose(&mut self, node: u32) {
        self.gone.insert(node);
    }

    pub(crate) fn is_gone(&self, node: u32) -> bool {
        self.gone.contains(&node)
    }

    /// Returns the next pair.
    pub(crate) fn next(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    pub(crate) fn has_next(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Records the result of a pair.
    pub(crate) fn end(&mut self, report: PairReport, now: Instant) {
        let failure = match &report.outcome {
            PairOutcome::Rails(_) => PairFailure::Refused("that pair is over".to_owned()),
            PairOutcome::Failed(failure) => failure.clone(),
        };
        self.over.push((report.round, report.partner, failure));
        self.reports.push_back(report);
        self.since.get_or_insert(now);
    }

    /// Returns how a pair ended for this node, if it has ended.
    pub(crate) fn ending(&self, round: u16, with: u32) -> Option<&PairFailure> {
        let found = self.over.iter().find(|(at, node, _)| (*at, *node) == (round, with));
        found.map(|(_, _, failure)| failure)
    }

    /// Returns when reports are due, if there are any. If the node `rests`, there is nothing to wait
    /// for.
    pub(crate) fn due(&self, rests: bool) -> Option<Instant> {
        let is_due = rests || self.reports.len() >= BATCH;
        self.since.map(|since| if is_due { since } else { since + OLDEST })
    }

    /// Returns the pairs that are still to be tested, and those that are not reported yet.
    #[cfg(test)]
    pub(crate) fn halves(&self) -> [Vec<(u16, u32)>; 2] {
        let turns = self.turns.iter().map(|turn| (turn.with.round, turn.with.node));
        [turns.collect(), self.reports.iter().map(|report| (report.round, report.partner)).collect()]
    }

    /// Returns the reports that are due, as many as one message holds; empty if none are due.
    pub(crate) fn batch(&mut self, rests: bool, now: Instant) -> Vec<PairReport> {
        if self.due(rests).is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut rails = 0;
        let is_within = |report: &&PairReport| {
            rails += match &report.outcome {
                PairOutcome::Rails(of) => of.len(),
                PairOutcome::Failed(_) => 1,
            };
            rails <= RAILS_AT_ONCE
        };
        let count = self.reports.iter().take(REPORTS_AT_ONCE).take_while(is_within).count();
        let batch = self.reports.drain(..count.max(1).min(self.reports.len())).collect();
        if self.reports.is_empty() {
            self.since = None;
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::prove::pair::RailReport;

    fn report(round: u16) -> PairReport {
        let outcome = PairOutcome::Failed(PairFailure::Silent);
        PairReport { round, node: 0, partner: 1, seconds: 1.0, outcome }
    }

    #[test]
    fn each_pair_is_over_at_the_end_of_its_round() {
        let (mut agenda, now, times) = (Agenda::default(), Instant::now(), Times { each: Duration::ZERO });
        agenda.take(vec![Partner::in_round(7, 1), Partner::in_round(9, 2)], 7, times, now);
        let until: Vec<Instant> = std::iter::from_fn(|| agenda.next()).map(|turn| turn.until).collect();
        assert_eq!(until, [now + times.round(), now + times.round() * 3]);
    }

    #[test]
    fn reports_do_not_wait_for_the_last_pair() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        assert_eq!(agenda.due(true), None);
        agenda.end(report(0), now);
        agenda.end(report(1), now + OLDEST / 2);
        assert_eq!((agenda.batch(false, now).len(), agenda.due(false)), (0, Some(now + OLDEST)));
        assert_eq!(agenda.batch(false, now + OLDEST).len(), 2, "those that are old go");
        agenda.end(report(2), now);
        assert_eq!(agenda.batch(true, now).len(), 1, "nothing else is to come");
        (0..BATCH as u16).for_each(|round| agenda.end(report(round), now));
        assert_eq!(agenda.batch(false, now).len(), BATCH, "there are many");
        (0..40).for_each(|round| agenda.end(report(round), now));
        let sizes: Vec<usize> = (0..3).map(|_| agenda.batch(true, now).len()).collect();
        assert_eq!(sizes, [REPORTS_AT_ONCE, 40 - REPORTS_AT_ONCE, 0]);
        let of_rails = |count| {
            let rail = |rail| RailReport::new(rail, Err("no answer".to_owned()));
            PairReport { outcome: PairOutcome::Rails((0..count).map(rail).collect()), ..report(0) }
        };
        for count in [256, 256, 1, 600, 1] {
            agenda.end(of_rails(count), now);
        }
        let sizes: Vec<usize> = (0..4).map(|_| agenda.batch(true, now).len()).collect();
        assert_eq!(sizes, [2, 1, 1, 1], "a message is not too long for node 0");
    }
}
