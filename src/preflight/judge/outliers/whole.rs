//! Rails that are slow as a whole, compared with the other rails.

use super::figures::Rail;
use super::usual::{BANDWIDTH_OF_FEW, Baseline, LATENCY_OF_FEW, is_worse, latency_floor, median};
use super::{Basis, Figure, Slow, Who, again};
use crate::preflight::judge::evidence::Evidence;

/// With fewer nodes, one of the nodes may be the slow one.
const FEWEST_NODES: usize = 3;

/// Adds the slow rails, and returns their indices.
pub(super) fn slow(evidence: &Evidence, rails: &[Rail], figure: Figure, all: &mut Vec<Slow>) -> Vec<usize> {
    let rails: Vec<(&Rail, Vec<f32>)> = rails
        .iter()
        .map(|rail| (rail, rail.bests(figure).collect::<Vec<f32>>()))
        .filter(|(_, bests)| bests.len() >= FEWEST_NODES)
        .collect();
    let medians: Vec<f32> = rails.iter().filter_map(|(_, bests)| median(&mut bests.clone())).collect();
    let known = Baseline::of(evidence, medians.clone(), figure);
    let Some(Baseline { median: usual, limit }) = known.or_else(|| of_few(evidence, medians, figure)) else {
        return Vec::new();
    };
    let is_slow = |bests: &[f32]| match known {
        Some(_) => median(&mut bests.to_vec()).is_some_and(|value| is_worse(figure, value, limit)),
        // None of the rail's nodes is as fast as usual on the other rails.
        None => bests.iter().all(|best| is_worse(figure, *best, limit)),
    };
    let is_slow = |rail: &Rail, bests: &[f32]| is_slow(bests) && (known.is_some() || are_alike(rail, figure));
    let slow: Vec<&Rail> =
        rails.iter().filter(|(rail, bests)| is_slow(rail, bests)).map(|(rail, _)| *rail).collect();
    all.extend(slow.iter().filter_map(|rail| told(rail, figure, usual)));
    slow.into_iter().map(|rail| rail.index).collect()
}

/// Returns whether the pairs of a rail differ less from each other than the rail must differ from the
/// others. If they do not, a node or a link is slow, and not the rail: in a job of three nodes, one
/// node is in two of three pairs.
fn are_alike(rail: &Rail, figure: Figure) -> bool {
    let factor = match figure {
        Figure::Bandwidth => 1.0 / BANDWIDTH_OF_FEW,
        Figure::Latency | Figure::Resent => LATENCY_OF_FEW,
    };
    let values = || rail.pairs.iter().filter_map(|pair| pair.all().of(figure));
    let least = values().fold(f32::INFINITY, f32::min);
    values().all(|value| value <= least * factor)
}

/// Returns what is usual if there are few rails: the value in the middle or, if their number is even,
/// the better one of the two in the middle. Rails of soft-RoCE share the processors of their nodes, so
/// they differ whenever a machine is busy.
fn of_few(evidence: &Evidence, mut medians: Vec<f32>, figure: Figure) -> Option<Baseline> {
    if evidence.members().iter().any(|member| member.is_soft) {
        return None;
    }
    medians.sort_by(f32::total_cmp);
    let middle = match figure {
        Figure::Bandwidth => medians.len() / 2,
        Figure::Latency | Figure::Resent => medians.len().saturating_sub(1) / 2,
    };
    let median = medians.get(middle).copied()?;
    let limit = match figure {
        Figure::Bandwidth => median * BANDWIDTH_OF_FEW,
        Figure::Latency | Figure::Resent => (median * LATENCY_OF_FEW).max(median + latency_floor(evidence)),
    };
    Some(Baseline { median, limit })
}

fn told(rail: &Rail, figure: Figure, usual: f32) -> Option<Slow> {
    let pairs = || rail.pairs.iter();
    let first = median(&mut pairs().filter_map(|pair| pair.first.of(figure)).collect::<Vec<f32>>());
    let again = median(&mut pairs().filter_map(|pair| pair.again().of(figure)).collect::<Vec<f32>>());
    let nodes = rail.nodes().count();
    Some(Slow {
        who: Who::Rail { rail: rail.index },
        figure,
        value: median(&mut rail.values(figure))?,
        first,
        again,
        basis: Basis::Others,
        usual,
        with: [nodes, nodes],
        is_certain: rail.tries_again() >= again::CERTAIN,
    })
}
