//! Why the two nodes did not connect.

use crate::resolve::ResolveError;
use crate::wire::listen::ListenError;
use crate::wire::reach::Unreached;
use crate::wire::stranger::Stranger;
use crate::wire::{AcceptError, Address};

/// Each message is a clause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeetError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// The other node of the test did not connect in time. The text says which other peers did.
    #[error("{0}")]
    NotConnected(String),
    /// `before` is what answered at the address earlier.
    #[error("cannot reach {address} within {within}: {why}{}", after(.before.as_ref()))]
    Unreachable { address: Address, within: String, why: Box<ConnectError>, before: Option<Stranger> },
    /// The peer is not the other node, or stopped behaving like it.
    #[error(transparent)]
    Stranger(#[from] Stranger),
}

fn after(before: Option<&Stranger>) -> String {
    before.map_or(String::new(), |stranger| format!(". Before: {stranger}"))
}

/// Why one attempt made no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    #[error(transparent)]
    Connect(#[from] Unreached),
}
