//! Why node 0 cannot continue, and why it disconnects a node.

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
    /// No more nodes can connect.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    #[error("the process that takes part for node 0 itself has exited")]
    OwnProcess,
}

/// Why a node is no longer part of the job; a clause.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Dismissal {
    #[error("it no longer accepts messages")]
    NotAcceptingMessages,
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// The node reports figures that are impossible for a pair.
    #[error("it reports something impossible: {0}")]
    Impossible(String),
    #[error("it violates the protocol")]
    Protocol,
    #[error("it does not stop sending messages")]
    Endless,
}
