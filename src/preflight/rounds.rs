//! The pairs of one node, one after the other.
//!
//! The lower node of a pair calls, in a process of its own; the higher one waits for the call. A
//! node that is called while it is in an earlier pair says that it is busy, again and again. The
//! higher node asks the lower one in the same way where no call comes. So a node that is late is
//! told from one that hangs or has gone, and only its own pairs fail.
//!
//! This process never waits for a partner. It hears node 0, its guests and its tasks all at once.

mod caller;
mod current;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use hmac_sha256::HKDF;
use nix::poll::{PollFd, PollFlags, poll};

use super::call::{LATE, SILENT, ask, call, own, work};
use super::message::{Answer, Call, Job, LONGEST, PAIR, Partner, REPORTS_AT_ONCE, ToNode, ToZero, Told};
use super::node::{ALIVE, HUNG, Node, presentable};
use super::pair::{PairFailure, PairOutcome, PairReport};
use super::prove;
use super::task::Task;
use caller::Caller;
use current::{At, Pair};

use crate::text::{shortened, visible};
use crate::verbs::rail::Side;
use crate::wire::Channel;
use crate::wire::connection::timeout;
use crate::wire::guests::Guests;
use crate::wire::listen::Listener;
use crate::wire::stranger::Stranger;

/// How often a node that is called says that it is busy.
const BUSY: Duration = Duration::from_secs(2);

/// The most connections whose other end has not proven anything yet, and the most that wait.
const MOST: usize = 64;

/// How soon node 0 hears that this node is in another round.
const SOON: Duration = Duration::from_secs(1);

pub struct Rounds<'a> {
    node: &'a Node<'a>,
    zero: Channel,
    /// The address of node 0.
    zero_at: IpAddr,
    listener: &'a Listener,
    secret: [u8; 32],
    heard: Instant,
    told: Instant,
    /// The round that node 0 has heard of.
    told_round: u16,
    pairs: VecDeque<Partner>,
    pair: Option<Pair>,
    callers: Vec<Caller>,
    gone: Vec<(u32, String)>,
    /// How the pairs have ended that are over, for whoever still asks.
    over: Vec<(u16, u32, PairFailure)>,
    reports: Vec<PairReport>,
    /// Whether node 0 has not got the reports of all pairs.
    owes: bool,
    /// Whether node 0 is about to name more pairs.
    expects: bool,
}

impl<'a> Rounds<'a> {
    pub fn new(
        node: &'a Node<'a>,
        zero: Channel,
        listener: &'a Listener,
        zero_at: IpAddr,
        job: &Job,
    ) -> Rounds<'a> {
        let now = Instant::now();
        Rounds {
            node,
            zero,
            zero_at,
            listener,
            secret: HKDF::extract(job, node.token),
            heard: now,
            told: now,
            told_round: 0,
            pairs: VecDeque::new(),
            pair: None,
            callers: Vec::new(),
            gone: Vec::new(),
            over: Vec::new(),
            reports: Vec::new(),
            owes: false,
            expects: false,
        }
    }

    /// Tries the pairs, and those of the second tries, up to the verdict.
    ///
    /// # Errors
    /// A sentence: node 0 has gone.
    pub fn run(&mut self, pairs: Vec<Partner>, more: bool) -> Result<Told, String> {
        self.take(pairs, more);
        let secret = self.secret;
        let mut guests = Guests::new(&PAIR, &secret, SILENT, MOST);
        loop {
            if let Some(told) = self.hear_zero()? {
                return Ok(told);
            }
            self.advance();
            // Somebody who is no node of this job is of no interest here.
            guests.accept(self.listener, Instant::now() + SILENT, &mut |_| {})?;
            while let Some(proven) = guests.hear(&mut |_| {}) {
                if self.callers.len() < MOST {
                    self.callers.push(Caller::new(proven.channel));
                }
            }
            self.hear_callers();
            self.tell_zero().map_err(lost)?;
            if !self.has_news() {
                self.sleep(&guests);
            }
        }
    }

    fn take(&mut self, pairs: Vec<Partner>, more: bool) {
        let presentable = |partner: Partner| Partner { name: visible(&shortened(&partner.name)), ..partner };
        self.pairs.extend(pairs.into_iter().map(presentable));
        self.owes = true;
        self.expects = more;
    }

    /// Whether the next pair can be begun, so that nothing has to be waited for.
    fn has_news(&self) -> bool {
        self.pair.is_none() && !self.pairs.is_empty()
    }

    fn hear_zero(&mut self) -> Result<Option<Told>, String> {
        while let Some(message) = self.zero.receive_if_there(LONGEST).map_err(lost)? {
            self.heard = Instant::now();
            match message {
                ToNode::Prove { pairs, more, .. } => self.take(pairs, more),
                ToNode::Gone { node, why } => self.gone.push((node, visible(&shortened(&why)))),
                ToNode::Verdict(told) => return Ok(Some(presentable(told))),
                ToNode::Refused(why) => {
                    return Err(format!("node 0 refuses this node: {}", visible(&shortened(&why))));
                }
                ToNode::Working | ToNode::Waiting { .. } => {}
            }
        }
        if self.heard.elapsed() > HUNG {
            return Err(format!(
                "node 0 ({}) has said nothing for {} s, so there is no verdict.",
                self.zero.address(),
                HUNG.as_secs()
            ));
        }
        Ok(None)
    }

    fn tell_zero(&mut self) -> Result<(), Stranger> {
        if self.owes && !self.expects && self.pair.is_none() && self.pairs.is_empty() {
            self.owes = false;
            let mut reports = std::mem::take(&mut self.reports).into_iter().peekable();
            loop {
                let some: Vec<PairReport> = reports.by_ref().take(REPORTS_AT_ONCE).collect();
                let more = reports.peek().is_some();
                self.zero.queue(&ToZero::Proved { reports: some, more })?;
                if !more {
                    break;
                }
            }
        }
        let (since, round) = (self.told.elapsed(), self.round());
        if since >= ALIVE || since >= SOON && round != self.told_round {
            self.told = Instant::now();
            self.told_round = round;
            self.zero.queue(&ToZero::Alive { round })?;
        }
        self.zero.flush()
    }

    fn round(&self) -> u16 {
        let next = self.pair.as_ref().map(|pair| &pair.with).or(self.pairs.front());
        next.map_or(u16::MAX, |partner| partner.round)
    }

    /// Looks after the pair that this node is in, and begins the next one.
    fn advance(&mut self) {
        if let Some(pair) = &mut self.pair {
            let gone = self.gone.iter().any(|(node, _)| *node == pair.with.node);
            let outcome = match gone {
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
            let Some(with) = self.pairs.pop_front() else { return };
            tracing::debug!("preflight: begins the pair with {}", with.name);
            let (since, gone) = (Instant::now(), self.gone.iter().any(|(node, _)| *node == with.node));
            let calls = self.node.node < with.node;
            let at = match calls && !gone {
                true => self.start(&with, true),
                false => Ok(At::Waiting { asking: None, failed: None }),
            };
            match at {
                Ok(at) => self.pair = Some(Pair { with, since, at }),
                Err(why) => {
                    self.pair = Some(Pair { with, since, at: At::Waiting { asking: None, failed: None } });
                    self.end_pair(PairOutcome::Failed(PairFailure::Refused(why)));
                }
            }
            if gone {
                self.end_pair(PairOutcome::Failed(PairFailure::Left));
            }
        }
    }

    /// Starts a task that calls a partner, or only asks it.
    fn start(&self, with: &Partner, calls: bool) -> Result<At, String> {
        let (secret, node, zero_at) = (self.secret, self.node, self.zero_at);
        let limit = match calls {
            true => LATE + work(node),
            false => LATE,
        };
        let task = Task::start(limit, &[], || match calls {
            true => call(node, with, zero_at, &secret),
            false => PairOutcome::Failed(ask(node, with, zero_at, &secret)),
        });
        let task = task.map_err(|errno| format!("no process for the pair: {errno}"))?;
        Ok(match calls {
            true => At::Calling(task),
            false => At::Waiting { asking: Some(task), failed: None },
        })
    }

    /// Asks the partner, where its call does not come.
    fn ask(&mut self) {
        let Some(with) = self.pair.as_ref().filter(|pair| pair.is_late()).map(|pair| pair.with.clone())
        else {
            return;
        };
        let at = self.start(&with, false).unwrap_or_else(|why| At::Waiting {
            asking: None,
            failed: Some((Instant::now(), PairFailure::Refused(why))),
        });
        if let Some(pair) = &mut self.pair {
            pair.at = at;
        }
    }

    fn end_pair(&mut self, outcome: PairOutcome) {
        let Some(Pair { with, since, .. }) = self.pair.take() else { return };
        let failure = match &outcome {
            PairOutcome::Rails(_) => PairFailure::Refused("that pair is over".to_owned()),
            PairOutcome::Failed(failure) => failure.clone(),
        };
        self.over.push((with.round, with.node, failure));
        self.reports.push(PairReport {
            round: with.round,
            node: self.node.node,
            partner: with.node,
            seconds: since.elapsed().as_secs_f32(),
            outcome,
        });
    }

    /// Answers those who call.
    fn hear_callers(&mut self) {
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

    /// Answers one caller. Gives whether the caller is no more in the list.
    fn answer(&mut self, index: usize) -> bool {
        let Some(caller) = self.callers.get_mut(index) else { return false };
        let (round, from, asks) = match &caller.call {
            Some(Call::Ready { round, from, .. }) => (*round, *from, false),
            Some(Call::Asks { round, from, .. }) => (*round, *from, true),
            None => return false,
        };
        let is_over = self.over.iter().find(|(at, with, _)| (*at, *with) == (round, from));
        if let Some((_, _, failure)) = is_over {
            let _ = caller.channel.queue(&Answer::Over(failure.clone()));
            self.callers.swap_remove(index);
            return true;
        }
        let is_this = self.pair.as_ref().is_some_and(|pair| {
            (pair.with.round, pair.with.node) == (round, from) && matches!(pair.at, At::Waiting { .. })
        });
        if is_this && !asks {
            let Caller { mut channel, .. } = self.callers.swap_remove(index);
            if channel.send(&Answer::Go).is_ok() {
                self.go(channel);
            }
            return true;
        }
        let now = Instant::now();
        if now >= caller.next {
            caller.next = now + BUSY;
            let busy = Answer::Busy { round: self.pair.as_ref().map_or(u16::MAX, |pair| pair.with.round) };
            if caller.channel.queue(&busy).is_err() {
                self.callers.swap_remove(index);
                return true;
            }
        }
        false
    }

    /// Tries the rails with the node that has called.
    fn go(&mut self, channel: Channel) {
        let Some(pair) = &mut self.pair else { return };
        let (node, keep, with) = (self.node, [channel.fd().as_raw_fd()], pair.with.clone());
        let task = Task::start(work(node), &keep, || prove::rails(channel, Side::Second, &own(node), &with));
        match task {
            Ok(task) => pair.at = At::Trying(task),
            Err(errno) => {
                let why = format!("no process for the pair: {errno}");
                self.end_pair(PairOutcome::Failed(PairFailure::Refused(why)));
            }
        }
    }

    /// Waits until something happens, or something is due.
    fn sleep(&self, guests: &Guests) {
        let now = Instant::now();
        let mut next = (self.told + ALIVE).min(self.heard + HUNG);
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
        // An interruption is as good as an event: the loop looks again.
        let _ = poll(&mut fds, timeout(next.saturating_duration_since(now)));
    }
}

fn lost(stranger: Stranger) -> String {
    format!("node 0 has gone, so there is no verdict: {}", stranger.why)
}
