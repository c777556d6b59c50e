//! Rejected connections, and why. Some of them may be nodes of this job. Without these records, such a
//! node would only be reported as a node that did not join.

use std::collections::BTreeMap;

use crate::text::counted;
use crate::wire::stranger::{Fault, Stranger};

/// The most sentences. A peer that connects again and again needs no more.
const MOST: usize = 64;

/// All connections that were rejected for a reason that may apply to a node of this job.
#[derive(Debug, Default)]
pub struct Refusals {
    sentences: Vec<String>,
    /// How many rejections are not in the sentences.
    more: usize,
    /// Why a node that claimed this index was rejected.
    of: BTreeMap<u32, String>,
    /// The rejections without a known index: how many there were, and the sentence about the last one.
    unknown: usize,
    last: String,
}

impl Refusals {
    /// Records that a node was rejected, with the index that it claimed, if that is known. Returns
    /// whether to log it.
    pub fn add(&mut self, index: Option<u32>, why: String) -> bool {
        match index {
            Some(index) => {
                // The indices of a job are limited, and so are these sentences.
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

    /// Records a peer that failed to authenticate. It may be a node of the job with another token or
    /// another version. Anything else that connects to a port is not a node.
    pub fn add_stranger(&mut self, stranger: &Stranger) {
        if matches!(stranger.fault, Fault::Token | Fault::Version) {
            self.add(None, stranger.why.clone());
        }
    }

    /// Returns the sentences about them for the verdict.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more", counted(self.more, "connection")));
        self.sentences.iter().cloned().chain(more).map(|why| format!("rejected: {why}"))
    }

    /// Returns why a node did not join, as a clause. `missing` is the number of nodes that did not.
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
