//! Whether rails reach other rails. Pure.
//!
//! In some fabrics, each rail reaches only the same rail of other nodes. That is not a fault, and no
//! job tests all combinations. Instead, a few pairs of nodes that have passed test each of their rails
//! with a different rail of the other node, and the verdict reports the result.

use serde::Serialize;

use crate::preflight::judge::evidence::{Evidence, TryOutcome};
use crate::preflight::judge::words::rail_of;
use crate::text::{condensed_to, shortened, visible};

/// The most pairs of nodes that run this test, and the most pairs of rails that are named.
const PAIRS: usize = 4;
const NAMED: usize = 8;

/// Two nodes that test their rails crosswise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cross {
    /// The lower one first.
    pub nodes: [u32; 2],
    /// Rail 0 of the lower node goes to this rail of the higher one, rail 1 to the next, and so on.
    pub shift: u16,
}

impl Cross {
    /// Returns the rail of the higher node that a rail of the lower one connects to, if each node has
    /// this many rails.
    fn to(self, rail: usize, rails: usize) -> usize {
        (rail + usize::from(self.shift)) % rails.max(1)
    }
}

/// Returns the nodes that run this test: those that are still connected and have passed with each other
/// on several rails. Each node is in one pair, and each pair has a different shift, as far as there are
/// enough shifts.
pub(crate) fn pairs(evidence: &Evidence) -> Vec<Cross> {
    let rails_of = |node: u32| evidence.members().get(node as usize).map_or(0, |member| member.rails.len());
    let mut taken = Vec::new();
    let mut pairs: Vec<Cross> = Vec::new();
    for one in evidence.tries() {
        let nodes = one.nodes;
        let rails = rails_of(nodes[0]);
        let is_fit = rails > 1
            && rails_of(nodes[1]) == rails
            && (0..rails).all(|rail| one.rail(rail) == Some(TryOutcome::Passed))
            && nodes.iter().all(|node| !taken.contains(node) && !evidence.gone().contains_key(node));
        if is_fit {
            taken.extend(nodes);
            let shift = 1 + pairs.len() % (rails - 1);
            pairs.push(Cross { nodes, shift: shift.try_into().unwrap_or(1) });
        }
        if pairs.len() == PAIRS {
            break;
        }
    }
    pairs
}

/// One rail tested with a different one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Probe<'a> {
    pub nodes: [u32; 2],
    /// The rail of the lower node, and the rail of the higher one.
    pub rails: [usize; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
}

/// Returns what was tested, in the order of the rails.
pub(crate) fn probes(evidence: &Evidence) -> Vec<Probe<'_>> {
    let mut all = Vec::new();
    for (cross, one) in evidence.crossed() {
        let rails = evidence.members().get(cross.nodes[0] as usize).map_or(0, |member| member.rails.len());
        all.extend((0..rails).filter_map(|rail| {
            let error = match one.rail(rail)? {
                TryOutcome::Passed => None,
                TryOutcome::Failed(_, why) => Some(why),
            };
            Some(Probe { nodes: one.nodes, rails: [rail, cross.to(rail, rails)], error })
        }));
    }
    all.sort_by_key(|probe| (probe.rails, probe.nodes));
    all
}

/// How far rails reach other rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reach {
    All,
    Some,
    None,
}

/// Returns how far rails reach other rails; `None` if that was not tested.
pub(crate) fn reach(probes: &[Probe]) -> Option<Reach> {
    let passed = probes.iter().filter(|probe| probe.error.is_none()).count();
    match passed {
        _ if probes.is_empty() => None,
        0 => Some(Reach::None),
        passed if passed == probes.len() => Some(Reach::All),
        _ => Some(Reach::Some),
    }
}

/// Returns a sentence for people; `None` if this was not tested.
pub(crate) fn sentence(evidence: &Evidence) -> Option<String> {
    let probes = probes(evidence);
    let tried = probes.len();
    Some(match reach(&probes)? {
        Reach::All => {
            format!("each rail reaches the others: {tried} of {tried} tries from one rail to another passed")
        }
        Reach::None => {
            let why = probes.iter().find_map(|probe| probe.error).unwrap_or_default();
            format!(
                "no rail reaches another one: none of {tried} tries from one rail to another passed ({}). This is not a fault: many fabrics are built this way. With NCCL_CROSS_NIC=0 on all nodes, NCCL avoids such connections.",
                visible(&shortened(why))
            )
        }
        Reach::Some => {
            let name = |node, rail| rail_of(evidence, rail, &[node]);
            let failed = probes.iter().filter(|probe| probe.error.is_some());
            let failed: Vec<String> = failed
                .map(|Probe { nodes, rails, .. }| {
                    let [low, high] = [0, 1].map(|end| evidence.name(nodes[end]));
                    format!("{low} {} to {high} {}", name(nodes[0], rails[0]), name(nodes[1], rails[1]))
                })
                .collect();
            let passed = tried - failed.len();
            format!(
                "some rails reach others: {passed} of {tried} tries from one rail to another passed, but not {}. This is not a fault.",
                condensed_to(&failed, NAMED)
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::judge::evidence::Member;
    use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};

    fn report(round: u16, [node, partner]: [u32; 2], results: &[Result<(), &str>]) -> PairReport {
        let rails = results.iter().enumerate().map(|(rail, result)| {
            RailReport::new(
                rail as u16,
                result.map(|()| Measured { latency_us: 2.0, gbps: 390.0 }).map_err(str::to_owned),
            )
        });
        PairReport { round, node, partner, seconds: 1.0, outcome: PairOutcome::Rails(rails.collect()) }
    }

    /// Returns the evidence of six nodes with these numbers of rails, in which neighbors have tested
    /// each other.
    fn evidence(rails: [usize; 6]) -> Evidence {
        let member = |rails| Member { rails: vec![String::new(); rails], ..Member::default() };
        let mut evidence = Evidence::new(rails.map(member).into(), 1);
        for low in [0, 2, 4] {
            evidence.add(report(0, [low, low + 1], &vec![Ok(()); rails[low as usize]]));
        }
        evidence
    }

    #[test]
    fn pairs_that_have_passed_on_several_rails_try_it_each_with_another_shift() {
        let cross = |low, shift| Cross { nodes: [low, low + 1], shift };
        assert_eq!(pairs(&evidence([3; 6])), [cross(0, 1), cross(2, 2), cross(4, 1)]);
        assert_eq!(pairs(&evidence([1, 1, 2, 2, 3, 2])), [cross(2, 1)]);
        let mut with_failure = evidence([2, 2, 1, 1, 1, 1]);
        with_failure.add(report(0, [1, 0], &[Ok(()), Err("x")]));
        assert_eq!(pairs(&with_failure), []);
    }

    #[test]
    fn cross_rail_results_are_reported_but_are_not_faults() {
        let told = |results: &[Result<(), &str>]| {
            let mut evidence = evidence([3, 3, 1, 1, 1, 1]);
            let pairs = pairs(&evidence);
            evidence.begin_crossing(7, pairs);
            assert!(evidence.add(report(7, [0, 1], results)));
            assert!(!evidence.add(report(7, [2, 3], results)), "node 0 has not asked for it");
            assert_eq!(evidence.tries().len(), 3);
            (reach(&probes(&evidence)), sentence(&evidence).unwrap())
        };
        let (reach, said) = told(&[Ok(()); 3]);
        assert_eq!(reach, Some(Reach::All));
        assert_eq!(said, "each rail reaches the others: 3 of 3 tries from one rail to another passed");
        let (reach, said) = told(&[Err("x"); 3]);
        assert_eq!(reach, Some(Reach::None));
        assert!(
            said.contains("none of 3 tries") && said.contains("passed (x). This is not a fault"),
            "{said}"
        );
        let (reach, said) = told(&[Ok(()), Ok(()), Err("x")]);
        assert_eq!(reach, Some(Reach::Some));
        assert!(said.contains("2 of 3 tries") && said.contains("node 0 rail 2 to node 1 rail 0"), "{said}");
        assert_eq!(sentence(&evidence([3; 6])), None);
    }
}
