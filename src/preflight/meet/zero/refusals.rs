//! Rejected connections, and why. Some of them may be nodes of this job. Without these records, such a
//! node would only be reported as a node that did not join.

use std::collections::BTreeMap;

use crate::preflight::judge::evidence::Explanation;
use crate::text::{condensed_to, counted, grouped};
use crate::wire::stranger::{Fault, Stranger};

/// The most sentences. A peer that connects again and again needs no more.
const MOST: usize = 64;

/// The most addresses in one of them.
const NAMED: usize = 8;

/// All connections that were rejected for a reason that may apply to a node of this job.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Why each was rejected, and its address, which is empty if the reason contains it.
    reasons: Vec<(String, String)>,
    /// How many rejections are not in this list.
    more: usize,
    /// Why a node that claimed this index was rejected.
    of: BTreeMap<u32, Explanation>,
    /// The rejections without a known index: how many there were, and why the last one may be missing.
    unknown: usize,
    last: Option<Explanation>,
    /// The same without the address, for several nodes that are missing.
    last_of_many: Option<Explanation>,
}

/// How to fix another token, an index that two nodes have, and another version.
const TOKEN: &str = "Set the same RDMA_INIT_TOKEN on all nodes of the job, or none.";
const INDEX: &str = "Give each node its own index.";
const VERSION: &str = "Use one release of rdma-init on all nodes.";

impl Refusals {
    /// Records that a node was rejected, with the index that it claimed, if that is known. Returns
    /// whether to log it.
    pub fn add(&mut self, index: Option<u32>, address: &str, why: &str, fix: &'static str) -> bool {
        let said = sentence(&[address], why);
        match index {
            Some(index) => {
                // The indices of a job are limited, and so are these sentences.
                self.of.insert(index, Explanation { why: format!("it was rejected: {said}"), fix });
            }
            None => {
                self.unknown += 1;
                let of_many = format!("it may be one of the {} that were rejected: {why}", self.unknown);
                self.last_of_many = Some(Explanation { why: of_many, fix });
                let why = format!("it may be the one that was rejected: {said}");
                self.last = Some(Explanation { why, fix });
            }
        }
        let is_kept = self.reasons.len() < MOST;
        match is_kept {
            true => self.reasons.push((why.to_owned(), address.to_owned())),
            false => self.more += 1,
        }
        is_kept
    }

    /// Records that a node was rejected because another one has joined with its index, which the verdict reports. Returns
    /// whether to log it.
    pub fn add_second(&mut self, index: u32) -> bool {
        self.unknown += 1;
        let why = format!("it may be one of the two nodes that joined with the index {index}");
        self.last = Some(Explanation { why, fix: INDEX });
        self.last_of_many.clone_from(&self.last);
        self.unknown <= MOST
    }

    /// Records a peer that failed to authenticate. It may be a node of the job with another token or
    /// another version. Anything else that connects to a port is not a node.
    pub fn add_stranger(&mut self, address: &str, stranger: &Stranger) {
        match stranger.fault {
            Fault::Token => self.add(None, address, "it does not have the token of node 0", TOKEN),
            Fault::Version => self.add(None, "", &stranger.why, VERSION),
            Fault::Gone | Fault::Evicted | Fault::Silent | Fault::NotOurs | Fault::Unknown => false,
        };
    }

    /// Returns the sentences for the verdict: one for each reason that no fault reports.
    pub fn sentences(&self, is_reported: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("{} more", counted(self.more, "connection")));
        let untold = grouped(self.reasons.iter().filter(|(why, _)| !is_reported(why)).cloned());
        let untold = untold.into_iter().map(|(why, addresses)| sentence(&addresses, &why));
        untold.chain(more).map(|why| format!("rejected: {why}"))
    }

    /// Returns why a node did not join. `missing` is the number of nodes that did not.
    pub fn explain(&self, node: u32, missing: usize) -> Option<Explanation> {
        let last = if missing > 1 { &self.last_of_many } else { &self.last };
        let perhaps = || last.as_ref().filter(|_| (1..=self.unknown).contains(&missing));
        self.of.get(&node).or_else(perhaps).cloned()
    }
}

/// Returns a clause such as `10.0.0.7:40312, 10.0.0.9:51044 and 5 more: it expects 3 nodes, but node 0 expects 2`.
fn sentence(addresses: &[impl AsRef<str>], why: &str) -> String {
    match condensed_to(addresses, NAMED).as_str() {
        "" => why.to_owned(),
        names => format!("{names}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_sent_away_is_missing_for_that_reason() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.explain(3, 1), None);
        refusals.add(Some(3), "a:1", "it expects 2 nodes", "Compare.");
        let known = |why: &str, fix| Some(Explanation { why: why.to_owned(), fix });
        assert_eq!(refusals.explain(3, 2), known("it was rejected: a:1: it expects 2 nodes", "Compare."));
        assert_eq!(refusals.explain(4, 1), None);
        let stranger = |fault| Stranger { fault, why: "it is none".to_owned() };
        refusals.add_stranger("b", &stranger(Fault::NotOurs));
        assert_eq!(refusals.explain(4, 1), None);
        refusals.add_stranger("b", &stranger(Fault::Token));
        let perhaps = "it may be the one that was rejected: b: it does not have the token of node 0";
        assert_eq!(refusals.explain(4, 1), known(perhaps, TOKEN));
        assert_eq!(refusals.explain(4, 2), None, "more are missing than were rejected");
        let said: Vec<String> = refusals.sentences(|_| false).collect();
        assert_eq!(
            said,
            ["rejected: a:1: it expects 2 nodes", "rejected: b: it does not have the token of node 0"]
        );
        assert!(refusals.add_second(2));
        let second = known("it may be one of the two nodes that joined with the index 2", INDEX);
        assert_eq!([1, 2, 3].map(|missing| refusals.explain(4, missing)), [second.clone(), second, None]);
        let said: Vec<String> = refusals.sentences(|why| why.starts_with("it expects")).collect();
        assert_eq!(
            said,
            ["rejected: b: it does not have the token of node 0"],
            "the second node of an index is a fault"
        );
    }

    #[test]
    fn many_take_a_bounded_number_of_lines() {
        let mut refusals = Refusals::default();
        let said = (0..500).filter(|node| refusals.add(None, &format!("10.0.0.7:{node}x"), "x", "")).count();
        let more = (0..500).filter(|node| refusals.add(None, "", &format!("y{node}"), "")).count();
        let sentences: Vec<String> = refusals.sentences(|_| false).collect();
        assert_eq!((said, more), (MOST, 0));
        let first: Vec<String> = (0..NAMED).map(|node| format!("10.0.0.7:{node}x")).collect();
        let one = format!("rejected: {} and 56 more: x", first.join(", "));
        assert_eq!(sentences, [one.as_str(), "rejected: 936 connections more"]);
    }
}
