//! What was measured on a rail, pair by pair.

use super::Figure;
use crate::preflight::judge::evidence::{Evidence, Try};
use crate::preflight::prove::pair::Sent;

/// With fewer packets, the share of them that was sent again means nothing.
const FEWEST_PACKETS: u64 = 100;

/// Fewer packets that were sent again are not a loss: soft-RoCE sends a packet again if a busy
/// processor acknowledges it late. In one second, a port of an HCA sends more than 1,000 packets for
/// each of these.
const FEWEST_AGAIN: u64 = 8;

/// What several tries of one pair measured together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measures {
    pub tries: usize,
    /// The best values of all tries.
    gbps: f32,
    latency_us: f32,
    /// The sums of all tries, the lower node first.
    sent: [Sent; 2],
}

impl Measures {
    const NONE: Measures =
        Measures { tries: 0, gbps: 0.0, latency_us: f32::INFINITY, sent: [Sent { packets: 0, again: 0 }; 2] };

    /// Returns the figures of one try; `None` if the rail did not pass.
    fn of_try(one: &Try, rail: usize) -> Option<Measures> {
        let measured = one.measured(rail)?;
        let sent = [0, 1].map(|end| one.sent(end, rail).unwrap_or_default());
        Some(Measures { tries: 1, gbps: measured.gbps, latency_us: measured.latency_us, sent })
    }

    pub(super) fn with(self, other: Measures) -> Measures {
        let sum = |end: usize| Sent {
            packets: self.sent[end].packets.saturating_add(other.sent[end].packets),
            again: self.sent[end].again.saturating_add(other.sent[end].again),
        };
        Measures {
            tries: self.tries + other.tries,
            gbps: self.gbps.max(other.gbps),
            latency_us: self.latency_us.min(other.latency_us),
            sent: [sum(0), sum(1)],
        }
    }

    /// Returns whether there are enough events for this figure to mean something.
    pub(super) fn is_enough(&self, figure: Figure) -> bool {
        figure != Figure::Resent || self.worse().is_some_and(|sent| sent.again >= FEWEST_AGAIN)
    }

    /// Returns the packets of the end that sent the larger share of its packets again.
    fn worse(&self) -> Option<Sent> {
        let counted = self.sent.iter().copied().filter(|sent| sent.packets >= FEWEST_PACKETS);
        counted.max_by(|a, b| resent(*a).total_cmp(&resent(*b)))
    }

    /// Returns a figure; `None` if it was not measured, or not counted.
    pub(super) fn of(&self, figure: Figure) -> Option<f32> {
        if self.tries == 0 {
            return None;
        }
        match figure {
            Figure::Bandwidth => Some(self.gbps),
            Figure::Latency => Some(self.latency_us),
            Figure::Resent => self.worse().map(resent),
        }
    }
}

/// Returns the share of packets that were sent again, in percent.
fn resent(sent: Sent) -> f32 {
    (sent.again as f64 / sent.packets as f64 * 100.0).min(100.0) as f32
}

/// A pair that has passed on the rail at least once.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub nodes: [u32; 2],
    /// The schedule's tries together, and each of the retries.
    pub first: Measures,
    pub second: Vec<Measures>,
}

impl Pair {
    pub(super) fn all(&self) -> Measures {
        self.first.with(self.again())
    }

    /// Returns the figures of the retries together.
    pub(super) fn again(&self) -> Measures {
        self.second.iter().copied().fold(Measures::NONE, Measures::with)
    }

    pub(super) fn other(&self, node: u32) -> u32 {
        if self.nodes[0] == node { self.nodes[1] } else { self.nodes[0] }
    }
}

/// What was measured on one rail.
pub(super) struct Rail {
    pub index: usize,
    /// Sorted by their nodes.
    pub pairs: Vec<Pair>,
    /// For each node, the positions of its pairs.
    of_node: Vec<Vec<usize>>,
}

/// Returns what was measured on each rail.
pub(super) fn rails(evidence: &Evidence) -> Vec<Rail> {
    let mut order: Vec<&Try> = evidence.tries().iter().collect();
    order.sort_by_key(|one| one.nodes);
    (0..evidence.rails()).map(|index| Rail::new(evidence, &order, index)).collect()
}

impl Rail {
    fn new(evidence: &Evidence, order: &[&Try], index: usize) -> Rail {
        let mut pairs: Vec<Pair> = Vec::new();
        for one in order {
            let Some(measures) = Measures::of_try(one, index) else { continue };
            if pairs.last().is_none_or(|pair| pair.nodes != one.nodes) {
                pairs.push(Pair { nodes: one.nodes, first: Measures::NONE, second: Vec::new() });
            }
            let Some(pair) = pairs.last_mut() else { continue };
            match evidence.is_again(one.round) {
                true => pair.second.push(measures),
                false => pair.first = pair.first.with(measures),
            }
        }
        let mut of_node = vec![Vec::new(); evidence.members().len()];
        for (place, pair) in pairs.iter().enumerate() {
            pair.nodes.into_iter().for_each(|node| of_node[node as usize].push(place));
        }
        Rail { index, pairs, of_node }
    }

    pub(super) fn count(&self) -> u32 {
        self.of_node.len() as u32
    }

    /// Returns the nodes that were measured on this rail.
    pub(super) fn nodes(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.of_node).filter(|(_, places)| !places.is_empty()).map(|(node, _)| node)
    }

    /// Returns the positions of a node's pairs.
    pub(super) fn places(&self, node: u32) -> &[usize] {
        self.of_node.get(node as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn pairs_of(&self, node: u32) -> impl Iterator<Item = &Pair> {
        self.places(node).iter().map(|place| &self.pairs[*place])
    }

    /// Returns the pair of two nodes, if it was measured.
    pub(super) fn pair(&self, nodes: [u32; 2]) -> Option<&Pair> {
        let place = self.pairs.binary_search_by_key(&nodes, |pair| pair.nodes).ok()?;
        self.pairs.get(place)
    }

    /// Returns the value of each pair of the schedule. Most other pairs were chosen because one of
    /// their nodes seemed slow, so they do not show what is usual.
    pub(super) fn values(&self, figure: Figure) -> Vec<f32> {
        let scheduled = self.pairs.iter().filter(|pair| pair.first.tries > 0);
        scheduled.filter_map(|pair| pair.all().of(figure)).collect()
    }

    /// Returns how often the rail was measured again.
    pub(super) fn tries_again(&self) -> usize {
        self.pairs.iter().map(|pair| pair.second.len()).sum()
    }

    /// Returns the best value of each node.
    pub(super) fn bests(&self, figure: Figure) -> impl Iterator<Item = f32> {
        self.nodes().filter_map(move |node| best(figure, self.pairs_of(node).map(Pair::all)))
    }
}

/// Returns the value that counts for several pairs: the best one or, for packets that were sent again,
/// the mean.
pub(super) fn best(figure: Figure, all: impl Iterator<Item = Measures>) -> Option<f32> {
    let values = all.filter_map(|measures| measures.of(figure));
    match figure {
        Figure::Bandwidth => values.reduce(f32::max),
        Figure::Latency => values.reduce(f32::min),
        Figure::Resent => {
            let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
            (count > 0).then(|| sum / count as f32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_packets_that_were_sent_again_are_no_loss() {
        let of = |again| Measures { sent: [Sent::default(), Sent { packets: 900, again }], ..Measures::NONE };
        assert!(!of(FEWEST_AGAIN - 1).is_enough(Figure::Resent), "soft-RoCE on a busy machine");
        assert!(of(FEWEST_AGAIN).is_enough(Figure::Resent));
        assert!(of(0).is_enough(Figure::Latency), "this has a floor of its own");
        let both = of(FEWEST_AGAIN / 2).with(of(FEWEST_AGAIN / 2));
        assert!(both.is_enough(Figure::Resent), "the tries count together");
        let of_other = Measures {
            sent: [Sent { packets: 1_000_000, again: 8 }, Sent { packets: 150, again: 3 }],
            ..of(0)
        };
        assert!(!of_other.is_enough(Figure::Resent), "the end that is judged has a few");
    }
}
