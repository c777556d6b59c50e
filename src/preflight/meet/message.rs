//! The messages that the nodes of a job send to node 0 and to each other, after they have
//! authenticated.

use std::net::IpAddr;
use std::time::Duration;

use hmac_sha256::HKDF;
use serde::{Deserialize, Serialize};

use crate::compare::brief::Brief;
use crate::preflight::meet::times::Times;
use crate::preflight::prove::connections::Cookie;
use crate::preflight::prove::pair::{PairFailure, PairReport};
use crate::preflight::who::addresses::Addresses;
use crate::preflight::who::own::Network;
use crate::self_test::isolate;
use crate::wire::Protocol;

/// Between a node and node 0.
pub const MEETING: Protocol = Protocol { schema: "rdma-init/preflight-meeting/10", command: "preflight" };

/// Between the two nodes of a pair.
pub const PAIR: Protocol = Protocol { schema: "rdma-init/preflight-pair/4", command: "preflight" };

/// In bytes: the longest message from a node to node 0. The report of a node with sixteen rails and a
/// hundred variables takes a few tens of thousands.
pub const LONGEST: usize = 256 * 1024;

/// The most reports in one message, and the most reports of rails in them. That many fit into
/// [`LONGEST`], even with a long sentence for each. A message contains at least one report, however
/// many rails that report has.
pub const REPORTS_AT_ONCE: usize = 32;
pub const RAILS_AT_ONCE: usize = 32 * 16;

/// The most peers in one message. Each takes a few hundred bytes.
pub const PARTNERS_AT_ONCE: usize = 256;

/// What node 0 gives only to the two nodes of a pair. Together with the token, it yields the key of the
/// pair's connection.
pub type Secret = [u8; 16];

/// Returns the key of a pair's connection. A process that knows only the token, or only the secret,
/// cannot compute it.
pub fn pair_key(secret: &Secret, token: &str) -> [u8; 32] {
    HKDF::extract(secret, token)
}

/// From a node to node 0.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToZero {
    Join(Box<Join>),
    /// A keep-alive.
    Alive,
    /// The results of pairs. A node sends each soon after its pair is over.
    Proved(Vec<PairReport>),
}

/// What a node reports when it joins.
#[derive(Debug, Serialize, Deserialize)]
pub struct Join {
    pub node: u32,
    /// The number of nodes that it expects.
    pub nodes: u32,
    /// The job's ID from the launcher, if the launcher sets one.
    pub job: Option<String>,
    /// The address at which other nodes reach it; `None` if it runs beside node 0.
    pub address: Option<IpAddr>,
    /// The port on which it listens for its peers.
    pub port: u16,
    /// The names of its rails.
    pub rails: Vec<String>,
    /// The rates of its rails in Gbit/s, in the same order; 0 if the rate of a rail is not known.
    pub rates: Vec<f32>,
    /// The addresses of its rails.
    pub addresses: Addresses,
    /// `verbs` or `sockets`: what the preflight tests.
    pub transport: String,
    pub network: Network,
    /// The report of its self-test.
    pub report: Brief,
}

/// From node 0 to a node.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToNode {
    /// Node 0 is alive, and is waiting for the `missing` nodes.
    Waiting { missing: String },
    /// Node 0 is alive, and other nodes are testing.
    Working,
    /// Test these pairs, in this order.
    Prove(Order),
    /// This node has disconnected: do not wait for it.
    Gone { node: u32 },
    /// This node cannot take part.
    Refused(String),
    /// The verdict, which ends the preflight.
    Verdict(Told),
}

/// The pairs to test: all of them, or a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number of the round that begins now.
    pub first: u16,
    /// The longest time for the test of a port, in milliseconds. It determines how long a round may
    /// take, so node 0 and both nodes of a pair use the same time.
    pub each_ms: u64,
    pub pairs: Vec<Partner>,
}

impl Order {
    pub fn times(&self) -> Times {
        Times { each: Duration::from_millis(self.each_ms).min(isolate::LONGEST) }
    }
}

/// The node to test the rails with, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partner {
    /// The round. Retry rounds continue the numbers of the scheduled rounds.
    pub round: u16,
    pub node: u32,
    pub name: String,
    /// The node's address; `None` if it is the address of node 0.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub secret: Secret,
    pub work: Work,
    /// Whether this is a retry, which tests a rail even if it seems to be dead.
    pub is_again: bool,
}

#[cfg(test)]
impl Partner {
    /// Returns an order to test the rails with this node, with the fields that tests look at.
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
    /// They test each rail with the same rail of the other node.
    #[default]
    Rails,
    /// They test each rail with a different one: the higher node's rails are shifted by this number.
    Crosswise(u16),
    /// All pairs of the job move data at once.
    Together,
}

/// The verdict, in the form that a node needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub passed: bool,
    /// The line that this node logs.
    pub line: String,
    /// Why no command may start, with the names of what is faulty; `None` if nothing is wrong.
    pub reason: Option<String>,
}

/// Which node calls which other node, and for which round. The calling node sends this as its identity
/// in the greeting, and the secret of that pair proves it.
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
    /// Returns `None` if the text is not in the form that [`CallId`] writes.
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

/// What the end that calls sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// The node is ready for its pair with this one.
    Ready,
    /// The node is ready as well, and asks whether this one will call.
    Asks,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The node is still busy in this round.
    Busy { round: u16 },
    /// Start now.
    Go,
    /// For this node, that pair is over, and this is how it ended.
    Over(PairFailure),
}

/// Where the rails of a node listen, in the order of the rails; both nodes of a pair send this.
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

/// Runs the code that the fuzzers call; see [`crate::fuzz`].
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
