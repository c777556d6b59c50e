//! Why the nodes that take part, or this node's index, cannot be determined.

use std::fmt;

use super::MOST_NODES;
use crate::facts::launchers::LauncherValueError;
use crate::text::counted;
use crate::wire::AddressError;

/// Texts such as `from` name a variable or option and its value: `SLURM_NNODES=4`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartError {
    #[error("{from}: this is not a number of nodes or an index")]
    NotANumber { from: String },
    #[error(
        "{from}: an elastic job has no fixed number of nodes, which the preflight needs; set --nodes N, or --preflight-nodes N before a command"
    )]
    Elastic { from: String },
    #[error("{from}: a job has 1 to {MOST_NODES} nodes")]
    TooMany { from: String },
    #[error(
        "{node} and {nodes} contradict each other: the nodes are counted from 0, so the last one is {last}"
    )]
    NodeBeyondLast { node: String, nodes: String, last: u32 },
    /// One launcher starts this number of nodes by default, but another one names a different number.
    #[error(
        "{default} starts a job of {}, and {other} contradicts it; give the launcher the number of nodes, or set {option}",
        counted(*.count as usize, "node")
    )]
    Contradiction { default: String, count: u32, other: String, option: String },
    #[error("{}{why}", if .from.is_empty() { String::new() } else { format!("{from}: ") })]
    Place { from: String, why: PlaceError },
    #[error("cannot determine {what}{why}; set {option}")]
    Unknown { what: Missing, why: Gap, option: String },
}

/// What is wrong with an address of node 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("port 0 is not a port of node 0")]
    NoPort,
    #[error("the address of node 0 has no host")]
    NoHost,
}

/// What cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    Nodes,
    Node { nodes: u32, from: String },
    Place,
}

/// Why no launcher provides it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gap {
    /// What a launcher reports instead.
    Reason(String),
    /// This launcher does not provide it.
    NotSaid(&'static str),
    NoLauncher,
}

impl From<LauncherValueError> for PartError {
    fn from(unclear: LauncherValueError) -> PartError {
        match unclear {
            LauncherValueError::NotANumber(from) => PartError::NotANumber { from },
            LauncherValueError::Elastic(from) => PartError::Elastic { from },
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Missing::Nodes => f.write_str("how many nodes the job has"),
            Missing::Node { nodes, from } => write!(f, "which of the {nodes} nodes ({from}) this one is"),
            Missing::Place => f.write_str("where the nodes meet"),
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Gap::Reason(why) => write!(f, ": {why}"),
            Gap::NotSaid(launcher) => write!(f, " (not set by {launcher})"),
            Gap::NoLauncher => {
                f.write_str(" (no variable of a known launcher is set, and the command is not torchrun)")
            }
        }
    }
}
