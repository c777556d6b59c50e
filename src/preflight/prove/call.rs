//! One end of a pair, in its own process: it connects to the peer, and calls it or asks it.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::preflight::meet::message::{Answer, Call, CallId, PAIR, Partner, pair_key};
use crate::preflight::meet::node::Node;
use crate::preflight::meet::times::{CONNECT, SILENT, Times};
use crate::preflight::prove::pair::{PairFailure, PairOutcome};
use crate::preflight::prove::rails::{self, Own, Standing};
use crate::preflight::prove::rounds::Turn;
use crate::text::{shortened, visible};
use crate::verbs::rail::Side;
use crate::wire::stranger::Fault;
use crate::wire::{Channel, reach};

pub(in crate::preflight) fn own<'a>(node: &'a Node, standings: &'a [Standing]) -> Own<'a> {
    Own { name: &node.report.host, rails: &node.rails, standings, extent: node.extent }
}

/// The failure of a pair whose peer is busy until the end of the round.
pub(in crate::preflight) const BUSY: &str =
    "the other node is still testing an earlier pair, and the time for this one is over";

/// Connects to a peer and sends it what this node wants.
fn speak(
    with: &Partner,
    node: &Node,
    times: Times,
    zero_at: IpAddr,
    call: Call,
) -> Result<Channel, PairFailure> {
    let socket = SocketAddr::new(with.address.unwrap_or(zero_at), with.port);
    let connection = reach::connect(&[socket], CONNECT, &with.name, &PAIR).map_err(|why| {
        PairFailure::Unreachable(format!("no connection to {} at {socket}: {why}", with.name))
    })?;
    let identity = CallId { round: with.round, from: node.node, to: with.node }.to_string();
    let key = pair_key(&with.secret, node.token);
    let proven = reach::prove(connection, &identity, &key, times.rails(), Instant::now() + SILENT);
    let (mut channel, _) = proven.map_err(|stranger| match stranger.fault {
        Fault::Token => PairFailure::Refused(format!(
            "the process that answers at {socket} is not {} in this pair",
            with.name
        )),
        _ => rails::failure(stranger),
    })?;
    channel.send(&call).map_err(rails::failure)?;
    Ok(channel)
}

/// Calls a peer, waits until it is free, and tests the rails with it, up to the end of the round.
pub(in crate::preflight) fn call(
    node: &Node,
    turn: &Turn,
    times: Times,
    zero_at: IpAddr,
    standings: &[Standing],
) -> PairOutcome {
    let Turn { with, until } = turn;
    let mut channel = match speak(with, node, times, zero_at, Call::Ready) {
        Ok(channel) => channel,
        Err(failure) => return PairOutcome::Failed(failure),
    };
    loop {
        match channel.receive(SILENT) {
            Ok(Answer::Go) => return rails::prove(channel, Side::First, &own(node, standings), with),
            // The test of the rails takes time, too.
            Ok(Answer::Busy { .. }) if Instant::now() + times.rails() < *until => {}
            Ok(Answer::Busy { .. }) => return PairOutcome::Failed(PairFailure::Refused(BUSY.to_owned())),
            Ok(Answer::Over(failure)) => return PairOutcome::Failed(said_by(with, failure)),
            Err(stranger) => return PairOutcome::Failed(rails::failure(stranger)),
        }
    }
}

/// Asks a peer that has not called, for as long as it is busy.
pub(in crate::preflight) fn ask(node: &Node, with: &Partner, times: Times, zero_at: IpAddr) -> PairFailure {
    let mut channel = match speak(with, node, times, zero_at, Call::Asks) {
        Ok(channel) => channel,
        Err(failure) => return failure,
    };
    loop {
        match channel.receive(SILENT) {
            Ok(Answer::Busy { .. }) => {}
            Ok(Answer::Over(failure)) => return said_by(with, failure),
            Ok(Answer::Go) => return rails::failure(channel.unexpected("Go")),
            Err(stranger) => return rails::failure(stranger),
        }
    }
}

/// Returns the failure that the peer reports for the pair, from this node's point of view.
fn said_by(with: &Partner, failure: PairFailure) -> PairFailure {
    let says = |why: &str| format!("{} says: {}", with.name, visible(&shortened(why)));
    match failure {
        PairFailure::Unreachable(why) => PairFailure::Unreachable(says(&why)),
        PairFailure::Refused(why) => PairFailure::Refused(says(&why)),
        PairFailure::Silent => PairFailure::Refused(says("this node sent nothing")),
        PairFailure::Left => PairFailure::Refused(says("this node has disconnected")),
    }
}
