//! What the other node must prove about itself. Pure.

use anyhow::bail;

use super::{Address, Role};
use crate::config::TOKEN_VARIABLE;

/// In bytes. An observer of a proof can try all shorter tokens offline.
const SHORTEST: usize = 16;

/// The command that makes a token.
const MAKE: &str = "openssl rand -hex 16";

/// Returns the secret that the other node must have as well; empty if the other node may be any peer.
///
/// # Errors
/// The token could be guessed, or there is no token and no option allows that.
pub(crate) fn token<'a>(token: &'a str, any_peer: bool, role: &Role) -> anyhow::Result<&'a str> {
    let (Role::Listen(address) | Role::Connect(address)) = role;
    if token.is_empty() {
        return match any_peer || is_own(address, role) {
            true => Ok(""),
            false => bail!(
                "without {TOKEN_VARIABLE}, this node cannot tell the other node from another process that can reach it, or that answers in the other node's place. Give both nodes one random text in {TOKEN_VARIABLE} (from `{MAKE}`), or give both --any-peer if no other host is in their network"
            ),
        };
    }
    if any_peer {
        bail!("{TOKEN_VARIABLE} is set, and --any-peer accepts any peer: use only one of the two");
    }
    sound(token)?;
    Ok(token)
}

/// Checks that a token is unpredictable.
///
/// # Errors
/// It is too short, or is not text.
pub(crate) fn sound(token: &str) -> anyhow::Result<()> {
    if token.len() < SHORTEST {
        bail!(
            "{TOKEN_VARIABLE} is shorter than {SHORTEST} bytes, so it could be guessed: give all nodes one random text, from `{MAKE}` for example"
        );
    }
    // The environment was not UTF-8; several values turn into this text.
    if token.contains(char::REPLACEMENT_CHARACTER) {
        bail!("{TOKEN_VARIABLE} is not UTF-8 text: use a text from `{MAKE}` for example");
    }
    Ok(())
}

/// Returns whether only processes on this host can be at the other end. A listener without an address
/// listens on all addresses.
fn is_own(address: &Address, role: &Role) -> bool {
    match role {
        Role::Listen(_) => address.is_loopback(),
        Role::Connect(_) => address.is_loopback() || address.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "0123456789abcdef";

    fn of(given: &str, any_peer: bool, address: &str) -> [Result<String, String>; 2] {
        let address: Address = address.parse().unwrap();
        [Role::Listen(address.clone()), Role::Connect(address)]
            .map(|role| token(given, any_peer, &role).map(str::to_owned).map_err(|why| why.to_string()))
    }

    #[test]
    fn a_token_is_long_enough_or_refused() {
        assert_eq!(of(GOOD, false, "node2"), [Ok(GOOD.to_owned()), Ok(GOOD.to_owned())]);
        for result in of("0123456789abcde", false, "127.0.0.1") {
            let why = result.unwrap_err();
            assert!(why.contains("shorter than 16 bytes") && why.contains("openssl rand -hex 16"), "{why}");
            assert!(!why.contains("0123"), "{why}");
        }
        for result in of("0123456789abcdef\u{fffd}", false, "127.0.0.1") {
            assert!(result.unwrap_err().contains("is not UTF-8 text"));
        }
    }

    #[test]
    fn a_missing_token_is_an_error_except_on_loopback_or_with_any_peer() {
        for address in
            ["127.0.0.1", "127.1.2.3:5", "[::1]:5", "::ffff:127.0.0.1", "localhost", "a.localhost:5"]
        {
            assert_eq!(of("", false, address), [Ok(String::new()), Ok(String::new())], "{address}");
        }
        for address in ["node2", "10.0.0.1", "0.0.0.0", "[::]:5", "localhost.example", "fe80::1%lo"] {
            for result in of("", false, address) {
                let why = result.unwrap_err();
                assert!(why.contains("RDMA_INIT_TOKEN") && why.contains("--any-peer"), "{why}");
            }
            assert_eq!(of("", true, address), [Ok(String::new()), Ok(String::new())]);
        }
        let [listen, connect] = of("", false, ":5");
        assert!(listen.is_err());
        assert_eq!(connect, Ok(String::new()));
    }

    #[test]
    fn a_token_and_any_peer_are_mutually_exclusive() {
        for result in of(GOOD, true, "node2") {
            assert!(result.unwrap_err().contains("use only one of the two"));
        }
    }
}
