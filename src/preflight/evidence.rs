//! All that is known of the pairs, with what both ends of each have said beside each other. Pure.

use std::collections::{BTreeMap, HashMap};

use super::cross::Cross;
use super::pair::{Measured, PairFailure, PairOutcome, PairReport};
use crate::text::{shortened, visible};
use crate::verbs::rail::WAITING;

/// More rails than a node can have. What is reported of more is no report of a rail.
pub const MOST_RAILS: usize = 256;

/// Why a node is not there, although the pairs do not say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// It has not come within this time, in words: `10m`.
    NeverCame(String),
    /// It was there, and its connection has ended; a clause that says how.
    Left(String),
    /// It is connected, and has not answered; a clause that says for how long.
    Silent(String),
}

/// What a node has brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// As what has started the job calls the node, where that says so.
    pub of_launcher: Option<String>,
    /// The names of its rails, such as `mlx5_3`.
    pub rails: Vec<String>,
}

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
pub enum Came<'a> {
    Well,
    /// Which of the two ends says so, and why, as far as it says.
    Ill(usize, &'a str),
}

impl Try {
    /// Whether the two nodes have met; `None` if neither has said anything.
    pub fn meeting(&self) -> Option<Came<'_>> {
        let failed = |end: usize| match &self.said[end] {
            Some(PairOutcome::Failed(failure)) => Some(Came::Ill(end, sentence(failure))),
            _ => None,
        };
        let said = self.said.iter().any(Option::is_some);
        failed(0).or_else(|| failed(1)).or(said.then_some(Came::Well))
    }

    /// What came of a rail; `None` if it was not tried.
    pub fn rail(&self, rail: usize) -> Option<Came<'_>> {
        let [first, second] = [0, 1].map(|end| self.said_of(end, rail).map(|said| (end, said)));
        let said = [first, second].into_iter().flatten();
        let mut came = None;
        for (end, said) in said {
            match said {
                Ok(_) => came = came.or(Some(Came::Well)),
                // Who only waits for the other end knows less than that one.
                Err(why) => match came {
                    Some(Came::Ill(_, known)) if !known.starts_with(WAITING) => {}
                    _ => came = Some(Came::Ill(end, why)),
                },
            }
        }
        came
    }

    /// How many rails there are reports of.
    pub fn rails(&self) -> usize {
        let of = |outcome: &PairOutcome| match outcome {
            PairOutcome::Rails(rails) => rails.iter().map(|report| usize::from(report.rail) + 1).max(),
            PairOutcome::Failed(_) => None,
        };
        self.said.iter().flatten().filter_map(of).max().unwrap_or_default()
    }

    /// What one end has said of a rail.
    pub fn said_of(&self, end: usize, rail: usize) -> Option<Result<Measured, &str>> {
        let Some(PairOutcome::Rails(rails)) = &self.said[end] else { return None };
        // They are in their order, unless a rail is missing.
        let in_place = rails.get(rail).filter(|report| usize::from(report.rail) == rail);
        let report = in_place.or_else(|| rails.iter().find(|report| usize::from(report.rail) == rail))?;
        Some(report.result.as_ref().copied().map_err(String::as_str))
    }

    /// Latency in microseconds, and bandwidth in Gbit/s of the direction that is slower. `None`
    /// where the rail has not passed.
    pub fn measured(&self, rail: usize) -> Option<Measured> {
        if self.rail(rail)? != Came::Well {
            return None;
        }
        let ends = [0, 1].map(|end| self.said_of(end, rail).and_then(Result::ok));
        // The same way there and back, so the shorter time is the one with less disturbance.
        ends.into_iter()
            .flatten()
            .reduce(|a, b| Measured { latency_us: a.latency_us.min(b.latency_us), gbps: a.gbps.min(b.gbps) })
    }
}

/// A clause about a pair that did not come about.
fn sentence(failure: &PairFailure) -> &str {
    match failure {
        PairFailure::Unreachable(why) | PairFailure::Refused(why) => why,
        PairFailure::Silent => "it says nothing",
        PairFailure::Left => "it has closed the connection",
    }
}

/// The job, and everything that was tried in it.
#[derive(Debug)]
pub struct Evidence {
    members: Vec<Member>,
    /// How many rounds there are before those of the second tries.
    rounds: u16,
    /// How many rails there are at the most.
    rails: usize,
    gone: BTreeMap<u32, Gone>,
    tries: Vec<Try>,
    places: HashMap<(u16, u32, u32), usize>,
    /// The round in which rails are tried with other ones, and who tries them with what coming of it.
    crossing: Option<u16>,
    crossed: Vec<(Cross, Try)>,
}

impl Evidence {
    /// The nodes in the order of their indices; one that never came has no rails.
    pub fn new(members: Vec<Member>, rounds: u16) -> Evidence {
        Evidence {
            members,
            rounds,
            rails: 0,
            gone: BTreeMap::new(),
            tries: Vec::new(),
            places: HashMap::new(),
            crossing: None,
            crossed: Vec::new(),
        }
    }

    /// What is reported of this round from now on tells nothing of the nodes, and only how far rails reach
    /// other rails.
    pub fn begin_crossing(&mut self, round: u16, pairs: Vec<Cross>) {
        self.crossing = Some(round);
        let untold = |cross: Cross| Try { round, nodes: cross.nodes, said: [None, None], seconds: 0.0 };
        self.crossed = pairs.into_iter().map(|cross| (cross, untold(cross))).collect();
    }

    /// Adds what a node says of a pair. Returns whether it can be: a report about nodes that are not,
    /// or a second one of the same node about the same try, is left out.
    pub fn add(&mut self, report: PairReport) -> bool {
        let PairReport { round, node, partner, seconds, mut outcome } = report;
        if node == partner || node.max(partner) as usize >= self.members.len() {
            return false;
        }
        tidy(&mut outcome);
        let nodes = [node.min(partner), node.max(partner)];
        if self.is_crossing(round) {
            let crossed = self.crossed.iter_mut().find(|(cross, _)| cross.nodes == nodes);
            let said = crossed.map(|(_, one)| &mut one.said[usize::from(node > partner)]);
            let Some(said) = said.filter(|said| said.is_none()) else { return false };
            *said = Some(outcome);
            return true;
        }
        let place = *self.places.entry((round, nodes[0], nodes[1])).or_insert_with(|| {
            self.tries.push(Try { round, nodes, said: [None, None], seconds: 0.0 });
            self.tries.len() - 1
        });
        let one = &mut self.tries[place];
        let said = &mut one.said[usize::from(node > partner)];
        if said.is_some() {
            return false;
        }
        if let PairOutcome::Rails(rails) = &outcome {
            let most = rails.iter().map(|report| usize::from(report.rail) + 1).max().unwrap_or_default();
            self.rails = self.rails.max(most);
        }
        *said = Some(outcome);
        if seconds.is_finite() {
            one.seconds = one.seconds.max(seconds);
        }
        true
    }

    /// A node is not there, or no longer. The first reason counts.
    pub fn lose(&mut self, node: u32, how: Gone) {
        if (node as usize) < self.members.len() {
            self.gone.entry(node).or_insert(how);
        }
    }

    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn tries(&self) -> &[Try] {
        &self.tries
    }

    pub fn is_crossing(&self, round: u16) -> bool {
        self.crossing == Some(round)
    }

    /// Who has tried rails with other ones, and what came of it.
    pub fn crossed(&self) -> impl Iterator<Item = (Cross, &Try)> {
        self.crossed.iter().map(|(cross, one)| (*cross, one))
    }

    pub fn gone(&self) -> &BTreeMap<u32, Gone> {
        &self.gone
    }

    pub fn rails(&self) -> usize {
        self.rails
    }

    /// Whether this is a round of second tries.
    pub fn is_again(&self, round: u16) -> bool {
        round >= self.rounds
    }

    pub fn rounds(&self) -> u16 {
        self.rounds
    }

    /// The name of a node, fit to be shown.
    pub fn name(&self, node: u32) -> String {
        match self.members.get(node as usize).map(|member| member.name.as_str()) {
            Some(name) if !name.is_empty() => visible(&shortened(name)),
            _ => format!("node {node}"),
        }
    }

    /// The name of a rail of a node, fit to be shown.
    pub fn rail_name(&self, node: u32, rail: usize) -> String {
        match self.members.get(node as usize).and_then(|member| member.rails.get(rail)) {
            Some(name) if !name.is_empty() => visible(&shortened(name)),
            _ => format!("rail {rail}"),
        }
    }
}

/// Leaves out what no report can hold: rails beyond all numbers, figures that are none,
/// sentences without end.
fn tidy(outcome: &mut PairOutcome) {
    let short = |why: &mut String| *why = visible(&shortened(why));
    match outcome {
        PairOutcome::Failed(PairFailure::Unreachable(why) | PairFailure::Refused(why)) => short(why),
        PairOutcome::Failed(PairFailure::Silent | PairFailure::Left) => {}
        PairOutcome::Rails(rails) => {
            rails.retain(|report| usize::from(report.rail) < MOST_RAILS);
            rails.truncate(MOST_RAILS);
            for report in rails {
                match &mut report.result {
                    Ok(Measured { latency_us, gbps })
                        if !(latency_us.is_finite()
                            && gbps.is_finite()
                            && *latency_us >= 0.0
                            && *gbps >= 0.0) =>
                    {
                        report.result = Err("its figures are no numbers".to_owned());
                    }
                    Ok(_) => {}
                    Err(why) => short(why),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::pair::RailReport;

    fn report(round: u16, node: u32, partner: u32, results: &[Result<f32, &str>]) -> PairReport {
        let rails = results.iter().enumerate().map(|(rail, result)| RailReport {
            rail: rail as u16,
            result: result.map(|gbps| Measured { latency_us: 100.0 / gbps, gbps }).map_err(str::to_owned),
        });
        PairReport { round, node, partner, seconds: 1.0, outcome: PairOutcome::Rails(rails.collect()) }
    }

    fn three() -> Evidence {
        Evidence::new(vec![Member::default(); 3], 2)
    }

    #[test]
    fn both_ends_are_heard() {
        let mut evidence = three();
        assert!(evidence.add(report(0, 1, 0, &[Ok(90.0), Err("wait for the other end failed"), Ok(1.0)])));
        assert!(evidence.add(report(0, 0, 1, &[Ok(50.0), Err("the port is DOWN"), Err("x")])));
        let [one] = evidence.tries() else { panic!("one try") };
        assert_eq!(one.nodes, [0, 1]);
        assert_eq!(one.meeting(), Some(Came::Well));
        assert_eq!(one.rail(0), Some(Came::Well));
        assert_eq!(one.measured(0), Some(Measured { latency_us: 100.0 / 90.0, gbps: 50.0 }));
        assert_eq!(one.rail(1), Some(Came::Ill(0, "the port is DOWN")));
        assert_eq!(one.rail(2), Some(Came::Ill(0, "x")));
        assert_eq!(one.measured(2), None);
        assert_eq!(one.rail(3), None);
    }

    #[test]
    fn one_end_that_has_failed_is_enough() {
        let mut evidence = three();
        evidence.add(report(0, 0, 1, &[Ok(90.0)]));
        let outcome = PairOutcome::Failed(PairFailure::Left);
        evidence.add(PairReport { round: 0, node: 1, partner: 0, seconds: 2.0, outcome });
        assert_eq!(evidence.tries()[0].meeting(), Some(Came::Ill(1, "it has closed the connection")));
        assert!((evidence.tries()[0].seconds - 2.0).abs() < f32::EPSILON);
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        let mut evidence = three();
        assert!(!evidence.add(report(0, 1, 1, &[])));
        assert!(!evidence.add(report(0, 1, 3, &[])));
        assert!(evidence.add(report(0, 1, 2, &[Ok(f32::NAN)])));
        assert!(!evidence.add(report(0, 1, 2, &[Ok(1.0)])), "twice");
        assert_eq!(evidence.tries()[0].rail(0), Some(Came::Ill(0, "its figures are no numbers")));
        evidence.lose(9, Gone::Left("it was killed".into()));
        assert!(evidence.gone().is_empty());
        let far = RailReport { rail: 999, result: Err("x".into()) };
        let outcome = PairOutcome::Rails(vec![far]);
        evidence.add(PairReport { round: 1, node: 0, partner: 1, seconds: f32::NAN, outcome });
        assert_eq!(evidence.rails(), 1);
    }

    #[test]
    fn a_sentence_without_end_is_cut_and_moves_no_cursor() {
        let mut evidence = three();
        let long = "\u{1b}[2J".repeat(1000);
        let failed = PairOutcome::Failed(PairFailure::Refused(long.clone()));
        evidence.add(PairReport { round: 0, node: 0, partner: 1, seconds: 1.0, outcome: failed });
        evidence.add(report(1, 0, 1, &[Err(&long)]));
        let [first, second] = evidence.tries() else { panic!("two tries") };
        for came in [first.meeting(), second.rail(0)] {
            let Some(Came::Ill(0, why)) = came else { panic!("{came:?}") };
            assert!(why.len() < 2000 && !why.contains('\u{1b}'), "{why}");
        }
    }
}
