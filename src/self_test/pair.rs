//! Two nodes that test the fabric between them.
//!
//! The nodes connect over TCP, prove to each other that they have the same token, describe themselves,
//! and move verified data over every rail. Every message of the other node is limited in size and time.
//! Only what that node has sent, in the right order, is accepted as coming from it.

mod agree;
mod connect;
mod ends;
mod error;
mod listen;
mod message;
mod outcome;
mod rails;
mod trust;

use std::time::{Duration, Instant};

use super::check::{Check, Outcome};
use super::kinds;
use super::report::{Pair, Report};
use super::run::{self, Scope};
use super::took_us;
use crate::facts::Facts;
use crate::plan::Plan;
use crate::text;
use crate::verbs::rail::Side;
use crate::wire::listen::Listener;
use crate::wire::stranger::{Stranger, Strangers};
use crate::wire::{Address, Channel};
use message::Message;
pub(crate) use message::{Moved, Node};
pub(crate) use rails::{Found, TOGETHER, run as try_rails, run_together as load_rails};
pub(crate) use trust::{sound, token};

/// How to find the other node.
#[derive(Debug, Clone)]
pub(crate) enum Role {
    /// Wait for the other node on this address.
    Listen(Address),
    /// Connect to the other node at this address.
    Connect(Address),
}

#[derive(Debug, Clone)]
pub(crate) struct Meeting<'a> {
    pub role: Role,
    /// How long to wait for the other node.
    pub wait: Duration,
    /// The secret as [`token`] returns it; empty if the other node may be any peer.
    pub token: &'a str,
    /// How long the other node's own tests of each port may take.
    pub extent: Scope,
}

const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The other node, after both have connected.
pub(crate) struct Met {
    wire: Channel,
    side: Side,
    /// How long to wait for each message from the other node.
    patience: Duration,
    took: Duration,
    /// Whether the other node has proven that it has the token.
    is_proven: bool,
}

impl Met {
    /// Returns two nodes that have connected and authenticated elsewhere.
    pub(crate) fn on(channel: Channel, side: Side, patience: Duration) -> Met {
        Met { wire: channel, side, patience, took: Duration::ZERO, is_proven: true }
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        &mut self.wire
    }

    /// Sends the other node a description of this one, and receives the other node's description.
    ///
    /// # Errors
    /// What arrived instead.
    pub(crate) fn describe(&mut self, mine: &Node) -> Result<Node, Stranger> {
        self.wire.send(&Message::Node(mine.clone()))?;
        match self.wire.receive(self.patience)? {
            Message::Node(node) => Ok(node.presentable()),
            other => Err(self.wire.unexpected(other.kind())),
        }
    }
}

/// Finds the other node. `say` gets messages about what this node is waiting for.
///
/// # Errors
/// No peer connected, or the wrong one did.
pub(crate) fn meet(meeting: &Meeting, say: &dyn Fn(&str)) -> anyhow::Result<Met> {
    let started = Instant::now();
    let end = started + meeting.wait.min(LONGEST_WAIT);
    let ((wire, patience), side) = match &meeting.role {
        Role::Listen(address) => (wait_for(address, meeting, end, say)?, Side::Second),
        Role::Connect(address) => {
            if meeting.token.is_empty() && !address.is_loopback() {
                say(&format!("accepts any peer that answers on {address} (--any-peer)"));
            }
            (connect::go_to(address, meeting, end, say)?, Side::First)
        }
    };
    Ok(Met { wire, side, patience, took: started.elapsed(), is_proven: !meeting.token.is_empty() })
}

/// Waits for the other node, and rejects all invalid connections, such as a load balancer's probe or a
/// node with another token.
fn wait_for(
    address: &Address,
    meeting: &Meeting,
    end: Instant,
    say: &dyn Fn(&str),
) -> anyhow::Result<(Channel, Duration)> {
    let listener = Listener::at(address, end)?;
    let own = listener.own;
    let any_peer = if meeting.token.is_empty() { ", and accepts any peer (no RDMA_INIT_TOKEN)" } else { "" };
    say(&format!("waits on {own} for another node's self-test --peer{any_peer}"));
    let mut strangers = Strangers::new(say, "this node");
    let found = listen::first(&listener, meeting.token, meeting.extent.longest(), end, &mut strangers);
    strangers.close();
    found?.ok_or_else(|| anyhow::Error::msg(strangers.instead(&own.to_string(), &time(meeting.wait))))
}

/// Formats a time: `1 s`, `60.0 s`.
fn time(time: Duration) -> String {
    text::microseconds(microseconds(time))
}

/// Tests the fabric to the node that connected, or reports why none did.
pub(crate) fn test(
    met: anyhow::Result<Met>,
    facts: &Facts,
    plan: &Plan,
    extent: Scope,
    report: &mut Report,
) -> Vec<Check> {
    let result = met.and_then(|mut met| between(&mut met, facts, plan, extent, report));
    let mut checks = match result {
        Ok((pair, checks)) => {
            report.pair = Some(pair);
            checks
        }
        Err(why) => {
            vec![Check { message: Some(format!("{why}.")), ..kinds::check(CONNECT, Outcome::Failed) }]
        }
    };
    kinds::complete_fixes(&mut checks);
    checks
}

pub(crate) const CONNECT: &str = "pair-connect";
const DATA: &str = "pair-data";

fn between(
    met: &mut Met,
    facts: &Facts,
    plan: &Plan,
    extent: Scope,
    report: &Report,
) -> anyhow::Result<(Pair, Vec<Check>)> {
    let started = Instant::now();
    let wanted = run::wanted(facts, plan, extent);
    let mine = Node { host: report.host.clone(), nccl: report.nccl.clone(), rails: report.hcas.clone() };
    let theirs = met.describe(&mine)?;
    let unproven = (!met.is_proven).then(|| "it is not authenticated (no RDMA_INIT_TOKEN)".to_owned());
    let mut checks = vec![Check {
        evidence: [format!("{}, {}", theirs.host, met.wire.address())].into_iter().chain(unproven).collect(),
        took_us: microseconds(met.took),
        ..kinds::check(CONNECT, Outcome::Passed)
    }];
    let found = match rails::run(met, &wanted, &mine, &theirs, extent) {
        Ok(found) => found,
        Err(why) => {
            checks.extend(agree::checks(&mine, &theirs, &[]));
            checks.push(Check {
                message: Some(format!("{}, {}.", theirs.host, why.why)),
                took_us: took_us(started),
                ..kinds::check(DATA, Outcome::Failed)
            });
            return Ok((Pair { host: theirs.host, rails: Vec::new() }, checks));
        }
    };
    checks.extend(agree::checks(&mine, &theirs, &found));
    let took_us = took_us(started);
    checks
        .extend(outcome::checks(&mine, &theirs, &found).into_iter().map(|check| Check { took_us, ..check }));
    Ok((Pair { host: theirs.host.clone(), rails: outcome::figures(&mine, &theirs, &found) }, checks))
}

fn microseconds(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}

/// Runs the code that the fuzzers call; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(line: &[u8]) {
    let message = crate::json::read::<Message>(line);
    match message {
        Ok(Message::Node(node)) => {
            let node = node.presentable();
            assert!(!node.host.contains(|c: char| c.is_control()), "{node:?}");
        }
        Ok(Message::Ends(ends)) => {
            for end in ends.into_iter().flatten() {
                ends::wrong(&end, &super::report::Rail::default());
            }
        }
        _ => {}
    }
}
