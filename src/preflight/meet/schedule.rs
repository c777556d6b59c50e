//! Which nodes form a pair, and in which round. Pure.
//!
//! In every round, each node is in one pair; if the number of nodes is odd, one node rests. A node's
//! peer is computed from three numbers, so no node needs the whole table.

/// Which pairs to test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Neighbors, then nodes at a distance of 2, 4, 8 and so on.
    Doubling,
    /// Every pair once.
    Full,
}

/// The rounds of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    pub nodes: u32,
    pub extent: Extent,
}

impl Schedule {
    pub fn rounds(&self) -> u32 {
        match self.extent {
            _ if self.nodes < 2 => 0,
            Extent::Doubling => (self.nodes - 1).ilog2() + 1,
            // A round table with an even number of seats takes one round fewer than it has seats.
            Extent::Full => (self.nodes - 1) | 1,
        }
    }

    /// Returns a node's peer in a round; `None` if the node rests, or if there is no such round or
    /// node.
    pub fn partner(&self, round: u32, node: u32) -> Option<u32> {
        if round >= self.rounds() || node >= self.nodes {
            return None;
        }
        match self.extent {
            Extent::Doubling => at_distance(self.nodes, round, node),
            Extent::Full => at_table(self.nodes, round, node),
        }
    }

    /// Returns the pairs of a round, each with its lower node first.
    pub fn pairs(&self, round: u32) -> impl Iterator<Item = (u32, u32)> {
        (0..self.nodes).filter_map(move |node| {
            let partner = self.partner(round, node)?;
            (node < partner).then_some((node, partner))
        })
    }
}

/// Returns the peer of a node at this round's distance. The nodes form a ring. The ring is cut into
/// blocks of twice the distance, and each node in the first half of a block is paired with a node in
/// the second half. The rest of the ring is a smaller block: its halves are as close to the distance as
/// possible, and if it has an odd number of nodes, the node in its middle rests.
///
/// Each round cuts the ring at a different place. Otherwise the rest would always consist of the same
/// nodes, which would never be paired with others. If the cut is one less than the distance and the
/// number of nodes is even, all peers of a node are different. If the number is odd, a node gets at
/// most one of its peers twice, and rests at most twice. The tests check this.
fn at_distance(nodes: u32, round: u32, node: u32) -> Option<u32> {
    let distance = 1 << round;
    let cut = distance - 1;
    let place = (node + cut) % nodes;
    let rest = nodes - nodes % (2 * distance);
    let other = if place < rest {
        place ^ distance
    } else {
        let size = nodes - rest;
        let half = size.div_ceil(2);
        match place - rest {
            within if within < size / 2 => place + half,
            within if within >= half => place - half,
            _ => return None,
        }
    };
    Some((other + nodes - cut) % nodes)
}

/// Returns a node's peer by the round-table method: one seat is fixed, and the others move on by one
/// place in each round. If the number of nodes is odd, the fixed seat stays empty.
fn at_table(nodes: u32, round: u32, node: u32) -> Option<u32> {
    let fixed = (nodes - 1) | 1;
    // In each round, the places of a pair add up to the round's number.
    let opposite = |place: u32| (round + fixed - place) % fixed;
    let partner = if node == fixed {
        // The place that is opposite to itself: half of the round's number if that is even, and
        // otherwise half of its sum with the odd number of places.
        if round.is_multiple_of(2) { round / 2 } else { (round + fixed) / 2 }
    } else {
        match opposite(node) {
            same if same == node => fixed,
            other => other,
        }
    };
    (partner < nodes).then_some(partner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::facts::launchers::MOST_NODES;

    use super::*;

    const LARGE: [u32; 4] = [1000, 1024, 1025, 4097];

    fn schedule(nodes: u32, extent: Extent) -> Schedule {
        Schedule { nodes, extent }
    }

    fn numbers() -> impl Iterator<Item = u32> {
        (1..=260).chain(LARGE)
    }

    fn all_but_one_have_a_partner(schedule: Schedule, round: u32) {
        let Schedule { nodes, .. } = schedule;
        let mut resting = 0;
        for node in 0..nodes {
            match schedule.partner(round, node) {
                Some(partner) => {
                    assert_ne!(partner, node, "{schedule:?}, round {round}");
                    assert_eq!(
                        schedule.partner(round, partner),
                        Some(node),
                        "{schedule:?}, round {round}, node {node}"
                    );
                }
                None => resting += 1,
            }
        }
        assert_eq!(resting, nodes % 2, "{schedule:?}, round {round}");
        assert_eq!(schedule.partner(round, nodes), None);
    }

    #[test]
    fn in_each_round_all_but_at_most_one_node_have_a_partner() {
        for nodes in numbers() {
            let schedule = schedule(nodes, Extent::Doubling);
            assert_eq!(1u32.checked_shl(schedule.rounds()).unwrap(), nodes.next_power_of_two(), "{nodes}");
            for round in 0..schedule.rounds() {
                all_but_one_have_a_partner(schedule, round);
            }
            assert_eq!(schedule.partner(schedule.rounds(), 0), None);
        }
        for nodes in [MOST_NODES - 1, MOST_NODES] {
            all_but_one_have_a_partner(schedule(nodes, Extent::Doubling), 13);
        }
    }

    #[test]
    fn most_partners_are_at_the_distance_of_the_round() {
        let rounds = |nodes| {
            let schedule = schedule(nodes, Extent::Doubling);
            (0..schedule.rounds()).map(move |round| schedule.pairs(round).collect::<Vec<_>>())
        };
        let all: Vec<_> = rounds(6).collect();
        assert_eq!(all, [[(0, 1), (2, 3), (4, 5)], [(0, 2), (1, 5), (3, 4)], [(0, 3), (1, 4), (2, 5)]]);
        assert_eq!(rounds(3).collect::<Vec<_>>(), [[(0, 1)], [(1, 2)]]);
        for nodes in [64, 100, 1000] {
            for (round, pairs) in rounds(nodes).enumerate() {
                let distance = 1 << round;
                let at_it = pairs.iter().filter(|(a, b)| b - a == distance || nodes - (b - a) == distance);
                assert!(at_it.count() as u32 + distance >= nodes / 2, "{nodes} nodes, round {round}");
            }
        }
    }

    #[test]
    fn each_node_has_another_partner_in_each_round() {
        for nodes in numbers() {
            let schedule = schedule(nodes, Extent::Doubling);
            let rounds = schedule.rounds();
            for node in 0..nodes {
                let partners: Vec<u32> =
                    (0..rounds).filter_map(|round| schedule.partner(round, node)).collect();
                let different: HashSet<&u32> = partners.iter().collect();
                let (odd, twice) = (nodes % 2, partners.len() - different.len());
                assert!(twice as u32 <= odd, "{nodes} nodes, node {node}: {partners:?}");
                let rests = rounds - partners.len() as u32;
                assert!(rests <= 2 * odd, "{nodes} nodes: node {node} rests {rests} times");
                assert!(nodes == 1 || !partners.is_empty(), "{nodes} nodes: node {node} has no partner");
            }
        }
    }

    /// So if a node is cut off from all others, many of them see it, and every part of the job has a
    /// pair with the rest.
    #[test]
    fn the_pairs_connect_all_nodes_within_few_steps() {
        for nodes in numbers().filter(|nodes| *nodes <= 4097) {
            let schedule = schedule(nodes, Extent::Doubling);
            let mut steps = vec![u32::MAX; nodes as usize];
            let mut next = std::collections::VecDeque::from([0]);
            steps[0] = 0;
            while let Some(node) = next.pop_front() {
                for other in (0..schedule.rounds()).filter_map(|round| schedule.partner(round, node)) {
                    if steps[other as usize] == u32::MAX {
                        steps[other as usize] = steps[node as usize] + 1;
                        next.push_back(other);
                    }
                }
            }
            let furthest = steps.into_iter().max().unwrap();
            assert!(furthest <= schedule.rounds() + 1, "{nodes} nodes: {furthest} steps");
        }
    }

    #[test]
    fn in_the_full_schedule_every_pair_meets_once() {
        for nodes in (1..=66).chain([127, 128, 129]) {
            let schedule = schedule(nodes, Extent::Full);
            let wanted = if nodes < 2 { 0 } else { nodes - 1 + nodes % 2 };
            assert_eq!(schedule.rounds(), wanted, "{nodes}");
            let mut met = HashSet::new();
            for round in 0..schedule.rounds() {
                all_but_one_have_a_partner(schedule, round);
                for pair in schedule.pairs(round) {
                    assert!(met.insert(pair), "{nodes} nodes: {pair:?} twice");
                }
            }
            assert_eq!(met.len() as u32, nodes * (nodes - 1) / 2, "{nodes}");
        }
        let most = schedule(MOST_NODES, Extent::Full);
        for round in [0, 65_534] {
            all_but_one_have_a_partner(most, round);
        }
    }
}
