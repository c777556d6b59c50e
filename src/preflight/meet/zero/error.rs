//! Why node 0 cannot go on, and why it disconnects a node.

use std::io;

use nix::errno::Errno;

use crate::wire::AcceptError;
use crate::wire::stranger::Stranger;

/// Why node 0 has no verdict.
#[derive(Debug, thiserror::Error)]
pub enum ZeroError {
    #[error("cannot get a random number for the job: {0}")]
    NoRandom(io::Error),
    #[error("cannot create an epoll instance: {0}")]
    NoEpoll(Errno),
    /// No node can connect any more.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    #[error("the process that takes part for node 0 itself has exited")]
    OwnProcess,
}

/// Why a node is not a part of the job any more; a clause.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Dismissal {
    #[error("it no longer accepts messages")]
    TakesNothing,
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// It reports figures that no pair can have.
    #[error("it reports something impossible: {0}")]
    Impossible(String),
    #[error("it violates the protocol")]
    Protocol,
    #[error("it does not stop sending messages")]
    Endless,
}
