//! Nodes with a different number of rails than the others. A rail that a node does not have is not
//! tested, and no other node is blamed for it.

use std::collections::BTreeMap;

use super::{Fault, Place, What};
use crate::preflight::judge::evidence::Evidence;

/// Returns the fault if the connected nodes do not all have the same number of rails.
pub(super) fn fault(evidence: &Evidence) -> Option<Fault> {
    let mut groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (member, node) in evidence.members().iter().zip(0..) {
        if !evidence.gone().contains_key(&node) {
            groups.entry(member.rails.len()).or_default().push(node);
        }
    }
    if groups.len() < 2 {
        return None;
    }
    // Nodes without a rail do not set the standard, however many of them there are.
    let with_rails = || groups.iter().filter(|(rails, _)| **rails > 0);
    let all: usize = with_rails().map(|(_, nodes)| nodes.len()).sum();
    let usual = with_rails().find(|(_, nodes)| nodes.len() * 2 > all).map(|(rails, _)| *rails);
    Some(Fault { what: What::Uneven { groups, usual }, place: Place::Whole, why: String::new() })
}

/// How many rails each node reported.
pub(super) struct Brought(Vec<usize>);

impl Brought {
    pub(super) fn of(evidence: &Evidence) -> Brought {
        let rails: Vec<usize> = evidence.members().iter().map(|member| member.rails.len()).collect();
        // If no node has reported any rail, each may have any rail.
        let is_known = rails.iter().any(|rails| *rails > 0);
        Brought(if is_known { rails } else { Vec::new() })
    }

    /// Returns whether both nodes have this rail, as far as any node has reported its rails.
    pub(super) fn have(&self, nodes: [u32; 2], rail: usize) -> bool {
        nodes.into_iter().all(|node| self.0.get(node as usize).is_none_or(|rails| *rails > rail))
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults;
    use super::*;
    use crate::preflight::judge::evidence::Member;
    use crate::preflight::judge::words;
    use crate::preflight::meet::schedule::{Extent, Schedule};
    use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};

    /// Returns the verdict on a sound fabric whose nodes have these numbers of rails: the nodes that
    /// are blamed, and the sentences about the faults.
    fn told(rails: &[usize]) -> (Vec<u32>, Vec<String>) {
        let schedule = Schedule { nodes: rails.len() as u32, extent: Extent::Doubling };
        let member = |rails: &usize| Member { rails: vec!["x".to_owned(); *rails], ..Member::default() };
        let mut evidence = Evidence::new(rails.iter().map(member).collect(), schedule.rounds() as u16);
        for round in 0..schedule.rounds() {
            for (low, high) in schedule.pairs(round) {
                let own = [low, high].map(|node| rails[node as usize]);
                let (both, all) = (own[0].min(own[1]), own[0].max(own[1]).max(1));
                let report = |rail: usize| {
                    RailReport::new(
                        rail as u16,
                        match rail < both {
                            true => Ok(Measured { latency_us: 2.0, gbps: 390.0 }),
                            false => Err("no such rail".to_owned()),
                        },
                    )
                };
                for [node, partner] in [[low, high], [high, low]] {
                    let outcome = PairOutcome::Rails((0..all).map(report).collect());
                    evidence.add(PairReport { round: round as u16, node, partner, seconds: 1.0, outcome });
                }
            }
        }
        let all = faults(&evidence, &[]);
        let said = all.iter().map(|fault| words::fault(&evidence, fault)).collect();
        (all.iter().flat_map(Fault::accused).collect(), said)
    }

    #[test]
    fn only_nodes_with_a_differing_number_of_rails_are_named() {
        for (rails, accused, said) in [
            (&[1, 1, 2, 1, 1, 1][..], &[2][..], "node 2 brings 2 rails, but the other 5 nodes bring 1"),
            (&[2, 2, 1, 1, 1, 1], &[0, 1], "node 0, node 1 bring 2 rails, but the other 4 nodes bring 1"),
            (&[8, 8, 7, 8], &[2], "node 2 brings 7 rails, but the other 3 nodes bring 8"),
            (&[1, 0, 1], &[1], "node 1 brings 0 rails, but the other 2 nodes bring 1"),
            (&[1, 0, 0], &[1, 2], "node 1, node 2 bring 0 rails, but the other node brings 1"),
            (&[0, 2], &[0], "node 0 brings 0 rails, but the other node brings 2"),
            (
                &[1, 0, 2],
                &[1],
                "the nodes have different numbers of rails: node 1 brings 0 rails, node 0 brings 1 rail, node 2 brings 2 rails",
            ),
            (
                &[1, 2],
                &[],
                "the nodes have different numbers of rails: node 0 brings 1 rail, node 1 brings 2 rails",
            ),
        ] {
            assert_eq!(told(rails), (accused.to_vec(), vec![said.to_owned()]), "{rails:?}");
        }
        assert_eq!(told(&[2, 2, 2]), (vec![], vec![]));
    }
}
