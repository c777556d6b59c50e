use super::*;
use crate::preflight::culprit::{MOST_TIMES, next_rounds};
use crate::preflight::evidence::Member;
use crate::preflight::pair::{Measured, PairOutcome, PairReport, RailReport};
use crate::preflight::schedule::{Extent, Schedule};

/// A job whose pairs have the figures that `of` gives for the node that says them, its partner
/// and a rail, with some noise.
fn job(nodes: u32, rails: usize, of: &dyn Fn(u32, u32, usize) -> Measured) -> Evidence {
    let schedule = Schedule { nodes, extent: Extent::Doubling };
    let mut evidence = Evidence::new(vec![Member::default(); nodes as usize], schedule.rounds() as u16);
    let mut random = fastrand::Rng::with_seed(nodes.into());
    for round in 0..schedule.rounds() {
        for pair in schedule.pairs(round) {
            hold(&mut evidence, &mut random, round as u16, pair, rails, of);
        }
    }
    evidence
}

fn hold(
    evidence: &mut Evidence,
    random: &mut fastrand::Rng,
    round: u16,
    (low, high): (u32, u32),
    rails: usize,
    of: &dyn Fn(u32, u32, usize) -> Measured,
) {
    for (node, partner) in [(low, high), (high, low)] {
        let outcome = (0..rails).map(|rail| {
            let Measured { latency_us, gbps } = of(node, partner, rail);
            let noise = 1.0 + random.f32() / 20.0;
            RailReport {
                rail: rail as u16,
                result: Ok(Measured { latency_us: latency_us * noise, gbps: gbps / noise }),
            }
        });
        let outcome = PairOutcome::Rails(outcome.collect());
        evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
    }
}

const USUAL: Measured = Measured { latency_us: 3.0, gbps: 390.0 };

fn slow(gbps: f32) -> Measured {
    Measured { gbps, ..USUAL }
}

fn who(evidence: &Evidence, least: Option<f32>) -> Vec<(Who, Figure)> {
    find(evidence, least).into_iter().map(|slow| (slow.who, slow.figure)).collect()
}

#[test]
fn noise_is_no_outlier() {
    for nodes in (1..40).chain([256]) {
        assert_eq!(find(&job(nodes, 8, &|_, _, _| USUAL), None), [], "{nodes} nodes");
    }
}

#[test]
fn a_node_is_slow_where_all_of_its_pairs_are() {
    for nodes in [4, 8, 9, 32, 100] {
        for bad in [0, 1, nodes / 2, nodes - 1] {
            // What it sends alone is slow.
            let evidence = job(nodes, 8, &|node, _, rail| {
                if (node, rail) == (bad, 3) { slow(90.0) } else { USUAL }
            });
            let node = Who::Node { node: bad, rail: 3 };
            assert_eq!(who(&evidence, None), [(node, Figure::Bandwidth)], "{nodes} nodes");
            let both = job(nodes, 8, &|node, partner, rail| match rail {
                3 if [node, partner].contains(&bad) => Measured { latency_us: 40.0, gbps: 390.0 },
                _ => USUAL,
            });
            assert_eq!(who(&both, None), [(node, Figure::Latency)], "{nodes} nodes");
        }
    }
}

#[test]
fn a_way_is_slow_where_both_nodes_are_well_with_others() {
    for nodes in [8, 9, 33, 100] {
        let evidence = job(nodes, 2, &|node, partner, rail| {
            if [node.min(partner), node.max(partner)] == [2, 3] && rail == 1 { slow(30.0) } else { USUAL }
        });
        let way = Who::Link { nodes: [2, 3], rail: 1 };
        assert_eq!(who(&evidence, None), [(way, Figure::Bandwidth)], "{nodes} nodes");
    }
    let two = job(2, 8, &|_, _, rail| if rail == 5 { slow(30.0) } else { USUAL });
    assert_eq!(who(&two, None), [(Who::Link { nodes: [0, 1], rail: 5 }, Figure::Bandwidth)]);
}

#[test]
fn distant_nodes_may_be_slower_by_design() {
    for (nodes, distance) in [(256, 64), (256, 8), (12, 8)] {
        let evidence = job(nodes, 2, &|node, partner, _| {
            if node.abs_diff(partner) >= distance { slow(180.0) } else { USUAL }
        });
        assert_eq!(find(&evidence, None), [], "{nodes} nodes");
    }
    // Two halls, whose border is between two neighbours.
    for nodes in [33, 100, 257] {
        let halls = job(nodes, 2, &|node, partner, _| {
            let is_far = (node < nodes / 3) != (partner < nodes / 3);
            if is_far { Measured { latency_us: 7.0, gbps: 200.0 } } else { USUAL }
        });
        assert_eq!(find(&halls, None), [], "{nodes} nodes");
    }
}

#[test]
fn a_rail_that_is_slow_everywhere_is_no_nodes_fault() {
    for nodes in [4, 64] {
        let evidence = job(nodes, 9, &|_, _, rail| if rail == 8 { slow(95.0) } else { USUAL });
        assert_eq!(who(&evidence, None), [(Who::Rail { rail: 8 }, Figure::Bandwidth)], "{nodes}");
    }
}

#[test]
fn few_values_say_nothing_and_a_wish_says_something() {
    let evidence = job(3, 1, &|node, _, _| if node == 2 { slow(40.0) } else { USUAL });
    assert_eq!(find(&evidence, None), []);
    let link = |evidence: &Evidence, least| who(evidence, Some(least));
    assert_eq!(link(&evidence, 300.0), [(Who::Link { nodes: [1, 2], rail: 0 }, Figure::Bandwidth)]);
    assert_eq!(link(&evidence, 30.0), []);
    let all = job(16, 1, &|_, _, _| USUAL);
    assert_eq!(link(&all, 400.0), [(Who::Rail { rail: 0 }, Figure::Bandwidth)]);
    let one = job(16, 1, &|node, _, _| if node == 5 { slow(100.0) } else { USUAL });
    let found = find(&one, Some(200.0));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].is_wanted && found[0].who == Who::Node { node: 5, rail: 0 });
}

/// In a job of three nodes, two of them are in one pair alone.
#[test]
fn a_node_whose_only_pair_is_slow_is_tried_with_another_one() {
    for nodes in [3, 5, 7] {
        for bad in 0..nodes {
            let of = |node: u32, _: u32, rail: usize| {
                if (node, rail) == (bad, 1) { slow(40.0) } else { USUAL }
            };
            let mut evidence = job(nodes, 2, &of);
            let mut random = fastrand::Rng::with_seed(bad.into());
            let mut next = evidence.rounds();
            for _ in 0..MOST_TIMES {
                for pairs in next_rounds(&evidence, &find(&evidence, Some(300.0))) {
                    for pair in pairs {
                        hold(&mut evidence, &mut random, next, pair, 2, &of);
                    }
                    next += 1;
                }
            }
            let node = Who::Node { node: bad, rail: 1 };
            let found = who(&evidence, Some(300.0));
            assert_eq!(found, [(node, Figure::Bandwidth)], "node {bad} of {nodes}");
        }
    }
    let pair = job(2, 1, &|_, _, _| slow(40.0));
    assert!(next_rounds(&pair, &find(&pair, Some(300.0))).is_empty());
    let all = job(16, 2, &|_, _, _| USUAL);
    assert!(next_rounds(&all, &find(&all, Some(400.0))).is_empty());
}

#[test]
fn random_outliers_are_named_and_nobody_else() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u32(12..90);
        let bad: Vec<(u32, usize)> =
            (0..random.u32(0..=nodes / 8)).map(|_| (random.u32(0..nodes), random.usize(0..4))).collect();
        let evidence = job(nodes, 4, &|node, _, rail| {
            if bad.contains(&(node, rail)) { slow(200.0) } else { USUAL }
        });
        let mut wanted: Vec<_> =
            bad.iter().map(|&(node, rail)| (Who::Node { node, rail }, Figure::Bandwidth)).collect();
        wanted.sort();
        wanted.dedup();
        assert_eq!(who(&evidence, None), wanted, "seed {seed}");
    }
}
