//! What is said about a job that has stalled. All of its words are here.

use std::time::Duration;

use super::judge::{Gone, Order, Stall};
use super::message::{PortCounts, PortState};
use crate::finding::{Finding, Id};
use crate::text::{condensed_to, counted, duration, visible};

/// The most names in a row, and the most ports.
const NAMES: usize = 4;
const PORTS: usize = 4;

const IS_GONE: &str = "is gone";

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
    let lead = stall.is_gone_first.then(|| disconnected(stall, clocks)).flatten();
    let is_led = lead.is_some();
    parts.extend(lead);
    let are_others = is_led || !stall.never.is_empty();
    match &stall.order {
        Order::First { names, at, before } => {
            let (of, rest) = if is_led { ("of the others, ", "the rest") } else { ("", "the others") };
            parts.push(format!(
                "{of}{} stopped first, at {}, at least {} before {rest}",
                shown(names),
                clocks.time_of(*at),
                duration(whole(*before))
            ));
        }
        Order::Together { within } => {
            let within = duration(whole(*within));
            parts.push(match are_others {
                true => format!("the others stopped within {within}"),
                false => format!("the nodes stopped within {within}, none clearly first"),
            });
        }
        Order::One => {}
    }
    if !stall.never.is_empty() {
        let has = if stall.never.len() == 1 { "has" } else { "have" };
        parts.push(format!("{} {has} never moved data", shown(&stall.never)));
    }
    parts.extend(ports(&stall.counted));
    let are_others = are_others || stall.lost > 0 || matches!(stall.order, Order::First { .. });
    let missing = missing(stall, clocks);
    match (stall.waiting, are_others) {
        (0, _) => {}
        (_, true) if missing.is_empty() => parts.push("all others wait".to_owned()),
        (_, false) if missing.is_empty() => parts.push("all nodes wait".to_owned()),
        (count, are_others) => {
            let node = if are_others { "other node" } else { "node" };
            parts.push(format!("{} {}", counted(count, node), waits(count)));
        }
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

fn waits(count: usize) -> &'static str {
    if count == 1 { "waits" } else { "wait" }
}

/// What ports have counted: a part for each, and one for all devices of a node that are gone.
fn ports(counted: &[(String, PortCounts)]) -> Vec<String> {
    let mut parts: Vec<(&str, Vec<&str>, String)> = Vec::new();
    for (node, port) in counted {
        let text = counts(port);
        let is_gone = text == IS_GONE;
        match parts.iter_mut().find(|(other, _, what)| is_gone && other == node && *what == text) {
            Some((_, ports, _)) => ports.push(&port.port),
            None => parts.push((node, vec![&port.port], text)),
        }
    }
    let more: usize = parts.iter().skip(PORTS).map(|(_, ports, _)| ports.len()).sum();
    let shown = parts.iter().take(PORTS).map(|(node, ports, what)| {
        let what = if ports.len() == 1 { what } else { "are gone" };
        format!("{}'s {} {what}", visible(node), visible(&condensed_to(ports, NAMES)))
    });
    let more = (more > 0).then(|| format!("{} counted errors, too", crate::text::counted(more, "more port")));
    shown.chain(more).collect()
}

fn counts(port: &PortCounts) -> String {
    let state = match port.state {
        PortState::AsBefore => None,
        PortState::Down => Some("is no longer active".to_owned()),
        PortState::Gone => Some(IS_GONE.to_owned()),
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
    if !stall.is_gone_first {
        parts.extend(disconnected(stall, clocks));
    }
    if stall.strange > 0 {
        parts.push(never_connected(stall.strange));
    }
    if !stall.unknown.is_empty() {
        let verb = if stall.unknown.len() == 1 { "does" } else { "do" };
        parts.push(format!("{} {verb} not count what moves", shown(&stall.unknown)));
    }
    parts
}

/// Which node disconnected first; `None` if all are connected.
fn disconnected(stall: &Stall, clocks: Clocks) -> Option<String> {
    let [first, rest @ ..] = &stall.gone[..] else { return None };
    let more = match rest.len() {
        0 => String::new(),
        more => format!(", and {} later", counted(more, "more node")),
    };
    let is_first = if stall.is_gone_first { "first, at" } else { "at" };
    Some(format!("{} disconnected {is_first} {}{more}", visible(&first.name), clocks.time_of(first.at)))
}

fn shown(names: &[String]) -> String {
    visible(&condensed_to(names, NAMES))
}
