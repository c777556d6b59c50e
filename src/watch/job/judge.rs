//! What the nodes' answers say about the job as a whole. Pure: the answers, and the times at which they came, are
//! given; all times are of node 0's own clock, since its start.
//!
//! A node says how long ago its rails moved, so no clock is compared with another one: it moved at the latest when
//! node 0 got the answer, less that time, and at the earliest when node 0 asked, less that time and the time between
//! the node's two looks. A node stopped before another one only if all of its time is before all of the other's.

use std::collections::BTreeSet;
use std::time::Duration;

use super::message::{End, Moved, PortCounts, PortState, State};
use super::own::Between;

/// A job that moved data for so long after a node had left does not wait for that node.
pub(super) const LONG_GONE: Duration = Duration::from_secs(15 * 60);

/// What node 0 knows of a node of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub name: String,
    /// `None` if it has not answered in time.
    pub answer: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub when: When,
    pub ports: Vec<PortCounts>,
}

/// When the rails of a node moved data last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Unknown,
    Never,
    At(Between),
}

impl Answer {
    /// What a node has answered that was asked at `asked`, and whose answer came at `came`.
    pub(super) fn new(state: State, asked: Duration, came: Duration) -> Answer {
        let when = match state.moved {
            Moved::Unknown => When::Unknown,
            Moved::Never => When::Never,
            Moved::Ago { ms, between_ms } => When::At(Between {
                earlier: asked.saturating_sub(Duration::from_millis(ms.saturating_add(between_ms))),
                later: came.saturating_sub(Duration::from_millis(ms)),
            }),
        };
        Answer { when, ports: state.ports }
    }
}

/// A node that has disconnected, and has not come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gone {
    pub name: String,
    pub at: Duration,
    /// How its command ended, if its watcher has said so. Otherwise, its container, its machine, or the network failed,
    /// or the watcher itself.
    pub end: Option<End>,
}

impl Gone {
    /// `moved`: when the job, or the node that asks, moved data last.
    pub(super) fn is_long_gone(&self, moved: Duration) -> bool {
        self.at.saturating_add(LONG_GONE) < moved
    }
}

/// All that node 0 knows at this time.
#[derive(Debug, Clone, Default)]
pub(super) struct Reports {
    pub now: Duration,
    /// Node 0 itself, and all nodes that are connected.
    pub nodes: Vec<Report>,
    pub gone: Vec<Gone>,
    /// How many nodes have never connected.
    pub strange: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nodes still move data, and the others have moved none since a time.
    Moves {
        moving: Vec<String>,
        resting: Vec<String>,
        since: Duration,
    },
    /// No other node has said anything.
    Alone,
    /// Nodes have disconnected, in this order: all others that were connected, or some before any node has moved data. In
    /// the end of a job this is usual, so it is no stall.
    Left {
        gone: Vec<Gone>,
        /// How many other nodes are connected.
        others: usize,
        /// When node 0 itself moved last, if it ever did.
        since: Option<Duration>,
        strange: usize,
    },
    Stalled(Box<Stall>),
}

/// No node of the job moves data any more, as far as they say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// When the last node was seen to move.
    pub since: Duration,
    pub order: Order,
    /// What ports have counted: of the nodes that stopped first, then the worst.
    pub counted: Vec<(String, PortCounts)>,
    /// How many nodes wait, without those that are named for something.
    pub waiting: usize,
    pub silent: Vec<String>,
    /// In the order in which they disconnected.
    pub gone: Vec<Gone>,
    /// Whether the first of these disconnected before the others stopped.
    pub is_gone_first: bool,
    /// Those that had disconnected [`LONG_GONE`] before.
    pub gone_before: Vec<Gone>,
    pub strange: usize,
    /// The nodes that do not know what they move.
    pub unknown: Vec<String>,
    pub never: Vec<String>,
    /// How many nodes that were not the first have lost a device.
    pub lost: usize,
}

/// In which order the nodes stopped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// These stopped first, at most half of them; and at least how long before all others.
    First { names: Vec<String>, at: Duration, before: Duration },
    /// None of them was certainly the first; all of them stopped within this time.
    Together { within: Duration },
    /// Only one node tells when it stopped.
    One,
}

/// `rest`: for how long a node moves nothing that has stopped.
pub(super) fn judge(reports: Reports, rest: Duration) -> Verdict {
    let Reports { now, nodes, mut gone, strange } = reports;
    let mut stopped: Vec<(String, Between)> = Vec::new();
    let mut counted: Vec<(String, PortCounts)> = Vec::new();
    let (mut silent, mut moving) = (Vec::new(), Vec::new());
    let (mut unknown, mut never) = (Vec::new(), Vec::new());
    let mut lost: BTreeSet<String> = BTreeSet::new();
    for Report { name, answer } in nodes {
        let Some(Answer { when, ports }) = answer else {
            silent.push(name);
            continue;
        };
        if ports.iter().any(|port| port.state == PortState::Gone) {
            lost.insert(name.clone());
        }
        counted.extend(ports.into_iter().map(|port| (name.clone(), port)));
        match when {
            When::At(between) if now.saturating_sub(between.later) < rest => moving.push(name),
            When::At(between) => stopped.push((name, between)),
            When::Unknown => unknown.push(name),
            When::Never => never.push(name),
        }
    }
    let others = stopped.len() + unknown.len() + never.len();
    let since = stopped.iter().map(|(_, between)| between.later).max();
    if !moving.is_empty() {
        let resting = stopped.into_iter().map(|(name, _)| name).collect();
        return Verdict::Moves { moving, resting, since: since.unwrap_or_default() };
    }
    gone.sort_by_key(|gone| gone.at);
    let are_alone = others < 2 && silent.is_empty();
    let (Some(since), false) = (since, are_alone) else {
        let others = (others + silent.len()).saturating_sub(1);
        return if gone.is_empty() { Verdict::Alone } else { Verdict::Left { gone, others, since, strange } };
    };
    let (gone_before, gone) = gone.into_iter().partition::<Vec<_>, _>(|gone| gone.is_long_gone(since));
    let stopped_names: Vec<String> = stopped.iter().map(|(name, _)| name.clone()).collect();
    let order = order(stopped);
    let first: &[String] = if let Order::First { names, .. } = &order { names } else { &[] };
    let is_first = |name: &String| first.contains(name);
    counted.sort_by_key(|(name, port)| std::cmp::Reverse((is_first(name), super::own::weight(port))));
    let waiting = stopped_names.iter().filter(|name| !is_first(name) && !lost.contains(*name)).count();
    // What their ports tell is enough.
    unknown.retain(|name| !lost.contains(name));
    let lost = lost.iter().filter(|name| !is_first(name)).count();
    // By this time, a node had stopped, or all of them had if none was clearly the first.
    let have_stopped = if let Order::First { at, .. } = &order { *at } else { since };
    Verdict::Stalled(Box::new(Stall {
        since,
        counted,
        waiting,
        lost,
        order,
        silent,
        is_gone_first: gone.first().is_some_and(|gone| gone.at <= have_stopped),
        gone,
        gone_before,
        strange,
        unknown,
        never,
    }))
}

fn order(mut stopped: Vec<(String, Between)>) -> Order {
    if stopped.len() < 2 {
        return Order::One;
    }
    stopped.sort_by_key(|(_, between)| between.later);
    // From the end on: the earliest time at which one of the nodes from here on may have stopped.
    let mut earliest: Vec<Duration> = stopped.iter().map(|(_, between)| between.earlier).collect();
    for place in (1..earliest.len()).rev() {
        if let [before, after] = &mut earliest[place - 1..=place] {
            *before = (*before).min(*after);
        }
    }
    let gaps = stopped.windows(2).zip(1..).filter(|(_, count)| 2 * count <= stopped.len());
    let mut gaps = gaps.filter_map(|(pair, count)| {
        let [(_, last), _] = pair else { return None };
        let before = earliest.get(count)?.checked_sub(last.later)?;
        (!before.is_zero()).then_some((count, before, last.later))
    });
    if let Some((count, before, at)) = gaps.next() {
        let names = stopped.into_iter().take(count).map(|(name, _)| name).collect();
        return Order::First { names, at, before };
    }
    let first = stopped.iter().map(|(_, between)| between.earlier).min().unwrap_or_default();
    let last = stopped.iter().map(|(_, between)| between.later).max().unwrap_or_default();
    Order::Together { within: last.saturating_sub(first) }
}

#[cfg(test)]
mod tests;
