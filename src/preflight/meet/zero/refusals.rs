//! Rejected connections, and why: other nodes of this job may be among them, of which it is only seen
//! otherwise that they have not come.

use std::collections::BTreeMap;

use crate::text::counted;
use crate::wire::stranger::{Fault, Stranger};

/// The most sentences. One that comes again and again needs no more.
const MOST: usize = 64;

/// All that were sent away for something that a node of this job may have wrong.
#[derive(Debug, Default)]
pub struct Refusals {
    sentences: Vec<String>,
    /// How many there are no sentences of.
    more: usize,
    /// Why a node was sent away that said it had this index.
    of: BTreeMap<u32, String>,
    /// Those whose index is not known: their number, and the sentence about the last.
    unknown: usize,
    last: String,
}

impl Refusals {
    /// A node is sent away that says it has this index, or no known one. Returns whether that is to be said.
    pub fn add(&mut self, index: Option<u32>, why: String) -> bool {
        match index {
            Some(index) => {
                // The indices of a job are bounded, and so are the sentences.
                self.of.insert(index, why.clone());
            }
            None => {
                self.unknown += 1;
                self.last.clone_from(&why);
            }
        }
        let is_kept = self.sentences.len() < MOST;
        match is_kept {
            true => self.sentences.push(why),
            false => self.more += 1,
        }
        is_kept
    }

    /// A peer did not prove to be of this job. A node of it may have another token or be of another version;
    /// what else comes to a port is not a node.
    pub fn add_stranger(&mut self, stranger: &Stranger) {
        if matches!(stranger.fault, Fault::Token | Fault::Version) {
            self.add(None, stranger.why.clone());
        }
    }

    /// Returns what the verdict says of them.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more", counted(self.more, "connection")));
        self.sentences.iter().cloned().chain(more).map(|why| format!("rejected: {why}"))
    }

    /// Returns why a node has not come that is one of so many, as a clause.
    pub fn explain(&self, node: u32, missing: usize) -> Option<String> {
        let unknown = (1..=self.unknown).contains(&missing);
        let perhaps = || unknown.then(|| format!("it may be the one that was rejected: {}", self.last));
        self.of.get(&node).map(|why| format!("it was rejected: {why}")).or_else(perhaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_sent_away_is_missing_for_that_reason() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.explain(3, 1), None);
        refusals.add(Some(3), "it expects 2 nodes".to_owned());
        assert_eq!(refusals.explain(3, 2).as_deref(), Some("it was rejected: it expects 2 nodes"));
        assert_eq!(refusals.explain(4, 1), None);
        let stranger = |fault| Stranger { fault, why: "b has another token".to_owned() };
        refusals.add_stranger(&stranger(Fault::NotOurs));
        assert_eq!(refusals.explain(4, 1), None);
        refusals.add_stranger(&stranger(Fault::Token));
        let perhaps = "it may be the one that was rejected: b has another token";
        assert_eq!(refusals.explain(4, 1).as_deref(), Some(perhaps));
        assert_eq!(refusals.explain(4, 2), None, "more are missing than were rejected");
        let said: Vec<String> = refusals.sentences().collect();
        assert_eq!(said, ["rejected: it expects 2 nodes", "rejected: b has another token"]);
    }

    #[test]
    fn many_take_a_bounded_number_of_lines() {
        let mut refusals = Refusals::default();
        let said = (0..1000).filter(|_| refusals.add(None, "x".to_owned())).count();
        let sentences: Vec<String> = refusals.sentences().collect();
        assert_eq!((said, sentences.len()), (MOST, MOST + 1));
        assert_eq!(sentences[MOST], "rejected: 936 connections more");
    }
}
