//! Waits for all nodes, and tells a node why if it cannot be part of this job.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::{JobPhase, JoinedNode, Known, Zero, ZeroError};
use crate::compare::brief::CheckVerdict;
use crate::preflight::judge::evidence::{Gone, MOST_RAILS};
use crate::preflight::meet::message::{Join, ToNode};
use crate::preflight::prove::pair::POSSIBLE_GBPS;
use crate::preflight::who::names;
use crate::self_test::check::Outcome;
use crate::self_test::kinds::{self, Level};
use crate::text::{shortened, visible};
use crate::wire::Channel;

/// How often a node may join. A node that has disconnected may rejoin, and each time writes a line to
/// the log. Each index has its own count, so no node is refused because another one joined too often.
const MOST_COMINGS: usize = 16;

/// In bytes: the names of all rails of a node. Those of sixteen HCAs take about 200.
const NAMES_OF_RAILS: usize = 4096;

/// In bytes for each node: how much of all nodes' reports is stored to compare them. The second number
/// adds nodes to that. Most of what the nodes of a job report is the same, and is stored once.
const COMPARED: usize = 4096;
const COMPARED_MORE: usize = 256;

impl Zero<'_> {
    /// Waits until all nodes have joined or the time is over. `own` becomes readable if node 0's own
    /// process gives up.
    ///
    /// # Errors
    /// No more nodes can connect, or this node itself cannot take part.
    pub fn meet(&mut self, own: BorrowedFd) -> Result<(), ZeroError> {
        while !self.is_complete() && !self.is_alone() && Instant::now() < self.terms.until {
            if self.hear(self.terms.until, own)? {
                return Err(ZeroError::OwnProcess);
            }
            if !self.is_complete() {
                self.update_waiting_nodes();
            }
        }
        self.strangers.close();
        self.phase = JobPhase::Proving;
        Ok(())
    }

    /// Lets a node join, or rejects it.
    pub(super) fn join(&mut self, mut channel: Channel, join: Join) {
        if let Some(why) = self.objection(&channel, &join) {
            self.contest(&channel, &join);
            // If another node has the index, this node has a wrong one, and its right one is unknown.
            let index = Some(join.node).filter(|node| !self.members.contains_key(node));
            let index = index.filter(|node| (*node as usize) < self.heard.nodes.len());
            if self.heard.refused.add(index, format!("{}: {why}", channel.address())) {
                (self.terms.say)(&format!("preflight: rejected {}: {why}", channel.address()));
            }
            // A short message fits into an empty queue, so this does not wait for the reader.
            let _ = channel.queue(&ToNode::Refused(why));
            return;
        }
        *self.comings.entry(join.node).or_default() += 1;
        self.away.remove(&join.node);
        self.budget.change(0, channel.connection().held());
        let Join { node, address, port, rails, mut rates, addresses, transport, report, .. } = join;
        let host = visible(&shortened(&report.host));
        let is_taken = |known: &Known| names::host(&known.name) == host;
        let name = match host.is_empty() || self.heard.nodes.iter().flatten().any(is_taken) {
            true => names::numbered(&host, node as usize),
            false => host,
        };
        match self.heard.compared.size() < COMPARED.saturating_mul(self.heard.nodes.len() + COMPARED_MORE) {
            true => self.heard.compared.add(&name, &report),
            false => self.heard.uncompared += 1,
        }
        // If the job uses sockets, the checks that use no device may fail.
        let has_failed =
            |check: &&CheckVerdict| check.outcome == Outcome::Failed && kinds::is_of(Level::Verbs, &check.id);
        let failed = report.checks.iter().find(has_failed);
        self.heard.unfit.retain(|(known, _)| *known != node);
        if let Some(check) = failed {
            let why = format!("it fails at the check {}", visible(&shortened(&check.id)));
            self.heard.unfit.push((node, why));
        }
        let rails: Vec<String> = rails.iter().map(|rail| visible(&shortened(rail))).collect();
        rates.truncate(rails.len());
        let addresses = addresses.bounded(rails.len());
        let known = Known { name, rails, rates, addresses, transport: visible(&shortened(&transport)) };
        tracing::debug!("preflight: {} has joined", known.name);
        if let Some(place) = self.heard.nodes.get_mut(node as usize) {
            *place = Some(known);
        }
        let member = JoinedNode { channel, address, port, heard: Instant::now() };
        let added = self.listen_to(node, &member);
        self.members.insert(node, member);
        self.ledger.join(node);
        match added {
            Ok(()) if self.is_complete() => {}
            Ok(()) => {
                let missing = self.missing_lately();
                if let Some(member) = self.members.get_mut(&node) {
                    // The next read notices a broken connection.
                    let _ = member.channel.queue(&ToNode::Waiting { missing });
                }
            }
            Err(errno) => self.leaves(node, Gone::Left(format!("node 0 cannot receive from it: {errno}"))),
        }
    }

    /// Records both nodes that joined with one index.
    fn contest(&mut self, channel: &Channel, join: &Join) {
        // A node of another job does not claim this index.
        if join.job != self.terms.job || join.nodes != self.terms.nodes {
            return;
        }
        let known = self.heard.nodes.get(join.node as usize).and_then(Option::as_ref);
        let (Some(member), Some(known)) = (self.members.get(&join.node), known) else { return };
        let shown = |name: &str, channel: &Channel| format!("{name} at {}", channel.address());
        let first = shown(&known.name, &member.channel);
        let second = shown(&visible(&shortened(&join.report.host)), channel);
        let both = self.heard.contested.entry(join.node).or_insert([first, second]);
        // The evidence of the rounds may already exist.
        self.heard.evidence.contest(join.node, both.clone());
    }

    /// Returns why a node cannot be part of this job.
    fn objection(&self, channel: &Channel, join: &Join) -> Option<String> {
        let shown =
            |job: &Option<String>| job.as_deref().map_or("none".to_owned(), |job| visible(&shortened(job)));
        if join.job != self.terms.job {
            return Some(format!(
                "it belongs to the job {}, but node 0 to the job {}; give them different ports (--meet)",
                shown(&join.job),
                shown(&self.terms.job)
            ));
        }
        if join.nodes != self.terms.nodes {
            return Some(format!("it expects {} nodes, but node 0 expects {}", join.nodes, self.terms.nodes));
        }
        if join.node >= join.nodes {
            return Some(format!("its index is {}, but there are {} nodes", join.node, join.nodes));
        }
        let names: usize = join.rails.iter().map(String::len).sum();
        if join.rails.len() > MOST_RAILS || names > NAMES_OF_RAILS {
            return Some(format!("it reports {} rails, with names of {names} bytes", join.rails.len()));
        }
        if let Some(rate) = join.rates.iter().find(|rate| **rate != 0.0 && !POSSIBLE_GBPS.contains(rate)) {
            return Some(format!("it reports a rail of {rate:e} Gbit/s"));
        }
        let comings = self.comings.get(&join.node).copied().unwrap_or_default();
        if comings >= MOST_COMINGS && self.phase == JobPhase::Meeting {
            return Some(format!("a node with the index {} has joined and left {comings} times", join.node));
        }
        match (self.members.get(&join.node), self.heard.nodes.get(join.node as usize)) {
            (Some(member), Some(Some(known))) => Some(format!(
                "two nodes have the index {}: {} at {}, and {} at {}",
                join.node,
                known.name,
                member.channel.address(),
                visible(&shortened(&join.report.host)),
                channel.address()
            )),
            // The rounds of this node are over.
            (None, Some(Some(_))) if self.phase != JobPhase::Meeting => {
                Some("it left, and the others started without it".to_owned())
            }
            _ if self.phase != JobPhase::Meeting => {
                Some("it joined too late: the others started without it".to_owned())
            }
            _ => None,
        }
    }
}
