use super::*;
use crate::preflight::judge::culprit::{MOST_TIMES, next_rounds};
use crate::preflight::judge::evidence::Member;
use crate::preflight::meet::schedule::{Extent, Schedule};
use crate::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport, Sent};

/// What a node reports to its peer about a rail: its figures, and how many of 100,000 packets it sent
/// again.
type Said = (Measured, u64);

/// A job whose pairs have the figures that `of` returns, with some noise. The arguments of `of` are the
/// number of the try, the node that reports, its peer and a rail.
struct Job<'a> {
    evidence: Evidence,
    rails: usize,
    random: fastrand::Rng,
    tries: u32,
    of: &'a dyn Fn(u32, u32, u32, usize) -> Said,
}

impl<'a> Job<'a> {
    fn new(members: Vec<Member>, rails: usize, of: &'a dyn Fn(u32, u32, u32, usize) -> Said) -> Job<'a> {
        let nodes = members.len() as u32;
        let schedule = Schedule { nodes, extent: Extent::Doubling };
        let evidence = Evidence::new(members, schedule.rounds() as u16);
        let random = fastrand::Rng::with_seed(nodes.into());
        let mut job = Job { evidence, rails, random, tries: 0, of };
        for round in 0..schedule.rounds() {
            schedule.pairs(round).for_each(|pair| job.hold(round as u16, pair));
        }
        job
    }

    fn hold(&mut self, round: u16, (low, high): (u32, u32)) {
        self.tries += 1;
        for (node, partner) in [(low, high), (high, low)] {
            let outcome = (0..self.rails).map(|rail| {
                let (Measured { latency_us, gbps }, again) = (self.of)(self.tries, node, partner, rail);
                let noise = 1.0 + self.random.f32() / 20.0;
                let measured = Measured { latency_us: latency_us * noise, gbps: gbps / noise };
                let mut report = RailReport::new(rail as u16, Ok(measured));
                report.seen.sent = Some(Sent { packets: 100_000, again });
                report
            });
            let outcome = PairOutcome::Rails(outcome.collect());
            self.evidence.add(PairReport { round, node, partner, seconds: 1.0, outcome });
        }
    }

    /// Measures again what seems slow. Returns how many pairs were measured.
    fn again(&mut self, least: Option<f32>) -> usize {
        let (mut next, mut count) = (self.evidence.rounds(), 0);
        for _ in 0..MOST_TIMES {
            let rounds = next_rounds(&self.evidence, &suspects(&self.evidence, least));
            assert!(rounds.len() <= 8, "{} rounds", rounds.len());
            for pairs in rounds {
                count += pairs.len();
                pairs.into_iter().for_each(|pair| self.hold(next, pair));
                next += 1;
            }
        }
        count
    }

    fn find(mut self, least: Option<f32>) -> Vec<Slow> {
        self.again(least);
        find(&self.evidence, least)
    }
}

const USUAL: Measured = Measured { latency_us: 3.0, gbps: 390.0 };
const SOUND: Said = (USUAL, 0);

fn slow(gbps: f32) -> Said {
    (Measured { gbps, ..USUAL }, 0)
}

fn late(latency_us: f32) -> Said {
    (Measured { latency_us, ..USUAL }, 0)
}

fn verbs(nodes: u32, rails: usize, rate: f32) -> Vec<Member> {
    vec![Member { is_verbs: true, rates: vec![rate; rails], ..Member::default() }; nodes as usize]
}

fn tcp(nodes: u32) -> Vec<Member> {
    vec![Member::default(); nodes as usize]
}

/// Returns what is slow in a job over verbs whose ports do not report their rates.
fn job(nodes: u32, rails: usize, of: &dyn Fn(u32, u32, usize) -> Said) -> Vec<(Who, Figure)> {
    found(verbs(nodes, rails, 0.0), rails, None, of)
}

fn found(
    members: Vec<Member>,
    rails: usize,
    least: Option<f32>,
    of: &dyn Fn(u32, u32, usize) -> Said,
) -> Vec<(Who, Figure)> {
    let of = |_: u32, node: u32, peer: u32, rail: usize| of(node, peer, rail);
    Job::new(members, rails, &of).find(least).into_iter().map(|slow| (slow.who, slow.figure)).collect()
}

fn is_between(node: u32, peer: u32, nodes: [u32; 2]) -> bool {
    [node.min(peer), node.max(peer)] == nodes
}

#[test]
fn noise_is_no_outlier() {
    for nodes in (1..40).chain([256]) {
        assert_eq!(job(nodes, 8, &|_, _, _| SOUND), [], "{nodes} nodes");
    }
}

#[test]
fn a_node_is_slow_if_all_of_its_pairs_are() {
    for nodes in [4, 8, 9, 32, 100] {
        for bad in [0, 1, nodes / 2, nodes - 1] {
            // Only what the node sends is slow.
            let sent = |node, _, rail| if (node, rail) == (bad, 3) { slow(90.0) } else { SOUND };
            let node = Who::Node { node: bad, rail: 3 };
            assert_eq!(job(nodes, 8, &sent), [(node, Figure::Bandwidth)], "{nodes} nodes");
            let both = |node, peer, rail| match rail {
                3 if [node, peer].contains(&bad) => late(40.0),
                _ => SOUND,
            };
            assert_eq!(job(nodes, 8, &both), [(node, Figure::Latency)], "{nodes} nodes");
        }
    }
}

#[test]
fn a_link_is_slow_if_both_nodes_are_fast_with_others() {
    for nodes in [8, 9, 33, 100] {
        let of = |node, peer, rail| match is_between(node, peer, [2, 3]) && rail == 1 {
            true => slow(30.0),
            false => SOUND,
        };
        let link = Who::Link { nodes: [2, 3], rail: 1 };
        assert_eq!(job(nodes, 2, &of), [(link, Figure::Bandwidth)], "{nodes} nodes");
    }
    let two = job(2, 8, &|_, _, rail| if rail == 5 { slow(30.0) } else { SOUND });
    assert_eq!(two, [(Who::Link { nodes: [0, 1], rail: 5 }, Figure::Bandwidth)]);
}

#[test]
fn distant_nodes_may_be_slower_by_design() {
    for (nodes, distance) in [(256, 64), (256, 8), (12, 8)] {
        let of = |node: u32, peer, _| if node.abs_diff(peer) >= distance { slow(180.0) } else { SOUND };
        assert_eq!(job(nodes, 2, &of), [], "{nodes} nodes");
    }
    // There are two halls, and their border is between two neighbors.
    for nodes in [9, 12, 16, 33, 50, 100, 257] {
        for border in (5..nodes.min(40) - 1).step_by(3) {
            let of = |node, peer, _| match (node < border) != (peer < border) {
                true => (Measured { latency_us: 17.0, gbps: 200.0 }, 0),
                false => SOUND,
            };
            assert_eq!(job(nodes, 2, &of), [], "{nodes} nodes, {border}");
        }
    }
}

#[test]
fn a_rail_that_is_slow_everywhere_is_no_node_s_fault() {
    for nodes in [3, 4, 64] {
        for rails in [2, 3, 8, 9] {
            let of = |_, _, rail| if rail == rails - 1 { slow(95.0) } else { SOUND };
            let rail = Who::Rail { rail: rails - 1 };
            assert_eq!(job(nodes, rails, &of), [(rail, Figure::Bandwidth)], "{nodes}, {rails}");
            let of = |_, _, rail| if rail == 0 { late(60.0) } else { SOUND };
            assert_eq!(
                job(nodes, rails, &of),
                [(Who::Rail { rail: 0 }, Figure::Latency)],
                "{nodes}, {rails}"
            );
        }
    }
}

/// In a job of three nodes, two of the three pairs of a rail belong to one node.
#[test]
fn a_slow_node_makes_no_slow_rail() {
    for members in [tcp as fn(u32) -> Vec<Member>, |nodes| verbs(nodes, 2, 0.0)] {
        for bad in 0..3 {
            for rails in [2, 3] {
                let of = |node: u32, peer: u32, rail: usize| match [node, peer].contains(&bad) {
                    true if rail == 1 => (Measured { latency_us: 9000.0, gbps: 4.0 }, 0),
                    // The only pair without the slow node is slower than those of other rails, for
                    // another reason.
                    false if rail == 1 => (Measured { latency_us: 200.0, gbps: 150.0 }, 0),
                    _ => SOUND,
                };
                let found = found(members(3), rails, Some(10.0), &of);
                assert!(found.iter().all(|(who, _)| !matches!(who, Who::Rail { .. })), "{found:?}");
                let node = Who::Node { node: bad, rail: 1 };
                assert!(found.contains(&(node, Figure::Bandwidth)), "{found:?}");
            }
        }
    }
}

/// Rails of soft-RoCE share the processors of the nodes.
#[test]
fn rails_of_soft_roce_are_not_compared() {
    let of = |_: u32, _: u32, rail: usize| if rail == 1 { slow(40.0) } else { SOUND };
    let soft: Vec<Member> =
        verbs(3, 2, 0.0).into_iter().map(|member| Member { is_soft: true, ..member }).collect();
    assert_eq!(found(soft, 2, None, &of), []);
}

#[test]
fn few_microseconds_more_are_no_outlier() {
    let of = |more: f32| {
        move |node: u32, peer: u32, _: usize| match [node, peer].contains(&5) {
            true => (Measured { latency_us: 20.0 + more, gbps: 9.0 }, 0),
            false => (Measured { latency_us: 20.0, gbps: 9.0 }, 0),
        }
    };
    let node = [(Who::Node { node: 5, rail: 0 }, Figure::Latency)];
    assert_eq!(found(tcp(16), 1, None, &of(22.0)), []);
    assert_eq!(found(tcp(16), 1, None, &of(90.0)), node);
    assert_eq!(found(verbs(16, 1, 0.0), 1, None, &of(26.0)), node);
    let of = |node: u32, peer: u32, _: usize| late(if [node, peer].contains(&5) { 7.0 } else { 3.0 });
    assert_eq!(found(verbs(16, 1, 0.0), 1, None, &of), []);
}

/// A node that was busy in the rounds of the schedule, but passes when it is measured again.
#[test]
fn a_node_that_was_only_busy_is_not_named() {
    for nodes in [4, 5, 8, 16, 33] {
        let schedule = Schedule { nodes, extent: Extent::Doubling };
        let first: u32 = (0..schedule.rounds()).map(|round| schedule.pairs(round).count() as u32).sum();
        for busy in [0, nodes / 2] {
            let of = |tried: u32, node: u32, peer: u32, _: usize| match [node, peer].contains(&busy) {
                // Two more tries are slow as well.
                true if tried <= first + 2 => (Measured { latency_us: 900.0, gbps: 1.0 }, 4000),
                _ => SOUND,
            };
            let mut job = Job::new(tcp(nodes), 2, &of);
            assert!(!suspects(&job.evidence, None).is_empty(), "{nodes} nodes");
            job.again(None);
            assert_eq!(find(&job.evidence, None), [], "{nodes} nodes");
        }
    }
}

#[test]
fn both_figures_of_a_suspect_are_told() {
    let of = |tried: u32, node: u32, _: u32, _: usize| match node {
        5 => slow(if tried > 32 { 60.0 } else { 90.0 }),
        _ => SOUND,
    };
    let found = Job::new(verbs(16, 1, 0.0), 1, &of).find(None);
    let [Slow { value, first: Some(first), again: Some(again), .. }] = found[..] else { panic!("{found:?}") };
    assert!(value > 85.0 && first > 85.0 && again < 61.0, "{found:?}");
}

/// Two slow nodes make all four pairs of the schedule slow.
#[test]
fn of_four_nodes_two_slow_ones_are_named_and_no_other() {
    for (a, b) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let of = |node: u32, _: u32, rail: usize| match rail == 1 && (node == a || node == b) {
            true => slow(90.0),
            false => SOUND,
        };
        let wanted = [a, b].map(|node| (Who::Node { node, rail: 1 }, Figure::Bandwidth));
        for rails in [3, 8] {
            assert_eq!(job(4, rails, &of), wanted, "{a} and {b}, {rails} rails");
        }
        assert_eq!(found(verbs(4, 2, 400.0), 2, None, &of), wanted, "{a} and {b}");
        assert_eq!(found(verbs(4, 2, 0.0), 2, Some(300.0), &of), wanted, "{a} and {b}");
    }
}

#[test]
fn half_of_the_rate_of_its_port_is_slow_whatever_the_others_have() {
    let rate = |nodes, rails| verbs(nodes, rails, 400.0);
    let all = |_: u32, _: u32, _: usize| slow(150.0);
    let rail = |rail| (Who::Rail { rail }, Figure::Bandwidth);
    assert_eq!(found(rate(16, 2), 2, None, &all), [rail(0), rail(1)]);
    assert_eq!(found(rate(3, 1), 1, None, &all), [rail(0)]);
    let two = found(rate(2, 1), 1, None, &all);
    assert_eq!(two, [(Who::Link { nodes: [0, 1], rail: 0 }, Figure::Bandwidth)]);
    assert_eq!(found(rate(16, 2), 2, None, &|_, _, _| slow(210.0)), []);
    assert_eq!(found(verbs(2, 1, 0.0), 1, None, &all), []);
    // Over TCP, the rate of a port means nothing.
    let of_tcp = vec![Member { rates: vec![400.0], ..Member::default() }; 2];
    assert_eq!(found(of_tcp, 1, None, &all), []);
    // The slower one of the two ports sets the limit.
    let mut mixed = rate(8, 1);
    mixed[3].rates = vec![200.0];
    let of = |node: u32, peer: u32, _: usize| slow(if [node, peer].contains(&3) { 190.0 } else { 390.0 });
    let found = Job::new(mixed, 1, &|_, node, peer, rail| of(node, peer, rail)).find(None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].basis, Basis::Others, "{found:?}");
}

/// There may be no time to measure all ports of a slow leaf again. What they have beside the others is
/// not certain then, and is not reported.
#[test]
fn a_port_below_half_of_its_rate_is_named_without_a_second_measurement() {
    let of = |_: u32, node: u32, _: u32, _: usize| if (30..46).contains(&node) { slow(97.0) } else { SOUND };
    let found = find(&Job::new(verbs(128, 1, 400.0), 1, &of).evidence, None);
    let slow: Vec<(Who, Basis, bool)> =
        found.into_iter().map(|slow| (slow.who, slow.basis, slow.is_certain)).collect();
    let wanted: Vec<_> = (30..46).map(|node| (Who::Node { node, rail: 0 }, Basis::Rate, false)).collect();
    assert_eq!(slow, wanted);
}

#[test]
fn a_leaf_with_slow_uplinks_is_named_and_not_its_nodes() {
    let of = |node: u32, peer: u32, _: usize| match (8..16).contains(&node) == (8..16).contains(&peer) {
        true => SOUND,
        false => slow(97.0),
    };
    let group = Group { first: 8, step: 1, count: 8, nodes: 40 };
    let wanted = [(Who::Group { group, rail: 0 }, Figure::Bandwidth)];
    assert_eq!(found(verbs(40, 1, 400.0), 1, None, &of), wanted);
    assert_eq!(found(verbs(40, 1, 0.0), 1, None, &of), [], "a fabric may be built that way");
}

#[test]
fn what_the_user_wants_is_a_limit() {
    let of = |least: f32, of: &dyn Fn(u32, u32, usize) -> Said| found(verbs(3, 1, 0.0), 1, Some(least), of);
    // Node 2 has one pair in the schedule.
    let two = |node: u32, _: u32, _: usize| if node == 2 { slow(200.0) } else { SOUND };
    assert_eq!(of(300.0, &two), [(Who::Node { node: 2, rail: 0 }, Figure::Bandwidth)]);
    assert_eq!(of(30.0, &two), []);
    let all = found(verbs(16, 1, 0.0), 1, Some(400.0), &|_, _, _| SOUND);
    assert_eq!(all, [(Who::Rail { rail: 0 }, Figure::Bandwidth)]);
    let one = |_: u32, node: u32, _: u32, _: usize| if node == 5 { slow(100.0) } else { SOUND };
    let job = Job::new(verbs(16, 1, 0.0), 1, &one);
    let untried = find(&job.evidence, Some(200.0));
    let found = job.find(Some(200.0));
    assert_eq!((found.len(), untried.len()), (1, 1), "{found:?}, {untried:?}");
    assert!(found[0].basis == Basis::Wanted && found[0].who == Who::Node { node: 5, rail: 0 });
    assert!(found[0].is_certain && !untried[0].is_certain, "one measurement accuses no node");
}

/// In a job of three nodes, two of them are in only one pair.
#[test]
fn a_node_whose_only_pair_is_slow_is_tried_with_another_one() {
    for nodes in [3, 5, 7] {
        for bad in 0..nodes {
            let of =
                |node: u32, _: u32, rail: usize| if (node, rail) == (bad, 1) { slow(40.0) } else { SOUND };
            let node = Who::Node { node: bad, rail: 1 };
            let found = found(verbs(nodes, 2, 0.0), 2, Some(300.0), &of);
            assert_eq!(found, [(node, Figure::Bandwidth)], "node {bad} of {nodes}");
        }
    }
}

#[test]
fn a_node_or_link_that_loses_packets_is_named() {
    let lost = |again: u64| (USUAL, again);
    for (members, again) in [(tcp as fn(u32) -> Vec<Member>, 1000), (|nodes| verbs(nodes, 2, 0.0), 300)] {
        for nodes in [4, 5, 8, 9, 33, 100] {
            for bad in [0, 1, nodes / 2, nodes - 1] {
                let node = [(Who::Node { node: bad, rail: 1 }, Figure::Resent)];
                // What the node sends, and what it receives.
                for is_sender in [true, false] {
                    let of = |node: u32, peer: u32, rail: usize| {
                        let by = if is_sender { node } else { peer };
                        lost(if by == bad && rail == 1 { again } else { 2 })
                    };
                    assert_eq!(found(members(nodes), 2, None, &of), node, "{bad} of {nodes}");
                }
            }
            let of = |node: u32, peer: u32, rail: usize| match is_between(node, peer, [2, 3]) && rail == 1 {
                true => lost(again),
                false => lost(2),
            };
            let link = [(Who::Link { nodes: [2, 3], rail: 1 }, Figure::Resent)];
            assert_eq!(found(members(nodes), 2, None, &of), link, "{nodes} nodes");
        }
        let all = |_: u32, _: u32, _: usize| lost(again);
        for nodes in [8, 33] {
            assert_eq!(found(tcp(nodes), 2, None, &all), [], "all alike, as a network may be");
        }
    }
    let two = |_: u32, _: u32, rail: usize| lost(if rail == 1 { 1000 } else { 3 });
    assert_eq!(found(tcp(2), 2, None, &two), [(Who::Link { nodes: [0, 1], rail: 1 }, Figure::Resent)]);
}

/// On a busy machine, soft-RoCE sends packets again that were not lost.
#[test]
fn resent_packets_mean_loss_with_hcas_but_not_with_soft_roce() {
    let of = |node: u32, peer: u32, _: usize| (USUAL, if is_between(node, peer, [0, 1]) { 200 } else { 2 });
    let soft =
        |nodes| verbs(nodes, 1, 0.0).into_iter().map(|member| Member { is_soft: true, ..member }).collect();
    for nodes in [3, 9] {
        let link = [(Who::Link { nodes: [0, 1], rail: 0 }, Figure::Resent)];
        assert_eq!(found(verbs(nodes, 1, 0.0), 1, None, &of), link, "{nodes} nodes");
        assert_eq!(found(soft(nodes), 1, None, &of), [], "{nodes} nodes");
    }
}

/// A link loses packets, and another pair of one of its nodes lost some in one try.
#[test]
fn a_link_that_loses_packets_accuses_no_node_that_was_unlucky_once() {
    for nodes in [4, 5, 8] {
        let schedule = Schedule { nodes, extent: Extent::Doubling };
        let first: u32 = (0..schedule.rounds()).map(|round| schedule.pairs(round).count() as u32).sum();
        let of = |tried: u32, node: u32, peer: u32, _: usize| match [node.min(peer), node.max(peer)] {
            [0, 2] => (USUAL, 1000),
            [0, _] if tried <= first => (USUAL, 900),
            _ => SOUND,
        };
        let found: Vec<Who> =
            Job::new(tcp(nodes), 1, &of).find(None).into_iter().map(|slow| slow.who).collect();
        assert_eq!(found, [Who::Link { nodes: [0, 2], rail: 0 }], "{nodes} nodes");
    }
}

/// The links of a trunk lose packets: no node of either half is faulty.
#[test]
fn a_trunk_that_loses_packets_is_no_node_s_fault() {
    for nodes in [8, 12, 16, 33] {
        let of = |node: u32, peer: u32, _: usize| match (node < nodes / 2) == (peer < nodes / 2) {
            true => SOUND,
            false => (USUAL, 1000),
        };
        let found = found(tcp(nodes), 1, None, &of);
        assert!(!found.iter().any(|(who, _)| matches!(who, Who::Node { .. })), "{nodes} nodes: {found:?}");
    }
}

#[test]
fn a_node_with_most_of_its_pairs_slow_is_one_fault() {
    // Nodes 3 and 20 pass with only one peer each.
    let is_bad = |node: u32, peer: u32| node == 3 && peer != 2 || node == 20 && peer != 21;
    for gbps in [50.0, 100.0] {
        let of = |node: u32, peer: u32, rail: usize| match rail == 0
            && (is_bad(node, peer) || is_bad(peer, node))
        {
            true => slow(gbps + (node % 7) as f32),
            false => SOUND,
        };
        let wanted = [3, 20].map(|node| (Who::Node { node, rail: 0 }, Figure::Bandwidth));
        assert_eq!(job(33, 2, &of), wanted);
    }
}

#[test]
fn random_outliers_are_named_and_no_other() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u32(12..90);
        let bad: Vec<(u32, usize)> =
            (0..random.u32(0..=nodes / 8)).map(|_| (random.u32(0..nodes), random.usize(0..4))).collect();
        let of =
            |node: u32, _: u32, rail: usize| if bad.contains(&(node, rail)) { slow(200.0) } else { SOUND };
        let mut wanted: Vec<_> =
            bad.iter().map(|&(node, rail)| (Who::Node { node, rail }, Figure::Bandwidth)).collect();
        wanted.sort();
        wanted.dedup();
        assert_eq!(job(nodes, 4, &of), wanted, "seed {seed}");
    }
}
