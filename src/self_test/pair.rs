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
use super::whole::{self, Extent};
use crate::facts::Facts;
use crate::plan::Plan;
use crate::verbs::rail::Side;
use message::{Message, Node};
use wire::Wire;

/// Of TCP; chosen where nobody else's default is.
const DEFAULT_PORT: u16 = 18516;

/// Every address of this node, on that port.
pub const ANY_ADDRESS: &str = "[::]:18516";

/// How to find the other node.
#[derive(Debug, Clone, Copy)]
pub enum Role<'a> {
    /// Wait for it on this address.
    Listen(&'a str),
    /// Go to it.
    Connect(&'a str),
}

#[derive(Debug, Clone, Copy)]
pub struct Meeting<'a> {
    pub role: Role<'a>,
    /// The longest time until the other node is there.
    pub wait: Duration,
    /// Empty where there is none.
    pub token: &'a str,
    /// How long its own tests of each port may take.
    pub extent: Extent,
}

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
pub fn meet(meeting: Meeting, say: &dyn Fn(&str)) -> Result<Met, String> {
    let started = Instant::now();
    let (mut wire, side) = match meeting.role {
        Role::Listen(address) => (meet::listen(address, meeting.wait, say)?, Side::Second),
        Role::Connect(address) => (meet::connect(address, meeting.wait, say)?, Side::First),
    };
    let own = meeting.extent.longest();
    let patience = proof::exchange(&mut wire, side, meeting.token.as_bytes(), own)?;
    Ok(Met { wire, side, patience, took: started.elapsed() })
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

const CONNECT: &str = "pair-connect";

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
    let found = rails::run(met, &wanted, &mine, &theirs, extent)?;
    checks.extend(agree::checks(&mine, &theirs, &found));
    let took_us = microseconds(started.elapsed());
    checks
        .extend(outcome::checks(&mine, &theirs, &found).into_iter().map(|check| Check { took_us, ..check }));
    Ok((Pair { host: theirs.host.clone(), rails: outcome::figures(&mine, &theirs, &found) }, checks))
}

fn microseconds(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}
