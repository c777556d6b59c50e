//! All that is known about the pairs, with the reports of both ends side by side. Pure.

mod tries;

use std::collections::{BTreeMap, HashMap};

pub use tries::{Try, TryOutcome};

use crate::preflight::judge::bisection::{self, Taken, Together};
use crate::preflight::judge::cross::Cross;
use crate::preflight::prove::pair::{Measured, PairFailure, PairOutcome, PairReport};
use crate::preflight::who::addresses::{Addresses, WrongAddresses};
use crate::preflight::who::own::Network;
use crate::preflight::who::scheduler;
use crate::text::{shortened, visible};

/// More rails than a node can have. Reports about rails beyond this number are dropped.
pub const MOST_RAILS: usize = 256;

/// Why a node is missing, for a reason that its pairs do not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    /// It did not join within this time, in words: `10m`.
    NeverJoined(String),
    /// It was connected, but its connection ended; a clause that says how.
    Left(String),
    /// It is connected, but has not answered; a clause that says for how long.
    Silent(String),
}

/// Why a node did not join, as a clause, and how to fix that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub why: String,
    pub fix: &'static str,
}

/// What a connected node has not reported about its pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debt {
    pub owed: usize,
    pub of: usize,
    /// Whether the time of one of these pairs ran out. A healthy node ends each pair in time.
    pub is_late: bool,
}

/// What a node reported when it joined.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Member {
    pub name: String,
    /// The name by which a scheduler knows the node.
    pub of_launcher: scheduler::Name,
    /// The names of its rails, such as `mlx5_3`.
    pub rails: Vec<String>,
    /// Their rates in Gbit/s; 0, or missing, if a rate is not known.
    pub rates: Vec<f32>,
    /// The addresses of its rails.
    pub addresses: Addresses,
    pub network: Network,
    /// `verbs` or `sockets`: what the preflight tests.
    pub transport: String,
    /// Whether its rails are ports of HCAs.
    pub is_verbs: bool,
    /// Whether the rails are soft-RoCE or others whose rates are not known. The processor does their
    /// work, so the load of a machine affects each figure, as it does over TCP.
    pub is_soft: bool,
}

/// The job, and everything that was tested in it.
#[derive(Debug)]
pub struct Evidence {
    members: Vec<Member>,
    /// How many rounds there are before the retries.
    rounds: u16,
    /// The largest number of rails of any node.
    rails: usize,
    wrong_addresses: WrongAddresses,
    gone: BTreeMap<u32, Gone>,
    /// The address of node 0; empty if it is not known.
    meeting_place: String,
    /// Why node 0 cannot resolve its own name, as a clause, if it cannot.
    unresolved: Option<String>,
    /// The indices that two nodes joined with, and the name and address of each.
    contested: BTreeMap<u32, [String; 2]>,
    /// How many pairs were assigned.
    scheduled: usize,
    debts: BTreeMap<u32, Debt>,
    /// Why nodes did not join.
    explained: BTreeMap<u32, Explanation>,
    tries: Vec<Try>,
    /// How many of the tries belong to pairs of a round. This is read for each of many nodes, so it is
    /// stored.
    tried: usize,
    places: HashMap<(u16, u32, u32), usize>,
    /// The round in which rails are tested with different rails, the nodes that test them, and the
    /// results.
    crossing: Option<u16>,
    crossed: Vec<(Cross, Try)>,
    /// What all nodes moved at once, if they did.
    together: Option<Together>,
}

impl Evidence {
    /// Creates the evidence for these nodes, in the order of their indices. A node that never joined
    /// has no rails.
    pub fn new(members: Vec<Member>, rounds: u16) -> Evidence {
        Evidence {
            wrong_addresses: WrongAddresses::of(&members),
            members,
            rounds,
            rails: 0,
            gone: BTreeMap::new(),
            meeting_place: String::new(),
            unresolved: None,
            contested: BTreeMap::new(),
            scheduled: 0,
            debts: BTreeMap::new(),
            explained: BTreeMap::new(),
            tries: Vec::new(),
            tried: 0,
            places: HashMap::new(),
            crossing: None,
            crossed: Vec::new(),
            together: None,
        }
    }

    /// Records the address of node 0, `ADDRESS:PORT`, and why node 0 itself cannot resolve it, if it cannot.
    pub fn meet_at(&mut self, place: &str, unresolved: Option<&str>) {
        place.clone_into(&mut self.meeting_place);
        self.unresolved = unresolved.map(str::to_owned);
    }

    pub fn unresolved(&self) -> Option<&str> {
        self.unresolved.as_deref()
    }

    pub fn meeting_place(&self) -> &str {
        &self.meeting_place
    }

    /// Records why a node did not join.
    pub fn explain(&mut self, node: u32, why: Explanation) {
        self.explained.insert(node, why);
    }

    /// Returns why a node did not join, if that is known.
    pub fn explanation(&self, node: u32) -> Option<&Explanation> {
        self.explained.get(&node)
    }

    /// Returns whether a fault contains this reason for which nodes were rejected.
    pub fn is_reported(&self, reason: &str) -> bool {
        self.explained.values().any(|explained| explained.why.ends_with(reason))
    }

    /// Returns the addresses at which other nodes cannot be sure to reach a node.
    pub fn wrong_addresses(&self) -> &WrongAddresses {
        &self.wrong_addresses
    }

    /// Starts the test of rails with different rails. Reports about this round no longer say anything
    /// about the nodes, but only how far rails reach other rails.
    pub fn begin_crossing(&mut self, round: u16, pairs: Vec<Cross>) {
        self.crossing = Some(round);
        let untold = |cross: Cross| Try { round, nodes: cross.nodes, said: [None, None], seconds: 0.0 };
        self.crossed = pairs.into_iter().map(|cross| (cross, untold(cross))).collect();
    }

    /// Starts the round in which these pairs move data together. From now on, figures of
    /// [`bisection::ROUND`] belong to it.
    pub fn begin_together(&mut self, pairs: &[(u32, u32)]) {
        self.together = Some(Together::of(pairs));
    }

    pub fn together(&self) -> Option<&Together> {
        self.together.as_ref()
    }

    /// Adds a node's report about a pair. Returns whether it was accepted: a report about nodes that do
    /// not exist is rejected, and so is a second report by the same node about the same try.
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
        if round == bisection::ROUND {
            let together = self.together.as_mut();
            match together.map(|together| together.add(nodes, usize::from(node > partner), outcome)) {
                Some(Taken::Failed(failed)) => outcome = failed,
                Some(Taken::Well) => return true,
                Some(Taken::Unasked) | None => return false,
            }
        }
        let place = *self.places.entry((round, nodes[0], nodes[1])).or_insert_with(|| {
            self.tries.push(Try { round, nodes, said: [None, None], seconds: 0.0 });
            self.tried += usize::from(round != bisection::ROUND);
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

    /// Records that a node is missing or has disconnected. Only the first reason counts.
    pub fn lose(&mut self, node: u32, how: Gone) {
        if (node as usize) < self.members.len() {
            self.gone.entry(node).or_insert(how);
        }
    }

    /// Records that two nodes joined with one index, each with its name and its address. Only the first
    /// two count.
    pub fn contest(&mut self, node: u32, nodes: [String; 2]) {
        if (node as usize) < self.members.len() {
            self.contested.entry(node).or_insert(nodes);
        }
    }

    /// Returns the indices that two nodes joined with. Which of the two is the right one is unknown.
    pub fn contested(&self) -> &BTreeMap<u32, [String; 2]> {
        &self.contested
    }

    /// Adds this many pairs to those that are to be tested.
    pub fn schedule(&mut self, pairs: usize) {
        self.scheduled += pairs;
    }

    /// Records what the connected nodes owe, now that node 0 waits for nothing more.
    pub fn close(&mut self, debts: BTreeMap<u32, Debt>) {
        self.debts = debts;
    }

    /// Returns how many pairs were to be tested.
    pub fn scheduled(&self) -> usize {
        self.scheduled.max(self.tried())
    }

    /// Returns how many of them were tested, as far as a node has reported it.
    pub fn tried(&self) -> usize {
        self.tried
    }

    pub fn debts(&self) -> &BTreeMap<u32, Debt> {
        &self.debts
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

    /// Returns the nodes that tested rails with different rails, and the results.
    pub fn crossed(&self) -> impl Iterator<Item = (Cross, &Try)> {
        self.crossed.iter().map(|(cross, one)| (*cross, one))
    }

    pub fn gone(&self) -> &BTreeMap<u32, Gone> {
        &self.gone
    }

    pub fn rails(&self) -> usize {
        self.rails
    }

    /// Returns whether this is a retry round.
    pub fn is_again(&self, round: u16) -> bool {
        round >= self.rounds && round != bisection::ROUND
    }

    pub fn rounds(&self) -> u16 {
        self.rounds
    }

    /// Returns the name of a node, safe to show.
    pub fn name(&self, node: u32) -> String {
        match self.members.get(node as usize).map(|member| member.name.as_str()) {
            Some(name) if !name.is_empty() => visible(&shortened(name)),
            _ => format!("node {node}"),
        }
    }

    /// Returns the name of a rail of a node, safe to show.
    pub fn rail_name(&self, node: u32, rail: usize) -> String {
        match self.members.get(node as usize).and_then(|member| member.rails.get(rail)) {
            Some(name) if !name.is_empty() => visible(&shortened(name)),
            _ => format!("rail {rail}"),
        }
    }
}

/// Removes what a report must not contain: rail numbers that are too large, figures that are not
/// numbers, endless sentences.
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
                        report.result = Err("its figures are not numbers".to_owned());
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
    use crate::preflight::prove::pair::{Cause, RailReport, Ways};

    fn report(round: u16, node: u32, partner: u32, results: &[Result<f32, &str>]) -> PairReport {
        let rails = results.iter().enumerate().map(|(rail, result)| {
            RailReport::new(
                rail as u16,
                result.map(|gbps| Measured { latency_us: 100.0 / gbps, gbps }).map_err(str::to_owned),
            )
        });
        PairReport { round, node, partner, seconds: 1.0, outcome: PairOutcome::Rails(rails.collect()) }
    }

    fn three() -> Evidence {
        Evidence::new(vec![Member::default(); 3], 2)
    }

    #[test]
    fn the_reports_of_both_ends_are_combined() {
        let mut evidence = three();
        let mut of_waiting = report(0, 1, 0, &[Ok(90.0), Err("nothing came"), Ok(1.0)]);
        if let PairOutcome::Rails(rails) = &mut of_waiting.outcome {
            rails[1].seen.cause = Some(Cause::Waited);
        }
        assert!(evidence.add(of_waiting));
        assert!(evidence.add(report(0, 0, 1, &[Ok(50.0), Err("the port is DOWN"), Err("x")])));
        let [one] = evidence.tries() else { panic!("one try") };
        assert_eq!(one.nodes, [0, 1]);
        assert_eq!(one.meeting(), Some(TryOutcome::Passed));
        assert_eq!(one.rail(0), Some(TryOutcome::Passed));
        assert_eq!(one.measured(0), Some(Measured { latency_us: 100.0 / 90.0, gbps: 50.0 }));
        assert_eq!(one.rail(1), Some(TryOutcome::Failed(0, "the port is DOWN")));
        assert_eq!(one.rail(2), Some(TryOutcome::Failed(0, "x")));
        assert_eq!(one.measured(2), None);
        assert_eq!(one.rail(3), None);
    }

    #[test]
    fn either_end_shows_which_node_was_not_reached() {
        let of = |causes: [Option<Ways>; 2]| {
            let mut evidence = three();
            for (node, ways) in [1, 2].into_iter().zip(causes) {
                let mut report = report(0, node, 3 - node, &[Err("no connection")]);
                if let (PairOutcome::Rails(rails), Some(ways)) = (&mut report.outcome, ways) {
                    rails[0].seen.cause = Some(Cause::NoConnection(ways));
                }
                evidence.add(report);
            }
            evidence.tries()[0].not_reached(0)
        };
        assert_eq!(of([None, None]), [0; 0]);
        assert_eq!(of([Some(Ways::ToPartner), None]), [2]);
        assert_eq!(of([None, Some(Ways::FromPartner)]), [2]);
        assert_eq!(of([Some(Ways::FromPartner), Some(Ways::ToPartner)]), [1]);
        assert_eq!(of([Some(Ways::Both), Some(Ways::ToPartner)]), [1, 2]);
    }

    #[test]
    fn one_end_that_has_failed_is_enough() {
        let mut evidence = three();
        evidence.add(report(0, 0, 1, &[Ok(90.0)]));
        let outcome = PairOutcome::Failed(PairFailure::Left);
        evidence.add(PairReport { round: 0, node: 1, partner: 0, seconds: 2.0, outcome });
        assert_eq!(
            evidence.tries()[0].meeting(),
            Some(TryOutcome::Failed(1, "it has closed the connection"))
        );
        assert!((evidence.tries()[0].seconds - 2.0).abs() < f32::EPSILON);
    }

    #[test]
    fn impossible_reports_are_ignored() {
        let mut evidence = three();
        assert!(!evidence.add(report(0, 1, 1, &[])));
        assert!(!evidence.add(report(0, 1, 3, &[])));
        assert!(evidence.add(report(0, 1, 2, &[Ok(f32::NAN)])));
        assert!(!evidence.add(report(0, 1, 2, &[Ok(1.0)])), "twice");
        assert_eq!(evidence.tries()[0].rail(0), Some(TryOutcome::Failed(0, "its figures are not numbers")));
        evidence.lose(9, Gone::Left("it was killed".into()));
        assert!(evidence.gone().is_empty());
        let far = RailReport::new(999, Err("x".into()));
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
        for outcome in [first.meeting(), second.rail(0)] {
            let Some(TryOutcome::Failed(0, why)) = outcome else { panic!("{outcome:?}") };
            assert!(why.len() < 2000 && !why.contains('\u{1b}'), "{why}");
        }
    }
}
