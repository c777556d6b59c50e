//! The failed attempts of a node to reach node 0, for the one sentence at the end.

use std::collections::BTreeMap;

use crate::text::counted;
use crate::wire::reach::ConnectFailure;

/// How often each failure happened.
#[derive(Debug, Default)]
pub(crate) struct AttemptFailures(BTreeMap<ConnectFailure, usize>);

impl AttemptFailures {
    pub(in crate::preflight) fn add(&mut self, missed: ConnectFailure) {
        *self.0.entry(missed).or_default() += 1;
    }

    /// Returns a clause: `of 58 tries, 50 reached a port that refuses connections, 8 got no answer to
    /// the connection`.
    pub(in crate::preflight) fn sentence(&self) -> String {
        let all = self.0.values().sum();
        let each = self.0.iter().map(|(missed, count)| format!("{count} {}", ended(*missed)));
        format!("of {}, {}", counted_tries(all), each.collect::<Vec<_>>().join(", "))
    }

    /// Returns what fixes the most frequent failure.
    pub(in crate::preflight) fn fix(&self) -> &'static str {
        let most = self.0.iter().max_by_key(|(_, count)| **count).map(|(missed, _)| *missed);
        match most {
            Some(ConnectFailure::NoAddress) => {
                "Check that this node resolves the name of node 0 (DNS, /etc/hosts), or name its address (--meet, before a command preflight-meet)"
            }
            Some(ConnectFailure::Refused) => {
                "Check that node 0 was started, and that its own log names the same port; if node 0 has several addresses, name the right one (--meet, before a command preflight-meet)"
            }
            Some(ConnectFailure::NoRoute) => {
                "Check the route to this address (ip route get), or name another address of node 0 (--meet, before a command preflight-meet)"
            }
            Some(ConnectFailure::TimedOut) => {
                "Check that firewalls and network policies let TCP pass to this port of node 0, and that the address is one of its own"
            }
            Some(ConnectFailure::Other | ConnectFailure::Unanswered) | None => {
                "Check in the log of node 0 that it is running, and not stopped"
            }
        }
    }
}

fn counted_tries(all: usize) -> String {
    if all == 1 { "1 try".to_owned() } else { counted(all, "trie") }
}

fn ended(missed: ConnectFailure) -> &'static str {
    match missed {
        ConnectFailure::NoAddress => "found no address for the name",
        ConnectFailure::Refused => "reached a port that refuses connections",
        ConnectFailure::NoRoute => "found no route",
        ConnectFailure::TimedOut => "got no answer to the connection",
        ConnectFailure::Other => "failed for another reason",
        ConnectFailure::Unanswered => "connected but got no answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_counted_by_their_ends_and_the_most_frequent_one_gives_the_fix() {
        let mut misses = AttemptFailures::default();
        misses.add(ConnectFailure::TimedOut);
        assert_eq!(misses.sentence(), "of 1 try, 1 got no answer to the connection");
        assert!(misses.fix().contains("firewalls"));
        (0..3).for_each(|_| misses.add(ConnectFailure::Refused));
        misses.add(ConnectFailure::Unanswered);
        let said = "of 5 tries, 3 reached a port that refuses connections, 1 got no answer to the connection, 1 connected but got no answer";
        assert_eq!(misses.sentence(), said);
        assert!(misses.fix().contains("Check that node 0 was started"));
    }
}
