//! What is said about a job that has stalled. All of its words are here.

use std::time::Duration;

use super::judge::{Gone, Order, Stall};
use super::message::{End, PortCounts, PortState};
use crate::finding::{Finding, Id};
use crate::sys::signals;
use crate::text::{condensed_to, counted, duration, time_of_day, visible};

/// The most names in a row, and the most ports.
const NAMES: usize = 4;
const PORTS: usize = 4;

const IS_GONE: &str = "is gone";

const FIX_BY_NAMES: &str = "Look first in the logs of the nodes that this line names. rdma-init status --ras asks NCCL which rank is behind.";
const FIX_OF_ALL: &str = "Ask NCCL which rank is behind: rdma-init status --ras on any node. Where its RAS is off, PyTorch's Flight Recorder or py-spy dump shows what each rank waits for.";

/// The clocks of node 0 at one moment: the time since its start, and since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub now: Duration,
    pub wall: Duration,
}

impl Clocks {
    /// `14:03:50`, in UTC.
    fn time_of(self, at: Duration) -> String {
        time_of_day(self.wall.saturating_sub(self.now.saturating_sub(at)))
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
    let lead = stall.is_gone_first.then(|| disconnected(&stall.gone, " first,", clocks)).flatten();
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
    let names_a_node = is_led
        || matches!(stall.order, Order::First { .. })
        || !(stall.gone.is_empty()
            && stall.silent.is_empty()
            && stall.never.is_empty()
            && stall.counted.is_empty());
    let fix = if names_a_node { FIX_BY_NAMES } else { FIX_OF_ALL };
    Finding::warning(Id::StalledJob, message).with_fix(fix)
}

/// `gone`: other nodes, in the order in which they disconnected; `others`: how many are connected. `since`: when node 0
/// moved last. It is no fault if the commands of all of them have ended with success.
pub(super) fn left(
    gone: &[Gone],
    others: usize,
    since: Option<Duration>,
    strange: usize,
    clocks: Clocks,
) -> Option<Finding> {
    let (first, last) = (gone.first()?, gone.last()?);
    let who = match (gone.len(), others) {
        (1, 0) => {
            format!("The only other node that was connected has left: {}", departure(first, "", clocks))
        }
        (1, _) => departure(first, "", clocks),
        (count, _) => {
            let count = match (count, others) {
                (2, 0) => "Both other nodes that were connected".to_owned(),
                (count, 0) => format!("All {count} other nodes that were connected"),
                (count, _) => format!("{count} other nodes"),
            };
            format!(
                "{count} have left: {}; {}",
                departure(first, " first,", clocks),
                departure(last, " last,", clocks)
            )
        }
    };
    // One that failed is named, whenever it did.
    let failed = gone.iter().find(|gone| !has_succeeded(gone));
    let named = failed.filter(|failed| **failed != *first && **failed != *last);
    let named = named.map(|failed| format!("; {}", departure(failed, "", clocks))).unwrap_or_default();
    let never = if strange > 0 { format!("; {}", never_connected(strange)) } else { String::new() };
    Some(leaving(format!("{who}{named}{never}"), failed, since, clocks))
}

/// `who`: which nodes have left. `failed`: one of these whose command did not end with success.
fn leaving(who: String, failed: Option<&Gone>, since: Option<Duration>, clocks: Clocks) -> Finding {
    let rests = match since {
        Some(since) => format!("has moved no data since {}", clocks.time_of(since)),
        None => "has never moved data".to_owned(),
    };
    let message = format!("{who} (times in UTC). This node {rests}.");
    let Some(failed) = failed else { return Finding::info(Id::StalledJob, message) };
    let name = visible(&failed.name);
    let fix = match failed.end {
        Some(_) => {
            format!("Look first in the log of {name}. This node may wait for the others until it is stopped.")
        }
        None => format!(
            "{name} did not say that its command has ended: its watcher alone may have ended, or its container, its machine or the network failed. Look there first."
        ),
    };
    Finding::warning(Id::StalledJob, message).with_fix(fix)
}

/// What a node says that moves nothing since `since`, when node 0 has left.
pub(super) fn without_zero(gone: &Gone, since: Option<Duration>, clocks: Clocks) -> Finding {
    let failed = Some(gone).filter(|gone| !has_succeeded(gone));
    leaving(departure(gone, "", clocks), failed, since, clocks)
}

/// How a node left the job, and when. `order` is ` first,`, ` last,`, or empty.
fn departure(gone: &Gone, order: &str, clocks: Clocks) -> String {
    let (name, at) = (visible(&gone.name), clocks.time_of(gone.at));
    match gone.end {
        None => format!("{name} disconnected{order} at {at}"),
        Some(End::Exited { code }) if order.is_empty() => {
            format!("{name}'s command ended at {at} with exit code {code}")
        }
        Some(End::Exited { code }) => {
            format!("{name}'s command ended{order} at {at}, with exit code {code}")
        }
        Some(End::Killed { signal }) => {
            format!("{name}'s command was killed by {}{order} at {at}", signals::name(signal))
        }
    }
}

fn never_connected(count: usize) -> String {
    let never = if count == 1 { "has never connected" } else { "have never connected" };
    format!("{} {never}", counted(count, "node"))
}

pub(super) fn moves_again(after: Duration) -> Finding {
    Finding::info(Id::StalledJob, format!("The job moves data again, after {}.", duration(whole(after))))
}

fn has_succeeded(gone: &Gone) -> bool {
    gone.end == Some(End::Exited { code: 0 })
}

/// `resting` have moved nothing since `since`.
pub(super) fn moves_in_part(
    moving: &[String],
    resting: &[String],
    since: Duration,
    clocks: Clocks,
) -> Finding {
    let has = if resting.len() == 1 { "has" } else { "have" };
    let moves = if moving.len() == 1 { "moves" } else { "move" };
    let message = format!(
        "{} {has} moved no data since {} UTC, {} ago, while {} still {moves} data.",
        shown(resting),
        clocks.time_of(since),
        clocks.ago(since),
        shown(moving)
    );
    Finding::info(Id::StalledJob, message)
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
        parts.extend(disconnected(&stall.gone, "", clocks));
    }
    parts.extend(disconnected(&stall.gone_before, "", clocks));
    if stall.strange > 0 {
        parts.push(never_connected(stall.strange));
    }
    if !stall.unknown.is_empty() {
        let verb = if stall.unknown.len() == 1 { "does" } else { "do" };
        parts.push(format!("{} {verb} not count what moves", shown(&stall.unknown)));
    }
    parts
}

/// Which of these left first, if there are any. `order` is ` first,` or empty.
fn disconnected(gone: &[Gone], order: &str, clocks: Clocks) -> Option<String> {
    let [first, rest @ ..] = gone else { return None };
    let more = match rest.len() {
        0 => String::new(),
        more => format!(", and {} later", counted(more, "more node")),
    };
    Some(format!("{}{more}", departure(first, order, clocks)))
}

fn shown(names: &[String]) -> String {
    visible(&condensed_to(names, NAMES))
}
