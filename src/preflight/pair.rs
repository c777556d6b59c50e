//! What two nodes of a job have proved between them, as both tell it to node 0.

use serde::{Deserialize, Serialize};

/// What one node says about its pair with another node in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairReport {
    /// Counted from 0, over the rounds and then the rounds of second tries.
    pub round: u16,
    /// The index of the node that says so.
    pub node: u32,
    /// The index of the other node.
    pub partner: u32,
    /// How long it took, in seconds.
    pub seconds: f32,
    pub outcome: PairOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairOutcome {
    /// Both came, and each rail was tried.
    Rails(Vec<RailReport>),
    /// The pair did not come about.
    Failed(PairFailure),
}

/// Why two nodes could not try their rails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairFailure {
    /// No connection to the partner over TCP; a sentence that says why.
    Unreachable(String),
    /// The partner is there, and says nothing.
    Silent,
    /// The partner has closed the connection, or its process has ended.
    Left,
    /// The partner does not keep to the protocol, or says that it cannot; a sentence.
    Refused(String),
}

/// One rail of the node that reports, to the same rail of its partner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RailReport {
    /// The index in the list of rails that each node has brought with it.
    pub rail: u16,
    /// The figures, or the sentence about what went wrong.
    pub result: Result<Measured, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of 8 bytes there and back, in microseconds.
    pub latency_us: f32,
    /// From this node to its partner, in Gbit/s.
    pub gbps: f32,
}
