//! Why a rail has no connection over TCP.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use super::TRY;

/// Each message is a clause.
#[derive(Debug, thiserror::Error)]
pub(in crate::preflight) enum NotConnected {
    #[error("cannot get a random number: {0}")]
    NoRandom(Error),
    #[error("cannot listen on {on}: {error}")]
    CannotListen { on: IpAddr, error: Error },
    #[error("cannot listen on {at} any longer: {error}")]
    ListenerLost { at: SocketAddr, error: Error },
    #[error("no connection arrived at {at}")]
    NoneArrived { at: SocketAddr },
    /// This end did not connect. `to` names both ends.
    #[error("no connection {to}: {why}")]
    To { to: String, why: Unanswered },
    /// The other node reports why, in its own words.
    #[error("{node} says: {why}")]
    OfOther { node: String, why: String },
    #[error("it was not tried")]
    NotTried,
}

/// Why this end did not reach the other end.
#[derive(Debug, thiserror::Error)]
pub(in crate::preflight) enum Unanswered {
    #[error("{}", words(.0))]
    Failed(#[from] Error),
    #[error("another program answers there")]
    OtherProgram,
    #[error("no answer for {} s", TRY.as_secs())]
    NoAnswer,
    #[error("it was established, but no data arrived for {} s", TRY.as_secs())]
    NoData,
}

fn words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => Unanswered::NoAnswer.to_string(),
        ErrorKind::AddrNotAvailable => "this node no longer has this address".to_owned(),
        _ => error.to_string(),
    }
}
