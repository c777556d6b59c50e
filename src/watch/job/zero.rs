//! Node 0's end: the watchers of all other nodes connect here, and say nothing until node 0 asks. Node 0 asks when its
//! own rails have come to rest: as a note first, and again when the pause is too long to be one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::JobOrders;
use super::judge::{Answer, Gone, Report, Reports, Verdict, When, judge};
use super::message::{
    End, Join, LONGEST, LONGEST_NAME, LONGEST_PORT, Moved, PORTS, PROTOCOL, State, ToNode, ToZero,
};
use super::own::Own;
use super::words::{self, Clocks};
use crate::finding::{Finding, Severity};
use crate::text::visible;
use crate::watch::judge::Pauses;
use crate::wire::hub::{Hub, HubEvent, Peer};
use crate::wire::stranger::Stranger;
use crate::wire::{Channel, Protocol};

/// The time for a handshake, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest and the shortest time between two questions to all nodes while node 0 rests.
const ASK_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

pub(super) struct Zero {
    orders: JobOrders,
    /// A node that has not moved for so long rests.
    rest: Duration,
    hub: Hub<Member>,
    /// The nodes that disconnected, and have not come again.
    gone: BTreeMap<u32, Gone>,
    question: Option<Question>,
    ask_at: Duration,
    /// Whether something may be other than when the nodes were asked last: one has come, has left, or says so.
    has_changed: bool,
    reported: Option<Reported>,
    /// How many nodes had left when that was reported, unless one has come again since.
    reported_left: usize,
    /// Whether it was reported that other nodes still move data.
    has_reported_part: bool,
}

struct Member {
    name: String,
    /// When it was asked, until it answers.
    asked: Option<Duration>,
    answer: Option<Answer>,
    /// Whether it has answered, and has not said since that something has changed.
    may_change: bool,
}

impl Peer for Member {
    const PROTOCOL: &'static Protocol = &PROTOCOL;
    const GUESTS: usize = 128;
    const PAUSE: Duration = Duration::from_millis(50);
    const LONGEST: usize = LONGEST;
    const SILENCE: Option<Duration> = None;
    type Message = ToZero;
    type Reply = ToNode;
}

/// That the job has stalled was reported.
#[derive(Clone, Copy)]
struct Reported {
    since: Duration,
    severity: Severity,
    /// How many nodes had left.
    gone: usize,
}

/// All nodes were asked, and may answer until a time.
struct Question {
    until: Duration,
    /// Node 0's own answer.
    own: Answer,
    /// What a stall is reported as that nothing explains.
    severity: Option<Severity>,
}

impl Zero {
    /// `None` if the kernel gives no descriptor.
    pub(super) fn new(orders: JobOrders, token: &[u8], rest: Duration) -> Option<Zero> {
        let place = orders.place.parse().ok()?;
        Some(Zero {
            rest,
            hub: Hub::new(Err(place), token, orders.nodes).ok()?,
            gone: BTreeMap::new(),
            question: None,
            ask_at: Duration::ZERO,
            has_changed: true,
            reported: None,
            reported_left: 0,
            has_reported_part: false,
            orders,
        })
    }

    /// Returns what to wait for. Unproven connections are not read all the time.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.hub.fds()
    }

    /// Returns when to go on if nothing happens.
    pub(super) fn wake_at(&self, now: Duration) -> Option<Duration> {
        self.hub.wake_at().map(|until| now + until.saturating_duration_since(Instant::now()))
    }

    /// Takes what has come by now.
    pub(super) fn go_on(&mut self, now: Duration) {
        let mut tell = |_: &str, stranger: Stranger| tracing::debug!("the job's watchers: {stranger}");
        if let Err(why) = self.hub.poll(Instant::now() + PATIENCE, &mut tell) {
            tracing::debug!("the job's watchers: {why}");
        }
        while let Some(event) = self.hub.next_event() {
            match event {
                HubEvent::Joins(channel, ToZero::Join(join)) => self.join(channel, join),
                HubEvent::Joins(..) => {}
                HubEvent::Said(node, message) => self.hear(node, message, now),
                HubEvent::Left(node, member, _) => self.leaves(node, member, now, None),
            }
        }
    }

    fn join(&mut self, mut channel: Channel, join: Join) {
        if let Some(why) = self.objection(&join) {
            tracing::debug!("the job's watchers: rejected {}: {why}", channel.address());
            // A message that is short fits into an empty queue: no reader is waited for.
            let _ = channel.queue(&ToNode::Refused(why));
            return;
        }
        let member = Member { name: visible(&join.name), asked: None, answer: None, may_change: false };
        if self.hub.admit(channel, join.node, member).is_ok() {
            tracing::debug!("the job's watchers: node {} is connected", join.node);
            self.gone.remove(&join.node);
            self.reported_left = 0;
            self.has_changed = true;
            if self.reported.is_some() {
                self.hub.send(join.node, &ToNode::Stalled(true));
            }
        }
    }

    fn objection(&self, join: &Join) -> Option<String> {
        if join.job != self.orders.job || join.nodes != self.orders.nodes {
            return Some("it belongs to another job".to_owned());
        }
        if join.node == 0 || join.node >= join.nodes || join.name.len() > LONGEST_NAME {
            return Some(format!("it says that it is node {} of {}", join.node, join.nodes));
        }
        // The older connection stays: a process that takes the index of another node does not replace it. That of a
        // machine that is off ends soon.
        self.hub
            .members()
            .contains_key(&join.node)
            .then(|| format!("node {} is connected already", join.node))
    }

    /// Takes what a node says: its answer, once after it that something has changed, and that its command has ended.
    fn hear(&mut self, node: u32, message: ToZero, now: Duration) {
        let Some(member) = self.hub.peer_mut(node) else { return };
        match (message, member.asked) {
            (ToZero::State(state), Some(asked)) if is_possible(&state) => {
                // A question that is over had to do without this answer. And a node that has come to rest by its
                // own setting, but not by this one's, says no more that it has: it has done so.
                self.has_changed |= self.question.is_none() || may_rest(&state, self.rest);
                member.asked = None;
                member.answer = Some(Answer::new(state, asked, now));
                member.may_change = true;
            }
            (ToZero::Changed, _) if member.may_change => {
                member.may_change = false;
                self.has_changed = true;
            }
            (message, _) => {
                let end = if let ToZero::Bye(end) = message { Some(end) } else { None };
                if let Some(member) = self.hub.remove(node) {
                    self.leaves(node, member, now, end);
                }
            }
        }
    }

    /// `end`: how its command ended, if it has said so.
    fn leaves(&mut self, node: u32, member: Member, now: Duration, end: Option<End>) {
        tracing::debug!("the job's watchers: node {node} has disconnected: {end:?}");
        self.has_changed = true;
        self.gone.insert(node, Gone { name: member.name, at: now, end });
    }

    /// Whether another node learns from this one how its command ended.
    pub(super) fn is_joined(&self) -> bool {
        !self.hub.members().is_empty()
    }

    /// Says that the command has ended.
    pub(super) fn bye(&mut self, end: End) {
        self.hub.send_all(|_| ToNode::Bye(end));
    }

    /// Whether a line about the whole job says that this node rests.
    pub(super) fn reports_rest(&self) -> bool {
        self.reported.is_some()
    }

    /// To be called after each look at node 0's own ports. Asks all nodes if nothing has moved here for long, and
    /// returns what is to be said of the job.
    pub(super) fn look(&mut self, own: &Own, pauses: Pauses, clocks: Clocks) -> Option<Finding> {
        let now = clocks.now;
        let (moved, has_moved) = match own.when() {
            When::Unknown => return None,
            // It rests since the start.
            When::Never => (Duration::ZERO, false),
            When::At(moved) => (moved.later, true),
        };
        let rested = now.saturating_sub(moved);
        if rested < pauses.note.max(self.rest) {
            self.question = None;
            self.has_reported_part = false;
            let is_over = self.reported.is_some_and(|reported| reported.since < moved);
            return is_over.then(|| self.moves_again(moved)).flatten();
        }
        // Only a pause that may be a warning can be one for another node's reason.
        let severity =
            pauses.stall.map(|stall| if rested >= stall { Severity::Warning } else { Severity::Info });
        if let Some(question) = &self.question {
            let is_over = now >= question.until
                || self.hub.members().values().all(|member| member.peer.asked.is_none());
            return is_over.then(|| self.verdict(clocks)).flatten();
        }
        // That the job moves again shows here, unless this node has no part in what moves. Then the others say when it
        // is time to ask again: a job that runs on sockets never moves anything.
        let is_open = match self.reported {
            None => has_moved || self.has_changed,
            Some(reported) => self.has_changed || severity > Some(reported.severity),
        };
        let has_others = !self.hub.members().is_empty() || self.reported_left < self.gone.len();
        if is_open && has_others && now >= self.ask_at {
            self.ask(own, severity, now);
        }
        None
    }

    fn ask(&mut self, own: &Own, severity: Option<Severity>, now: Duration) {
        let [least, most] = ASK_AGAIN;
        self.has_changed = false;
        self.ask_at = now + self.rest.clamp(least, most);
        let own = Answer { when: own.when(), ports: own.ports().to_vec() };
        self.question = Some(Question { until: now + PATIENCE, own, severity });
        let mut asked = Vec::new();
        for (node, member) in self.hub.peers_mut() {
            member.answer = None;
            // One that still owes an answer gets no further question. Its answer counts from the first one.
            if member.asked.is_none() {
                member.asked = Some(now);
                asked.push(node);
            }
        }
        for node in asked {
            self.hub.send(node, &ToNode::Tell);
        }
    }

    fn moves_again(&mut self, now: Duration) -> Option<Finding> {
        let reported = self.reported.take()?;
        self.hub.send_all(|_| ToNode::Stalled(false));
        Some(words::moves_again(now.saturating_sub(reported.since)))
    }

    fn verdict(&mut self, clocks: Clocks) -> Option<Finding> {
        let Question { own, severity, .. } = self.question.take()?;
        let has_moved = matches!(own.when, When::At(_));
        let mut names = Names::default();
        let own = Report { name: names.of(&self.orders.name, 0), answer: Some(own) };
        let mut nodes = vec![own];
        for (node, member) in self.hub.peers_mut() {
            nodes.push(Report { name: names.of(&member.name, node), answer: member.answer.take() });
        }
        let gone =
            self.gone.iter().map(|(node, gone)| Gone { name: names.of(&gone.name, *node), ..gone.clone() });
        let gone: Vec<Gone> = gone.collect();
        let known = nodes.len() + gone.len();
        let strange = usize::try_from(self.orders.nodes).unwrap_or_default().saturating_sub(known);
        match judge(Reports { now: clocks.now, nodes, gone, strange }, self.rest) {
            Verdict::Moves { moving, resting, since } => {
                tracing::debug!("the job's watchers: a node still moves data");
                if self.reported.is_some() {
                    return self.moves_again(clocks.now);
                }
                let is_new = has_moved && !std::mem::replace(&mut self.has_reported_part, has_moved);
                is_new.then(|| words::moves_in_part(&moving, &resting, since, clocks))
            }
            Verdict::Alone => {
                tracing::debug!("the job's watchers: no other node says anything");
                None
            }
            Verdict::Left { gone, others, since, strange } => {
                let is_new = std::mem::replace(&mut self.reported_left, gone.len()) < gone.len();
                is_new.then(|| words::left(&gone, others, since, strange, clocks)).flatten()
            }
            Verdict::Stalled(stall) => {
                // A node that has left, or a port with errors, explains the pause.
                let is_broken = !stall.gone.is_empty() || !stall.counted.is_empty();
                let severity = severity.map(|severity| if is_broken { Severity::Warning } else { severity });
                let severity = severity.unwrap_or(Severity::Info);
                let (since, gone) = (stall.since, stall.gone.len());
                let is_known = |reported: Reported| reported.severity >= severity && reported.gone >= gone;
                if self.reported.is_some_and(is_known) {
                    return None;
                }
                self.reported = Some(Reported { since, severity, gone });
                self.hub.send_all(|_| ToNode::Stalled(true));
                Some(Finding { severity, ..words::stalled(&stall, clocks) })
            }
        }
    }
}

#[cfg(test)]
impl Zero {
    pub(super) fn connected(&self) -> usize {
        self.hub.members().len()
    }

    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some() || self.unanswered() > 0
    }

    /// Returns how many nodes owe an answer.
    pub(super) fn unanswered(&self) -> usize {
        self.hub.members().values().filter(|member| member.peer.asked.is_some()).count()
    }

    /// Asks without an end.
    pub(super) fn tell_all(&mut self) {
        self.hub.send_all(|_| ToNode::Tell);
    }
}

/// Names of hosts, which may be the same on several nodes.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn of(&mut self, host: &str, node: u32) -> String {
        match !host.is_empty() && self.0.insert(host.to_owned()) {
            true => host.to_owned(),
            false => format!("{host} (node {node})").trim_start().to_owned(),
        }
    }
}

fn is_possible(state: &State) -> bool {
    state.ports.len() <= PORTS && state.ports.iter().all(|port| port.port.len() <= LONGEST_PORT)
}

/// Returns whether a node that moved data within `rest` may have come to rest by its own measure, which is at least
/// three of its looks.
fn may_rest(state: &State, rest: Duration) -> bool {
    match state.moved {
        Moved::Ago { ms, between_ms } => {
            Duration::from_millis(ms) < rest && ms >= between_ms.saturating_mul(2)
        }
        Moved::Unknown | Moved::Never => false,
    }
}
