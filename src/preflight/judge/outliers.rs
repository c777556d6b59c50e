//! Which nodes, links and rails are slow, or lose packets, beside the others of the job. Pure.
//!
//! The measure is the median and the median of the deviations from it (MAD), which a few bad values
//! do not move (Leys and others, "Detecting outliers", J. Exp. Soc. Psychol. 49, 2013). A value also
//! has to be worse by a good part of the median, so that noise is not an outlier if all others happen
//! to be alike. The rate of a port and what the user wants are limits that do not depend on the others.
//!
//! One measurement blames no node, because any machine may be busy for a moment. Each suspect is measured
//! again in the second tries ([`again`]), and its best value counts.

pub(crate) mod again;
mod cover;
mod figures;
mod rail;
mod usual;
mod whole;

use serde::Serialize;

use crate::preflight::judge::evidence::Evidence;
use rail::{Limit, Test};
use usual::Usual;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// In Gbit/s, of the direction that is slower.
    Bandwidth,
    /// Of 8 bytes there and back, in microseconds.
    Latency,
    /// In percent: the packets that were sent again, of those that were sent in the worse direction.
    Resent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// All pairs of the node are slow on this rail, or most of them.
    Node { node: u32, rail: usize },
    /// The pair is slow, and both of its nodes are well with others.
    Link { nodes: [u32; 2], rail: usize },
    /// The rail is slow on most of the nodes.
    Rail { rail: usize },
}

/// What a value is compared with. If it is worse than several of these, the first one is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// What the user wants at least.
    Wanted,
    /// What the others have.
    Others,
    /// The rate of the slower one of the two ports.
    Rate,
}

/// A node, a link or a rail is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    pub who: Who,
    pub figure: Figure,
    /// The best value of all tries; for packets sent again, that of all tries together.
    pub value: f32,
    /// The value of the tries of the schedule alone, and that of the second tries.
    pub first: Option<f32>,
    pub again: Option<f32>,
    pub basis: Basis,
    /// What the basis has.
    pub usual: f32,
    /// With how many nodes a node is slow, and with how many it was measured.
    pub with: [usize; 2],
    /// Whether it was measured again often enough to say so.
    pub is_certain: bool,
}

/// Returns all that is slow, the nodes first. `least` is the bandwidth that the user wants, in Gbit/s.
///
/// What is slow beside others was measured again. What falls short of the user's wish or of the port's
/// rate is told even if there was no time for that, and is not certain then.
pub fn find(evidence: &Evidence, least: Option<f32>) -> Vec<Slow> {
    let mut all = suspects(evidence, least);
    all.retain(|slow| slow.is_certain || slow.basis != Basis::Others);
    all
}

/// Returns all that seems slow so far, to be measured again unless it is certain.
pub fn suspects(evidence: &Evidence, least: Option<f32>) -> Vec<Slow> {
    let rails = figures::rails(evidence);
    let mut all = Vec::new();
    for figure in [Figure::Bandwidth, Figure::Latency] {
        let slow_rails = whole::slow(evidence, &rails, figure, &mut all);
        // With few nodes, their rails together are enough to compare with.
        let alike = || rails.iter().filter(|rail| !slow_rails.contains(&rail.index));
        let together: Vec<f32> = alike().flat_map(|rail| rail.bests(figure)).collect();
        let together = Usual::of(evidence, together, figure);
        for rail in &rails {
            let apart = together.filter(|_| !slow_rails.contains(&rail.index));
            let bests: Vec<f32> = rail.bests(figure).collect();
            let own = Usual::of(evidence, bests.clone(), figure).or(apart);
            let Some(of_nodes) = own.or_else(|| Usual::of_few(evidence, bests, figure)) else { continue };
            let of_pairs = Usual::of(evidence, rail.values(figure), figure).unwrap_or(of_nodes);
            let test = Test::new(figure, Basis::Others, Limit::Usual(of_nodes));
            rail.judge(&test.for_pairs(Limit::Usual(of_pairs)), &mut all);
        }
    }
    let [one_try, all_tries] = usual::resent_floors(evidence);
    for (rail, median) in rails.iter().zip(usual::resent(evidence, &rails)) {
        let limit = Limit::Usual(Usual { median, limit: median + one_try });
        let test = Test::new(Figure::Resent, Basis::Others, limit).sure_from(median + all_tries);
        rail.judge(&test, &mut all);
    }
    for rail in &rails {
        let rates = Limit::Rates(evidence.members());
        rail.judge(&Test::new(Figure::Bandwidth, Basis::Rate, rates), &mut all);
        if let Some(least) = least {
            let wanted = Limit::Usual(Usual { median: least, limit: least });
            rail.judge(&Test::new(Figure::Bandwidth, Basis::Wanted, wanted), &mut all);
        }
    }
    once(all)
}

/// Each one once for each figure: what is slow for several reasons is one thing.
fn once(mut all: Vec<Slow>) -> Vec<Slow> {
    // A whole rail that is slower than others may be so by design, and one that is slower than its ports is not.
    let rank = |slow: &Slow| match (slow.who, slow.basis) {
        (Who::Rail { .. }, Basis::Rate) => 0,
        (_, basis) => 1 + basis as usize,
    };
    all.sort_by_key(|slow| (slow.who, slow.figure, !slow.is_certain, rank(slow)));
    all.dedup_by_key(|slow| (slow.who, slow.figure));
    all
}

#[cfg(test)]
mod tests;
