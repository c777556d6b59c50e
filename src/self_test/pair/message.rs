//! What two nodes tell each other once they know each other.

use serde::{Deserialize, Serialize};

use super::super::report::Rail;
use crate::text::{shortened, visible};
use crate::verbs::talk::End;
use crate::wire::Protocol;

pub const PROTOCOL: Protocol = Protocol { schema: "rdma-init/pair/2", command: "self-test" };

/// The messages of the protocol. Both nodes send each of these, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    Node(Node),
    /// The end of each rail, if one could be made.
    Ends(Vec<Option<End>>),
    /// Whether each rail can receive.
    Ready(Vec<bool>),
    /// The result of each rail.
    Done(Vec<Moved>),
}

impl Message {
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Node(_) => "Node",
            Message::Ends(_) => "Ends",
            Message::Ready(_) => "Ready",
            Message::Done(_) => "Done",
        }
    }
}

/// The description of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub host: String,
    /// The release of NCCL in its image.
    pub nccl: Option<String>,
    pub rails: Vec<Rail>,
}

impl Node {
    /// Removes what a terminal or a reader should not get from a stranger.
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

/// The result of one rail at one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Whether all data that arrived is what the other node had sent.
    pub verified: bool,
    pub latency_ns: Option<u64>,
    /// In Mbit/s, to the other node.
    pub bandwidth_mbps: Option<u64>,
    /// What failed, and how.
    pub error: Option<String>,
    /// Why the rail was not tried.
    pub skipped: Option<String>,
}
