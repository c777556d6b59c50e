//! A pair whose rails are interfaces. All of them are connected both ways first, and then a separate
//! process moves data over each.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

use super::{Own, PATIENCE, differs, missing, node, none, number, of_places, tried};
use crate::facts::Reader;
use crate::libraries::nccl::interfaces::Endpoint;
use crate::preflight::judge::astray;
use crate::preflight::meet::message::{Offer, Partner, RailEndpoint, Work};
use crate::preflight::prove::connections::{self, Connected, Listening, Made};
use crate::preflight::prove::pair::{Cause, RailReport, Seen, Ways};
use crate::preflight::prove::task::{Task, TaskError};
use crate::preflight::prove::tcp;
use crate::self_test::pair::{Met, Node};
use crate::self_test::report::Rail;
use crate::text::{shortened, visible};
use crate::verbs::rail::Side;
use crate::wire::Channel;
use crate::wire::connection::timeout;
use crate::wire::stranger::Stranger;

/// The link layer that stands for an interface of the socket transport.
pub(super) const SOCKET: &str = "socket";

/// The longest time for the data of one rail.
const RAIL: Duration = Duration::from_secs(20);

/// Tests all rails with the other node.
///
/// # Errors
/// What arrived instead of the other node's messages.
pub(super) fn rails(
    channel: Channel,
    side: Side,
    own: &Own,
    with: &Partner,
    ends: &[Endpoint],
) -> Result<Vec<RailReport>, Stranger> {
    let mut met = Met::on(channel, side, PATIENCE);
    let rail = |end: &Endpoint| Rail {
        hca: end.interface.clone(),
        link_layer: SOCKET.to_owned(),
        ..Rail::default()
    };
    let mine = node(own, ends.iter().map(rail).collect());
    let theirs = Node { host: with.name.clone(), ..met.describe(&mine)? };
    if let Some(why) = differs(&mine, &theirs) {
        return Ok(none(&mine, &theirs, &why));
    }
    let places = tried(&mut met, own, with, ends.len().min(theirs.rails.len()))?;
    let tried = of_places(ends, &places);
    let connected = connect(&mut met, &tried, &theirs.host)?;
    let mut started: Vec<Started> = connected
        .into_iter()
        .zip(&tried)
        .zip(of_places(&theirs.rails, &places))
        .map(|((connected, end), far)| {
            start(connected, side, with.work, end, &format!("{} {}", theirs.host, far.hca))
        })
        .collect();
    let mut reports: Vec<RailReport> = places
        .iter()
        .zip(results(&mut started))
        .map(|(rail, report)| RailReport { rail: number(*rail), ..report })
        .collect();
    let others: Vec<Option<String>> = exchange(&mut met, &reports)?;
    // One end may have noticed a failure that the other end missed: data must arrive both ways.
    for (report, other) in reports.iter_mut().zip(others) {
        if let (Ok(_), Some(why)) = (&report.result, other) {
            report.result = Err(format!("{} says: {}", theirs.host, visible(&shortened(&why))));
            report.seen.cause = Some(Cause::Waited);
        }
    }
    reports.extend(missing(ends.len(), theirs.rails.len(), &theirs.host));
    Ok(reports)
}

/// Connects each rail both ways.
fn connect(met: &mut Met, ends: &[Endpoint], name: &str) -> Result<Vec<Connected>, Stranger> {
    let own: Vec<Result<Listening, String>> = ends.iter().map(|end| Listening::on(end.address)).collect();
    let place = |(end, listening): (&Endpoint, &Result<Listening, String>)| match listening {
        Ok(listening) => Ok(listening.place(&end.interface)),
        Err(why) => Err(why.clone()),
    };
    let rails = ends.iter().zip(&own).map(place).collect();
    met.channel().send(&Offer { rails })?;
    let offer: Offer = met.channel().receive(PATIENCE)?;
    if offer.rails.len() != ends.len() {
        return Err(met.channel().wrong("it offers a different number of rails"));
    }
    let shown = |text: &str| visible(&shortened(text));
    let places: Vec<Result<RailEndpoint, String>> = offer
        .rails
        .into_iter()
        .map(|place| {
            let place = place.map_err(|why: String| format!("{name} says: {}", shown(&why)))?;
            Ok(RailEndpoint { name: shown(&place.name), ..place })
        })
        .collect();
    connections::all(met.channel(), ends, own, places, name)
}

/// A rail over which data is moving, or whose result is already known.
enum Started {
    Task(Task),
    Over(RailReport),
}

/// Starts a process that moves data over a rail that is connected both ways.
fn start(connected: Connected, side: Side, work: Work, end: &Endpoint, name: &str) -> Started {
    let over = |why: String, cause| {
        let seen = Seen { cause, ..Seen::default() };
        Started::Over(RailReport { seen, ..RailReport::new(0, Err(why)) })
    };
    let no = |ways| Some(Cause::NoConnection(ways));
    let alone = |why: String| format!("{why}; the connection in the other direction works");
    let Made { stream, cookie } = match (connected.to, connected.from) {
        // Both ends must choose the same connection.
        (Ok(to), Ok(from)) => {
            if side == Side::First {
                to
            } else {
                from
            }
        }
        (Err(why), Err(_)) => return over(why, no(Ways::Both)),
        (Err(why), Ok(_)) => return over(alone(why), no(Ways::ToPartner)),
        (Ok(_), Err(why)) => return over(alone(why), no(Ways::FromPartner)),
    };
    let keep = [stream.as_raw_fd()];
    let task = Task::start(RAIL, &keep, || match work {
        Work::Together => tcp::together(stream, name),
        Work::Rails | Work::Crosswise(_) => {
            let reader = Reader::new(Path::new("/"));
            let is_own = stream.peer_addr().is_ok_and(|to| astray::is_own(to.ip().to_canonical()));
            let sent = || astray::sent_by(&reader, &end.interface);
            let before = sent();
            let mut report = tcp::test(stream, side, &cookie, name);
            let moved = before.zip(sent()).map(|(before, now)| now.saturating_sub(before));
            report.seen.astray =
                report.result.is_ok() && !is_own && moved.is_some_and(|moved| moved < tcp::VERIFIED as u64);
            report
        }
    });
    match task {
        Ok(task) => Started::Task(task),
        Err(errno) => over(format!("cannot start a process for it: {errno}"), None),
    }
}

/// Sends the other end what went wrong on each rail, and receives what it reports.
fn exchange(met: &mut Met, reports: &[RailReport]) -> Result<Vec<Option<String>>, Stranger> {
    let wrong = |report: &RailReport| report.result.as_ref().err().cloned();
    met.channel().send(&reports.iter().map(wrong).collect::<Vec<_>>())?;
    met.channel().receive(RAIL + PATIENCE)
}

/// Returns the results of all rails, which move data at the same time.
fn results(started: &mut [Started]) -> Vec<RailReport> {
    loop {
        for one in started.iter_mut() {
            let Started::Task(task) = one else { continue };
            let Some(found) = task.result::<RailReport>() else { continue };
            *one = Started::Over(found.unwrap_or_else(|lost| {
                let why = match lost {
                    TaskError::Late => format!("it is not done after {} s", RAIL.as_secs()),
                    TaskError::Ended => "the process that tried it exited without a result".to_owned(),
                };
                RailReport::new(0, Err(why))
            }));
        }
        let open = started.iter().filter_map(|one| match one {
            Started::Task(task) => Some(task),
            Started::Over(_) => None,
        });
        let open: Vec<&Task> = open.collect();
        let Some(next) = open.iter().map(|task| task.deadline()).min() else { break };
        let mut fds: Vec<PollFd> =
            open.iter().map(|task| PollFd::new(task.fd(), PollFlags::POLLIN)).collect();
        // EINTR is harmless: the loop looks again.
        let _ = poll(&mut fds, timeout(next.saturating_duration_since(Instant::now())));
    }
    let report = |one: &mut Started| match one {
        Started::Over(report) => report.clone(),
        Started::Task(_) => RailReport::new(0, Err("it was not tried".to_owned())),
    };
    started.iter_mut().map(report).collect()
}
