//! All nodes move data at once, each with the node that is half of the job away. This shows if a fabric
//! cannot carry the traffic between its halves, which no single pair shows. Pure.

use std::collections::HashSet;

use serde::Serialize;

use crate::preflight::judge::evidence::{Evidence, Try, TryOutcome};
use crate::preflight::judge::words::{self, rail_of};
use crate::preflight::prove::pair::{PairOutcome, RailReport};
use crate::text::counted;

/// The number of this round. It is beyond those of all other rounds.
pub(crate) const ROUND: u16 = u16::MAX - 1;

/// Returns which nodes move data with each other. These are the nodes that are still connected and have
/// passed with another node; each is paired with the one that is half of their number away.
pub(crate) fn pairs(evidence: &Evidence) -> Vec<(u32, u32)> {
    let has_passed = |one: &&Try| (0..one.rails()).any(|rail| one.rail(rail) == Some(TryOutcome::Passed));
    let well: HashSet<u32> = evidence.tries().iter().filter(has_passed).flat_map(|one| one.nodes).collect();
    let mut well: Vec<u32> = well.into_iter().filter(|node| !evidence.gone().contains_key(node)).collect();
    well.sort_unstable();
    let (low, high) = well.split_at(well.len() / 2);
    low.iter().copied().zip(high.iter().copied()).collect()
}

/// The figures of that round, as the two ends of each pair reported them.
#[derive(Debug, Default)]
pub struct Together {
    /// Sorted by the lower node, which is in only one pair.
    tries: Vec<Try>,
}

impl Together {
    pub fn of(pairs: &[(u32, u32)]) -> Together {
        let untold = |(low, high): &(u32, u32)| Try {
            round: ROUND,
            nodes: [*low, *high],
            said: [None, None],
            seconds: 0.0,
        };
        let mut tries: Vec<Try> = pairs.iter().map(untold).collect();
        tries.sort_by_key(|one| one.nodes);
        Together { tries }
    }

    /// Takes the figures of one end. A failure is evidence like that of any other pair, but the figures
    /// are not, because other pairs move data at the same time.
    pub fn add(&mut self, nodes: [u32; 2], end: usize, outcome: PairOutcome) -> Taken {
        let place = self.tries.binary_search_by_key(&nodes, |one| one.nodes).ok();
        let said = place.and_then(|place| self.tries.get_mut(place)?.said.get_mut(end));
        let Some(said) = said.filter(|said| said.is_none()) else { return Taken::Unasked };
        let failed = match &outcome {
            PairOutcome::Failed(_) => Some(outcome.clone()),
            PairOutcome::Rails(reports) => {
                let failed = reports.iter().filter(|report| report.result.is_err());
                let failed: Vec<RailReport> = failed.cloned().collect();
                (!failed.is_empty()).then_some(PairOutcome::Rails(failed))
            }
        };
        *said = Some(outcome);
        failed.map_or(Taken::Well, Taken::Failed)
    }
}

/// How a report of this round was taken.
pub enum Taken {
    /// All of the report is figures.
    Well,
    /// This part of the report is a failure.
    Failed(PairOutcome),
    /// The report is about a pair that is not in this round, or it is the second one.
    Unasked,
}

/// What all pairs moved together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Bisection {
    pub pairs: usize,
    /// The sum of all rails and of both directions, in Gbit/s.
    pub gbps: f64,
    pub least: Least,
    /// The share of what the ports could move; `None` if the rate of a port is not known.
    pub share: Option<f64>,
}

/// The rail and pair that moved least, with the speed of its slower direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Least {
    pub nodes: [u32; 2],
    pub rail: usize,
    pub gbps: f64,
}

/// Returns what all pairs moved; `None` if no pair moved data.
pub(crate) fn sum(evidence: &Evidence) -> Option<Bisection> {
    let mut least: Option<Least> = None;
    let (mut pairs, mut gbps) = (0, 0.0);
    let mut most = Some(0.0);
    for one in &evidence.together()?.tries {
        let mut is_measured = false;
        for rail in 0..one.rails() {
            let rates = one.nodes.map(|node| rate(evidence, node, rail));
            // The slower port limits both directions.
            most = most.zip(rates[0].zip(rates[1])).map(|(sum, (a, b))| sum + 2.0 * a.min(b));
            let Some(measured) = one.measured(rail) else { continue };
            is_measured = true;
            let ends = [0, 1].into_iter().filter_map(|end| one.said_of(end, rail)?.ok());
            gbps += ends.map(|of| f64::from(of.gbps)).sum::<f64>();
            if least.as_ref().is_none_or(|least| f64::from(measured.gbps) < least.gbps) {
                least = Some(Least { nodes: one.nodes, rail, gbps: measured.gbps.into() });
            }
        }
        pairs += usize::from(is_measured);
    }
    Some(Bisection {
        pairs,
        gbps,
        least: least?,
        share: most.filter(|most| *most > 0.0).map(|most| gbps / most),
    })
}

/// Returns the rate of a port in Gbit/s, if it is known.
fn rate(evidence: &Evidence, node: u32, rail: usize) -> Option<f64> {
    let rate = evidence.members().get(node as usize)?.rates.get(rail).copied()?;
    (rate > 0.0).then_some(rate.into())
}

/// Returns a sentence for people; `None` if no pair moved data.
pub(crate) fn sentence(evidence: &Evidence) -> Option<String> {
    let Bisection { pairs, gbps, least: Least { nodes, rail, gbps: least }, share } = sum(evidence)?;
    let number = |value: f64| words::number(value as f32);
    let share = share
        .map_or_else(String::new, |share| format!(", {:.0} % of the rate of their ports", share * 100.0));
    let names = nodes.map(|node| evidence.name(node));
    Some(format!(
        "{} of distant nodes {} {} Gbit/s together, both directions at once{share}; the least is {} Gbit/s one way, between {} and {} on {}",
        counted(pairs, "pair"),
        if pairs == 1 { "moves" } else { "move" },
        number(gbps),
        number(least),
        names[0],
        names[1],
        rail_of(evidence, rail, &nodes)
    ))
}

#[cfg(test)]
mod tests;
