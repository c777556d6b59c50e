//! One end of a pair, in a process of its own: it connects to the partner, and calls it or asks it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::message::{Answer, Call, PAIR, Partner};
use super::node::{Node, sockets};
use super::pair::{PairFailure, PairOutcome};
use super::prove::{self, Own};
use crate::text::{shortened, visible};
use crate::verbs::rail::Side;
use crate::wire::{Channel, reach};

/// A node that is called and says nothing for so long hangs.
pub const SILENT: Duration = Duration::from_secs(8);

/// How long a node waits for a partner that is busy. It is longer than its partner's other pairs take.
pub const LATE: Duration = Duration::from_secs(300);

/// The time for one try to connect.
const TRY: Duration = Duration::from_secs(5);

pub fn own<'a>(node: &'a Node) -> Own<'a> {
    Own { name: &node.report.host, rails: &node.rails, extent: node.extent }
}

/// The longest time for all rails of a pair.
pub fn work(node: &Node) -> Duration {
    node.extent.each * 3 + Duration::from_secs(45)
}

/// Connects to a partner and says what this node wants of it.
fn speak(
    node: &Node,
    with: &Partner,
    zero_at: IpAddr,
    secret: &[u8],
    call: &Call,
) -> Result<Channel, PairFailure> {
    let sockets = sockets(with.address, zero_at, with.port);
    let [socket] = sockets;
    let connection = reach::connect(&sockets, TRY, &with.name, &PAIR).map_err(|why| {
        PairFailure::Unreachable(format!("no connection to {} at {socket}: {why}", with.name))
    })?;
    let proven = reach::prove(connection, &PAIR, secret, work(node), Instant::now() + SILENT);
    let (mut channel, _) = proven.map_err(prove::failure)?;
    channel.send(call).map_err(prove::failure)?;
    Ok(channel)
}

/// Calls a partner, waits until it is free, and tries the rails with it.
pub fn call(node: &Node, with: &Partner, zero_at: IpAddr, secret: &[u8]) -> PairOutcome {
    let call = Call::Ready { round: with.round, from: node.node, to: with.node };
    let mut channel = match speak(node, with, zero_at, secret, &call) {
        Ok(channel) => channel,
        Err(failure) => return PairOutcome::Failed(failure),
    };
    let end = Instant::now() + LATE;
    loop {
        match channel.receive(SILENT) {
            Ok(Answer::Go) => return prove::rails(channel, Side::First, &own(node), with),
            Ok(Answer::Busy { .. }) if Instant::now() < end => {}
            Ok(Answer::Busy { .. }) => return PairOutcome::Failed(PairFailure::Silent),
            Ok(Answer::Over(failure)) => return PairOutcome::Failed(said_by(with, failure)),
            Err(stranger) => return PairOutcome::Failed(prove::failure(stranger)),
        }
    }
}

/// Asks a partner whose call does not come, for as long as it is busy.
pub fn ask(node: &Node, with: &Partner, zero_at: IpAddr, secret: &[u8]) -> PairFailure {
    let call = Call::Asks { round: with.round, from: node.node, to: with.node };
    let mut channel = match speak(node, with, zero_at, secret, &call) {
        Ok(channel) => channel,
        Err(failure) => return failure,
    };
    loop {
        match channel.receive(SILENT) {
            Ok(Answer::Busy { .. }) => {}
            Ok(Answer::Over(failure)) => return said_by(with, failure),
            Ok(Answer::Go) => return prove::failure(channel.unexpected("Go")),
            Err(stranger) => return prove::failure(stranger),
        }
    }
}

/// How a pair has ended for the partner, as this node tells it.
fn said_by(with: &Partner, failure: PairFailure) -> PairFailure {
    let says = |why: &str| format!("{} says: {}", with.name, visible(&shortened(why)));
    match failure {
        PairFailure::Unreachable(why) => PairFailure::Unreachable(says(&why)),
        PairFailure::Refused(why) => PairFailure::Refused(says(&why)),
        PairFailure::Silent => PairFailure::Refused(says("this node said nothing")),
        PairFailure::Left => PairFailure::Refused(says("this node has left")),
    }
}
