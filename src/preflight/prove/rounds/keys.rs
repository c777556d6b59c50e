//! Which nodes may call this one, and with which keys: the pairs that node 0 has assigned. Pure.

use std::collections::HashMap;

use super::bounds;
use crate::preflight::meet::message::{CallId, Partner, Secret, pair_key};
use crate::wire::handshake::IdentityKey;

/// The secrets of the pairs of a node.
pub(super) struct PairKeys<'a> {
    node: u32,
    nodes: u32,
    token: &'a str,
    secrets: HashMap<(u16, u32), Secret>,
}

impl<'a> PairKeys<'a> {
    pub(super) fn new(node: u32, nodes: u32, token: &'a str) -> PairKeys<'a> {
        PairKeys { node, nodes, token, secrets: HashMap::new() }
    }

    /// Adds a pair that node 0 has assigned.
    ///
    /// # Errors
    /// The pair is impossible in this job, or was assigned before.
    pub(super) fn add(&mut self, with: &Partner) -> Result<(), String> {
        bounds::check(self.node, self.nodes, self.secrets.len(), with)?;
        match self.secrets.insert((with.round, with.node), with.secret) {
            Some(_) => {
                Err(format!("it names the pair with node {} in round {} twice", with.node, with.round))
            }
            None => Ok(()),
        }
    }

    /// Returns the key of the node that claims to call. The order that assigns its pair may still be on
    /// its way.
    pub(super) fn of(&self, identity: &str) -> IdentityKey {
        match CallId::read(identity) {
            Some(CallId { round, from, to }) if to == self.node && from != to && from < self.nodes => {
                match self.secrets.get(&(round, from)) {
                    Some(secret) => IdentityKey::Known(pair_key(secret, self.token).to_vec()),
                    None => IdentityKey::Pending,
                }
            }
            _ => IdentityKey::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::meet::message::Work;

    #[test]
    fn only_a_pair_that_node_0_has_named_has_a_key() {
        let mut keys = PairKeys::new(4, 20, "a token");
        let secret = [7; 16];
        let with = Partner {
            round: 3,
            node: 17,
            name: String::new(),
            address: None,
            port: 1,
            secret,
            work: Work::Rails,
            is_again: false,
        };
        assert_eq!(keys.of("3 17 4"), IdentityKey::Pending);
        keys.add(&with).unwrap();
        assert_eq!(keys.of("3 17 4"), IdentityKey::Known(pair_key(&secret, "a token").to_vec()));
        assert_ne!(pair_key(&secret, "a token"), pair_key(&secret, "another one"));
        for other_pair in ["2 17 4", "3 16 4"] {
            assert_eq!(keys.of(other_pair), IdentityKey::Pending, "{other_pair}");
        }
        for wrong in ["3 17 5", "3 4 4", "3 20 4", "3 17", "3 17 4 1", "3 17 4 ", "", "65536 17 4", "-3 17 4"]
        {
            assert_eq!(keys.of(wrong), IdentityKey::Unknown, "{wrong}");
        }
    }
}
