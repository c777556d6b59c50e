//! Two nodes that test the fabric between them.
//!
//! They meet over TCP, prove to each other that they have the same token, tell what they
//! are, and move verified data over every rail. Nothing that the other one sends is
//! larger than a bound, or waited for longer than one.

mod agree;
mod meet;
mod message;
mod outcome;
mod proof;
mod rails;
mod wire;

use std::time::{Duration, Instant};

use serde::Serialize;

use super::check::{Check, Outcome};
use super::kinds;
use super::report::Report;
use super::took_us;
use super::verbs;
use super::whole::{self, Extent};
use crate::facts::Facts;
use crate::plan::Plan;
use crate::verbs::rail::Side;
pub use meet::Address;
use meet::Waiting;
use message::{Message, Node};
use wire::Wire;

/// How to find the other node.
#[derive(Debug, Clone)]
pub enum Role {
    /// Wait for it on this address.
    Listen(Address),
    /// Go to it.
    Connect(Address),
}

#[derive(Debug, Clone)]
pub struct Meeting<'a> {
    pub role: Role,
    /// The longest time until the other node is there.
    pub wait: Duration,
    /// Empty where there is none.
    pub token: &'a str,
    /// How long its own tests of each port may take.
    pub extent: Extent,
}

const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The other node, met.
pub struct Met {
    wire: Wire,
    side: Side,
    /// The longest time until each of its messages.
    patience: Duration,
    took: Duration,
}

/// What came of two nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The other node's name.
    pub host: String,
    pub rails: Vec<Figures>,
}

/// A rail that works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// `mlx5_0:1`.
    pub near: String,
    pub far: String,
    /// From here: 8 bytes there, and the acknowledgement back.
    pub latency_ns: u64,
    /// Mbit/s, to the other node and from it.
    pub to_mbps: u64,
    pub from_mbps: u64,
}

/// Finds the other node. `say` hears what is waited for.
///
/// # Errors
/// In words: nobody came, or somebody else did.
pub fn meet(meeting: &Meeting, say: &dyn Fn(&str)) -> Result<Met, String> {
    let started = Instant::now();
    let end = started + meeting.wait.min(LONGEST_WAIT);
    let (wire, side, patience) = match &meeting.role {
        Role::Listen(address) => wait_for(address, meeting, end, say)?,
        Role::Connect(address) => go_to(address, meeting, end, say)?,
    };
    Ok(Met { wire, side, patience, took: started.elapsed() })
}

type Proven = (Wire, Side, Duration);

/// Whoever comes and is no node of ours is sent away: a probe of a load balancer, one
/// with another token.
fn wait_for(
    address: &Address,
    meeting: &Meeting,
    end: Instant,
    say: &dyn Fn(&str),
) -> Result<Proven, String> {
    let waiting = Waiting::at(address)?;
    let own = waiting.own;
    let anybody = if meeting.token.is_empty() { ", whoever that is (no RDMA_INIT_TOKEN)" } else { "" };
    say(&format!("waits for another node's self-test --peer{anybody} on {own}"));
    let mut last = None;
    while let Some(mut wire) = waiting.next(end)? {
        match proof::exchange(&mut wire, Side::Second, meeting, end) {
            Ok(patience) => return Ok((wire, Side::Second, patience)),
            Err(why) => {
                say(&format!("goes on waiting: {why}"));
                last = Some(why);
            }
        }
    }
    let within = time(meeting.wait);
    Err(match last {
        None => format!("no node has come to {own} within {within}."),
        Some(why) => format!("no node of ours has come to {own} within {within}. The last that came: {why}"),
    })
}

/// A connection that is closed before anything came over it is one to a proxy whose node
/// is not up yet.
fn go_to(address: &Address, meeting: &Meeting, end: Instant, say: &dyn Fn(&str)) -> Result<Proven, String> {
    let started = Instant::now();
    let mut is_said = false;
    loop {
        let connected = meet::connect(address, end, &mut |error| {
            if !is_said {
                say(&format!("tries to reach {address}: {error}"));
                is_said = true;
            }
        });
        let mut wire = connected.map_err(|error| {
            format!("cannot reach {address} within {}: {error}.", time(started.elapsed()))
        })?;
        match proof::exchange(&mut wire, Side::First, meeting, end) {
            Ok(patience) => return Ok((wire, Side::First, patience)),
            Err(_) if wire.is_gone_unheard() && Instant::now() + meet::PAUSE < end => {
                std::thread::sleep(meet::PAUSE);
            }
            Err(why) => return Err(why),
        }
    }
}

/// `1 s`, `60.0 s`.
fn time(time: Duration) -> String {
    verbs::time(microseconds(time))
}

/// Tests the fabric to a node that was met, or says why none was.
pub fn test(
    met: Result<Met, String>,
    facts: &Facts,
    plan: &Plan,
    extent: Extent,
    report: &mut Report,
) -> Vec<Check> {
    let result = met.and_then(|mut met| between(&mut met, facts, plan, extent, report));
    match result {
        Ok((pair, checks)) => {
            report.pair = Some(pair);
            checks
        }
        Err(why) => vec![Check { message: Some(why), ..kinds::check(CONNECT, Outcome::Failed) }],
    }
}

pub const CONNECT: &str = "pair-connect";
const DATA: &str = "pair-data";

fn between(
    met: &mut Met,
    facts: &Facts,
    plan: &Plan,
    extent: Extent,
    report: &Report,
) -> Result<(Pair, Vec<Check>), String> {
    let started = Instant::now();
    let wanted = whole::wanted(facts, plan, extent);
    let mine = Node { host: report.host.clone(), nccl: report.nccl.clone(), rails: report.hcas.clone() };
    met.wire.send(&Message::Node(mine.clone()))?;
    let theirs = match met.wire.receive(met.patience)? {
        Message::Node(node) => node.presentable(),
        other => return Err(met.wire.unexpected(&other)),
    };
    let mut checks = vec![Check {
        evidence: vec![format!("{}, {}", theirs.host, met.wire.address())],
        took_us: microseconds(met.took),
        ..kinds::check(CONNECT, Outcome::Passed)
    }];
    let found = match rails::run(met, &wanted, &mine, &theirs, extent) {
        Ok(found) => found,
        Err(why) => {
            checks.extend(agree::checks(&mine, &theirs, &[]));
            checks.push(Check {
                message: Some(format!("{}, {why}", theirs.host)),
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
