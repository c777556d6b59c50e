//! Why a process has no verdict from its job's preflight.

use nix::errno::Errno;

use crate::preflight::meet::node::NodeError;
use crate::preflight::meet::zero::ZeroError;
use crate::preflight::who::local::LocalError;
use crate::self_test::pair::TokenError;
use crate::wire::listen::ListenError;
use crate::wire::{Address, AddressError};

/// What to do if node 0 cannot listen on the port.
const TAKEN: &str = "Another job may be on this machine: give all nodes of this one another port, as in --meet HOST:PORT (before a command preflight-meet)";

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The job has a token, but it was kept from this process.
    #[error("{0}")]
    KeptToken(&'static str),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(
        "{0} is valid on one link only, so node 0 cannot tell the other nodes how to reach each other: use another address or a name of node 0 (--meet, before a command preflight-meet)"
    )]
    LinkLocal(Address),
    #[error("{}{}", .0, advice(.0))]
    Listen(#[from] ListenError),
    #[error("cannot start a process for this node: {0}")]
    NoProcess(Errno),
    /// `own` is the error of the process that takes part for node 0.
    #[error("{why}{}", .own.as_ref().map_or(String::new(), |own| format!(". {own}")))]
    Zero { why: ZeroError, own: Option<String> },
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Local(#[from] LocalError),
    /// What the process that took part has said; the text is safe to show.
    #[error("{0}")]
    Apart(String),
    #[error("the process that took part ended without a verdict")]
    Ended,
    #[error("the process that took part gave no verdict in its time")]
    Late,
}

fn advice(error: &ListenError) -> String {
    match error {
        ListenError::InUse { .. } => format!(". {TAKEN}"),
        ListenError::Unresolved { .. } | ListenError::Failed { .. } => String::new(),
    }
}
