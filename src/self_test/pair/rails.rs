//! Connects every rail to its counterpart. Each rail has a process, which reports its own end, gets the
//! other end from this process, and moves data.

use std::time::Duration;

use super::super::isolate::message::{ChildReport, Message as Order};
use super::super::isolate::{Children, Work};
use super::super::report::Rail;
use super::super::run::Scope;
use super::error::RailError;
use super::message::{Message, Moved, Node};
use super::{Met, agree, ends};
use crate::verbs::device::PortState;
use crate::verbs::failure::Failure;
use crate::verbs::port_test::{DeviceProbe, PortTest, ProbeResult};
use crate::verbs::rail::{self, Side};
use crate::verbs::talk::End;
use crate::wire::stranger::Stranger;

const NUMBER: &str = "it reports another number of rails";

/// Longer than all steps together; each step has its own limit.
const ALL: Duration = Duration::from_secs(3600);

/// How long all rails move data at once.
pub(crate) const TOGETHER: Duration = Duration::from_secs(2);

/// The result for a pair of rails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// In bytes: the MTU that the port uses, on this node and on the other one.
    pub mtu: [Option<u32>; 2],
    pub mine: Moved,
    pub theirs: Moved,
    /// Why the pair was not tested.
    pub left_out: Option<String>,
}

/// Tests each rail by itself.
///
/// # Errors
/// The other node has disconnected, or violates the protocol.
pub(crate) fn run(
    met: &mut Met,
    wanted: &[PortTest],
    mine: &Node,
    theirs: &Node,
    extent: Scope,
) -> Result<Vec<Found>, Stranger> {
    let work: Work = match met.side {
        Side::First => |wanted, talk| rail::port(wanted, Side::First, talk),
        Side::Second => |wanted, talk| rail::port(wanted, Side::Second, talk),
    };
    connected(met, wanted, mine, theirs, extent, work)
}

/// Moves data both ways at once over each rail, to measure its bandwidth.
///
/// # Errors
/// As for [`run`].
pub(crate) fn run_together(
    met: &mut Met,
    wanted: &[PortTest],
    mine: &Node,
    theirs: &Node,
    extent: Scope,
) -> Result<Vec<Found>, Stranger> {
    connected(met, wanted, mine, theirs, extent, |wanted, talk| rail::together(wanted, TOGETHER, talk))
}

fn connected(
    met: &mut Met,
    wanted: &[PortTest],
    mine: &Node,
    theirs: &Node,
    extent: Scope,
    work: Work,
) -> Result<Vec<Found>, Stranger> {
    let rails = || mine.rails.iter().zip(&theirs.rails);
    let left_out: Vec<Option<String>> = rails().map(|(near, far)| agree::why_not(near, far)).collect();
    let far = rails().zip(&left_out).filter(|(_, why)| why.is_none()).map(|((_, far), _)| far);
    let far: Vec<&Rail> = far.collect();
    let tried = wanted.iter().zip(&left_out).filter(|(_, why)| why.is_none());
    let tried: Vec<PortTest> = tried.map(|(wanted, _)| wanted.clone()).collect();
    let mut children = Children::start(&tried, ALL, work);
    let ends = connect(met, &mut children, &far, extent.each);
    if ends.is_err() {
        // The children wait for a message that will not arrive.
        children.list().iter_mut().for_each(|child| child.answer(None));
    }
    children.until(extent.each, |_| false);
    let results: Vec<Moved> = children.finish().into_iter().map(moved).collect();
    let [near, far] = ends.map_err(|end| told("before any data was moved", end))?;
    let others = done(met, &results).map_err(|end| told("after the data was moved", end))?;
    let mut tried = 0..tried.len();
    let found = left_out.into_iter().map(|left_out| {
        let index = if left_out.is_none() { tried.next() } else { None };
        let of = |list: &[Moved]| index.and_then(|index| list.get(index)).cloned().unwrap_or_default();
        let mtu = |ends: &[Option<End>]| Some((*ends.get(index?)?)?.mtu);
        Found { mtu: [mtu(&near), mtu(&far)], mine: of(&results), theirs: of(&others), left_out }
    });
    Ok(found.collect())
}

fn told(when: &str, end: Stranger) -> Stranger {
    Stranger { why: format!("{when}: {}", end.why), ..end }
}

/// Sends the other node the result of each rail, and receives its results.
fn done(met: &mut Met, results: &[Moved]) -> Result<Vec<Moved>, Stranger> {
    met.wire.send(&Message::Done(results.to_vec()))?;
    match met.wire.receive(met.patience)? {
        Message::Done(others) if others.len() == results.len() => Ok(others),
        Message::Done(_) => Err(met.wire.wrong(NUMBER)),
        other => Err(met.wire.unexpected(other.kind())),
    }
}

/// Sends each rail its counterpart of `rails`. Returns this node's ends and the other node's ends.
fn connect(
    met: &mut Met,
    children: &mut Children,
    rails: &[&Rail],
    each: Duration,
) -> Result<[Vec<Option<End>>; 2], Stranger> {
    children.until(each, |told| told.end().is_some());
    let near: Vec<Option<End>> =
        children.list().iter().map(|child| child.told().and_then(ChildReport::end)).collect();
    met.wire.send(&Message::Ends(near.clone()))?;
    let far = match met.wire.receive(met.patience)? {
        Message::Ends(far) if far.len() == rails.len() => far,
        Message::Ends(_) => return Err(met.wire.wrong(NUMBER)),
        other => return Err(met.wire.unexpected(other.kind())),
    };
    for (end, rail) in far.iter().zip(rails) {
        if let Some(what) = end.as_ref().and_then(|end| ends::wrong(end, rail)) {
            return Err(met
                .wire
                .wrong(&format!("it sent {what} of {}:{}, which is not possible", rail.hca, rail.port)));
        }
    }
    for (index, child) in children.list().iter_mut().enumerate() {
        let end = far.get(index).copied().flatten();
        child.answer(end.map(Order::End).as_ref());
    }
    children.until(each, ChildReport::is_ready);
    let ready: Vec<bool> =
        children.list().iter().map(|child| child.told().is_some_and(ChildReport::is_ready)).collect();
    met.wire.send(&Message::Ready(ready))?;
    let ready = match met.wire.receive(met.patience)? {
        Message::Ready(ready) if ready.len() == rails.len() => ready,
        Message::Ready(_) => return Err(met.wire.wrong(NUMBER)),
        other => return Err(met.wire.unexpected(other.kind())),
    };
    for (index, child) in children.list().iter_mut().enumerate() {
        let is_ready = ready.get(index) == Some(&true);
        child.answer(is_ready.then_some(&Order::Ready));
    }
    Ok([near, far])
}

fn moved(result: ProbeResult) -> Moved {
    match result {
        Ok(probe) => Moved {
            verified: probe.verified,
            latency_ns: probe.latency_ns,
            bandwidth_mbps: probe.bandwidth_mbps,
            error: error(&probe),
            skipped: probe.no_loopback,
        },
        Err(end) => Moved { error: Some(RailError::Probe(end)), ..Moved::default() },
    }
}

fn error(probe: &DeviceProbe) -> Option<RailError> {
    let (step, why) = probe.failure()?;
    let is_new = |state: &PortState| *state != PortState::Active && !matches!(why, Failure::Port(_));
    Some(RailError::Step { step, why: why.clone(), now: probe.state.filter(is_new) })
}
