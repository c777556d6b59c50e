//! Which nodes, ways and rails are slow beside the others of the job. Pure.
//!
//! The measure is the median and the median of the deviations from it (MAD), which a few bad values
//! do not move (Leys and others, "Detecting outliers", J. Exp. Soc. Psychol. 49, 2013). A value also
//! has to be worse by a good part of the median, so that noise is no outlier where all others happen
//! to be alike.

use std::collections::HashMap;

use super::evidence::Evidence;

/// Where there are fewer values, nothing is said.
const ENOUGH: usize = 8;

/// So many times the deviation of the others.
const DEVIATIONS: f32 = 5.0;

/// The MAD of values that are distributed normally, as a part of their standard deviation.
const MAD_TO_DEVIATION: f32 = 1.4826;

/// An outlier has at most this part of the usual bandwidth.
const BANDWIDTH: f32 = 0.8;

/// And at least so many times the usual latency.
const LATENCY: f32 = 2.0;

/// So many pairs, or one in so many, may be slow without being so by design.
const FEW: usize = 3;
const ONE_IN: usize = 50;

/// What differs by less than this is as slow.
const ALIKE: f32 = 1.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// In Gbit/s, of the direction that is slower.
    Bandwidth,
    /// Of 8 bytes there and back, in microseconds.
    Latency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// All pairs of the node are slow on this rail.
    Node { node: u32, rail: usize },
    /// The pair is slow, and both of its nodes are well with others.
    Link { nodes: [u32; 2], rail: usize },
    /// The rail is slow on most of the nodes.
    Rail { rail: usize },
}

/// Somebody is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    pub who: Who,
    pub figure: Figure,
    /// The best value of it.
    pub value: f32,
    /// What the others have, or what the user wants at least.
    pub usual: f32,
    /// Whether it is less than the user wants.
    pub is_wanted: bool,
}

/// All that is slow, the nodes first. `least` is the bandwidth that the user wants, in Gbit/s.
pub fn find(evidence: &Evidence, least: Option<f32>) -> Vec<Slow> {
    let rails: Vec<Rail> = (0..evidence.rails()).map(|rail| Rail::new(evidence, rail)).collect();
    let mut all = Vec::new();
    for figure in [Figure::Bandwidth, Figure::Latency] {
        let slow_rails = of_rails(&rails, figure, &mut all);
        // With few nodes, their rails together are enough to compare with.
        let together: Vec<f32> = rails
            .iter()
            .filter(|rail| !slow_rails.contains(&rail.index))
            .flat_map(|rail| rail.bests(figure))
            .collect();
        let together = Usual::of(together, figure);
        for rail in &rails {
            let apart = (!slow_rails.contains(&rail.index)).then_some(together).flatten();
            rail.outliers(figure, apart, &mut all);
        }
    }
    if let Some(least) = least {
        let wanted = Usual { median: least, limit: least, figure: Figure::Bandwidth, is_wanted: true };
        for rail in &rails {
            rail.below(wanted, &mut all);
        }
    }
    // Too little for the user and less than others have is one thing.
    let wanted: Vec<Who> = all.iter().filter(|slow| slow.is_wanted).map(|slow| slow.who).collect();
    all.retain(|slow| slow.is_wanted || slow.figure != Figure::Bandwidth || !wanted.contains(&slow.who));
    all.sort_by_key(|slow| (slow.who, slow.figure));
    all
}

/// What is usual, and from where on a value is an outlier.
#[derive(Debug, Clone, Copy)]
struct Usual {
    median: f32,
    limit: f32,
    figure: Figure,
    is_wanted: bool,
}

impl Usual {
    /// `None` where there are too few values.
    fn of(mut values: Vec<f32>, figure: Figure) -> Option<Usual> {
        if values.len() < ENOUGH {
            return None;
        }
        let median = median(&mut values);
        let mut deviations: Vec<f32> = values.iter().map(|value| (value - median).abs()).collect();
        let deviation = self::median(&mut deviations) * MAD_TO_DEVIATION * DEVIATIONS;
        let limit = match figure {
            Figure::Bandwidth => (median - deviation).min(median * BANDWIDTH),
            Figure::Latency => (median + deviation).max(median * LATENCY),
        };
        Some(Usual { median, limit, figure, is_wanted: false })
    }

    fn is_beyond(&self, value: f32) -> bool {
        match self.figure {
            Figure::Bandwidth => value < self.limit,
            Figure::Latency => value > self.limit,
        }
    }

    /// How many of these values, which are sorted, are about as slow as this one, or slower.
    fn as_slow(&self, sorted: &[f32], value: f32) -> usize {
        match self.figure {
            Figure::Bandwidth => sorted.partition_point(|other| *other <= value * ALIKE),
            Figure::Latency => sorted.len() - sorted.partition_point(|other| *other < value / ALIKE),
        }
    }

    fn slow(&self, who: Who, value: f32) -> Slow {
        Slow { who, figure: self.figure, value, usual: self.median, is_wanted: self.is_wanted }
    }
}

fn median(values: &mut [f32]) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f32::total_cmp).1
}

/// The best of a pair or of a node.
#[derive(Debug, Clone, Copy)]
struct Best {
    gbps: f32,
    latency_us: f32,
    /// Of how many pairs.
    pairs: u32,
}

impl Best {
    fn of(&self, figure: Figure) -> f32 {
        match figure {
            Figure::Bandwidth => self.gbps,
            Figure::Latency => self.latency_us,
        }
    }

    fn better(self, other: Best) -> Best {
        Best {
            gbps: self.gbps.max(other.gbps),
            latency_us: self.latency_us.min(other.latency_us),
            pairs: self.pairs + other.pairs,
        }
    }
}

/// What was measured on one rail.
struct Rail {
    index: usize,
    nodes: HashMap<u32, Best>,
    pairs: Vec<([u32; 2], Best)>,
}

impl Rail {
    fn new(evidence: &Evidence, index: usize) -> Rail {
        let mut pairs: HashMap<[u32; 2], Best> = HashMap::new();
        for one in evidence.tries() {
            if let Some(measured) = one.measured(index) {
                let best = Best { gbps: measured.gbps, latency_us: measured.latency_us, pairs: 0 };
                pairs.entry(one.nodes).and_modify(|known| *known = known.better(best)).or_insert(best);
            }
        }
        let mut pairs: Vec<([u32; 2], Best)> = pairs.into_iter().collect();
        pairs.sort_unstable_by_key(|(nodes, _)| *nodes);
        let mut nodes: HashMap<u32, Best> = HashMap::new();
        for (ends, best) in &pairs {
            for node in ends {
                let best = Best { pairs: 1, ..*best };
                nodes.entry(*node).and_modify(|known| *known = known.better(best)).or_insert(best);
            }
        }
        Rail { index, nodes, pairs }
    }

    fn bests(&self, figure: Figure) -> impl Iterator<Item = f32> {
        self.nodes.values().map(move |best| best.of(figure))
    }

    /// `apart` is what is usual on all rails together, for a job with few nodes.
    fn outliers(&self, figure: Figure, apart: Option<Usual>, all: &mut Vec<Slow>) {
        let usual = Usual::of(self.bests(figure).collect(), figure).or(apart);
        let Some(usual) = usual else { return };
        let slow = self.slow_nodes(usual, all);
        let mut values: Vec<f32> = self.pairs.iter().map(|(_, best)| best.of(figure)).collect();
        let usual = Usual::of(values.clone(), figure).unwrap_or(usual);
        // A fabric may be slower between distant nodes by design. So a pair is an outlier only where few
        // are as slow as it is.
        values.sort_by(f32::total_cmp);
        let few = FEW.max(values.len() / ONE_IN);
        for (nodes, best) in &self.pairs {
            if usual.as_slow(&values, best.of(figure)) <= few {
                self.slow_pair(*nodes, best, usual, &slow, all);
            }
        }
    }

    /// Who has less than the user wants.
    fn below(&self, wanted: Usual, all: &mut Vec<Slow>) {
        let below = self.nodes.values().filter(|best| wanted.is_beyond(best.gbps)).count();
        if below * 2 > self.nodes.len() && self.nodes.len() > 2 {
            let mut values: Vec<f32> = self.bests(Figure::Bandwidth).collect();
            all.push(wanted.slow(Who::Rail { rail: self.index }, median(&mut values)));
            return;
        }
        let slow = self.slow_nodes(wanted, all);
        for (nodes, best) in &self.pairs {
            self.slow_pair(*nodes, best, wanted, &slow, all);
        }
    }

    /// A node with one pair may be slow because of its partner.
    fn slow_nodes(&self, usual: Usual, all: &mut Vec<Slow>) -> Vec<u32> {
        let is_slow = |best: &Best| best.pairs > 1 && usual.is_beyond(best.of(usual.figure));
        let mut slow: Vec<u32> =
            self.nodes.iter().filter(|(_, best)| is_slow(best)).map(|(node, _)| *node).collect();
        slow.sort_unstable();
        all.extend(slow.iter().map(|node| {
            let who = Who::Node { node: *node, rail: self.index };
            usual.slow(who, self.nodes[node].of(usual.figure))
        }));
        slow
    }

    fn slow_pair(&self, nodes: [u32; 2], best: &Best, usual: Usual, slow: &[u32], all: &mut Vec<Slow>) {
        let value = best.of(usual.figure);
        if usual.is_beyond(value) && !nodes.iter().any(|node| slow.binary_search(node).is_ok()) {
            all.push(usual.slow(Who::Link { nodes, rail: self.index }, value));
        }
    }
}

/// The rails that are slow as a whole, beside the other rails.
fn of_rails(rails: &[Rail], figure: Figure, all: &mut Vec<Slow>) -> Vec<usize> {
    let medians: Vec<(usize, f32)> = rails
        .iter()
        .filter(|rail| rail.nodes.len() > 2)
        .map(|rail| (rail.index, median(&mut rail.bests(figure).collect::<Vec<f32>>())))
        .collect();
    let Some(usual) = Usual::of(medians.iter().map(|(_, median)| *median).collect(), figure) else {
        return Vec::new();
    };
    let slow: Vec<(usize, f32)> =
        medians.into_iter().filter(|(_, median)| usual.is_beyond(*median)).collect();
    all.extend(slow.iter().map(|(rail, median)| usual.slow(Who::Rail { rail: *rail }, *median)));
    slow.into_iter().map(|(rail, _)| rail).collect()
}

#[cfg(test)]
mod tests {
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
}
