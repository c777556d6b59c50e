//! Distributes pairs over rounds. Pure.

use std::collections::HashMap;

use super::Pair;

/// The most rounds in one pass. If few nodes are healthy, not all others can be tested with them in one
/// pass.
const MOST_ROUNDS: usize = 8;

/// Rounds in which each node is in at most one pair.
#[derive(Default)]
pub(super) struct Rounds {
    rounds: Vec<Vec<Pair>>,
    /// The rounds in which each node is busy.
    busy: HashMap<u32, u64>,
}

impl Rounds {
    /// Returns rounds with the wanted pairs, and with as many pairs for `idle` nodes as take no more
    /// rounds.
    pub(super) fn of(
        wanted: impl IntoIterator<Item = Pair>,
        idle: impl IntoIterator<Item = Pair>,
    ) -> Vec<Vec<Pair>> {
        let mut rounds = Rounds::default();
        wanted.into_iter().for_each(|pair| rounds.add(pair, MOST_ROUNDS));
        let count = rounds.rounds.len();
        idle.into_iter().for_each(|pair| rounds.add(pair, count));
        rounds.rounds
    }

    /// Puts a pair into the first round in which both of its nodes are free, if that is one of the
    /// first `most`.
    fn add(&mut self, (a, b): Pair, most: usize) {
        let taken = [a, b].map(|node| self.busy.get(&node).copied().unwrap_or_default());
        let round = (taken[0] | taken[1]).trailing_ones() as usize;
        if round >= most {
            return;
        }
        if self.rounds.len() <= round {
            self.rounds.resize(round + 1, Vec::new());
        }
        self.rounds[round].push((a, b));
        for node in [a, b] {
            *self.busy.entry(node).or_default() |= 1 << round;
        }
    }
}
