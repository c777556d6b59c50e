//! What the nodes of a job tell node 0, and each other, once they know each other.

use std::net::IpAddr;
use std::time::Duration;

use hmac_sha256::HKDF;
use serde::{Deserialize, Serialize};

use crate::compare::brief::Brief;
use crate::preflight::meet::times::Times;
use crate::preflight::prove::connections::Cookie;
use crate::preflight::prove::pair::{PairFailure, PairReport};
use crate::preflight::who::addresses::Addresses;
use crate::self_test::isolate;
use crate::wire::Protocol;

/// Between a node and node 0.
pub const MEETING: Protocol = Protocol { schema: "rdma-init/preflight-meeting/8", command: "preflight" };

/// Between the two nodes of a pair.
pub const PAIR: Protocol = Protocol { schema: "rdma-init/preflight-pair/4", command: "preflight" };

/// In bytes: the longest message of a node to node 0. A report of a node with sixteen rails and a
/// hundred variables has some ten thousand.
pub const LONGEST: usize = 256 * 1024;

/// The most reports in one message, and the most reports of rails in them: with a long sentence for each, so
/// many fit into [`LONGEST`]. A message has one report at least, however many rails that has.
pub const REPORTS_AT_ONCE: usize = 32;
pub const RAILS_AT_ONCE: usize = 32 * 16;

/// The most partners in one message, each of some hundred bytes.
pub const PARTNERS_AT_ONCE: usize = 256;

/// What node 0 gives to the two nodes of a pair, and to no other one. Together with the token it is the key of
/// the pair's connection.
pub type Secret = [u8; 16];

/// Returns the key of a pair's connection. A process that knows only the token, or only the secret, does not
/// have it.
pub fn pair_key(secret: &Secret, token: &str) -> [u8; 32] {
    HKDF::extract(secret, token)
}

/// From a node to node 0.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToZero {
    Join(Box<Join>),
    /// The node is there.
    Alive,
    /// What came of pairs: of each soon after it is over.
    Proved(Vec<PairReport>),
}

/// A node that comes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Join {
    pub node: u32,
    /// The number of nodes that it expects.
    pub nodes: u32,
    /// The job as its launcher calls it, where it does.
    pub job: Option<String>,
    /// The address at which other nodes find it; `None` if it is with node 0.
    pub address: Option<IpAddr>,
    /// The port on which it waits for its partners.
    pub port: u16,
    /// The names of its rails.
    pub rails: Vec<String>,
    /// The rates of its rails in Gbit/s, in the same order; 0 if the rate of a rail is not known.
    pub rates: Vec<f32>,
    /// The addresses of its rails.
    pub addresses: Addresses,
    /// `verbs`, `sockets`.
    pub transport: String,
    /// Its self-test.
    pub report: Brief,
}

/// From node 0 to a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToNode {
    /// Node 0 is there, and waits; for whom.
    Waiting { missing: String },
    /// Node 0 is there, and others are at work.
    Working,
    /// Try these pairs, in their order.
    Prove(Order),
    /// This node has gone: do not wait for it.
    Gone { node: u32 },
    /// This node cannot take part.
    Refused(String),
    /// The end.
    Verdict(Told),
}

/// Pairs to try, all of them or a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the round that begins now.
    pub first: u16,
    /// The longest time for the test of a port, in milliseconds, from which follows how long a round may
    /// take: node 0 and both nodes of a pair count with the same time.
    pub each_ms: u64,
    pub pairs: Vec<Partner>,
}

impl Order {
    pub fn times(&self) -> Times {
        Times { each: Duration::from_millis(self.each_ms).min(isolate::LONGEST) }
    }
}

/// Whom to try the rails with, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partner {
    /// Rounds of second tries go on after those of the first.
    pub round: u16,
    pub node: u32,
    pub name: String,
    /// Where to find it; `None`: where node 0 is.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub secret: Secret,
    pub work: Work,
    /// Whether this is a second try, in which a rail is tried even if it seems to be dead.
    pub is_again: bool,
}

#[cfg(test)]
impl Partner {
    /// Returns an order to try the rails with this node, as far as tests look at it.
    pub fn in_round(round: u16, node: u32) -> Partner {
        Partner {
            round,
            node,
            name: String::new(),
            address: None,
            port: 1,
            secret: Secret::default(),
            work: Work::Rails,
            is_again: false,
        }
    }
}

/// What the two nodes of a pair do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// They try each rail with the same rail of the other node.
    #[default]
    Rails,
    /// They try each rail with another one: the rails of the higher node are shifted by so many.
    Crosswise(u16),
    /// All pairs of the job move data at once.
    Together,
}

/// The verdict, as a node needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub passed: bool,
    /// What this node says.
    pub line: String,
    /// Why no command may start, with the culprits' names; `None` if nothing is wrong.
    pub reason: Option<String>,
    /// Whether rails were tried with other ones, and none reached another one.
    pub rails_apart: bool,
}

/// Which node calls which one, for which round. This is the identity in the greeting of the node that calls,
/// and the secret of that pair proves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallId {
    pub round: u16,
    pub from: u32,
    pub to: u32,
}

/// `3 17 4`: in round 3, node 17 calls node 4.
impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let CallId { round, from, to } = self;
        write!(f, "{round} {from} {to}")
    }
}

impl CallId {
    /// `None` if the text is not what [`CallId`] writes.
    pub fn read(text: &str) -> Option<CallId> {
        let mut words = text.split(' ');
        let id = CallId {
            round: words.next()?.parse().ok()?,
            from: words.next()?.parse().ok()?,
            to: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(id)
    }
}

/// From the end that calls, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// The node is ready for its pair with this one.
    Ready,
    /// The node is ready as well, and asks whether this one will call.
    Asks,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The node is in this round.
    Busy { round: u16 },
    /// Now.
    Go,
    /// That pair is over for this node; how it has ended.
    Over(PairFailure),
}

/// Where the rails of a node listen, in its order; each of the two nodes of a pair sends it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Offer {
    pub rails: Vec<Result<RailEndpoint, String>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RailEndpoint {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    pub cookie: Cookie,
}

/// What the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(line: &[u8]) {
    use crate::json::read;
    let _ = read::<ToZero>(line);
    if let Ok(ToNode::Prove(order)) = read::<ToNode>(line) {
        order.times();
    }
    let _ = (read::<Call>(line), read::<Answer>(line), read::<Offer>(line));
    if let Some(id) = CallId::read(&String::from_utf8_lossy(line)) {
        assert_eq!(CallId::read(&id.to_string()), Some(id));
    }
}

#[cfg(test)]
mod tests;
