//! Two nodes prove to each other that both have the same token, without sending it. This module does no
//! I/O: it takes lines and returns lines.
//!
//! Both sides greet, the first side first. After that, every message carries a code that only a holder of
//! the token can make, and the first such message is the proof. The second side sends nothing that depends
//! on the token until it has seen the first side's proof. So a process that connects without the token gets
//! nothing to test guesses against.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Protocol;
use super::session::Session;
use super::stranger::{Fault, Stranger};
use crate::config::TOKEN_VARIABLE;
use crate::json;
use crate::sys::random;
use crate::text::{shortened, visible};
use crate::verbs::rail::Side;

/// In bytes: the longest line before both nodes have authenticated.
pub(crate) const LONGEST: usize = 1024;

/// The time limit of the whole handshake.
const PATIENCE: Duration = Duration::from_secs(5);
const LEAST_PATIENCE: Duration = Duration::from_secs(1);

/// What a message may take beyond the time that its sender announced.
const MORE: Duration = Duration::from_secs(10);

/// A node may request a longer wait than this only if it waits for this node as long.
const USUAL: Duration = Duration::from_secs(60);

/// How many bytes of a line that is not a message are shown.
const SHOWN: usize = 60;

/// Returns how long one handshake may take. A node that connects at the last moment still gets the least
/// time.
pub(crate) fn patience(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now()).clamp(LEAST_PATIENCE, PATIENCE)
}

/// Messages without a code. Any process may have written them, so this node trusts nothing in them, except
/// that the handshake cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Plain {
    Greeting {
        schema: String,
        program: String,
        /// A random number; see [`super::session`].
        nonce: Nonce,
        /// Which of several keys the sender has; empty if there is only the token. A sender that names an
        /// identity but lacks its key fails the proof.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        identity: String,
    },
    /// The receiver's proof was wrong.
    Refused,
}

pub(crate) type Nonce = [u8; 16];

/// The first message with a code, which proves that its sender has the token.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Proof {
    Hello {
        /// In milliseconds: how long the sender may take for each of its next messages.
        longest_ms: u64,
    },
}

/// The key of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IdentityKey {
    Known(Vec<u8>),
    /// The identity has no key yet, but may get one soon.
    Pending,
    /// The identity is not one of those that may connect here.
    Unknown,
}

/// Looks up the key of an identity.
pub(crate) type Keys<'a> = dyn Fn(&str) -> IdentityKey + 'a;

/// Returns the same key for every identity.
pub(crate) fn one_key(token: &[u8]) -> impl Fn(&str) -> IdentityKey {
    move |_| IdentityKey::Known(token.to_vec())
}

/// What to do next in the handshake.
pub(crate) enum Step {
    /// The other end's key is not known yet. Pass the same line again later.
    Later,
    /// Send this line, and wait for the next one.
    Send(Vec<u8>),
    /// Send this line, unless it is empty. Both nodes have authenticated; the other node may take this long
    /// for each message.
    Proven(Vec<u8>, Session, Duration),
}

pub(crate) struct Handshake {
    protocol: &'static Protocol,
    side: Side,
    /// The identity of the first side, once it is known.
    identity: String,
    /// The longest time that each of this node's messages may take.
    longest: Duration,
    /// The address of the other node, for messages.
    address: String,
    /// This node's greeting, as a line.
    greeting: Vec<u8>,
    /// Set once the other node's greeting has arrived and its key is known.
    session: Option<Session>,
}

impl Handshake {
    /// # Errors
    /// The kernel returns no random number.
    pub(crate) fn new(
        protocol: &'static Protocol,
        side: Side,
        identity: &str,
        longest: Duration,
        address: String,
    ) -> Result<Handshake, Stranger> {
        let mut nonce = Nonce::default();
        random::fill(&mut nonce).map_err(|error| {
            let why = format!("cannot get a random number for the greeting: {error}");
            Stranger { fault: Fault::NotOurs, why }
        })?;
        let greeting = Plain::Greeting {
            schema: protocol.schema.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            nonce,
            identity: identity.to_owned(),
        };
        let (greeting, identity) = (json::line(&greeting), identity.to_owned());
        Ok(Handshake { protocol, side, identity, longest, address, greeting, session: None })
    }

    /// Returns the line that the first side sends before it receives anything.
    pub(crate) fn greeting(&self) -> &[u8] {
        &self.greeting
    }

    /// Returns the identity of the first side. Trust it only once that side has authenticated.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Handles a line from the other node.
    ///
    /// # Errors
    /// The other end is not a node of this job.
    pub(crate) fn hear(&mut self, line: &[u8], keys: &Keys) -> Result<Step, Stranger> {
        match self.session.take() {
            None => self.greeted(line, keys),
            Some(session) => self.proven(session, line),
        }
    }

    /// Returns a last line for an end that this node rejects, so that it can report why.
    pub(crate) fn farewell(&self, fault: Fault) -> Option<Vec<u8>> {
        match (self.side, fault) {
            (Side::Second, Fault::Version) => Some(self.greeting.clone()),
            (Side::Second, Fault::Token | Fault::Unknown) => Some(json::line(&Plain::Refused)),
            _ => None,
        }
    }

    fn greeted(&mut self, line: &[u8], keys: &Keys) -> Result<Step, Stranger> {
        let identity = match json::read(line) {
            Ok(Plain::Greeting { schema, identity, .. }) if schema == self.protocol.schema => identity,
            Ok(Plain::Greeting { schema, program, .. }) => return Err(self.other_version(&schema, &program)),
            Ok(Plain::Refused) if !self.identity.is_empty() => return Err(self.other_token()),
            Ok(Plain::Refused) | Err(_) => return Err(self.not_ours(line)),
        };
        if self.side == Side::Second {
            self.identity = identity;
        }
        let token = match keys(&self.identity) {
            IdentityKey::Known(token) => token,
            IdentityKey::Pending => return Ok(Step::Later),
            IdentityKey::Unknown => return Err(self.unknown()),
        };
        let greetings = match self.side {
            Side::First => [&self.greeting, line],
            Side::Second => [line, &self.greeting],
        };
        let mut session = Session::new(self.protocol.schema, &token, self.side, greetings);
        let next = match self.side {
            Side::First => self.hello(&mut session),
            Side::Second => self.greeting.clone(),
        };
        self.session = Some(session);
        Ok(Step::Send(next))
    }

    fn proven(&self, mut session: Session, line: &[u8]) -> Result<Step, Stranger> {
        if self.side == Side::First && matches!(json::read(line), Ok(Plain::Refused)) {
            return Err(self.other_token());
        }
        let text = session.open(line).ok_or_else(|| self.other_token())?;
        let Ok(Proof::Hello { longest_ms }) = json::read(text) else {
            return Err(self.not_ours(text));
        };
        let last = match self.side {
            Side::First => Vec::new(),
            Side::Second => self.hello(&mut session),
        };
        let longest = Duration::from_millis(longest_ms).min(self.longest.max(USUAL));
        Ok(Step::Proven(last, session, longest + MORE))
    }

    fn hello(&self, session: &mut Session) -> Vec<u8> {
        let longest_ms = u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX);
        session.seal(&Proof::Hello { longest_ms })
    }

    fn not_ours(&self, bytes: &[u8]) -> Stranger {
        not_ours(self.protocol, &self.address, bytes)
    }

    fn other_version(&self, schema: &str, program: &str) -> Stranger {
        let shown = |text: &str| visible(&shortened(text));
        let why = format!(
            "{} runs rdma-init {} with the protocol {}, which cannot test with this one, {} with {}: use \
             one release on both nodes",
            self.address,
            shown(program),
            shown(schema),
            env!("CARGO_PKG_VERSION"),
            self.protocol.schema
        );
        Stranger { fault: Fault::Version, why }
    }

    /// Returns the error for a first side whose identity has no key here, or got none before the time was over.
    pub(super) fn unknown(&self) -> Stranger {
        let why = format!(
            "{} has the identity \"{}\", which is not expected here",
            self.address,
            visible(&shortened(&self.identity))
        );
        Stranger { fault: Fault::Unknown, why }
    }

    fn other_token(&self) -> Stranger {
        if !self.identity.is_empty() {
            let why = format!(
                "{} does not have the key of the identity \"{}\"",
                self.address,
                visible(&shortened(&self.identity))
            );
            return Stranger { fault: Fault::Token, why };
        }
        let why = format!(
            "{} does not have the same token as this node: set the same {TOKEN_VARIABLE} on both nodes, or none",
            self.address
        );
        Stranger { fault: Fault::Token, why }
    }
}

/// Returns the error for bytes that no rdma-init node would send.
pub(crate) fn not_ours(protocol: &Protocol, address: &str, bytes: &[u8]) -> Stranger {
    let start = bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default().trim_ascii_end();
    let start = visible(&String::from_utf8_lossy(start));
    let why = format!(
        "{address} is not an rdma-init {}, or is one of another version: it sent \"{start}\"",
        protocol.command
    );
    Stranger { fault: Fault::NotOurs, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol = Protocol { schema: "rdma-init/pair/3", command: "self-test" };
    const TOKEN: &str = "0123456789abcdef";

    /// A side and its token.
    struct TokenSide {
        handshake: Handshake,
        token: &'static str,
    }

    impl TokenSide {
        fn greeting(&self) -> &[u8] {
            self.handshake.greeting()
        }

        fn hear(&mut self, line: &[u8]) -> Result<Step, Stranger> {
            self.handshake.hear(line, &one_key(self.token.as_bytes()))
        }

        fn farewell(&self, fault: Fault) -> Option<Vec<u8>> {
            self.handshake.farewell(fault)
        }
    }

    fn at(side: Side, token: &'static str, seconds: u64) -> TokenSide {
        let handshake = Handshake::new(&PROTOCOL, side, "", Duration::from_secs(seconds), "node".into());
        TokenSide { handshake: handshake.unwrap(), token }
    }

    fn sent(step: Step) -> Vec<u8> {
        match step {
            Step::Send(line) | Step::Proven(line, ..) => line,
            Step::Later => panic!("the key is known"),
        }
    }

    fn fault<T>(result: Result<T, Stranger>) -> Fault {
        result.err().expect("it is refused").fault
    }

    /// Returns how long each side waits for the other, or what is wrong.
    fn both(first: &'static str, second: &'static str) -> Result<[Duration; 2], Stranger> {
        let (mut first, mut second) = (at(Side::First, first, 1), at(Side::Second, second, 20));
        let greeting = sent(second.hear(first.greeting())?);
        let hello = sent(first.hear(&greeting)?);
        let Step::Proven(hello, _, of_first) = second.hear(&hello)? else { panic!("no proof") };
        let Step::Proven(rest, _, of_second) = first.hear(&hello)? else { panic!("no proof") };
        assert!(rest.is_empty());
        Ok([of_first, of_second])
    }

    #[test]
    fn only_the_same_token_is_good() {
        let wanted = [11, 30].map(Duration::from_secs);
        assert_eq!(both(TOKEN, TOKEN), Ok(wanted));
        assert_eq!(both("", ""), Ok(wanted));
        for (first, second) in [(TOKEN, "0123456789ABCDEF"), (TOKEN, ""), ("", TOKEN)] {
            let stranger = both(first, second).unwrap_err();
            assert_eq!(stranger.fault, Fault::Token);
            assert!(stranger.why.contains("RDMA_INIT_TOKEN"));
        }
    }

    /// Only the key of the identity counts, and no other key.
    #[test]
    fn an_identity_is_proven_by_its_own_key() {
        let second = |keys: &Keys, of: &'static [u8]| {
            let side = |side, identity| {
                Handshake::new(&PROTOCOL, side, identity, Duration::ZERO, "node".into()).unwrap()
            };
            let (mut first, mut second) = (side(Side::First, "7"), side(Side::Second, ""));
            let Step::Send(greeting) = second.hear(first.greeting(), keys)? else { return Ok(None) };
            let hello = sent(first.hear(&greeting, &one_key(of))?);
            second.hear(&hello, keys).map(|_| Some(second.identity().to_owned()))
        };
        let of_7 = |identity: &str| match identity {
            "7" => IdentityKey::Known(b"seven".to_vec()),
            _ => IdentityKey::Unknown,
        };
        assert_eq!(second(&of_7, b"seven"), Ok(Some("7".to_owned())));
        let wrong = second(&of_7, b"eight").unwrap_err();
        assert_eq!(wrong.fault, Fault::Token);
        assert!(wrong.why.contains("does not have the key of the identity \"7\""), "{}", wrong.why);
        assert_eq!(second(&|_| IdentityKey::Pending, b"seven"), Ok(None));
        assert_eq!(second(&|_| IdentityKey::Unknown, b"seven").unwrap_err().fault, Fault::Unknown);
    }

    #[test]
    fn an_unauthenticated_peer_learns_nothing_about_the_token() {
        let mut second = at(Side::Second, TOKEN, 1);
        let greeting = sent(second.hear(at(Side::First, "", 1).greeting()).unwrap());
        assert!(matches!(json::read(&greeting), Ok(Plain::Greeting { .. })), "no code");
        assert_eq!(fault(second.hear(b"nonsense\n")), Fault::Token);
        let farewell = second.farewell(Fault::Token).unwrap();
        assert_eq!(json::read::<Plain>(&farewell).unwrap(), Plain::Refused);
        let mut first = at(Side::First, TOKEN, 1);
        first.hear(&greeting).unwrap();
        assert_eq!(fault(first.hear(&farewell)), Fault::Token);
    }

    #[test]
    fn one_s_own_words_prove_nothing() {
        let mut first = at(Side::First, TOKEN, 1);
        let greeting = first.greeting().to_vec();
        let hello = sent(first.hear(&greeting).unwrap());
        assert_eq!(fault(first.hear(&hello)), Fault::Token);
    }

    #[test]
    fn a_proof_is_of_one_connection() {
        // Replays lines that an attacker between the nodes has recorded.
        let (mut first, mut second) = (at(Side::First, TOKEN, 1), at(Side::Second, TOKEN, 1));
        let greeting = first.greeting().to_vec();
        let hello = sent(first.hear(&sent(second.hear(&greeting).unwrap())).unwrap());
        let mut again = at(Side::Second, TOKEN, 1);
        again.hear(&greeting).unwrap();
        assert_eq!(fault(again.hear(&hello)), Fault::Token);
    }

    #[test]
    fn another_version_learns_ours() {
        let mut second = at(Side::Second, TOKEN, 1);
        let old = "{\"Greeting\":{\"schema\":\"rdma-init/pair/1\",\"program\":\"0.0.\\u001b9\",\
                   \"nonce\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}\n";
        let stranger = second.hear(old.as_bytes()).err().unwrap();
        for part in ["runs rdma-init 0.0.\u{fffd}9 with the protocol rdma-init/pair/1", PROTOCOL.schema] {
            assert!(stranger.why.contains(part), "{}", stranger.why);
        }
        assert!(second.farewell(stranger.fault).unwrap().starts_with(b"{\"Greeting\":"));
    }

    #[test]
    fn what_is_no_greeting_is_shown_as_far_as_it_goes() {
        for text in [&b"GET / HTTP/1.1\r\n"[..], b"\xff\xfe\n", b"{\"Refused\":1}\n", b"\"Refused\"\n", b"\n"]
        {
            assert_eq!(fault(at(Side::Second, TOKEN, 1).hear(text)), Fault::NotOurs);
            assert_eq!(fault(at(Side::First, TOKEN, 1).hear(text)), Fault::NotOurs);
        }
    }
}
