//! Any other node's end: one quiet connection to the watcher of node 0. If there is none, nothing is said: the job
//! does not need it.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::JobOrders;
use super::judge::{Gone, When};
use super::message::{End, Join, LONGEST, PROTOCOL, ToNode, ToZero};
use super::own::{Between, Motion, Own};
use super::words::{self, Clocks};
use crate::finding::Finding;
use crate::sys::random::jittered;
use crate::text::{shortened, visible};
use crate::wire::attempt::{Attempt, Progress};
use crate::wire::handshake::one_key;
use crate::wire::stranger::Stranger;
use crate::wire::{Address, Channel};

/// The time for a name to resolve, and for a connection and its handshake.
const LOOK_UP: Duration = Duration::from_secs(1);
const TRY: Duration = Duration::from_secs(5);

/// The pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The most questions that are answered in some time: a node 0 that never stops asking is not one of ours.
const MOST_QUESTIONS: u32 = 20;
const QUESTIONS_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Node {
    orders: JobOrders,
    token: Vec<u8>,
    stage: Stage,
    pause: Duration,
    /// How often it has tried: a name may have several addresses.
    tries: usize,
    /// The questions since a time.
    questions: (u32, Duration),
    /// What has not moved for this time has come to rest.
    rest: Duration,
    /// What this node did when it answered last, until it has said that this has changed.
    answered: Option<Motion>,
    /// When node 0 left last, if it was connected.
    left: Option<Gone>,
    has_reported_left: bool,
    /// Whether node 0 reports that the whole job has stalled.
    is_reported: bool,
}

enum Stage {
    Pause {
        until: Duration,
    },
    Attempt(Attempt),
    /// Connected since this time.
    Joined(Channel, Duration),
}

impl Node {
    pub(super) fn new(orders: JobOrders, token: Vec<u8>, rest: Duration, now: Duration) -> Node {
        // Node 0's watcher starts at about the same time.
        let stage = Stage::Pause { until: now + jittered(FIRST_PAUSE) };
        Node {
            orders,
            token,
            stage,
            pause: FIRST_PAUSE,
            tries: 0,
            questions: (0, now),
            rest,
            answered: None,
            left: None,
            has_reported_left: false,
            is_reported: false,
        }
    }

    pub(super) fn is_joined(&self) -> bool {
        matches!(self.stage, Stage::Joined(..))
    }

    /// Whether node 0 reports that the whole job rests.
    pub(super) fn reports_rest(&self) -> bool {
        self.is_reported
    }

    /// To be called after each look at this node's own ports. If they have begun to move, or have come to rest, since
    /// node 0 got its answer, node 0 is told: it asks no more often than that. Returns what is to be said if they have
    /// not moved for `note`, and node 0 is not there to say why.
    pub(super) fn look(&mut self, own: &Own, note: Duration, clocks: Clocks) -> Option<Finding> {
        let now = clocks.now;
        let has_changed = self.answered.is_some_and(|answered| answered != own.motion(now, self.rest));
        if let Stage::Joined(channel, _) = &mut self.stage
            && has_changed
        {
            self.answered = None;
            // A connection that is lost shows when it is heard next.
            let _ = channel.queue(&ToZero::Changed);
        }
        let moved = match own.when() {
            When::Unknown => return None,
            When::Never => None,
            When::At(Between { later, .. }) => Some(later),
        };
        if now.saturating_sub(moved.unwrap_or_default()) < note {
            self.has_reported_left = false;
            return None;
        }
        let is_news = |left: &&Gone| !self.has_reported_left && !left.is_long_gone(moved.unwrap_or_default());
        let left = self.left.as_ref().filter(|_| !self.is_joined()).filter(is_news)?;
        self.has_reported_left = true;
        Some(words::without_zero(left, moved, clocks))
    }

    /// Says that the command has ended. Whether node 0 gets it does not matter to this node.
    pub(super) fn bye(&mut self, end: End) {
        if let Stage::Joined(channel, _) = &mut self.stage {
            let _ = channel.queue(&ToZero::Bye(end));
        }
    }

    pub(super) fn fd(&self) -> Option<(BorrowedFd<'_>, bool)> {
        match &self.stage {
            Stage::Pause { .. } => None,
            Stage::Attempt(attempt) => Some((attempt.fd(), attempt.is_sending())),
            Stage::Joined(channel, _) => Some((channel.fd(), channel.connection().is_sending())),
        }
    }

    pub(super) fn wake_at(&self, now: Duration) -> Option<Duration> {
        match &self.stage {
            Stage::Pause { until } => Some(*until),
            Stage::Attempt(attempt) => Some(now + attempt.until.saturating_duration_since(Instant::now())),
            Stage::Joined(..) => None,
        }
    }

    pub(super) fn go_on(&mut self, now: Duration, own: &Own) {
        let stage = std::mem::replace(&mut self.stage, Stage::Pause { until: now });
        let next = match stage {
            Stage::Pause { until } if now < until => Ok(Stage::Pause { until }),
            Stage::Pause { .. } => self.attempt(),
            Stage::Attempt(attempt) => {
                let progress = attempt.go_on(&one_key(&self.token));
                match progress {
                    Ok(Progress::Pending(attempt)) => Ok(Stage::Attempt(attempt)),
                    Ok(Progress::Proven(zero)) => self.join(zero.channel, now).map_err(|why| why.to_string()),
                    Err(why) => Err(why.to_string()),
                }
            }
            Stage::Joined(mut channel, since) => match self.hear(&mut channel, now, own) {
                Ok(()) => Ok(Stage::Joined(channel, since)),
                Err(why) => {
                    self.is_reported = false;
                    if now.saturating_sub(since) > LONGEST_PAUSE {
                        self.pause = FIRST_PAUSE;
                    }
                    Err(why)
                }
            },
        };
        self.stage = next.unwrap_or_else(|why| {
            tracing::debug!(
                "the job's watchers: node 0 at {}: {}",
                self.orders.place,
                visible(&shortened(&why))
            );
            let until = now + jittered(self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            Stage::Pause { until }
        });
    }

    fn attempt(&mut self) -> Result<Stage, String> {
        let address: Address = self.orders.place.parse().map_err(|why| format!("{why}"))?;
        let sockets = address.sockets(Instant::now() + LOOK_UP)?;
        let to: &SocketAddr = sockets.get(self.tries % sockets.len().max(1)).ok_or("no address")?;
        self.tries += 1;
        let attempt = Attempt::begin(*to, &PROTOCOL, TRY, TRY).map_err(|why| why.to_string())?;
        Ok(Stage::Attempt(attempt))
    }

    fn join(&mut self, mut channel: Channel, now: Duration) -> Result<Stage, Stranger> {
        self.answered = None;
        channel.keep_alive();
        let JobOrders { node, nodes, job, name, .. } = &self.orders;
        let join = Join { node: *node, nodes: *nodes, job: job.clone(), name: name.clone() };
        channel.queue(&ToZero::Join(join))?;
        Ok(Stage::Joined(channel, now))
    }

    /// Takes that node 0 has left, and returns why.
    fn lose(&mut self, now: Duration, end: Option<End>, why: String) -> String {
        let host = self.orders.place.rsplit_once(':').map_or("", |(host, _)| host);
        self.has_reported_left = false;
        self.left = Some(Gone { name: format!("{host} (node 0)"), at: now, end });
        why
    }

    fn hear(&mut self, channel: &mut Channel, now: Duration, own: &Own) -> Result<(), String> {
        channel.flush().map_err(|why| self.lose(now, None, why.to_string()))?;
        while let Some(message) =
            channel.receive_if_there(LONGEST).map_err(|why| self.lose(now, None, why.to_string()))?
        {
            match message {
                ToNode::Refused(why) => return Err(format!("it rejected this node: {why}")),
                ToNode::Stalled(is_reported) => self.is_reported = is_reported,
                ToNode::Bye(end) => {
                    return Err(self.lose(now, Some(end), "its command has ended".to_owned()));
                }
                ToNode::Tell => {
                    self.left = None;
                    let (count, since) = &mut self.questions;
                    if now.saturating_sub(*since) > QUESTIONS_WITHIN {
                        (*count, *since) = (0, now);
                    }
                    *count += 1;
                    if *count > MOST_QUESTIONS || channel.connection().is_sending() {
                        self.pause = LONGEST_PAUSE;
                        return Err("it does not stop asking".to_owned());
                    }
                    let state = ToZero::State(own.state(now));
                    channel.queue(&state).map_err(|why| self.lose(now, None, why.to_string()))?;
                    self.answered = Some(own.motion(now, self.rest));
                }
            }
        }
        Ok(())
    }
}
