//! What the nodes of a job tell node 0, and each other, once they know each other.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::pair::{PairFailure, PairReport};
use super::tcp::Cookie;
use crate::compare::brief::Brief;
use crate::wire::Protocol;

/// Between a node and node 0.
pub const MEETING: Protocol = Protocol { schema: "rdma-init/preflight-meeting/1", command: "preflight" };

/// Between the two nodes of a pair.
pub const PAIR: Protocol = Protocol { schema: "rdma-init/preflight-pair/1", command: "preflight" };

/// In bytes: the longest message of a node to node 0. A report of a node with sixteen rails and a
/// hundred variables has some ten thousand.
pub const LONGEST: usize = 256 * 1024;

/// The most reports in one message. Where all of sixteen rails fail, with a long sentence each, so many
/// of them fit into [`LONGEST`].
pub const REPORTS_AT_ONCE: usize = 32;

/// The most partners in one message, each of some hundred bytes.
pub const PARTNERS_AT_ONCE: usize = 256;

/// A random number of node 0's, which makes the keys of this job's pairs.
pub type Job = [u8; 16];

/// From a node to node 0.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToZero {
    Join(Box<Join>),
    /// The node is there, and in this round.
    Alive {
        round: u16,
    },
    /// Reports of pairs, and whether more are to follow.
    Proved {
        reports: Vec<PairReport>,
        more: bool,
    },
}

/// A node that comes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Join {
    pub node: u32,
    /// The number of nodes that it expects.
    pub nodes: u32,
    /// The job as its launcher calls it, where it does.
    pub job: Option<String>,
    /// The address at which other nodes find it; `None` where it is with node 0.
    pub address: Option<IpAddr>,
    /// The port on which it waits for its partners.
    pub port: u16,
    /// The names of its rails.
    pub rails: Vec<String>,
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
    /// Try these pairs, in their order; whether more of them are to follow.
    Prove { job: Job, pairs: Vec<Partner>, more: bool },
    /// This node has gone: nobody has to wait for it.
    Gone { node: u32, why: String },
    /// This node cannot take part.
    Refused(String),
    /// The end.
    Verdict(Told),
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
    /// By how many rails those of the higher node are shifted; 0: each rail with the same rail.
    pub shift: u16,
}

/// The verdict, as a node needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub passed: bool,
    /// What this node says.
    pub line: String,
    /// Why no command may start, with the culprits' names; `None` where nothing is wrong.
    pub reason: Option<String>,
}

/// From the end that calls, and what it hears.
#[derive(Debug, Serialize, Deserialize)]
pub enum Call {
    /// The node `from` is ready for its pair with the node `to`.
    Ready { round: u16, from: u32, to: u32 },
    /// The node `from` is ready as well, and asks whether the node `to` will call.
    Asks { round: u16, from: u32, to: u32 },
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

/// Where the rails of a node wait, in its order; from the second side to the first.
#[derive(Debug, Serialize, Deserialize)]
pub struct Offer {
    pub rails: Vec<Result<Place, String>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Place {
    pub name: String,
    pub address: IpAddr,
    pub port: u16,
    pub cookie: Cookie,
}
