//! A pair tries all its rails at once. This runs in a process of its own at each end.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

use super::message::{Offer, Partner, Place};
use super::own::Rails;
use super::pair::{Measured, PairFailure, PairOutcome, RailReport};
use super::task::{Lost, Task};
use super::tcp::{self, Cookie, Waiting};
use crate::libraries::nccl::interfaces::Endpoint;
use crate::self_test::pair::{self, Found, Met, Moved, Node};
use crate::self_test::report::Rail;
use crate::self_test::run::Scope;
use crate::sys::random;
use crate::text::{shortened, visible};
use crate::verbs::port_test::PortTest;
use crate::verbs::rail::Side;
use crate::wire::Channel;
use crate::wire::connection::timeout;
use crate::wire::stranger::{Fault, Stranger};

/// The longest time for one rail over TCP.
const RAIL: Duration = Duration::from_secs(20);

/// The time for messages between the steps.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a pair needs to know of its own end.
pub struct Own<'a> {
    pub name: &'a str,
    pub rails: &'a Rails,
    pub extent: Scope,
}

/// Tries all rails with the node at the other end.
pub fn rails(channel: Channel, side: Side, own: &Own, with: &Partner) -> PairOutcome {
    let (far, shift) = (with.name.as_str(), with.shift);
    let tried = match own.rails {
        Rails::Verbs(ports) if shift == 0 => verbs(channel, side, own, far, ports),
        Rails::Verbs(ports) => {
            let mut ports = ports.clone();
            if side == Side::Second && !ports.is_empty() {
                let by = usize::from(shift) % ports.len();
                ports.rotate_left(by);
            }
            verbs(channel, side, own, far, &ports)
        }
        Rails::Sockets(ends) => sockets(channel, side, own, far, ends),
    };
    tried.map_or_else(|stranger| PairOutcome::Failed(failure(stranger)), PairOutcome::Rails)
}

/// Why a pair did not come about, from what came in place of a message.
pub fn failure(stranger: Stranger) -> PairFailure {
    match stranger.fault {
        Fault::Gone => PairFailure::Left,
        Fault::Silent => PairFailure::Silent,
        _ => PairFailure::Refused(visible(&shortened(&stranger.why))),
    }
}

/// What each end is, before the rails are tried.
fn node(own: &Own, rails: Vec<Rail>) -> Node {
    Node { host: own.name.to_owned(), nccl: None, rails }
}

fn verbs(
    channel: Channel,
    side: Side,
    own: &Own,
    far: &str,
    ports: &[(PortTest, Rail)],
) -> Result<Vec<RailReport>, Stranger> {
    let (wanted, rails): (Vec<PortTest>, Vec<Rail>) = ports.iter().cloned().unzip();
    let mut met = Met::on(channel, side, PATIENCE + own.extent.longest());
    let mine = node(own, rails);
    let theirs = Node { host: far.to_owned(), ..met.describe(&mine)? };
    if let Some(why) = differs(&mine, &theirs) {
        return Ok(none(&mine, &theirs, &why));
    }
    let found = pair::try_rails(&mut met, &wanted, &mine, &theirs, own.extent)?;
    let mut reports: Vec<RailReport> =
        found.iter().enumerate().map(|(rail, found)| report(rail, found, &theirs.host)).collect();
    reports.extend(missing(mine.rails.len(), theirs.rails.len(), &theirs.host));
    Ok(reports)
}

/// The link layer that stands for an interface of the socket transport.
const SOCKET: &str = "socket";

fn differs(mine: &Node, theirs: &Node) -> Option<String> {
    let empty = [mine, theirs].into_iter().find(|node| node.rails.is_empty());
    if let Some(node) = empty {
        return Some(format!(
            "{} has no rail: NCCL will find neither an HCA nor an interface there",
            node.host
        ));
    }
    let is_sockets = |node: &Node| node.rails.first().is_some_and(|rail| rail.link_layer == SOCKET);
    let word = |node: &Node| if is_sockets(node) { "sockets" } else { "verbs" };
    (is_sockets(mine) != is_sockets(theirs)).then(|| {
        format!("NCCL will use {} on {} and {} on {}", word(mine), mine.host, word(theirs), theirs.host)
    })
}

/// The reports where the two nodes have met, and have no rail to try.
fn none(mine: &Node, theirs: &Node, why: &str) -> Vec<RailReport> {
    let rails = mine.rails.len().max(theirs.rails.len()).max(1);
    (0..rails).map(|rail| RailReport { rail: number(rail), result: Err(why.to_owned()) }).collect()
}

/// The rails that the other node does not have.
fn missing(mine: usize, theirs: usize, host: &str) -> impl Iterator<Item = RailReport> {
    let why = format!("{host} has no such rail: it brings {theirs}, and this node {mine}");
    (theirs..mine).map(move |rail| RailReport { rail: number(rail), result: Err(why.clone()) })
}

fn number(rail: usize) -> u16 {
    rail.try_into().unwrap_or(u16::MAX)
}

fn report(rail: usize, found: &Found, host: &str) -> RailReport {
    let said = |text: &str| visible(&shortened(text));
    let wrong = |moved: &Moved| moved.error.clone().or_else(|| moved.skipped.clone());
    let result = match (&found.left_out, wrong(&found.mine), wrong(&found.theirs)) {
        (Some(why), ..) => Err(why.clone()),
        (None, Some(mine), Some(theirs)) if mine.starts_with(crate::verbs::rail::WAITING) => {
            Err(format!("{}; {host} says: {}", said(&mine), said(&theirs)))
        }
        (None, Some(mine), _) => Err(said(&mine)),
        (None, None, Some(theirs)) => Err(format!("{host} says: {}", said(&theirs))),
        (None, None, None) => measured(&found.mine, &found.theirs),
    };
    RailReport { rail: number(rail), result }
}

fn measured(mine: &Moved, theirs: &Moved) -> Result<Measured, String> {
    match (mine.latency_ns, mine.bandwidth_mbps) {
        (Some(ns), Some(mbps)) if mine.verified && theirs.verified => {
            Ok(Measured { latency_us: (ns as f64 / 1000.0) as f32, gbps: (mbps as f64 / 1000.0) as f32 })
        }
        _ => Err("one of the two nodes was not ready in time".to_owned()),
    }
}

fn sockets(
    channel: Channel,
    side: Side,
    own: &Own,
    far: &str,
    ends: &[Endpoint],
) -> Result<Vec<RailReport>, Stranger> {
    let mut met = Met::on(channel, side, PATIENCE);
    let rail = |end: &Endpoint| Rail {
        hca: end.interface.clone(),
        link_layer: SOCKET.to_owned(),
        ..Rail::default()
    };
    let mine = node(own, ends.iter().map(rail).collect());
    let theirs = Node { host: far.to_owned(), ..met.describe(&mine)? };
    if let Some(why) = differs(&mine, &theirs) {
        return Ok(none(&mine, &theirs, &why));
    }
    let both = ends.len().min(theirs.rails.len());
    let mut tasks: Vec<Result<Task, String>> = match side {
        Side::Second => wait(&mut met, ends.get(..both).unwrap_or_default(), &theirs)?,
        Side::First => call(&mut met, ends.get(..both).unwrap_or_default(), &theirs)?,
    };
    let mut reports: Vec<RailReport> = results(&mut tasks)
        .into_iter()
        .enumerate()
        .map(|(rail, result)| RailReport { rail: number(rail), result })
        .collect();
    let others: Vec<Option<String>> = exchange(&mut met, &reports)?;
    // What one end has not noticed, the other may have: data has to arrive both ways.
    for (report, other) in reports.iter_mut().zip(others) {
        if let (Ok(_), Some(why)) = (&report.result, other) {
            report.result = Err(format!("{} says: {}", theirs.host, visible(&shortened(&why))));
        }
    }
    reports.extend(missing(ends.len(), theirs.rails.len(), &theirs.host));
    Ok(reports)
}

/// Tells the other end what went wrong on each rail, and hears what it says.
fn exchange(met: &mut Met, reports: &[RailReport]) -> Result<Vec<Option<String>>, Stranger> {
    let wrong = |report: &RailReport| report.result.as_ref().err().cloned();
    met.channel().send(&reports.iter().map(wrong).collect::<Vec<_>>())?;
    met.channel().receive(RAIL + PATIENCE)
}

type Tasks = Vec<Result<Task, String>>;

/// Listens on each interface, and starts a task that waits for the other end there.
fn wait(met: &mut Met, ends: &[Endpoint], theirs: &Node) -> Result<Tasks, Stranger> {
    let mut offer = Offer { rails: Vec::new() };
    let mut tasks = Vec::new();
    for (end, far) in ends.iter().zip(&theirs.rails) {
        let mut cookie = Cookie::default();
        let ready = random::fill(&mut cookie).map_err(|error| format!("no random number: {error}"));
        let ready = ready.and_then(|()| Waiting::on(end.address));
        let name = format!("{} {}", theirs.host, far.hca);
        match ready {
            Ok(waiting) => {
                let port = waiting.own.port();
                offer.rails.push(Ok(Place {
                    name: end.interface.clone(),
                    address: end.address,
                    port,
                    cookie,
                }));
                let keep = [waiting.fd().as_raw_fd()];
                let task = Task::start(RAIL, &keep, || waiting.test(&cookie, &name));
                tasks.push(task.map_err(|errno| format!("no process for it: {errno}")));
            }
            Err(why) => {
                offer.rails.push(Err(why.clone()));
                tasks.push(Err(why));
            }
        }
    }
    met.channel().send(&offer)?;
    Ok(tasks)
}

/// Hears where the other end listens, and starts a task that goes to each of these places.
fn call(met: &mut Met, ends: &[Endpoint], theirs: &Node) -> Result<Tasks, Stranger> {
    let offer: Offer = met.channel().receive(PATIENCE)?;
    if offer.rails.len() != ends.len() {
        return Err(met.channel().wrong("it offers another number of rails"));
    }
    let tasks = offer.rails.into_iter().zip(ends).map(|(place, end)| {
        let place = place.map_err(|why| format!("{} says: {}", theirs.host, visible(&shortened(&why))))?;
        let name = format!("{} {}", theirs.host, visible(&shortened(&place.name)));
        let task = Task::start(RAIL, &[], || {
            let to = SocketAddr::new(place.address, place.port);
            tcp::test(end, to, &place.cookie, &name)
        });
        task.map_err(|errno| format!("no process for it: {errno}"))
    });
    Ok(tasks.collect())
}

/// The results of all rails, which are at work at the same time.
fn results(tasks: &mut [Result<Task, String>]) -> Vec<Result<Measured, String>> {
    let mut results: Vec<Option<Result<Measured, String>>> = tasks.iter().map(|_| None).collect();
    loop {
        for (task, result) in tasks.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            *result = match task {
                Err(why) => Some(Err(why.clone())),
                Ok(task) => task.result::<Result<Measured, String>>().map(|found| match found {
                    Ok(found) => found,
                    Err(Lost::Late) => Err(format!("it is not done after {} s", RAIL.as_secs())),
                    Err(Lost::Ended) => {
                        Err("the process that tried it has ended without a result".to_owned())
                    }
                }),
            };
        }
        let open = || tasks.iter().zip(&results).filter(|(_, result)| result.is_none());
        let open: Vec<&Task> = open().filter_map(|(task, _)| task.as_ref().ok()).collect();
        let Some(next) = open.iter().map(|task| task.deadline()).min() else { break };
        let mut fds: Vec<PollFd> =
            open.iter().map(|task| PollFd::new(task.fd(), PollFlags::POLLIN)).collect();
        // An interruption is as good as an event: the loop looks again.
        let _ = poll(&mut fds, timeout(next.saturating_duration_since(Instant::now())));
    }
    let lost = || Err("it was not tried".to_owned());
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}
