//! What the fuzzers call in this module; see [`crate::fuzz`].

use std::time::Duration;

use super::judge::judge;
use super::names::Names;
use super::protocol::{self, MOST_RANKS, Unreadable};
use super::words;
use crate::text::visible;

/// Reads an answer from a process that listens at the address of NCCL's RAS.
pub(crate) fn answer(data: &[u8]) {
    let answer = match protocol::read(data) {
        Ok(answer) => answer,
        Err(Unreadable::Foreign(words) | Unreadable::Refused(words)) => {
            return assert_eq!(visible(&words), words);
        }
        Err(_) => return,
    };
    let ranks: usize = answer.communicators.iter().map(|communicator| communicator.ranks.len()).sum();
    assert!(ranks <= MOST_RANKS);
    let names = Names::new("node0", &["10.0.0.1"], "10.0.0.2 node1\n");
    for before in [None, Some(&answer)] {
        let verdict = judge(before, &answer);
        let line = words::line(&answer, &verdict, before.map(|_| Duration::from_secs(9)), &names);
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }
}
