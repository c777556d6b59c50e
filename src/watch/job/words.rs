//! What is said about a job that has stalled. All of its words are here.

use std::time::Duration;

use super::judge::{Gone, Order, Stall};
use super::message::{PortCounts, PortState};
use crate::finding::{Finding, Id};
use crate::text::{condensed_to, counted, duration, visible};

/// The most names in a row, and the most ports.
const NAMES: usize = 4;
const PORTS: usize = 4;

/// The clocks of node 0 at one moment: the time since its start, and since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub now: Duration,
    pub wall: Duration,
}

impl Clocks {
    /// `14:03:50`, in UTC.
    fn time_of(self, at: Duration) -> String {
        let seconds = self.wall.saturating_sub(self.now.saturating_sub(at)).as_secs() % (24 * 3600);
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }

    fn ago(self, at: Duration) -> String {
        duration(whole(self.now.saturating_sub(at)))
    }
}

/// Looks are seconds apart, so parts of a second mean nothing.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().max(1))
}

pub(super) fn stalled(stall: &Stall, clocks: Clocks) -> Finding {
    let mut parts = Vec::new();
    let mut all = "all nodes wait".to_owned();
    match &stall.order {
        Order::First { names, at, before } => {
            parts.push(format!(
                "{} stopped first, at {}, at least {} before the others",
                shown(names),
                clocks.time_of(*at),
                duration(whole(*before))
            ));
            all = "all others wait".to_owned();
        }
        Order::Together { within } => {
            parts.push(format!("the nodes stopped within {}, none clearly first", duration(whole(*within))));
        }
        Order::One => {}
    }
    parts.extend(ports(&stall.counted));
    let missing = missing(stall, clocks);
    match missing.is_empty() {
        true => parts.push(all),
        false => parts.push(format!("{} {}", counted_of(stall), waits(stall.waiting))),
    }
    parts.extend(missing);
    let message = format!(
        "The job has stalled since {} UTC, {} ago: {}.",
        clocks.time_of(stall.since),
        clocks.ago(stall.since),
        parts.join("; ")
    );
    Finding::warning(Id::StalledJob, message).with_fix(
        "Look first in the logs of the nodes that this line names. rdma-init status --ras asks NCCL which rank is behind.",
    )
}

/// `gone`: the other nodes, in the order in which they disconnected. `since`: when node 0 moved last.
pub(super) fn left(gone: &[Gone], since: Duration, strange: usize, clocks: Clocks) -> Option<Finding> {
    let (first, last) = (gone.first()?, gone.last()?);
    let (first_name, at) = (visible(&first.name), clocks.time_of(first.at));
    let who = match gone.len() {
        1 => format!("{first_name}, the only other node that was connected, disconnected at {at} UTC"),
        count => format!(
            "{} other nodes that were connected have disconnected: {first_name} first, at {at} UTC, and {} last, at {}",
            if count == 2 { "Both".to_owned() } else { format!("All {count}") },
            visible(&last.name),
            clocks.time_of(last.at)
        ),
    };
    let never = if strange > 0 { format!("; {}", never_connected(strange)) } else { String::new() };
    let message = format!(
        "{who}{never}. This node has moved no data since {}, which is usual if the other nodes have ended their part of the job.",
        clocks.time_of(since)
    );
    let fix = format!("If the other nodes were to go on, look first in the log of {first_name}.");
    Some(Finding::info(Id::StalledJob, message).with_fix(fix))
}

fn never_connected(count: usize) -> String {
    let never = if count == 1 { "has never connected" } else { "have never connected" };
    format!("{} {never}", counted(count, "node"))
}

pub(super) fn moves_again(after: Duration) -> Finding {
    Finding::info(Id::StalledJob, format!("The job moves data again, after {}.", duration(whole(after))))
}

fn counted_of(stall: &Stall) -> String {
    let node = match stall.order {
        Order::First { .. } => "other node",
        Order::Together { .. } | Order::One => "node",
    };
    counted(stall.waiting, node)
}

fn waits(count: usize) -> &'static str {
    if count == 1 { "waits" } else { "wait" }
}

/// What ports have counted, one part for each node.
fn ports(counted: &[(String, PortCounts)]) -> Vec<String> {
    let shown = counted
        .iter()
        .take(PORTS)
        .map(|(node, port)| format!("{}'s {} {}", visible(node), visible(&port.port), counts(port)));
    let more = counted.len().saturating_sub(PORTS);
    let more = (more > 0).then(|| format!("{} counted errors, too", crate::text::counted(more, "more port")));
    shown.chain(more).collect()
}

fn counts(port: &PortCounts) -> String {
    let state = match port.state {
        PortState::AsBefore => None,
        PortState::Down => Some("is no longer active".to_owned()),
        PortState::Gone => Some("is gone".to_owned()),
    };
    let numbers = [
        (port.link_downs, "link failure"),
        (port.ended, "failed queue pair"),
        (port.link_errors, "link error"),
        (port.resent, "retransmission"),
    ];
    let numbers = numbers.into_iter().filter(|(count, _)| *count > 0);
    let numbers: Vec<String> =
        numbers.map(|(count, what)| counted(usize::try_from(count).unwrap_or(usize::MAX), what)).collect();
    let numbers = (!numbers.is_empty()).then(|| format!("counted {}", numbers.join(", ")));
    let all: Vec<String> = state.into_iter().chain(numbers).collect();
    all.join(" and ")
}

/// The nodes of which node 0 does not know that they wait.
fn missing(stall: &Stall, clocks: Clocks) -> Vec<String> {
    let mut parts = Vec::new();
    if !stall.silent.is_empty() {
        let verb = if stall.silent.len() == 1 { "does" } else { "do" };
        parts.push(format!("{} {verb} not answer", shown(&stall.silent)));
    }
    let mut gone: Vec<&Gone> = stall.gone.iter().collect();
    gone.sort_by_key(|gone| gone.at);
    if let [first, rest @ ..] = &gone[..] {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(", and {} later", counted(more, "more node")),
        };
        parts.push(format!("{} disconnected at {}{more}", visible(&first.name), clocks.time_of(first.at)));
    }
    if stall.strange > 0 {
        parts.push(never_connected(stall.strange));
    }
    if stall.unknown > 0 {
        let verb = if stall.unknown == 1 { "does" } else { "do" };
        parts.push(format!("{} {verb} not count what moves", counted(stall.unknown, "node")));
    }
    if stall.never > 0 {
        let has = if stall.never == 1 { "has" } else { "have" };
        parts.push(format!("{} {has} never moved data", counted(stall.never, "node")));
    }
    parts
}

fn shown(names: &[String]) -> String {
    visible(&condensed_to(names, NAMES))
}
