//! Waits for all nodes, and tells a node why if it cannot be part of this job.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use anyhow::bail;

use super::{JobPhase, JoinedNode, OWN_PROCESS_EXITED, Zero};
use crate::compare::brief::CheckVerdict;
use crate::preflight::judge::evidence::{Gone, MOST_RAILS, Member};
use crate::preflight::judge::words::OWN_INDEX;
use crate::preflight::meet::message::{Join, ToNode};
use crate::preflight::prove::pair::POSSIBLE_GBPS;
use crate::preflight::who::own::VERBS;
use crate::preflight::who::{names, scheduler};
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

/// How to fix a job that connects to the node 0 of another one, and different numbers of nodes.
const OWN_PORT: &str = "Give the two jobs different ports (--meet, before a command preflight-meet).";
const ONE_NUMBER: &str = "Give all nodes the same number of nodes: compare --nodes (before a command preflight-nodes), or the launcher's variables, with those of node 0.";

/// Why a node cannot be part of this job, and how to fix that; the fix may be empty.
struct Objection {
    why: String,
    fix: &'static str,
}

impl Zero<'_> {
    /// Waits until all nodes have joined or the time is over. `own` becomes readable if node 0's own
    /// process gives up.
    ///
    /// # Errors
    /// No more nodes can connect, or this node itself cannot take part.
    pub fn meet(&mut self, own: BorrowedFd) -> anyhow::Result<()> {
        while !self.is_complete() && !self.is_alone() && Instant::now() < self.terms.until {
            if self.hear(self.terms.until, own)? {
                bail!(OWN_PROCESS_EXITED);
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
        if let Some(Objection { why, fix }) = self.objection(&channel, &join) {
            let said = format!("{}: {why}", channel.address());
            let is_second = self.contest(&channel, &join);
            // If another node has the index, this node has a wrong one, and its right one is unknown.
            let index = Some(join.node).filter(|node| !self.hub.members().contains_key(node));
            let index = index.filter(|node| (*node as usize) < self.heard.nodes.len());
            let is_new = match is_second {
                true => self.heard.refused.add_second(join.node),
                false => self.heard.refused.add(index, channel.address(), &why, fix),
            };
            if is_new {
                (self.terms.say)(&format!("preflight: rejected {said}"));
            }
            let why = if fix.is_empty() { why } else { format!("{why}. {}", fix.trim_end_matches('.')) };
            // A short message fits into an empty queue, so this does not wait for the reader.
            let _ = channel.queue(&ToNode::Refused(why));
            return;
        }
        *self.comings.entry(join.node).or_default() += 1;
        self.away.remove(&join.node);
        let Join { node, address, port, rails, mut rates, addresses, transport, network, report, .. } = join;
        let host = visible(&shortened(&report.host));
        let is_taken = |known: &Member| names::host(&known.name) == host;
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
            let shown = |text: &str| visible(&shortened(text));
            let why = check.message.as_deref().map(|why| format!(": {}", shown(why.trim_end_matches('.'))));
            let why = format!("the check {} fails{}", shown(&check.id), why.unwrap_or_default());
            self.heard.unfit.push((node, why));
        }
        let rails: Vec<String> = rails.iter().map(|rail| visible(&shortened(rail))).collect();
        rates.truncate(rails.len());
        let addresses = addresses.bounded(rails.len());
        let (transport, network) = (visible(&shortened(&transport)), network.presentable());
        let is_verbs = transport == VERBS;
        let is_soft = is_verbs && rates.iter().all(|rate| *rate <= 0.0);
        // The scheduler's name depends on those of all nodes.
        let of_launcher = scheduler::Name::default();
        let known =
            Member { name, of_launcher, rails, rates, addresses, network, transport, is_verbs, is_soft };
        tracing::debug!("preflight: {} has joined", known.name);
        if let Some(place) = self.heard.nodes.get_mut(node as usize) {
            *place = Some(known);
        }
        self.ledger.join(node);
        match self.hub.admit(channel, node, JoinedNode { address, port }) {
            Ok(()) if self.is_complete() => {}
            Ok(()) => {
                let missing = self.missing_lately();
                self.hub.send(node, &ToNode::Waiting { missing });
            }
            Err(errno) => self.leaves(node, Gone::Left(format!("node 0 cannot receive from it: {errno}"))),
        }
    }

    /// Records both nodes that joined with one index, if another one has this index.
    fn contest(&mut self, channel: &Channel, join: &Join) -> bool {
        // A node of another job does not claim this index.
        if join.job != self.terms.job || join.nodes != self.terms.nodes {
            return false;
        }
        let known = self.heard.nodes.get(join.node as usize).and_then(Option::as_ref);
        let (Some(first), Some(known)) = (self.hub.members().get(&join.node), known) else { return false };
        let first = format!("{} at {}", known.name, first.address());
        let second = format!("{} at {}", visible(&shortened(&join.report.host)), channel.address());
        let both = self.heard.contested.entry(join.node).or_insert([first, second]);
        // The evidence of the rounds may already exist.
        self.heard.evidence.contest(join.node, both.clone());
        true
    }

    /// Returns why a node cannot be part of this job.
    fn objection(&self, channel: &Channel, join: &Join) -> Option<Objection> {
        let shown =
            |job: &Option<String>| job.as_deref().map_or("none".to_owned(), |job| visible(&shortened(job)));
        let objection = |why, fix| Some(Objection { why, fix });
        if join.job != self.terms.job {
            let [its, own] = [&join.job, &self.terms.job].map(shown);
            let why = format!("it belongs to the job {its}, but node 0 to the job {own}");
            return objection(why, OWN_PORT);
        }
        if join.nodes != self.terms.nodes {
            let why = format!("it expects {} nodes, but node 0 expects {}", join.nodes, self.terms.nodes);
            return objection(why, ONE_NUMBER);
        }
        let without_fix = |why| objection(why, "");
        if join.node >= join.nodes {
            return without_fix(format!("its index is {}, but there are {} nodes", join.node, join.nodes));
        }
        let names: usize = join.rails.iter().map(String::len).sum();
        if join.rails.len() > MOST_RAILS || names > NAMES_OF_RAILS {
            return without_fix(format!(
                "it reports {} rails, with names of {names} bytes",
                join.rails.len()
            ));
        }
        if let Some(rate) = join.rates.iter().find(|rate| **rate != 0.0 && !POSSIBLE_GBPS.contains(rate)) {
            return without_fix(format!("it reports a rail of {rate:e} Gbit/s"));
        }
        let comings = self.comings.get(&join.node).copied().unwrap_or_default();
        if comings >= MOST_COMINGS && self.phase == JobPhase::Meeting {
            let why = format!("a node with the index {} has joined and left {comings} times", join.node);
            return without_fix(why);
        }
        match (self.hub.members().get(&join.node), self.heard.nodes.get(join.node as usize)) {
            (Some(first), Some(Some(known))) => {
                let why = format!(
                    "two nodes have the index {}: {} at {}, and {} at {}",
                    join.node,
                    known.name,
                    first.address(),
                    visible(&shortened(&join.report.host)),
                    channel.address()
                );
                objection(why, OWN_INDEX)
            }
            // The rounds of this node are over.
            (None, Some(Some(_))) if self.phase != JobPhase::Meeting => {
                without_fix("it left, and the others started without it".to_owned())
            }
            _ if self.phase != JobPhase::Meeting => {
                without_fix("it joined too late: the others started without it".to_owned())
            }
            _ => None,
        }
    }
}
