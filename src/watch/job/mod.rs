//! What the watchers of a job's nodes know together: in a stall, node 0 asks all of them when their rails last moved
//! data and what their ports have counted, and says one line for the whole job.
//!
//! The watchers use the token of the preflight. Each keeps one connection to that of node 0, on which nothing is sent
//! until node 0 asks. One thread does all of this beside the looks at the ports, and waits for no other node.

mod judge;
mod message;
mod node;
mod own;
mod words;
mod zero;

use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::resource::rlim_t;
use serde::{Deserialize, Serialize};

use super::judge::Judge;
use crate::finding::{Finding, Id};
use crate::sys::fork::Ended;
use crate::sys::{memory, signals};
use crate::wire::connection::timeout;
use crate::wire::listen::allow_connections;
use node::Node;
use own::Own;
use words::Clocks;
use zero::Zero;

/// Which node this is, and where the watcher of node 0 is. The token is not in it: orders are in memory that other
/// processes of this user can read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobOrders {
    pub node: u32,
    pub nodes: u32,
    /// The job as its launcher calls it, where it does.
    pub job: Option<String>,
    /// The name of this host.
    pub name: String,
    /// Where node 0 listens, as this node needs to know it: `HOST:PORT`.
    pub place: String,
}

/// The part of a watcher that speaks with other nodes.
pub(super) struct Job {
    started: Instant,
    /// Readable while a signal is pending.
    signals: OwnedFd,
    own: Own,
    role: Role,
    /// The limit of open files before it was raised.
    pub files: Option<(rlim_t, rlim_t)>,
}

enum Role {
    Zero(Box<Zero>),
    Node(Box<Node>),
}

impl Job {
    /// `started`: when the command was started. `None` if the kernel gives no descriptor.
    pub(super) fn new(
        orders: JobOrders,
        token: &str,
        started: Instant,
        interval: Duration,
        after: Duration,
    ) -> Option<Job> {
        let token = token.as_bytes().to_vec();
        let signals = signals::pending_fd().ok()?;
        let files = if orders.node == 0 { allow_connections(orders.nodes) } else { None };
        let rest = (after / 10).max(3 * interval);
        let role = match orders.node {
            0 => Role::Zero(Box::new(Zero::new(orders, &token, rest)?)),
            _ => Role::Node(Box::new(Node::new(orders, token, rest, Duration::ZERO))),
        };
        Some(Job { started, signals, own: Own::default(), role, files })
    }

    /// Whether another node learns from this one how its command ended.
    pub(super) fn is_joined(&self) -> bool {
        match &self.role {
            Role::Zero(zero) => zero.is_joined(),
            Role::Node(node) => node.is_joined(),
        }
    }

    /// Whether a finding is about a rest that a line for the whole job reports, so that nobody is called twice for it.
    pub(super) fn reports(&self, finding: &Finding) -> bool {
        let reports_rest = match &self.role {
            Role::Zero(zero) => zero.reports_rest(),
            Role::Node(node) => node.reports_rest(),
        };
        finding.id == Id::NoTraffic && reports_rest
    }

    /// Says that the command has ended.
    pub(super) fn bye(&mut self, ended: Ended) {
        match &mut self.role {
            Role::Zero(zero) => zero.bye(ended.into()),
            Role::Node(node) => node.bye(ended.into()),
        }
    }

    /// Waits for a signal, for what `also` names, until this time, or until [`Job::is_joined`] is another, and
    /// meanwhile serves the other nodes. Returns how the command ended, if it has.
    pub(super) fn wait(&mut self, until: Instant, also: &[PollFd]) -> Option<Ended> {
        let was_joined = self.is_joined();
        while Instant::now() < until {
            let now = self.started.elapsed();
            match &mut self.role {
                Role::Zero(zero) => zero.go_on(now),
                Role::Node(node) => node.go_on(now, &self.own),
            }
            if self.is_joined() != was_joined {
                return None;
            }
            if self.sleep(until, also) {
                return super::taken();
            }
        }
        None
    }

    /// Waits until something happens, and returns whether that is a signal, or what `also` names.
    fn sleep<'a>(&'a self, until: Instant, also: &[PollFd<'a>]) -> bool {
        let now = self.started.elapsed();
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend_from_slice(also);
        let callers = fds.len();
        let wake = match &self.role {
            Role::Zero(zero) => {
                fds.extend(zero.fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
                zero.wake_at(now)
            }
            Role::Node(node) => {
                fds.extend(node.fd().map(|(fd, is_sending)| {
                    let sends = if is_sending { PollFlags::POLLOUT } else { PollFlags::empty() };
                    PollFd::new(fd, PollFlags::POLLIN | sends)
                }));
                node.wake_at(now)
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        let left = wake.map_or(left, |wake| left.min(wake.saturating_sub(now)));
        let time = timeout(left);
        // What it needs for a connection is not needed while it waits.
        memory::forget_own_code();
        match poll(&mut fds, time) {
            // EINTR is harmless: the caller looks again.
            Ok(_) | Err(Errno::EINTR) => {}
            // A filter, or a limit: the ports are watched all the same.
            Err(_) => sleep(left.min(Duration::from_secs(1))),
        }
        fds.iter().take(callers).any(|fd| fd.any() == Some(true))
    }

    /// Takes what the judge knows after a look at all ports, and returns what is to be said of the job.
    pub(super) fn look(&mut self, judge: &Judge) -> Option<Finding> {
        let now = self.started.elapsed();
        self.own.look(judge);
        let pauses = judge.pauses();
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let clocks = Clocks { now, wall };
        match &mut self.role {
            Role::Zero(zero) => zero.look(&self.own, pauses, clocks),
            Role::Node(node) => node.look(&self.own, pauses.note, clocks),
        }
    }
}

/// What the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(line: &[u8]) {
    message::fuzz(line);
}

#[cfg(test)]
mod tests;
