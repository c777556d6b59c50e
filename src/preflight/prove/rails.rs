//! A pair tests all its rails at once. This runs in a separate process at each end.

mod sockets;
mod standing;

use std::path::Path;
use std::time::Duration;

use crate::facts::Reader;
use crate::facts::port_counters::Counters;
use crate::facts::resent::{self, Resent};
use crate::preflight::judge::evidence::MOST_RAILS;
use crate::preflight::meet::message::{Partner, Work};
use crate::preflight::prove::pair::{Cause, Measured, PairFailure, PairOutcome, RailReport, Seen, Sent};
use crate::preflight::who::own::LocalRails;
use crate::self_test::pair::{self, Found, Met, Moved, Node};
use crate::self_test::report::Rail;
use crate::self_test::run::Scope;
use crate::text::{shortened, visible};
use crate::verbs::link::MEASURED;
use crate::verbs::port_test::PortTest;
use crate::verbs::rail::Side;
use crate::wire::Channel;
use crate::wire::stranger::{Fault, Stranger};
use sockets::SOCKET;
pub(in crate::preflight) use standing::{Standing, add as add_to_standings};

/// How long to wait for messages between the steps.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a pair needs to know about its own end.
pub(in crate::preflight) struct Own<'a> {
    pub name: &'a str,
    pub rails: &'a LocalRails,
    /// The results of its rails so far.
    pub standings: &'a [Standing],
    pub extent: Scope,
}

/// Tests all rails with the node at the other end.
pub(in crate::preflight) fn prove(channel: Channel, side: Side, own: &Own, with: &Partner) -> PairOutcome {
    let tried = match (own.rails, with.work) {
        (LocalRails::Verbs(ports), Work::Crosswise(shift)) => {
            let mut ports = ports.clone();
            if side == Side::Second && !ports.is_empty() {
                let by = usize::from(shift) % ports.len();
                ports.rotate_left(by);
            }
            verbs(channel, side, own, with, &ports)
        }
        (LocalRails::Verbs(ports), _) => verbs(channel, side, own, with, ports),
        (LocalRails::Sockets(ends), _) => sockets::rails(channel, side, own, with, ends),
    };
    tried.map_or_else(|stranger| PairOutcome::Failed(failure(stranger)), PairOutcome::Rails)
}

/// Returns why a pair failed, from what arrived in place of a message.
pub(in crate::preflight) fn failure(stranger: Stranger) -> PairFailure {
    match stranger.fault {
        Fault::Gone => PairFailure::Left,
        Fault::Silent => PairFailure::Silent,
        _ => PairFailure::Refused(visible(&shortened(&stranger.why))),
    }
}

/// Returns the description that each end sends before the rails are tested.
fn node(own: &Own, rails: Vec<Rail>) -> Node {
    Node { host: own.name.to_owned(), nccl: None, rails }
}

fn verbs(
    channel: Channel,
    side: Side,
    own: &Own,
    with: &Partner,
    ports: &[(PortTest, Rail)],
) -> Result<Vec<RailReport>, Stranger> {
    let (wanted, rails): (Vec<PortTest>, Vec<Rail>) = ports.iter().cloned().unzip();
    let mut met = Met::on(channel, side, PATIENCE + own.extent.longest());
    let mine = node(own, rails);
    let theirs = Node { host: with.name.clone(), ..met.describe(&mine)? };
    if let Some(why) = differs(&mine, &theirs) {
        return Ok(none(&mine, &theirs, &why));
    }
    let places = tried(&mut met, own, with, mine.rails.len().min(theirs.rails.len()))?;
    let wanted = of_places(&wanted, &places);
    let ends = [&mine, &theirs].map(|node| Node { rails: of_places(&node.rails, &places), ..node.clone() });
    let reader = Reader::new(Path::new("/"));
    let counts = || -> Vec<Option<Resent>> {
        let counters = Counters::new(&reader);
        wanted.iter().map(|port| resent::read(&counters.of(&port.device, port.port.into()))).collect()
    };
    let before = counts();
    let (found, figures): (_, Figures) = match with.work {
        _ if places.is_empty() => (Vec::new(), measured),
        Work::Together => {
            let found = pair::load_rails(&mut met, &wanted, &ends[0], &ends[1], own.extent)?;
            (found, |mine, _| Some(Measured { latency_us: 0.0, gbps: gbps(mine)? }))
        }
        Work::Rails | Work::Crosswise(_) => {
            (pair::try_rails(&mut met, &wanted, &ends[0], &ends[1], own.extent)?, measured)
        }
    };
    let sent = before.into_iter().zip(counts()).map(|(before, now)| Some(now?.since(before?)));
    let mut reports: Vec<RailReport> = places
        .iter()
        .zip(&found)
        .zip(sent)
        .map(|((rail, found), sent)| {
            let mut report = report(*rail, found, &theirs.host, figures);
            report.seen.sent = sent.and_then(|sent| packets(sent, &report));
            report
        })
        .collect();
    reports.extend(missing(mine.rails.len(), theirs.rails.len(), &theirs.host));
    Ok(reports)
}

fn differs(mine: &Node, theirs: &Node) -> Option<String> {
    let empty = [mine, theirs].into_iter().find(|node| node.rails.is_empty());
    if let Some(node) = empty {
        return Some(format!(
            "{} has no rail: NCCL will find neither an HCA nor an interface there",
            node.host
        ));
    }
    let is_sockets = |node: &Node| node.rails.first().is_some_and(|rail| rail.link_layer == SOCKET);
    // NCCL may still use verbs on both: not every HCA can be opened here.
    let word = |node: &Node| if is_sockets(node) { "TCP" } else { "verbs" };
    (is_sockets(mine) != is_sockets(theirs)).then(|| {
        format!("{} is tested over {}, and {} over {}", mine.host, word(mine), theirs.host, word(theirs))
    })
}

/// Sends the other node the results of this node's rails so far. Returns the indices of the rails to
/// test now, among the first `both`.
fn tried(met: &mut Met, own: &Own, with: &Partner, both: usize) -> Result<Vec<usize>, Stranger> {
    met.channel().send(&own.standings)?;
    let theirs: Vec<Standing> = met.channel().receive(PATIENCE)?;
    let of = |all: &[Standing], rail| all.get(rail).copied().unwrap_or_default();
    // If the rails are shifted, each of them has a different counterpart.
    let is_wanted = with.is_again || matches!(with.work, Work::Crosswise(_));
    let is_tried =
        |rail: &usize| is_wanted || !standing::is_pointless(of(own.standings, *rail), of(&theirs, *rail));
    Ok((0..both).filter(is_tried).collect())
}

/// Returns the items at these indices.
fn of_places<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
    places.iter().filter_map(|place| all.get(*place)).cloned().collect()
}

/// In bytes: the largest packet on most fabrics, for ports that do not report how many packets they
/// sent.
const PACKET: f32 = 4096.0;

/// Returns what a port sent in a pair.
fn packets(of: Resent, report: &RailReport) -> Option<Sent> {
    let estimated = || {
        let gbps = report.result.as_ref().ok()?.gbps;
        Some((gbps * 1e9 / 8.0 * MEASURED.as_secs_f32() / PACKET) as u64)
    };
    Some(Sent { packets: of.packets.or_else(estimated)?, again: of.again })
}

/// Returns the reports for two nodes that connected, but have no rail to test.
fn none(mine: &Node, theirs: &Node, why: &str) -> Vec<RailReport> {
    let rails = mine.rails.len().max(theirs.rails.len()).clamp(1, MOST_RAILS);
    (0..rails).map(|rail| RailReport::new(number(rail), Err(why.to_owned()))).collect()
}

/// Returns reports for the rails that the other node does not have.
fn missing(mine: usize, theirs: usize, host: &str) -> impl Iterator<Item = RailReport> {
    let why = format!("{host} has no such rail: it has {theirs}, and this node has {mine}");
    (theirs..mine).map(move |rail| RailReport::new(number(rail), Err(why.clone())))
}

fn number(rail: usize) -> u16 {
    rail.try_into().unwrap_or(u16::MAX)
}

/// Computes one end's figures from what the two ends report.
type Figures = fn(&Moved, &Moved) -> Option<Measured>;

fn report(rail: usize, found: &Found, host: &str, figures: Figures) -> RailReport {
    let said = |text: &str| visible(&shortened(text));
    let wrong = |moved: &Moved| match (&moved.error, &moved.skipped) {
        (Some(error), _) => Some(said(&error.to_string())),
        (None, skipped) => skipped.as_deref().map(said),
    };
    let waits = found.left_out.is_none()
        && match &found.mine.error {
            Some(error) => error.is_waiting(),
            None => found.mine.skipped.is_none(),
        };
    let result = match (&found.left_out, wrong(&found.mine), wrong(&found.theirs)) {
        (Some(why), ..) => Err(why.clone()),
        (None, Some(mine), Some(theirs)) if waits => Err(format!("{mine}; {host} says: {theirs}")),
        (None, Some(mine), _) => Err(mine),
        (None, None, Some(theirs)) => Err(format!("{host} says: {theirs}")),
        (None, None, None) => figures(&found.mine, &found.theirs)
            .ok_or_else(|| "one of the two nodes was not ready in time".to_owned()),
    };
    let cause = (result.is_err() && waits).then_some(Cause::Waited);
    RailReport { seen: Seen { cause, ..Seen::default() }, ..RailReport::new(number(rail), result) }
}

fn measured(mine: &Moved, theirs: &Moved) -> Option<Measured> {
    let is_verified = mine.verified && theirs.verified;
    let latency_us = (mine.latency_ns? as f64 / 1000.0) as f32;
    Some(Measured { latency_us, gbps: gbps(mine)? }).filter(|_| is_verified)
}

fn gbps(moved: &Moved) -> Option<f32> {
    Some((moved.bandwidth_mbps? as f64 / 1000.0) as f32)
}
