//! Why a node that has started its rounds gets no verdict.

use crate::preflight::meet::node::HUNG;
use crate::wire::AcceptError;
use crate::wire::stranger::Stranger;

#[derive(Debug, thiserror::Error)]
pub enum RoundsError {
    #[error("node 0 violates the protocol, so there is no verdict: {0}")]
    WrongOrder(#[from] WrongOrder),
    /// The connection ended, or delivered something else.
    #[error("node 0 disconnected, so there is no verdict: {0}")]
    Lost(#[from] Stranger),
    /// Node 0 reports why; the text is safe to show.
    #[error("node 0 rejected this node: {0}")]
    Rejected(String),
    #[error(
        "node 0 ({zero}) has sent no verdict within {within}, the longest time that the rounds may take with this node's --rounds and --each"
    )]
    Late { zero: String, within: String },
    #[error("node 0 ({zero}) has sent nothing for {} s, so there is no verdict", HUNG.as_secs())]
    Silent { zero: String },
    #[error(transparent)]
    Accept(#[from] AcceptError),
}

/// Claims of node 0 that are impossible in this job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongOrder {
    #[error("it names node {node} of {nodes}")]
    NoSuchNode { node: u32, nodes: u32 },
    #[error("it names this node as its own peer")]
    Itself,
    #[error("it names more than {0} pairs")]
    TooManyPairs(usize),
    #[error("it names the pair with node {node} in round {round} twice")]
    Twice { node: u32, round: u16 },
    #[error("it says that node {node} of {nodes} has disconnected")]
    NoSuchNodeLost { node: u32, nodes: u32 },
}
