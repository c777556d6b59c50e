//! Node 0's end: the watchers of all other nodes connect here, and say nothing until node 0 asks. Node 0 asks when its
//! own rails have come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::JobOrders;
use super::judge::{Answer, Gone, Report, Reports, Verdict, When, judge};
use super::message::{
    End, Join, LONGEST, LONGEST_NAME, LONGEST_PORT, Moved, PORTS, PROTOCOL, State, ToNode, ToZero,
};
use super::own::Own;
use super::words::{self, Clocks};
use crate::finding::Finding;
use crate::text::visible;
use crate::wire::guests::PendingConnections;
use crate::wire::handshake::one_key;
use crate::wire::listen::Listener;
use crate::wire::stranger::Stranger;
use crate::wire::{Address, Channel};

/// The most connections whose other end has not proven anything yet, and those that have not said which node they are.
const MOST_PENDING: usize = 128;
const MOST_UNIDENTIFIED: usize = 128;

/// The time for a handshake, for a node to say which one it is, and to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long unproven connections wait after some were read: a flood of them takes little of the job's time. The kernel
/// keeps those that come meanwhile.
const PAUSE: Duration = Duration::from_millis(50);

/// How long to wait if the port is not free, or no descriptor is left.
const LISTEN_PAUSE: Duration = Duration::from_secs(60);

/// The longest and the shortest time between two questions to all nodes while node 0 rests.
const ASK_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Connections of unidentified nodes have the numbers from here on in epoll, and nodes those below.
const FIRST_UNIDENTIFIED: u64 = 1 << 32;

/// The most connections that are read from before the others.
const AT_ONCE: usize = 64;

pub(super) struct Zero {
    orders: JobOrders,
    token: Vec<u8>,
    /// After which time without movement the job counts as stalled, and for how long a node does not move that rests.
    after: Duration,
    rest: Duration,
    listener: Option<Listener>,
    /// When to listen, to accept connections, and to hear those that have proven nothing.
    accept_at: Duration,
    pending: PendingConnections,
    unidentified: BTreeMap<u64, (Channel, Instant)>,
    next_unidentified: u64,
    members: BTreeMap<u32, Member>,
    /// The nodes that disconnected, and have not come again.
    gone: BTreeMap<u32, Gone>,
    epoll: Epoll,
    question: Option<Question>,
    ask_at: Duration,
    /// Whether something may be other than when the nodes were asked last: one has come, has left, or says so.
    has_changed: bool,
    /// Since when the job has stalled, if that was said.
    told: Option<Duration>,
    /// Whether it was said that all other nodes have left, and none has come again.
    has_told_left: bool,
}

struct Member {
    channel: Channel,
    name: String,
    /// When it was asked, until it answers.
    asked: Option<Duration>,
    answer: Option<Answer>,
    /// Whether it has answered, and has not said since that something has changed.
    may_change: bool,
}

/// All nodes were asked, and may answer until a time.
struct Question {
    until: Duration,
    /// Node 0's own answer.
    own: Answer,
}

impl Zero {
    /// `None` if the kernel gives no descriptor.
    pub(super) fn new(orders: JobOrders, token: Vec<u8>, rest: Duration, after: Duration) -> Option<Zero> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).ok()?;
        Some(Zero {
            token,
            after,
            rest,
            listener: None,
            accept_at: Duration::ZERO,
            pending: PendingConnections::new(&PROTOCOL, PATIENCE, MOST_PENDING),
            unidentified: BTreeMap::new(),
            next_unidentified: FIRST_UNIDENTIFIED,
            members: BTreeMap::new(),
            gone: BTreeMap::new(),
            epoll,
            question: None,
            ask_at: Duration::ZERO,
            has_changed: true,
            told: None,
            has_told_left: false,
            orders,
        })
    }

    /// Returns what to wait for. Unproven connections are not read all the time.
    pub(super) fn fds(&self, now: Duration) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pending = self.listener.as_ref().filter(|_| now >= self.accept_at);
        let pending =
            pending.into_iter().flat_map(|listener| [listener.fd()].into_iter().chain(self.pending.fds()));
        pending.chain([self.epoll.0.as_fd()])
    }

    /// Returns when to go on if nothing happens.
    pub(super) fn wake_at(&self, now: Duration) -> Option<Duration> {
        let left = |until: Instant| now + until.saturating_duration_since(Instant::now());
        let pending = match self.accept_at > now {
            true => Some(self.accept_at),
            false => self.pending.until().map(left),
        };
        let unidentified = self.unidentified.values().map(|(_, until)| left(*until)).min();
        pending.into_iter().chain(unidentified).min()
    }

    /// Takes what has come by now.
    pub(super) fn go_on(&mut self, now: Duration) {
        if now >= self.accept_at {
            self.accept_unidentified(now);
        }
        let mut events = [EpollEvent::empty(); AT_ONCE];
        // EINTR is harmless: the next call reports the events.
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or_default();
        for event in events.iter().take(count) {
            match u32::try_from(event.data()) {
                Ok(node) => self.hear(node, now),
                Err(_) => self.join(event.data(), now),
            }
        }
        self.unidentified.retain(|_, (_, until)| Instant::now() < *until);
    }

    /// Accepts connections, and takes what those say that have proven nothing yet.
    fn accept_unidentified(&mut self, now: Duration) {
        let mut tell = |stranger: Stranger| tracing::debug!("the job's watchers: {stranger}");
        let Some(listener) = &self.listener else {
            self.listener = self.listen();
            if self.listener.is_none() {
                self.accept_at = now + LISTEN_PAUSE;
            }
            return;
        };
        if let Err(why) = self.pending.accept(listener, Instant::now() + PATIENCE, &mut tell) {
            tracing::debug!("the job's watchers: {why}");
            self.accept_at = now + LISTEN_PAUSE;
            return;
        }
        if self.pending.is_empty() {
            return;
        }
        self.accept_at = now + PAUSE;
        let token = std::mem::take(&mut self.token);
        while let Some(proven) = self.pending.hear(&one_key(&token), &mut tell) {
            self.welcome(proven.channel);
        }
        self.token = token;
    }

    fn listen(&self) -> Option<Listener> {
        let address: Address = self.orders.place.parse().ok()?;
        let listener = Listener::at(&address, Instant::now());
        listener.inspect_err(|why| tracing::debug!("the job's watchers: {why}")).ok()
    }

    /// A process has proven that it has the token.
    fn welcome(&mut self, channel: Channel) {
        keep_alive(&channel);
        if self.unidentified.len() >= MOST_UNIDENTIFIED {
            // The oldest one had the most time to say which node it is.
            self.unidentified.pop_first();
        }
        let id = self.next_unidentified;
        self.next_unidentified += 1;
        if self.listen_to(id, &channel) {
            self.unidentified.insert(id, (channel, Instant::now() + PATIENCE));
        }
    }

    /// Has the kernel say once when something happens on a connection, and the first time at once.
    fn listen_to(&self, id: u64, channel: &Channel) -> bool {
        let news = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(channel.fd(), EpollEvent::new(news, id)).is_ok()
    }

    /// An unidentified node says which one it is.
    fn join(&mut self, id: u64, now: Duration) {
        let Some((mut channel, until)) = self.unidentified.remove(&id) else { return };
        let join = match channel.receive_if_there(LONGEST) {
            Ok(None) => {
                self.unidentified.insert(id, (channel, until));
                return;
            }
            Ok(Some(ToZero::Join(join))) => join,
            Ok(Some(ToZero::State(_) | ToZero::Changed | ToZero::Bye(_))) | Err(_) => return,
        };
        if let Some(why) = self.objection(&join) {
            tracing::debug!("the job's watchers: rejected {}: {why}", channel.address());
            // A message that is short fits into an empty queue: no reader is waited for.
            let _ = channel.queue(&ToNode::Refused(why));
            return;
        }
        let _ = self.epoll.delete(channel.fd());
        if self.listen_to(join.node.into(), &channel) {
            tracing::debug!("the job's watchers: node {} is connected", join.node);
            self.gone.remove(&join.node);
            self.has_told_left = false;
            self.has_changed = true;
            let name = visible(&join.name);
            let member = Member { channel, name, asked: None, answer: None, may_change: false };
            self.members.insert(join.node, member);
            // What it has said already is heard now.
            self.hear(join.node, now);
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
        self.members.contains_key(&join.node).then(|| format!("node {} is connected already", join.node))
    }

    /// Takes what a node says: its answer, once after it that something has changed, and that its command has ended.
    fn hear(&mut self, node: u32, now: Duration) {
        let Some(member) = self.members.get_mut(&node) else { return };
        loop {
            // What it has said counts, even if nothing reaches it any more.
            let sent = member.channel.flush();
            let said = match member.channel.receive_if_there(LONGEST) {
                Ok(None) => sent.map(|()| None),
                said => said,
            };
            match (said, member.asked) {
                (Ok(None), _) => return,
                (Ok(Some(ToZero::State(state))), Some(asked)) if is_possible(&state) => {
                    // A question that is over had to do without this answer. And a node that has come to rest by its
                    // own setting, but not by this one's, says no more that it has: it has done so.
                    self.has_changed |= self.question.is_none() || may_rest(&state, self.rest);
                    member.asked = None;
                    member.answer = Some(Answer::new(state, asked, now));
                    member.may_change = true;
                }
                (Ok(Some(ToZero::Changed)), _) if member.may_change => {
                    member.may_change = false;
                    self.has_changed = true;
                }
                (Ok(Some(ToZero::Bye(end))), _) => break self.leaves(node, now, Some(end)),
                (Ok(Some(_)) | Err(_), _) => break self.leaves(node, now, None),
            }
        }
    }

    /// `end`: how its command ended, if it has said so.
    fn leaves(&mut self, node: u32, now: Duration, end: Option<End>) {
        if let Some(member) = self.members.remove(&node) {
            tracing::debug!("the job's watchers: node {node} has disconnected: {end:?}");
            self.has_changed = true;
            self.gone.insert(node, Gone { name: member.name, at: now, end });
        }
    }

    /// To be called after each look at node 0's own ports. Asks all nodes if nothing has moved here for long, and
    /// returns what is to be said of the job.
    pub(super) fn look(&mut self, own: &Own, clocks: Clocks) -> Option<Finding> {
        let now = clocks.now;
        let (moved, has_moved) = match own.when() {
            When::Unknown => return None,
            // It rests since the start.
            When::Never => (Duration::ZERO, false),
            When::At(moved) => (moved.later, true),
        };
        if now.saturating_sub(moved) < self.after {
            self.question = None;
            return self
                .told
                .take_if(|since| *since < moved)
                .map(|since| words::moves_again(moved.saturating_sub(since)));
        }
        if let Some(question) = &self.question {
            let is_over = now >= question.until || self.members.values().all(|member| member.asked.is_none());
            return is_over.then(|| self.verdict(clocks)).flatten();
        }
        // That the job moves again shows here, unless this node has no part in what moves. Then the others say when it
        // is time to ask again: a job that runs on sockets never moves anything.
        let is_open = if has_moved { self.told.is_none() } else { self.has_changed };
        if is_open && !self.has_told_left && now >= self.ask_at {
            self.ask(own, now);
        }
        None
    }

    fn ask(&mut self, own: &Own, now: Duration) {
        let [least, most] = ASK_AGAIN;
        self.has_changed = false;
        self.ask_at = now + (self.after / 10).clamp(least, most);
        let own = Answer { when: own.when(), ports: own.ports().to_vec() };
        self.question = Some(Question { until: now + PATIENCE, own });
        let mut lost = Vec::new();
        for (node, member) in &mut self.members {
            member.answer = None;
            // One that still owes an answer gets no further question. Its answer counts from the first one.
            if member.asked.is_none() {
                member.asked = Some(now);
                if member.channel.queue(&ToNode::Tell).is_err() {
                    lost.push(*node);
                }
            }
        }
        for node in lost {
            // It may have said how its command ended.
            self.hear(node, now);
            self.leaves(node, now, None);
        }
    }

    fn verdict(&mut self, clocks: Clocks) -> Option<Finding> {
        let Question { own, .. } = self.question.take()?;
        let mut names = Names::default();
        let own = Report { name: names.of(&self.orders.name, 0), answer: Some(own) };
        let mut nodes = vec![own];
        for (node, member) in &mut self.members {
            nodes.push(Report { name: names.of(&member.name, *node), answer: member.answer.take() });
        }
        let gone =
            self.gone.iter().map(|(node, gone)| Gone { name: names.of(&gone.name, *node), ..gone.clone() });
        let gone: Vec<Gone> = gone.collect();
        let known = nodes.len() + gone.len();
        let strange = usize::try_from(self.orders.nodes).unwrap_or_default().saturating_sub(known);
        match judge(Reports { now: clocks.now, nodes, gone, strange }, self.rest) {
            Verdict::Moves => {
                tracing::debug!("the job's watchers: a node still moves data");
                self.told.take().map(|since| words::moves_again(clocks.now.saturating_sub(since)))
            }
            Verdict::Alone => {
                tracing::debug!("the job's watchers: no other node says anything");
                None
            }
            Verdict::Left { gone, since, strange } => {
                self.has_told_left = true;
                words::left(&gone, since, strange, clocks)
            }
            Verdict::Stalled(stall) => match self.told {
                Some(_) => None,
                None => {
                    self.told = Some(stall.since);
                    Some(words::stalled(&stall, clocks))
                }
            },
        }
    }
}

#[cfg(test)]
impl Zero {
    pub(super) fn connected(&self) -> usize {
        self.members.len()
    }

    pub(super) fn has_none_pending(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some() || self.members.values().any(|member| member.asked.is_some())
    }

    /// Returns how many nodes owe an answer.
    #[cfg(test)]
    pub(super) fn unanswered(&self) -> usize {
        self.members.values().filter(|member| member.asked.is_some()).count()
    }

    /// Asks without an end.
    pub(super) fn tell_all(&mut self) {
        for member in self.members.values_mut() {
            let _ = member.channel.queue(&ToNode::Tell);
        }
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

/// A machine that is off, or a network that is gone, ends a quiet connection after about three minutes.
pub(super) fn keep_alive(channel: &Channel) {
    use nix::sys::socket::setsockopt;
    use nix::sys::socket::sockopt::{KeepAlive, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};
    let stream = channel.connection().stream();
    let _ = setsockopt(stream, KeepAlive, &true);
    let _ = setsockopt(stream, TcpKeepIdle, &120);
    let _ = setsockopt(stream, TcpKeepInterval, &20);
    let _ = setsockopt(stream, TcpKeepCount, &3);
}
