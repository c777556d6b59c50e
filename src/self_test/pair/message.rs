//! What two nodes tell each other: lines of JSON, behind a code once both have greeted
//! (see [`super::session`]).

use serde::{Deserialize, Serialize};

use super::super::report::Rail;
use crate::text::{shortened, visible};
use crate::verbs::talk::End;

/// The version of all that follows the greeting.
pub const SCHEMA: &str = "rdma-init/pair/2";

/// What anybody may have written. Nothing of it is believed but that the two cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Plain {
    Greeting {
        schema: String,
        program: String,
        /// Random; see [`super::session`].
        nonce: Nonce,
    },
    /// The other node's proof was wrong.
    Refused,
}

pub type Nonce = [u8; 16];

/// Both nodes send each of these, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// The code of this one proves that its sender has the token.
    Hello {
        /// Milliseconds: how long the sender may take for each of its next messages.
        longest_ms: u64,
    },
    Node(Node),
    /// For each rail, where that could be made.
    Ends(Vec<Option<End>>),
    /// For each rail, whether it can receive.
    Ready(Vec<bool>),
    /// For each rail.
    Done(Vec<Moved>),
}

impl Message {
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Hello { .. } => "Hello",
            Message::Node(_) => "Node",
            Message::Ends(_) => "Ends",
            Message::Ready(_) => "Ready",
            Message::Done(_) => "Done",
        }
    }
}

/// What a node is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub host: String,
    /// The release of NCCL in its image.
    pub nccl: Option<String>,
    pub rails: Vec<Rail>,
}

impl Node {
    /// Without what a terminal or a reader should not get from a stranger.
    pub fn presentable(mut self) -> Node {
        let rails = self.rails.iter_mut().flat_map(|rail| {
            let texts = [&mut rail.hca, &mut rail.link_layer, &mut rail.rate];
            texts.into_iter().chain(&mut rail.gid_type)
        });
        for text in rails.chain(&mut self.nccl).chain([&mut self.host]) {
            *text = visible(&shortened(text));
        }
        self
    }
}

/// What came of one rail at one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Whether all that came was what the other node had sent.
    pub verified: bool,
    pub latency_ns: Option<u64>,
    /// Mbit/s, to the other node.
    pub bandwidth_mbps: Option<u64>,
    /// What failed, and how.
    pub error: Option<String>,
    /// Why it was not tried.
    pub skipped: Option<String>,
}
