//! Which nodes, links and rails are slow or lose packets, compared with the others in the job. Pure.
//!
//! The measure is the median and the median of the deviations from it (MAD), which a few bad values do
//! not move (Leys and others, "Detecting outliers", J. Exp. Soc. Psychol. 49, 2013). A value must also
//! be worse by a good part of the median, so that noise is not an outlier if all other values happen to
//! be alike. The rate of a port and the user's wishes are limits that do not depend on the others.
//!
//! One measurement blames no node, because any machine may be busy for a moment. Each suspect is
//! measured again in the retries ([`again`]), and its best value counts.

pub(crate) mod again;
mod cover;
mod figures;
mod rail;
mod usual;
mod whole;

use serde::Serialize;

use crate::preflight::judge::evidence::Evidence;
use crate::preflight::judge::partial::Group;
use rail::{Limit, Test};
use usual::Baseline;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Figure {
    /// In Gbit/s, of the slower direction.
    #[serde(rename = "gbps")]
    Bandwidth,
    /// The round trip of 8 bytes, in microseconds.
    #[serde(rename = "latency_us")]
    Latency,
    /// In percent: the share of packets that were sent again, in the worse direction.
    #[serde(rename = "resent_percent")]
    Resent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// All or most pairs of the node are slow on this rail.
    Node { node: u32, rail: usize },
    /// The pair is slow, but both of its nodes pass with others.
    Link { nodes: [u32; 2], rail: usize },
    /// The pairs between these nodes and the others are slow, and the nodes themselves are sound.
    Group { group: Group, rail: usize },
    /// The rail is slow on most of the nodes.
    Rail { rail: usize },
}

/// What a value is compared with. If it is worse than several of these, the first of them is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The least that the user wants.
    Wanted,
    /// What the others reach.
    Others,
    /// The rate of the slower one of the two ports.
    Rate,
}

/// A node, a link or a rail that is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    pub who: Who,
    pub figure: Figure,
    /// The best value of all tries; for packets sent again, the value of all tries together.
    pub value: f32,
    /// The value of the schedule's tries alone, and the value of the retries.
    pub first: Option<f32>,
    pub again: Option<f32>,
    pub basis: Basis,
    /// The value that it is compared with.
    pub usual: f32,
    /// How many nodes a node is slow with, and how many it was measured with.
    pub with: [usize; 2],
    /// Whether it was measured again often enough to be certain.
    pub is_certain: bool,
}

/// Returns all that is slow, the nodes first. `least` is the bandwidth that the user wants, in Gbit/s.
///
/// Anything that is only slower than the others is reported only if a second measurement confirms it.
/// Anything below the user's limit or the port's rate is reported even if there was no time to measure
/// it again, but it is not certain then.
pub fn find(evidence: &Evidence, least: Option<f32>) -> Vec<Slow> {
    let mut all = suspects(evidence, least);
    all.retain(is_reported);
    all
}

fn is_reported(slow: &Slow) -> bool {
    slow.is_certain || slow.basis != Basis::Others
}

/// Returns all that seems slow so far, to be measured again unless it is certain.
pub fn suspects(evidence: &Evidence, least: Option<f32>) -> Vec<Slow> {
    let rails = figures::rails(evidence);
    let mut all = Vec::new();
    for figure in [Figure::Bandwidth, Figure::Latency] {
        let slow_rails = whole::slow(evidence, &rails, figure, &mut all);
        // If there are few nodes, all of their rails together give enough values to compare with.
        let alike = || rails.iter().filter(|rail| !slow_rails.contains(&rail.index));
        let together: Vec<f32> = alike().flat_map(|rail| rail.bests(figure)).collect();
        let together = Baseline::of(evidence, together, figure);
        for rail in &rails {
            let apart = together.filter(|_| !slow_rails.contains(&rail.index));
            let bests: Vec<f32> = rail.bests(figure).collect();
            let own = Baseline::of(evidence, bests.clone(), figure).or(apart);
            let Some(of_nodes) = own.or_else(|| Baseline::of_few(evidence, bests, figure)) else { continue };
            let of_pairs = Baseline::of(evidence, rail.values(figure), figure).unwrap_or(of_nodes);
            let test = Test::new(figure, Basis::Others, Limit::Baseline(of_nodes));
            rail.judge(&test.for_pairs(Limit::Baseline(of_pairs)), &mut all);
        }
    }
    let [one_try, all_tries] = usual::resent_floors(evidence);
    for (rail, median) in rails.iter().zip(usual::resent(evidence, &rails)) {
        let limit = Limit::Baseline(Baseline { median, limit: median + one_try });
        let test = Test::new(Figure::Resent, Basis::Others, limit).sure_from(median + all_tries);
        rail.judge(&test, &mut all);
    }
    for rail in &rails {
        let rates = Limit::Rates(evidence.members());
        rail.judge(&Test::new(Figure::Bandwidth, Basis::Rate, rates), &mut all);
        if let Some(least) = least {
            let wanted = Limit::Baseline(Baseline { median: least, limit: least });
            rail.judge(&Test::new(Figure::Bandwidth, Basis::Wanted, wanted), &mut all);
        }
    }
    once(all)
}

/// Keeps each one once for each figure: something that is slow for several reasons is one outlier.
fn once(mut all: Vec<Slow>) -> Vec<Slow> {
    // A whole rail may be slower than other rails by design, but not slower than its ports.
    let rank = |slow: &Slow| match (slow.who, slow.basis) {
        (Who::Rail { .. }, Basis::Rate) => 0,
        (_, basis) => 1 + basis as usize,
    };
    // What is not reported hides nothing that is.
    all.sort_by_key(|slow| (slow.who, slow.figure, !slow.is_certain, !is_reported(slow), rank(slow)));
    all.dedup_by_key(|slow| (slow.who, slow.figure));
    all
}

#[cfg(test)]
mod tests;
