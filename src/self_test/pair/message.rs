//! What two nodes send each other after they have authenticated.

use serde::{Deserialize, Serialize};

use super::super::report::Rail;
use super::error::RailError;
use crate::text::{shortened, visible};
use crate::verbs::talk::End;
use crate::wire::Protocol;

pub(super) const PROTOCOL: Protocol = Protocol { schema: "rdma-init/pair/3", command: "self-test" };

/// The messages of the protocol. Both nodes send each of these, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    Node(Node),
    /// The end of each rail, if one could be made.
    Ends(Vec<Option<End>>),
    /// Whether each rail can receive.
    Ready(Vec<bool>),
    /// The result of each rail.
    Done(Vec<Moved>),
}

impl Message {
    pub(super) fn kind(&self) -> &'static str {
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
pub(crate) struct Node {
    pub host: String,
    /// The version of NCCL in its image.
    pub nccl: Option<String>,
    pub rails: Vec<Rail>,
}

impl Node {
    /// Removes anything that a terminal or a reader must not get from an untrusted peer.
    pub(crate) fn presentable(mut self) -> Node {
        let rails = self.rails.iter_mut().flat_map(|rail| {
            let texts = [&mut rail.hca, &mut rail.link_layer, &mut rail.rate];
            texts.into_iter().chain(&mut rail.gid_type).chain(&mut rail.traffic_class)
        });
        for text in rails.chain(&mut self.nccl).chain([&mut self.host]) {
            *text = visible(&shortened(text));
        }
        self
    }
}

/// The result of one rail at one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// Whether all data that arrived is what the other node sent.
    pub verified: bool,
    pub latency_ns: Option<u64>,
    /// In Mbit/s, to the other node.
    pub bandwidth_mbps: Option<u64>,
    /// What failed, and how.
    pub error: Option<RailError>,
    /// Why the rail was not tested.
    pub skipped: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::shape;
    use crate::verbs::device::PortState;
    use crate::verbs::failure::Failure;
    use crate::verbs::port_test::ProbeEnd;
    use crate::verbs::step::Step;

    #[test]
    fn messages_have_the_number_of_their_shape() {
        let rail = Rail { traffic_class: Some(String::new()), ..Rail::default() };
        let node = Node { host: String::new(), nccl: Some(String::new()), rails: vec![rail] };
        let end =
            End { number: 1, lid: 1, gid: Some([0; 16].into()), mtu: 4096, address: 1, key: 1, size: 1 };
        let during = Some(Step::Close);
        let failures = [
            Failure::Errno(1),
            Failure::Node { path: String::new(), errno: 1 },
            Failure::NoDevice(String::new()),
            Failure::Port(PortState::Down),
            Failure::EmptySlot(1),
            Failure::Completion { status: 1, text: String::new() },
            Failure::NoCompletion,
            Failure::Removed,
            Failure::OtherData,
            Failure::LongMessage(Box::new(Failure::Removed)),
        ];
        let ends = [
            ProbeEnd::Crashed { signal: String::new(), during },
            ProbeEnd::Exited { code: 1, during },
            ProbeEnd::Hung { after_ms: 1, during, gone: true },
            ProbeEnd::Garbled { during },
            ProbeEnd::NotStarted { errno: 1 },
        ];
        let now = Some(PortState::Down);
        let failures = failures.map(|why| RailError::Step { step: Step::Wait, why, now });
        let errors = failures.into_iter().chain(ends.map(RailError::Probe));
        let done = errors.map(|error| Moved {
            verified: true,
            latency_ns: Some(1),
            bandwidth_mbps: Some(1),
            error: Some(error),
            skipped: Some(String::new()),
        });
        let mut all = vec![Message::Node(node), Message::Ends(vec![Some(end)]), Message::Ready(vec![true])];
        all.extend(done.map(|moved| Message::Done(vec![moved])));
        let all: Vec<String> = all.iter().map(shape).collect();
        assert_eq!(
            (PROTOCOL.schema, all.join("\n").as_str()),
            ("rdma-init/pair/3", include_str!("shapes.txt").trim_end()),
            "raise the number of the protocol and of the preflight's, and write the new shapes here"
        );
    }
}
