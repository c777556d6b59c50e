//! What is usual in a job, and the limit beyond which a value is an outlier.

use super::Figure;
use super::figures::Rail;
use crate::preflight::judge::evidence::Evidence;

/// With fewer values, their deviations mean nothing.
const ENOUGH: usize = 8;

/// With fewer values, there is no majority.
const FEWEST: usize = 3;

/// An outlier deviates by this many times the deviation of the others.
const DEVIATIONS: f32 = 5.0;

/// Converts the MAD of normally distributed values to their standard deviation.
const MAD_TO_DEVIATION: f32 = 1.4826;

/// An outlier has at most this share of the usual bandwidth; the second share applies if the deviations
/// are not known.
const BANDWIDTH: f32 = 0.8;
pub(super) const BANDWIDTH_OF_FEW: f32 = 0.5;

/// An outlier has at least this many times the usual latency; the second factor applies if the
/// deviations are not known.
const LATENCY: f32 = 2.0;
pub(super) const LATENCY_OF_FEW: f32 = 3.0;

/// An outlier is at least this many microseconds slower. Less makes no difference to a job, and a busy
/// processor adds that much.
const LATENCY_FLOOR_HCA: f32 = 5.0;
const LATENCY_FLOOR_TCP: f32 = 50.0;

/// In percent: if packets are lost, this many more than usual are sent again. The first value is for
/// one try, the second for all tries together. A port of an HCA sends all packets after a lost one
/// again, and counts that once.
const RESENT_TCP: [f32; 2] = [0.3, 0.6];
const RESENT_HCA: [f32; 2] = [0.05, 0.1];

/// The median of the others, and the limit beyond which a value is an outlier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Baseline {
    pub median: f32,
    pub limit: f32,
}

impl Baseline {
    /// Returns the median and the limit; `None` if there are too few values.
    pub(super) fn of(evidence: &Evidence, mut values: Vec<f32>, figure: Figure) -> Option<Baseline> {
        if values.len() < ENOUGH {
            return None;
        }
        let median = median(&mut values)?;
        let mut deviations: Vec<f32> = values.iter().map(|value| (value - median).abs()).collect();
        let deviation = self::median(&mut deviations)? * MAD_TO_DEVIATION * DEVIATIONS;
        let limit = match figure {
            Figure::Bandwidth => (median - deviation).min(median * BANDWIDTH),
            Figure::Latency => {
                (median + deviation).max(median * LATENCY).max(median + latency_floor(evidence))
            }
            Figure::Resent => median + deviation,
        };
        Some(Baseline { median, limit })
    }

    /// Returns the median and the limit if there are too few values to know their deviations. Then an
    /// outlier is far worse than most of them. Over TCP and with soft-RoCE, a busy machine makes a
    /// sound node just as slow, so there this returns `None`.
    pub(super) fn of_few(evidence: &Evidence, mut values: Vec<f32>, figure: Figure) -> Option<Baseline> {
        if values.len() < FEWEST || !are_hcas(evidence) {
            return None;
        }
        let median = median(&mut values)?;
        let limit = match figure {
            Figure::Bandwidth => median * BANDWIDTH_OF_FEW,
            Figure::Latency => (median * LATENCY_OF_FEW).max(median + latency_floor(evidence)),
            Figure::Resent => return None,
        };
        Some(Baseline { median, limit })
    }
}

/// Returns, in microseconds, by how much at least an outlier is slower.
pub(super) fn latency_floor(evidence: &Evidence) -> f32 {
    if are_hcas(evidence) { LATENCY_FLOOR_HCA } else { LATENCY_FLOOR_TCP }
}

/// Returns, in percent, how many more packets than usual are sent again if packets are lost: in one
/// try, and in all tries together.
pub(super) fn resent_floors(evidence: &Evidence) -> [f32; 2] {
    if are_hcas(evidence) { RESENT_HCA } else { RESENT_TCP }
}

/// Returns, in percent for each rail, how many packets are usually sent again. That is the most that
/// any of the best third of the pairs has, because each faulty node spoils several pairs. In a job with
/// few pairs, a fabric of HCA ports is expected to lose none. TCP and soft-RoCE are then measured by
/// the best pair of all rails: if all pairs lose packets, the network is like that.
pub(super) fn resent(evidence: &Evidence, rails: &[Rail]) -> Vec<f32> {
    let values: Vec<Vec<f32>> = rails.iter().map(|rail| rail.values(Figure::Resent)).collect();
    let least = values.iter().flatten().copied().reduce(f32::min).unwrap_or_default();
    let few = if are_hcas(evidence) { 0.0 } else { least };
    let usual = |mut values: Vec<f32>| match values.len() {
        count if count < ENOUGH => few,
        count => *values.select_nth_unstable_by(count / 3, f32::total_cmp).1,
    };
    values.into_iter().map(usual).collect()
}

fn are_hcas(evidence: &Evidence) -> bool {
    let members = evidence.members();
    members.iter().any(|member| member.is_verbs) && !members.iter().any(|member| member.is_soft)
}

/// Returns the median; `None` if there are no values.
pub(super) fn median(values: &mut [f32]) -> Option<f32> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    Some(*values.select_nth_unstable_by(middle, f32::total_cmp).1)
}

/// Returns whether one value is worse than the other.
pub(super) fn is_worse(figure: Figure, value: f32, than: f32) -> bool {
    match figure {
        Figure::Bandwidth => value < than,
        Figure::Latency | Figure::Resent => value > than,
    }
}
