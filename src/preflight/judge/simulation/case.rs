//! One made-up job: its nodes, the result of each try, and what the verdict must say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;

use crate::preflight::judge::evidence::{Evidence, Gone, Member};
use crate::preflight::judge::verdict::Verdict;
use crate::preflight::meet::times::Times;
use crate::preflight::prove::pair::{
    Cause, Measured, PairFailure, PairOutcome, PairReport, RailReport, Seen, Ways,
};
use crate::verbs::port_test::DEFAULT_TIME;

/// The times that all jobs use.
pub(super) const TIMES: Times = Times { each: DEFAULT_TIME };

/// The figures of a sound rail, within a few percent.
const GBPS: f32 = 390.0;
const LATENCY_US: f32 = 2.4;

/// One try of one rail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub round: u16,
    /// The lower index first.
    pub nodes: [u32; 2],
    pub rail: usize,
    seed: u64,
}

impl Attempt {
    pub(super) fn has(&self, node: u32) -> bool {
        self.nodes.contains(&node)
    }

    pub(super) fn other(&self, node: u32) -> u32 {
        if self.nodes[0] == node { self.nodes[1] } else { self.nodes[0] }
    }

    /// Returns whether exactly one of the nodes is in this part of the job.
    pub(super) fn crosses(&self, part: &BTreeSet<u32>) -> bool {
        part.contains(&self.nodes[0]) != part.contains(&self.nodes[1])
    }

    /// Returns a number from 0 to 1 that is the same whenever these nodes test this rail.
    pub(super) fn of_pair(&self) -> f64 {
        self.draw(0)
    }

    /// Returns a number from 0 to 1 that differs from try to try.
    pub(super) fn of_try(&self) -> f64 {
        self.draw(1 + u64::from(self.round))
    }

    fn draw(&self, salt: u64) -> f64 {
        let parts = [u64::from(self.nodes[0]), u64::from(self.nodes[1]), self.rail as u64, salt];
        let mixed = parts
            .into_iter()
            .fold(self.seed, |sum, part| (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        Rng::with_seed(mixed).f64()
    }
}

/// How a rail fails in a try.
#[derive(Debug, Clone, Copy)]
pub(super) enum RailFailure {
    /// This node knows why, and the other one only waits.
    At(u32),
    /// Neither node knows more than that nothing arrives.
    Between,
    /// Over TCP, the other node cannot connect to this node.
    NotReached(u32),
    /// This node says that the rail fails, and the other one that it passes.
    Claimed(u32),
}

type Fails = Box<dyn Fn(&Attempt) -> Option<RailFailure>>;
type Measures = Box<dyn Fn(&Attempt, u32, &mut Measured, &mut Seen)>;

/// A job with a fault.
pub(super) struct Case {
    pub members: Vec<Member>,
    /// Nodes that never join.
    pub absent: BTreeSet<u32>,
    /// Nodes that send nothing from this round on.
    pub ends: BTreeMap<u32, (u16, Gone)>,
    /// Whether two nodes connect at all, before any rail.
    pub meets: Box<dyn Fn([u32; 2]) -> bool>,
    /// How a rail fails, if it does.
    pub fails: Fails,
    /// Changes the report of a node (the second argument) about a rail that passes.
    pub measures: Measures,
    /// How long a round takes.
    pub round: Duration,
    /// Whether the fault may fail to show in any try. If it does, the job does not count.
    pub may_hide: bool,
    /// Whether the verdict names the planted fault.
    pub is_named: Box<dyn Fn(&Verdict) -> bool>,
    /// The nodes that may be blamed.
    pub guilty: BTreeSet<u32>,
    seed: u64,
}

impl Case {
    /// Returns a job without a fault.
    pub(super) fn sound(random: &mut Rng, nodes: u32, rails: usize) -> Case {
        let member = |node: u32| Member {
            name: format!("gpu-{node:05}"),
            rails: (0..rails).map(|rail| format!("mlx5_{rail}")).collect(),
            rates: vec![400.0; rails],
            is_verbs: true,
            is_soft: false,
            ..Member::default()
        };
        Case {
            members: (0..nodes).map(member).collect(),
            absent: BTreeSet::new(),
            ends: BTreeMap::new(),
            meets: Box::new(|_| true),
            fails: Box::new(|_| None),
            measures: Box::new(|_, _, _, _| {}),
            round: [Duration::from_secs(2), TIMES.rails() / 4, TIMES.round()][random.usize(0..3)],
            may_hide: false,
            is_named: Box::new(|verdict| verdict.passed && verdict.faults.is_empty()),
            guilty: BTreeSet::new(),
            seed: random.u64(..),
        }
    }

    pub(super) fn failing(mut self, fails: impl Fn(&Attempt) -> Option<RailFailure> + 'static) -> Case {
        self.fails = Box::new(fails);
        self
    }

    pub(super) fn measuring(
        mut self,
        measures: impl Fn(&Attempt, u32, &mut Measured, &mut Seen) + 'static,
    ) -> Case {
        self.measures = Box::new(measures);
        self
    }

    /// Sets what the verdict must name, and which nodes may be blamed.
    pub(super) fn named(
        mut self,
        guilty: impl IntoIterator<Item = u32>,
        is_named: impl Fn(&Verdict) -> bool + 'static,
    ) -> Case {
        self.guilty = guilty.into_iter().collect();
        self.is_named = Box::new(is_named);
        self
    }

    pub(super) fn that_may_hide(self) -> Case {
        Case { may_hide: true, ..self }
    }

    pub(super) fn nodes(&self) -> u32 {
        self.members.len() as u32
    }

    /// Adds what node 0 knows before the first pair.
    pub(super) fn before(&self, evidence: &mut Evidence) {
        for node in &self.absent {
            evidence.lose(*node, Gone::NeverJoined("10m".to_owned()));
        }
    }

    /// Lets two nodes test each other, and adds both reports.
    pub(super) fn attempt(&self, evidence: &mut Evidence, round: u16, nodes: [u32; 2]) {
        for [node, partner] in [nodes, [nodes[1], nodes[0]]] {
            if self.is_there(node, round) {
                let outcome = self.outcome(round, node, partner);
                evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
            }
        }
    }

    fn is_there(&self, node: u32, round: u16) -> bool {
        self.ends.get(&node).is_none_or(|(from, _)| round < *from)
    }

    fn outcome(&self, round: u16, node: u32, partner: u32) -> PairOutcome {
        let nodes = [node.min(partner), node.max(partner)];
        if !self.is_there(partner, round) {
            let is_hung = matches!(self.ends.get(&partner), Some((_, Gone::Silent(_))));
            return PairOutcome::Failed(if is_hung { PairFailure::Silent } else { PairFailure::Left });
        }
        if !(self.meets)(nodes) {
            return PairOutcome::Failed(PairFailure::Unreachable("no route to host".to_owned()));
        }
        let rails = [node, partner].map(|node| self.members[node as usize].rails.len());
        let report = |rail: usize| {
            let rail_number = rail as u16;
            if rails.iter().any(|rails| *rails <= rail) {
                return RailReport::new(rail_number, Err("the other node has no such rail".to_owned()));
            }
            let attempt = Attempt { round, nodes, rail, seed: self.seed };
            match (self.fails)(&attempt) {
                Some(RailFailure::Claimed(by)) if by != node => self.passed(&attempt, node),
                Some(ill) => told(ill, rail_number, node),
                None => self.passed(&attempt, node),
            }
        };
        PairOutcome::Rails((0..rails[0].max(rails[1])).map(report).collect())
    }

    fn passed(&self, attempt: &Attempt, node: u32) -> RailReport {
        let noise = |salt: u64| attempt.draw(1000 + salt + 2 * u64::from(attempt.round)) as f32;
        let mut measured = Measured {
            latency_us: LATENCY_US * (1.0 + 0.1 * noise(0)),
            gbps: GBPS * (1.0 - 0.05 * noise(1)),
        };
        let mut seen = Seen::default();
        (self.measures)(attempt, node, &mut measured, &mut seen);
        RailReport { rail: attempt.rail as u16, result: Ok(measured), seen }
    }
}

/// Returns a node's report about a failed rail.
fn told(ill: RailFailure, rail: u16, node: u32) -> RailReport {
    let (why, cause) = match ill {
        RailFailure::At(at) if at == node => ("the port is DOWN now", None),
        RailFailure::At(_) => {
            ("wait for the other end failed: no completion came in time", Some(Cause::Waited))
        }
        RailFailure::Between | RailFailure::Claimed(_) => {
            ("send failed: transport retry counter exceeded", None)
        }
        RailFailure::NotReached(at) if at == node => {
            ("the partner does not connect", Some(Cause::NoConnection(Ways::FromPartner)))
        }
        RailFailure::NotReached(_) => ("connection refused", Some(Cause::NoConnection(Ways::ToPartner))),
    };
    RailReport { rail, result: Err(why.to_owned()), seen: Seen { cause, ..Seen::default() } }
}
