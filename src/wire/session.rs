//! Messages that no process without the token can forge, change, replay, drop, or reflect. Pure.
//!
//! Each direction has its own key. Both keys are derived from the token and the two greetings. Each
//! greeting contains a random number from its sender, so no other connection and no other side has the same
//! keys. The code of a message also covers its sequence number, so a message is valid only in its place.
//! Nothing is encrypted.

use hmac_sha256::{HKDF, HMAC, Hash};

use serde::Serialize;

use crate::json;
use crate::verbs::rail::Side;

/// The number of hexadecimal digits in a code.
const DIGITS: usize = 64;

pub struct Session {
    out: Chain,
    into: Chain,
}

/// The messages of one direction.
struct Chain {
    key: [u8; 32],
    /// The sequence number of the next message.
    number: u64,
}

impl Session {
    /// Makes the session of the node at one side. `greetings` are the lines that both nodes sent, the first
    /// side's first.
    pub fn new(schema: &str, token: &[u8], side: Side, greetings: [&[u8]; 2]) -> Session {
        let secret = HKDF::extract(schema, token);
        let hashes = greetings.map(Hash::hash);
        let chain = |from: Side| {
            let purpose: &[u8] = match from {
                Side::First => b"messages of the first side",
                Side::Second => b"messages of the second side",
            };
            let mut key = [0; 32];
            let [first, second] = &hashes;
            HKDF::expand(&mut key, secret, [purpose, first, second].concat());
            Chain { key, number: 0 }
        };
        Session { out: chain(side), into: chain(side.other()) }
    }

    /// Makes the line for a message.
    pub fn seal(&mut self, message: &impl Serialize) -> Vec<u8> {
        let mut text = json::line(message);
        let code = HMAC::mac(self.out.signed(text.strip_suffix(b"\n").unwrap_or(&text)), self.out.key);
        self.out.number += 1;
        let mut line = code.map(|byte| format!("{byte:02x}")).concat().into_bytes();
        line.push(b' ');
        line.append(&mut text);
        line
    }

    /// Returns the text of a line; `None` if this is not the other node's next line.
    pub fn open<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (code, text) = line.strip_suffix(b"\n")?.split_at_checked(DIGITS)?;
        let text = text.strip_prefix(b" ")?;
        let code: [u8; 32] = code_of(code)?;
        if !HMAC::verify(self.into.signed(text), self.into.key, &code) {
            return None;
        }
        self.into.number += 1;
        Some(text)
    }
}

impl Chain {
    fn signed(&self, text: &[u8]) -> Vec<u8> {
        [&self.number.to_be_bytes(), text].concat()
    }
}

fn code_of(digits: &[u8]) -> Option<[u8; 32]> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(value(high)? << 4 | value(low)?).ok(),
        _ => None,
    });
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::handshake::Proof;

    const SCHEMA: &str = "rdma-init/test/1";
    const TOKEN: &[u8] = b"0123456789abcdef";
    const GREETINGS: [&[u8]; 2] = [b"first\n", b"second\n"];

    fn two() -> [Session; 2] {
        [Side::First, Side::Second].map(|side| Session::new(SCHEMA, TOKEN, side, GREETINGS))
    }

    fn hello(longest_ms: u64) -> Proof {
        Proof::Hello { longest_ms }
    }

    #[test]
    fn both_sides_understand_each_other() {
        let [mut first, mut second] = two();
        for number in 0..3 {
            let line = first.seal(&hello(number));
            let text = format!("{{\"Hello\":{{\"longest_ms\":{number}}}}}");
            assert_eq!(second.open(&line), Some(text.as_bytes()));
            let line = second.seal(&hello(number));
            assert_eq!(first.open(&line), Some(text.as_bytes()));
        }
    }

    #[test]
    fn a_message_counts_once_and_in_its_place() {
        let [mut first, mut second] = two();
        let lines: Vec<_> = (0..3).map(|number| first.seal(&hello(number))).collect();
        assert!(second.open(&lines[1]).is_none(), "reordered, or the first was dropped");
        assert!(second.open(&lines[0]).is_some());
        assert!(second.open(&lines[0]).is_none(), "replayed");
        assert!(second.open(&lines[2]).is_none(), "the second was dropped");
        assert!(second.open(&lines[1]).is_some());
        let mut own = first.seal(&hello(3));
        assert!(first.open(&own).is_none(), "reflected");
        own.insert(own.len() - 2, b' ');
        assert!(second.open(&lines[2]).is_some());
        assert!(second.open(&own).is_none(), "extended");
    }

    #[test]
    fn every_bit_counts() {
        let [mut first, mut second] = two();
        let line = first.seal(&hello(1));
        for place in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.clone();
                changed[place] ^= 1 << bit;
                // The same hexadecimal digit in upper case is not a change.
                if place >= DIGITS || !changed.eq_ignore_ascii_case(&line) {
                    assert!(second.open(&changed).is_none(), "{place}, {bit}");
                }
            }
            assert!(second.open(&line[..place]).is_none(), "cut at {place}");
            let cut = [&line[..place], b"\n"].concat();
            assert!(cut == line || second.open(&cut).is_none(), "cut at {place}");
            let extended = [&line[..place], b" ", &line[place..]].concat();
            assert!(second.open(&extended).is_none(), "extended at {place}");
        }
        assert!(second.open(b"").is_none() && second.open(&[b'0'; 65]).is_none());
        assert!(second.open(&line).is_some());
    }

    #[test]
    fn keys_are_of_one_token_one_connection_and_one_side() {
        let line = two()[0].seal(&hello(1));
        let open = |token: &[u8], side, greetings| {
            Session::new(SCHEMA, token, side, greetings).open(&line).is_some()
        };
        assert!(open(TOKEN, Side::Second, GREETINGS));
        assert!(Session::new("rdma-init/other/1", TOKEN, Side::Second, GREETINGS).open(&line).is_none());
        assert!(!open(b"0123456789abcdeg", Side::Second, GREETINGS));
        assert!(!open(b"", Side::Second, GREETINGS));
        assert!(!open(TOKEN, Side::First, GREETINGS));
        assert!(!open(TOKEN, Side::Second, [b"second\n", b"first\n"]));
        assert!(!open(TOKEN, Side::Second, [b"other\n", b"second\n"]));
        assert!(!open(TOKEN, Side::Second, [b"first\n", b"other\n"]));
        assert!(!open(TOKEN, Side::Second, [b"firsts", b"econd\n"]));
    }
}
