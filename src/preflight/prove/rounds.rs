//! The pairs of one node, one after the other.
//!
//! The lower node of a pair calls, in its own process; the higher one waits for the call. If a node is
//! called while it is in an earlier pair, it reports again and again that it is busy. If no call
//! arrives, the higher node asks the lower one in the same way. So nodes can distinguish a late node
//! from one that hangs or has disconnected, and such a node makes only its own pairs fail.
//!
//! This process never waits for a peer. It receives from node 0, its pending connections and its tasks
//! at once.

mod agenda;
mod bounds;
mod caller;
mod current;
mod keys;

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use crate::preflight::meet::message::{
    Answer, Call, CallId, LONGEST, Order, PAIR, Partner, ToNode, ToZero, Told, Work,
};
use crate::preflight::meet::node::{ALIVE, HUNG, Node, presentable};
use crate::preflight::meet::times::{SILENT, Times};
use crate::preflight::prove::call::{ask, call, own};
use crate::preflight::prove::pair::{PairFailure, PairOutcome, PairReport};
use crate::preflight::prove::rails::{self, Standing};
use crate::preflight::prove::task::Task;
pub(in crate::preflight) use agenda::{Agenda, Turn};
pub(in crate::preflight) use bounds::bounded;
use caller::Caller;
use current::{At, Pair};
use keys::PairKeys;

use crate::text::{duration, shortened, visible};
use crate::verbs::rail::Side;
use crate::wire::Channel;
use crate::wire::attempt::Proven;
use crate::wire::connection::timeout;
use crate::wire::guests::PendingConnections;
use crate::wire::listen::Listener;
use crate::wire::stranger::{Stranger, Strangers};

fn violates(what: String) -> anyhow::Error {
    anyhow!("node 0 violates the protocol, so there is no verdict: {what}")
}

fn lost(why: Stranger) -> anyhow::Error {
    anyhow!("node 0 disconnected, so there is no verdict: {why}")
}

/// How often a node that is called reports that it is busy.
const BUSY: Duration = Duration::from_secs(2);

/// The most messages from node 0 that are read before everything else gets its turn.
const MOST_AT_ONCE: usize = 256;

/// The most connections whose other ends have not authenticated yet.
const MOST: usize = 64;

/// The most peers that may wait for this node.
const MOST_CALLERS: usize = 256;

pub(in crate::preflight) struct PairRounds<'a> {
    node: &'a Node<'a>,
    zero: Channel,
    /// The address of node 0.
    zero_at: IpAddr,
    listener: &'a Listener,
    keys: PairKeys<'a>,
    heard: Instant,
    /// The latest time for a verdict.
    end: Instant,
    /// Whether node 0 may have sent more than this node has read so far.
    has_more: bool,
    told: Instant,
    /// The times that node 0 uses as well.
    times: Times,
    agenda: Agenda,
    pair: Option<Pair>,
    /// The results of the rails so far.
    standings: Vec<Standing>,
    callers: Vec<Caller>,
}

impl<'a> PairRounds<'a> {
    pub(in crate::preflight) fn new(
        node: &'a Node<'a>,
        zero: Channel,
        listener: &'a Listener,
        zero_at: IpAddr,
        order: &Order,
    ) -> PairRounds<'a> {
        let now = Instant::now();
        PairRounds {
            node,
            zero,
            zero_at,
            listener,
            keys: PairKeys::new(node.node, node.nodes, node.token),
            heard: now,
            end: now.checked_add(node.rounds_time()).unwrap_or(now + HUNG),
            has_more: false,
            told: now,
            times: order.times(),
            agenda: Agenda::default(),
            pair: None,
            standings: vec![Standing::default(); node.rails.names().len()],
            callers: Vec::new(),
        }
    }

    /// Tests the pairs, and those of the retries, until the verdict arrives.
    ///
    /// # Errors
    /// Node 0 has disconnected or hangs, rejects this node, or violates the protocol.
    pub(in crate::preflight) fn run(&mut self, order: Order) -> anyhow::Result<Told> {
        self.take(order)?;
        let debug = |line: &str| tracing::debug!("{line}");
        let mut strangers = Strangers::new(&debug, "preflight: this node");
        let mut guests = PendingConnections::new(&PAIR, SILENT, MOST);
        loop {
            if let Some(told) = self.receive_from_node_0()? {
                return Ok(told);
            }
            self.advance();
            let tell = &mut |_: &str, stranger| strangers.add(stranger);
            guests.accept(self.listener, Instant::now() + SILENT, tell)?;
            for Proven { channel, identity, .. } in guests.hear(&|of| self.keys.of(of), tell) {
                self.is_called(channel, &identity);
            }
            self.answer_callers();
            self.send_reports_to_node_0().map_err(lost)?;
            if !self.has_news() {
                self.sleep(&guests);
            }
        }
    }

    /// Takes the call of a node that has proven to be this node's peer in a round. A node calls once: a
    /// second connection for the same pair is closed.
    fn is_called(&mut self, channel: Channel, identity: &str) {
        let Some(id) = CallId::read(identity) else { return };
        if self.callers.iter().any(|caller| caller.id == id) || self.callers.len() >= MOST_CALLERS {
            tracing::debug!(
                "preflight: closed an extra connection of node {} for round {}",
                id.from,
                id.round
            );
            return;
        }
        self.callers.push(Caller::new(channel, id));
    }

    /// # Errors
    /// Node 0 names pairs that are impossible in this job.
    fn take(&mut self, order: Order) -> anyhow::Result<()> {
        self.times = order.times();
        order.pairs.iter().try_for_each(|with| self.keys.add(with)).map_err(violates)?;
        let presentable = |partner: Partner| Partner { name: visible(&shortened(&partner.name)), ..partner };
        let pairs = order.pairs.into_iter().map(presentable).collect();
        self.agenda.take(pairs, order.first, self.times, Instant::now());
        Ok(())
    }

    /// Returns whether there is more to read or the next pair can begin, so that this process need not
    /// wait.
    fn has_news(&self) -> bool {
        self.has_more || self.pair.is_none() && self.agenda.has_next()
    }

    fn receive_from_node_0(&mut self) -> anyhow::Result<Option<Told>> {
        self.has_more = false;
        for count in 1..=MOST_AT_ONCE {
            let Some(message) = self.zero.receive_if_there(LONGEST).map_err(lost)? else { break };
            self.has_more = count == MOST_AT_ONCE;
            self.heard = Instant::now();
            match message {
                ToNode::Prove(order) => self.take(order)?,
                ToNode::Gone { node } if node < self.node.nodes => self.agenda.lose(node),
                ToNode::Gone { node } => {
                    let nodes = self.node.nodes;
                    return Err(violates(format!("it says that node {node} of {nodes} has disconnected")));
                }
                ToNode::Verdict(told) => return Ok(Some(presentable(told))),
                ToNode::Refused(why) => {
                    bail!("node 0 rejected this node: {}", visible(&shortened(&why)));
                }
                ToNode::Working | ToNode::Waiting { .. } => {}
            }
        }
        if Instant::now() >= self.end {
            let within = duration(self.node.rounds_time());
            bail!(
                "node 0 ({}) has sent no verdict within {within}, the longest time that the rounds may take with this node's --rounds and --each",
                self.zero.address()
            );
        }
        if self.heard.elapsed() > HUNG {
            bail!(
                "node 0 ({}) has sent nothing for {} s, so there is no verdict",
                self.zero.address(),
                HUNG.as_secs()
            );
        }
        Ok(None)
    }

    fn send_reports_to_node_0(&mut self) -> Result<(), Stranger> {
        let now = Instant::now();
        loop {
            let reports = self.agenda.batch(self.rests(), now);
            if reports.is_empty() {
                break;
            }
            self.told = now;
            self.zero.queue(&ToZero::Proved(reports))?;
        }
        if self.told.elapsed() >= ALIVE {
            self.told = now;
            self.zero.queue(&ToZero::Alive)?;
        }
        self.zero.flush()
    }

    /// Returns whether all pairs so far are over.
    fn rests(&self) -> bool {
        self.pair.is_none() && !self.agenda.has_next()
    }

    /// Advances the pair that this node is in, and starts the next one.
    fn advance(&mut self) {
        if let Some(pair) = &mut self.pair {
            let outcome = match self.agenda.is_gone(pair.turn.with.node) {
                true => Some(PairOutcome::Failed(PairFailure::Left)),
                false => pair.outcome(),
            };
            if let Some(outcome) = outcome {
                self.end_pair(outcome);
            } else {
                self.ask();
            }
        }
        while self.pair.is_none() {
            let Some(turn) = self.agenda.next() else { return };
            tracing::debug!("preflight: starting the pair with {}", turn.with.name);
            let (since, gone) = (Instant::now(), self.agenda.is_gone(turn.with.node));
            let calls = self.node.node < turn.with.node;
            let at = match calls && !gone {
                true => self.start(&turn, true),
                false => Ok(At::Waiting { asking: None, failed: None }),
            };
            match at {
                Ok(at) => self.pair = Some(Pair { turn, since, at }),
                Err(errno) => {
                    self.pair = Some(Pair { turn, since, at: At::Waiting { asking: None, failed: None } });
                    self.end_pair(PairOutcome::Failed(no_process(errno)));
                }
            }
            if gone {
                self.end_pair(PairOutcome::Failed(PairFailure::Left));
            }
        }
    }

    /// Starts a task that calls a peer, or only asks it.
    fn start(&self, turn: &Turn, calls: bool) -> Result<At, Errno> {
        let (node, zero_at, times) = (self.node, self.zero_at, self.times);
        let limit = turn.until.saturating_duration_since(Instant::now());
        let task = Task::start(limit, &[], || match calls {
            true => call(node, turn, times, zero_at, &self.standings),
            false => PairOutcome::Failed(ask(node, &turn.with, times, zero_at)),
        });
        task.map(|task| match calls {
            true => At::Calling(task),
            false => At::Waiting { asking: Some(task), failed: None },
        })
    }

    /// Asks the peer if its call is late.
    fn ask(&mut self) {
        let Some(turn) = self.pair.as_ref().filter(|pair| pair.is_late()).map(|pair| pair.turn.clone())
        else {
            return;
        };
        let at = self.start(&turn, false).unwrap_or_else(|errno| At::Waiting {
            asking: None,
            failed: Some((Instant::now(), no_process(errno))),
        });
        if let Some(pair) = &mut self.pair {
            pair.at = at;
        }
    }

    fn end_pair(&mut self, outcome: PairOutcome) {
        let Some(Pair { turn: Turn { with, .. }, since, .. }) = self.pair.take() else { return };
        if !matches!(with.work, Work::Crosswise(_)) {
            rails::add_to_standings(&mut self.standings, &outcome);
        }
        let report = PairReport {
            round: with.round,
            node: self.node.node,
            partner: with.node,
            seconds: since.elapsed().as_secs_f32(),
            outcome,
        };
        self.agenda.end(report.possible(), Instant::now());
    }

    /// Answers the nodes that call.
    fn answer_callers(&mut self) {
        let mut index = 0;
        while let Some(caller) = self.callers.get_mut(index) {
            match caller.hear() {
                Ok(true) => match self.answer(index) {
                    true => {}
                    false => index += 1,
                },
                Ok(false) => index += 1,
                Err(_) => drop(self.callers.swap_remove(index)),
            }
        }
    }

    /// Answers one caller. Returns whether that removed the caller from the list.
    fn answer(&mut self, index: usize) -> bool {
        let Some(caller) = self.callers.get_mut(index) else { return false };
        let CallId { round, from, .. } = caller.id;
        let Some(call) = caller.call else { return false };
        if let Some(failure) = self.agenda.ending(round, from) {
            let _ = caller.channel.queue(&Answer::Over(failure.clone()));
            self.callers.swap_remove(index);
            return true;
        }
        let is_this = self.pair.as_ref().is_some_and(|pair| {
            (pair.turn.with.round, pair.turn.with.node) == (round, from)
                && matches!(pair.at, At::Waiting { .. })
        });
        if is_this && call == Call::Ready {
            let Caller { mut channel, .. } = self.callers.swap_remove(index);
            if channel.send(&Answer::Go).is_ok() {
                self.go(channel);
            }
            return true;
        }
        let now = Instant::now();
        if now >= caller.next {
            caller.next = now + BUSY;
            let busy =
                Answer::Busy { round: self.pair.as_ref().map_or(u16::MAX, |pair| pair.turn.with.round) };
            if caller.channel.queue(&busy).is_err() {
                self.callers.swap_remove(index);
                return true;
            }
        }
        false
    }

    /// Tests the rails with the node that has called.
    fn go(&mut self, channel: Channel) {
        let Some(pair) = &mut self.pair else { return };
        let (node, keep, with) = (self.node, [channel.fd().as_raw_fd()], pair.turn.with.clone());
        let limit = self.times.rails().min(pair.turn.until.saturating_duration_since(Instant::now()));
        let own = own(node, &self.standings);
        let task = Task::start(limit, &keep, || rails::prove(channel, Side::Second, &own, &with));
        match task {
            Ok(task) => pair.at = At::Trying(task),
            Err(errno) => self.end_pair(PairOutcome::Failed(no_process(errno))),
        }
    }

    /// Waits until something happens or is due.
    fn sleep(&self, guests: &PendingConnections) {
        let now = Instant::now();
        let mut next = (self.told + ALIVE).min(self.heard + HUNG).min(self.end);
        next = self.agenda.due(self.rests()).map_or(next, |due| due.min(next));
        let mut fds = vec![PollFd::new(self.listener.fd(), PollFlags::POLLIN)];
        let zero = if self.zero.connection().is_sending() { PollFlags::POLLOUT } else { PollFlags::empty() };
        fds.push(PollFd::new(self.zero.fd(), zero | PollFlags::POLLIN));
        fds.extend(guests.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        next = guests.until().map_or(next, |until| until.min(next));
        for caller in &self.callers {
            fds.push(PollFd::new(caller.channel.fd(), PollFlags::POLLIN));
            next = next.min(caller.next.max(now + Duration::from_millis(1)));
        }
        if let Some(pair) = &self.pair {
            next = next.min(pair.due());
            fds.extend(pair.task().map(|task| PollFd::new(task.fd(), PollFlags::POLLIN)));
        }
        // EINTR is harmless: the loop looks again.
        let _ = poll(&mut fds, timeout(next.saturating_duration_since(now)));
    }
}

fn no_process(errno: Errno) -> PairFailure {
    PairFailure::Refused(format!("cannot start a process for the pair: {errno}"))
}

#[cfg(test)]
mod tests;
