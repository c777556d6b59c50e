//! Pairs in rounds. Pure.

use std::collections::HashMap;

use super::Pair;

/// The rounds of one time. If few nodes are well, not all others can be tried with them at once.
const MOST_ROUNDS: usize = 8;

/// Rounds in which each node is in one pair at the most.
#[derive(Default)]
pub(super) struct Rounds {
    rounds: Vec<Vec<Pair>>,
    /// In which of them each node is.
    busy: HashMap<u32, u64>,
}

impl Rounds {
    /// Returns these pairs, and of those for `idle` nodes as many as take no more time.
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

    /// Puts a pair into the first round in which both of its nodes are free, if there is one among so many.
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
