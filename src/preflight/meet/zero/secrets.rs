//! The secrets of the pairs. Each pair has its own secret, so a node can authenticate only in its own
//! pairs.

use hmac_sha256::HMAC;

use crate::preflight::meet::message::Secret;
use crate::sys::random;

/// A random number that never leaves node 0. All secrets are derived from it.
pub(super) struct Secrets([u8; 32]);

impl Secrets {
    /// # Errors
    /// The kernel provides no random number.
    pub(super) fn new() -> std::io::Result<Secrets> {
        let mut seed = [0; 32];
        random::fill(&mut seed)?;
        Ok(Secrets(seed))
    }

    /// Returns the secret of two nodes in a round.
    pub(super) fn of(&self, round: u16, node: u32, other: u32) -> Secret {
        let (low, high) = (node.min(other).to_be_bytes(), node.max(other).to_be_bytes());
        let code = HMAC::mac([&round.to_be_bytes()[..], &low, &high].concat(), self.0);
        let mut secret = Secret::default();
        secret.copy_from_slice(&code[..Secret::default().len()]);
        secret
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_pair_of_each_round_has_a_secret_of_its_own() {
        let secrets = Secrets::new().unwrap();
        assert_eq!(secrets.of(3, 1, 2), secrets.of(3, 2, 1));
        let pairs = [(0, 1, 2), (1, 1, 2), (0, 1, 3), (0, 2, 3), (0, 0, 258), (0, 1, 258), (256, 1, 2)];
        let all: HashSet<Secret> = pairs.map(|(round, node, other)| secrets.of(round, node, other)).into();
        assert_eq!(all.len(), pairs.len());
        assert_ne!(Secrets::new().unwrap().of(0, 1, 2), secrets.of(0, 1, 2));
    }
}
