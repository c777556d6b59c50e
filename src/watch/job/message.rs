//! What the watchers of a job send each other: those of all nodes to that of node 0.

use serde::{Deserialize, Serialize};

use crate::sys::fork::Ended;
use crate::wire::Protocol;

pub(super) const PROTOCOL: Protocol = Protocol { schema: "rdma-init/watch-job/3", command: "watcher" };

/// In bytes: the longest message. One of a node with [`PORTS`] ports has less than half of that.
pub(super) const LONGEST: usize = 4096;

/// The most ports in one message, and the longest of their names, in bytes.
pub(super) const PORTS: usize = 8;
pub(super) const LONGEST_PORT: usize = 64;

/// The longest name of a host, in bytes (RFC 1123 and the kernel allow no longer ones).
pub(super) const LONGEST_NAME: usize = 253;

/// To node 0.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToZero {
    Join(Join),
    /// The answer to [`ToNode::Tell`].
    State(State),
    /// Since its last answer, this node has begun to move data, or has come to rest. It says so once for each answer.
    Changed,
    /// The command of this node has ended, and its watcher ends as well.
    Bye(End),
}

/// How the command of a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    Exited { code: i32 },
    Killed { signal: i32 },
}

impl From<Ended> for End {
    fn from(ended: Ended) -> End {
        match ended {
            Ended::Exited(code) => End::Exited { code },
            Ended::Killed(signal) => End::Killed { signal },
        }
    }
}

/// A node that has connected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Join {
    pub node: u32,
    /// The number of nodes that it knows of.
    pub nodes: u32,
    /// The job as its launcher calls it, where it does.
    pub job: Option<String>,
    /// The name of its host.
    pub name: String,
}

/// From node 0.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToNode {
    /// Tell when your rails last moved data, and what your ports have counted.
    Tell,
    /// This node cannot take part.
    Refused(String),
    /// Whether node 0 reports that the whole job has stalled.
    Stalled(bool),
    /// The command of node 0 has ended, and its watcher ends as well.
    Bye(End),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub moved: Moved,
    /// Only ports that have something to tell, the worst first.
    pub ports: Vec<PortCounts>,
}

/// When the rails of a node moved data last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Moved {
    /// The ports do not count what they move.
    Unknown,
    Never,
    /// Between two looks, the later of which was so long ago. Clocks of nodes differ, so no message has a time of day.
    Ago {
        ms: u64,
        between_ms: u64,
    },
}

/// What a port has counted since shortly before the rails moved data last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PortCounts {
    pub port: String,
    pub state: PortState,
    /// Queue pairs that failed.
    pub ended: u64,
    /// How often the link went down.
    pub link_downs: u64,
    pub link_errors: u64,
    /// Packets that were sent again.
    pub resent: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PortState {
    #[default]
    AsBefore,
    Down,
    Gone,
}

/// What the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(line: &[u8]) {
    use crate::json::read;
    let _ = (read::<ToNode>(line), read::<ToZero>(line));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{line, shape};

    fn port(state: PortState) -> PortCounts {
        PortCounts { state, ..PortCounts::default() }
    }

    #[test]
    fn messages_of_watchers_have_the_number_of_their_shape() {
        let join = Join { node: 0, nodes: 2, job: Some(String::new()), name: String::new() };
        let state = |moved, ports| shape(ToZero::State(State { moved, ports }));
        let all = [
            shape(ToZero::Join(join)),
            state(Moved::Unknown, vec![port(PortState::AsBefore)]),
            state(Moved::Never, vec![port(PortState::Down)]),
            state(Moved::Ago { ms: 1, between_ms: 1 }, vec![port(PortState::Gone)]),
            shape(ToZero::Changed),
            shape(ToZero::Bye(End::Exited { code: 1 })),
            shape(ToZero::Bye(End::Killed { signal: 9 })),
            shape(ToNode::Tell),
            shape(ToNode::Refused(String::new())),
            shape(ToNode::Stalled(true)),
            shape(ToNode::Bye(End::Exited { code: 1 })),
        ];
        assert_eq!(
            (PROTOCOL.schema, all.join("\n").as_str()),
            ("rdma-init/watch-job/3", include_str!("shapes.txt").trim_end()),
            "raise the number of the protocol, and write the new shapes here"
        );
    }

    #[test]
    fn the_longest_message_fits() {
        let most = PortCounts {
            port: "x".repeat(LONGEST_PORT),
            state: PortState::AsBefore,
            ended: u64::MAX,
            link_downs: u64::MAX,
            link_errors: u64::MAX,
            resent: u64::MAX,
        };
        let moved = Moved::Ago { ms: u64::MAX, between_ms: u64::MAX };
        let longest = line(&ToZero::State(State { moved, ports: vec![most; PORTS] })).len();
        assert!(longest < LONGEST / 2, "{longest}");
    }
}
