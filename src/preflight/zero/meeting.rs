//! All nodes are waited for, and told why where they cannot be of this job.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Known, Member, OWN, Zero};
use crate::preflight::evidence::{Gone, MOST_RAILS};
use crate::preflight::message::{Join, ToNode};
use crate::preflight::names;
use crate::self_test::check::Outcome;
use crate::text::{shortened, visible};
use crate::wire::Channel;

/// The most sentences about nodes that were sent away. One that comes again and again needs no more.
const MOST_REFUSED: usize = 64;

/// How often each node may come, on average: a node that has gone may come again, and what was kept
/// of each report stays.
const MOST_COMINGS: usize = 16;

/// The checks that try a device. The others may fail where the job runs on sockets.
const OF_DEVICES: &str = "verbs-";

/// In bytes: the names of all rails of a node. Those of sixteen HCAs have some 200.
const NAMES_OF_RAILS: usize = 4096;

/// In bytes: what is kept of the reports of all nodes, to compare them, for each node; and for how many nodes
/// more. Most of what the nodes of a job report is the same, and kept once.
const COMPARED: usize = 4096;
const COMPARED_MORE: usize = 256;

impl Zero<'_> {
    /// Waits for all nodes, until the time is over. `own` becomes readable if this node itself
    /// gives up.
    ///
    /// # Errors
    /// A sentence: nobody can connect any more, or this node itself cannot take part.
    pub fn meet(&mut self, own: BorrowedFd) -> Result<(), String> {
        let started = Instant::now();
        while !self.is_complete() && Instant::now() < self.terms.until {
            if self.hear(self.terms.until, own)? {
                return Err(OWN.to_owned());
            }
            if !self.is_complete() {
                self.tell_waiting();
            }
        }
        self.strangers.close();
        self.heard.meeting = started.elapsed();
        Ok(())
    }

    /// A node comes.
    pub(super) fn join(&mut self, mut channel: Channel, join: Join) {
        if let Some(why) = self.objection(&channel, &join) {
            if self.heard.refused.len() < MOST_REFUSED {
                (self.terms.say)(&format!("preflight: sends {} away: {why}", channel.address()));
                self.heard.refused.push(format!("{}: {why}", channel.address()));
            }
            // A message that is short fits into an empty queue: nobody is waited for.
            let _ = channel.queue(&ToNode::Refused(why));
            return;
        }
        self.comings += 1;
        self.away.remove(&join.node);
        self.room.change(0, channel.connection().held());
        let Join { node, address, port, rails, transport, report, .. } = join;
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
        let failed = report
            .checks
            .iter()
            .find(|check| check.outcome == Outcome::Failed && check.id.starts_with(OF_DEVICES));
        self.heard.unfit.retain(|(known, _)| *known != node);
        if let Some(check) = failed {
            let why = format!("it fails at the check {}", visible(&shortened(&check.id)));
            self.heard.unfit.push((node, why));
        }
        let rails = rails.iter().map(|rail| visible(&shortened(rail))).collect();
        let known = Known { name, rails, transport: visible(&shortened(&transport)) };
        tracing::debug!("preflight: {} has come", known.name);
        if let Some(place) = self.heard.nodes.get_mut(node as usize) {
            *place = Some(known);
        }
        let member = Member {
            channel,
            address,
            port,
            heard: Instant::now(),
            round: 0,
            at_work: false,
            owed: HashSet::new(),
        };
        let added = self.listen_to(node, &member);
        self.members.insert(node, member);
        match added {
            Ok(()) if self.is_complete() => {}
            Ok(()) => {
                let missing = self.missing_lately();
                if let Some(member) = self.members.get_mut(&node) {
                    // A connection that is broken is noticed where it is heard.
                    let _ = member.channel.queue(&ToNode::Waiting { missing });
                }
            }
            Err(errno) => self.leaves(node, Gone::Left(format!("node 0 cannot hear it: {errno}"))),
        }
    }

    /// Why a node cannot be a part of this job.
    fn objection(&self, channel: &Channel, join: &Join) -> Option<String> {
        let shown =
            |job: &Option<String>| job.as_deref().map_or("none".to_owned(), |job| visible(&shortened(job)));
        if join.job != self.terms.job {
            return Some(format!(
                "it is of the job {}, and node 0 of the job {}; give them different ports (--meet)",
                shown(&join.job),
                shown(&self.terms.job)
            ));
        }
        if join.nodes != self.terms.nodes {
            return Some(format!("it expects {} nodes, and node 0 expects {}", join.nodes, self.terms.nodes));
        }
        if join.node >= join.nodes {
            return Some(format!("its index is {}, and there are {} nodes", join.node, join.nodes));
        }
        let names: usize = join.rails.iter().map(String::len).sum();
        if join.rails.len() > MOST_RAILS || names > NAMES_OF_RAILS {
            return Some(format!("it brings {} rails, with names of {names} bytes", join.rails.len()));
        }
        let most = self.heard.nodes.len().saturating_add(1).saturating_mul(MOST_COMINGS);
        if self.comings >= most && self.heard.meeting == Duration::ZERO {
            return Some("nodes have come and gone too often".to_owned());
        }
        match (self.members.get(&join.node), self.heard.nodes.get(join.node as usize)) {
            (Some(member), Some(Some(known))) => Some(format!(
                "two nodes have the index {}: {} at {}, which came first, and {} at {}",
                join.node,
                known.name,
                member.channel.address(),
                visible(&shortened(&join.report.host)),
                channel.address()
            )),
            // Its rounds are over.
            (None, Some(Some(_))) if self.heard.meeting > Duration::ZERO => {
                Some("it left before, and the others have begun without it".to_owned())
            }
            _ if self.heard.meeting > Duration::ZERO => {
                Some("it comes too late: the others have begun without it".to_owned())
            }
            _ => None,
        }
    }
}
