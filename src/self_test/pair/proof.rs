//! Proving to each other that both have the same token, without sending it: each signs
//! the random number of the other.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use hmac_sha256::HMAC;

use super::Meeting;
use super::message::{Message, SCHEMA};
use super::wire::Wire;
use crate::config::TOKEN_VARIABLE;
use crate::report::style::{shortened, visible};
use crate::verbs::rail::Side;

/// For what needs no thinking.
const PATIENCE: Duration = Duration::from_secs(5);
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// What a message may take beside what its sender says.
const MORE: Duration = Duration::from_secs(10);

/// Longer than this only a node is waited for that may as well wait for us so long.
const USUAL: Duration = Duration::from_secs(60);

type Nonce = [u8; 16];

/// Says who we are, and how long each of our messages may take. Gives the same of the
/// other node.
///
/// # Errors
/// In words: it is no rdma-init of our kind, or has another token.
pub fn exchange(wire: &mut Wire, side: Side, meeting: &Meeting, end: Instant) -> Result<Duration, String> {
    let (token, longest) = (meeting.token.as_bytes(), meeting.extent.longest());
    // Who comes at the last moment still has one to say who it is.
    let patience = end.saturating_duration_since(Instant::now()).clamp(LEAST_PATIENCE, PATIENCE);
    let own = random().map_err(|error| format!("no random number for the greeting: {error}."))?;
    wire.send(&Message::Greeting {
        schema: SCHEMA.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        nonce: own,
    })?;
    let other = match wire.receive(patience)? {
        Message::Greeting { schema, nonce, .. } if schema == SCHEMA => nonce,
        Message::Greeting { program, .. } => {
            return Err(format!(
                "{} runs rdma-init {}, which cannot test with this one, {}: use one version.",
                wire.address(),
                visible(&shortened(&program)),
                env!("CARGO_PKG_VERSION")
            ));
        }
        message => return Err(wire.unexpected(&message)),
    };
    let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    wire.send(&Message::Proof { mac: mac(token, side, own, other), longest_ms })?;
    match wire.receive(patience)? {
        Message::Proof { mac: found, longest_ms } => {
            if !HMAC::verify(signed(side.other(), other, own), token, &found) {
                return Err(format!(
                    "{} has not the same token as this node ({TOKEN_VARIABLE}, on both nodes or on none).",
                    wire.address()
                ));
            }
            Ok(Duration::from_millis(longest_ms).min(longest.max(USUAL)) + MORE)
        }
        message => Err(wire.unexpected(&message)),
    }
}

fn mac(token: &[u8], side: Side, own: Nonce, other: Nonce) -> [u8; 32] {
    HMAC::mac(signed(side, own, other), token)
}

/// With the side, so that nobody can send back what we sent.
fn signed(side: Side, own: Nonce, other: Nonce) -> Vec<u8> {
    let side: &[u8] = match side {
        Side::First => b"first",
        Side::Second => b"second",
    };
    [SCHEMA.as_bytes(), side, &own, &other].concat()
}

fn random() -> std::io::Result<Nonce> {
    let mut nonce = Nonce::default();
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;
    use crate::self_test::whole::Extent;
    use std::net::{TcpListener, TcpStream};

    fn meeting(token: &str, each: u64) -> Meeting<'_> {
        let role = Role::Connect("node2".parse().unwrap());
        let extent = Extent { each: Duration::from_secs(each), ..Extent::default() };
        Meeting { role, wait: Duration::ZERO, token, extent }
    }

    fn both(first: &str, second: &str) -> [Result<Duration, String>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, end) = (listener.local_addr().unwrap(), Instant::now());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut wire = Wire::new(TcpStream::connect(address).unwrap(), "a".into());
                exchange(&mut wire, Side::First, &meeting(first, 1), end)
            });
            let mut wire = Wire::new(listener.accept().unwrap().0, "b".into());
            let own = exchange(&mut wire, Side::Second, &meeting(second, 20), end);
            [other.join().unwrap(), own]
        })
    }

    #[test]
    fn only_the_same_token_is_good() {
        assert_eq!(both("", ""), [30, 25].map(|seconds| Ok(Duration::from_secs(seconds))));
        assert!(both("secret", "secret").iter().all(Result::is_ok));
        for result in [both("secret", "Secret"), both("secret", ""), both("", "secret")] {
            assert!(result.iter().any(|one| one.as_ref().is_err_and(|why| why.contains("RDMA_INIT_TOKEN"))));
        }
    }

    #[test]
    fn what_one_side_signs_is_no_proof_of_the_other() {
        let (a, b) = ([1; 16], [2; 16]);
        assert_ne!(mac(b"t", Side::First, a, b), mac(b"t", Side::Second, a, b));
        assert_ne!(mac(b"t", Side::First, a, b), mac(b"t", Side::First, b, a));
    }
}
