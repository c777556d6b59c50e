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
mod tests;
