//! The account of a job's ports: what each of them has moved and counted since the command was started. Pure.

mod seen;

use std::collections::BTreeSet;
use std::time::Duration;

use super::told::PortTold;
use super::{WatchedPort, hidden};
use crate::facts::congestion::Congestion;
use crate::facts::port_errors::{Rise, Trouble};
use crate::facts::port_look::PortLook;
use crate::facts::traffic::Traffic;
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{self, PortRises, id_of, is_worth_reporting};
use crate::findings::port_name::port_id;
use crate::findings::traffic::{self, PortTraffic};
pub(crate) use seen::Seen;
use seen::{SeenDown, SeenPort};

/// A port of the job, from the start on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rail {
    pub hca: String,
    pub port: u32,
    /// Whether the job uses several ports of the HCA.
    pub is_one_of_several: bool,
    pub is_infiniband: bool,
    pub moved: Traffic,
    pub rises: Vec<Rise>,
    /// It was active at the start, and is not now: it is inactive, or gone.
    pub is_lost: bool,
    pub is_gone: bool,
    /// How often its link went down, by the counter or as the watcher has seen it, and whether it was at least so
    /// often.
    pub downs: (u64, bool),
    /// How often the watcher has found its device gone.
    pub removals: u32,
    /// Whether its state cannot be read now, and whether it ever could not for several looks.
    pub is_hidden: bool,
    pub was_hidden: bool,
    /// The name that its device has now, or had when it was last there, if that is not its original one; and whether it
    /// ever had another one.
    pub renamed: Option<String>,
    pub was_renamed: bool,
    /// How long ago its link was down last, if the watcher knows.
    pub down_ago: Option<Ago>,
    /// Whether the subnet manager has not activated it, with the kernel's name of its state.
    pub waits_for_manager: Option<&'static str>,
    /// Whether it shows a counter of what it loses; see
    /// [`crate::facts::port_errors::PortErrors::counts_losses`].
    pub counts_losses: bool,
    /// What else the watcher has warned of; the rate at the start, and the index of the job's GID.
    pub told: PortTold,
    pub first_rate: Option<String>,
    pub gid_index: Option<u32>,
    /// The IDs of what the watcher has said about it, with the fix.
    pub said: BTreeSet<String>,
    /// How often it was told of congestion and told others, if the driver counts that.
    pub congestion: Congestion,
}

/// How long ago something was: so long, or between the two if only the looks around it are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ago {
    pub least: Duration,
    pub most: Duration,
}

/// What the ports have moved and counted in the time that the job has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub ran: Duration,
    pub rails: Vec<Rail>,
    pub watched: Watched,
    /// For how long at least a job runs that moves data.
    pub beginning: Duration,
    /// What to say about lines of the watcher that were omitted, without the full stop.
    pub omitted: Vec<String>,
    /// For how long nothing has moved, if something has moved before; and from which time on that is worth a line.
    pub rested: Option<Duration>,
    pub tells_rest_from: Duration,
    /// Whether it is no fault that nothing moves.
    pub needs_no_rdma: bool,
}

/// For how long the watcher has seen what happened on the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    /// There was no watcher.
    Never,
    /// Until its last look, at this time since the start: then it ended, or a driver hung.
    Until(Duration),
    Throughout,
}

/// What is known about the watcher itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watcher {
    /// Whether its process ended before the command.
    pub has_ended: bool,
    /// How often it looks.
    pub interval: Duration,
    /// How long traffic may pause before it reports that.
    pub after: Duration,
    /// Whether it is no fault that nothing moves.
    pub needs_no_rdma: bool,
}

impl Watcher {
    /// A watcher looks at least this often, unless it hangs: a look itself may take long.
    fn longest_pause(self) -> Duration {
        3 * self.interval + Duration::from_secs(5)
    }

    /// Returns whether its last look, at this time since the start, shows the ports as they are.
    pub(crate) fn is_recent(self, last_look: Option<Duration>, ran: Duration) -> bool {
        self.watched(last_look, ran) == Watched::Throughout
    }

    fn watched(self, last_look: Option<Duration>, ran: Duration) -> Watched {
        match last_look {
            None if self.has_ended => Watched::Until(Duration::ZERO),
            None => Watched::Never,
            Some(at) if self.has_ended || ran.saturating_sub(at) > self.longest_pause() => Watched::Until(at),
            Some(_) => Watched::Throughout,
        }
    }
}

/// A job that ends in this time may not have begun to communicate. torchrun alone waits 30 s for nodes
/// that are late (`last_call_timeout` of its rendezvous); then the ranks import their framework and make communicators.
const BEGINNING: Duration = Duration::from_secs(60);

/// What all rails count, and can be compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Packets,
    Requests,
}

impl Account {
    /// `now`: a last look at these ports; `seen`: when the watcher looked last, and what it has left, if there was one.
    /// `None` without both.
    pub(crate) fn new(
        ports: &[WatchedPort],
        seen: Option<(Duration, Seen)>,
        now: Option<&[PortLook]>,
        ran: Duration,
        watcher: Watcher,
    ) -> Option<Account> {
        let seen = seen.filter(|(_, seen)| seen.ports.len() == ports.len());
        let watched = watcher.watched(seen.as_ref().map(|(at, _)| *at), ran);
        // A look that shows nothing new is not saved, but its time is.
        let seen = seen.map(|(at, mut seen)| {
            seen.looked(at, watcher.interval);
            seen
        });
        let mut seen = match now {
            None => seen?,
            Some(_) => seen.unwrap_or_else(|| Seen::new(ports)),
        };
        match now {
            Some(now) if watched != Watched::Never => drop(seen.watch(ran, ports, now)),
            Some(now) => {
                let pairs = seen.ports.iter_mut().zip(ports).zip(now);
                pairs.for_each(|((seen, port), now)| seen.add(port, now));
            }
            None => {}
        }
        let (omitted, moved_at) = (seen.omitted, seen.moved_at);
        let rails = ports.iter().zip(seen.ports).map(|(port, seen)| Rail::new(port, seen, ran)).collect();
        Some(Account {
            ran,
            rails,
            watched,
            beginning: BEGINNING.min(watcher.after),
            omitted,
            rested: moved_at.map(|at| ran.saturating_sub(at)),
            tells_rest_from: watcher.after,
            needs_no_rdma: watcher.needs_no_rdma,
        })
    }

    /// Takes what the ports, in their order, have counted of congestion by now.
    pub(crate) fn add_congestion(&mut self, ports: &[WatchedPort], now: &[Congestion]) {
        for ((rail, port), now) in self.rails.iter_mut().zip(ports).zip(now) {
            rail.congestion = now.since(port.congestion);
        }
    }

    /// Returns for how long nothing has moved in the end, if that is long enough to be worth a line.
    pub(crate) fn rest(&self) -> Option<Duration> {
        self.rested.filter(|rested| *rested >= self.tells_rest_from && !self.needs_no_rdma)
    }

    /// Whether the end of the job has something to do with its fabric, as far as is known: the fabric broke, a port had
    /// something else of which the watcher has warned, or nothing had moved for long.
    pub(crate) fn is_noteworthy(&self) -> bool {
        self.is_broken() || self.rest().is_some() || self.rails.iter().any(|rail| !rail.told.is_empty())
    }

    /// Returns the findings about the whole run, the worst first. `is_cut_short`: the command failed, or was stopped.
    pub(crate) fn findings(&self, is_cut_short: bool) -> Vec<Finding> {
        let wrong: Vec<PortRises> = self.rails.iter().map(Rail::wrong).collect();
        let moved: Vec<PortTraffic> = self.rails.iter().map(Rail::traffic).collect();
        let mut findings = port_errors::findings(&wrong, self.ran);
        // A fabric that broke is reason enough.
        if !self.is_broken() && !self.needs_no_rdma {
            let of_traffic = traffic::finding(&moved, self.ran, is_cut_short);
            let is_too_early = |finding: &Finding| finding.id == Id::NoTraffic && self.ran < self.beginning;
            findings.extend(of_traffic.filter(|finding| !is_too_early(finding)));
        }
        findings
    }

    /// Whether the lines of the account say what this finding about the whole run says.
    pub(crate) fn lines_have(finding: &Finding) -> bool {
        matches!(finding.id, Id::LinkDown | Id::EndedQueuePairs | Id::LinkErrors | Id::LostPackets)
    }

    /// Whether the watcher has reported the same of each of these ports, and the account says it again.
    pub(crate) fn was_said(&self, finding: &Finding) -> bool {
        let ports = &finding.about.ports;
        let is_of = |rail: &&Rail| ports.contains(&rail.id());
        Account::lines_have(finding) && self.rails.iter().filter(is_of).all(|rail| rail.was_said(finding))
    }

    /// Whether the fabric broke: a link went down, a queue pair failed, or an HCA is gone or cannot be read. A name
    /// alone that changes breaks nothing: if the driver was loaded again for it, its queue pairs have failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.rails.iter().any(Rail::is_broken)
    }

    /// Returns what all rails count; `None` if there is nothing of the kind.
    pub(crate) fn unit(&self) -> Option<Unit> {
        let units = [Unit::Bytes, Unit::Packets, Unit::Requests];
        let all = |unit: &Unit| self.rails.iter().all(|rail| rail.amount(*unit).is_some());
        units.into_iter().find(all).filter(|_| !self.rails.is_empty())
    }

    /// Returns the share of a rail in what all of them have moved; `None` if nothing has moved, or it is not known.
    pub(crate) fn share(&self, rail: &Rail) -> Option<f64> {
        let unit = self.unit()?;
        let of = |rail: &Rail| rail.amount(unit).unwrap_or_default() as f64;
        let whole: f64 = self.rails.iter().map(of).sum();
        (whole > 0.0).then(|| of(rail) / whole)
    }
}

impl Rail {
    fn new(port: &WatchedPort, seen: SeenPort, ran: Duration) -> Rail {
        let rises = seen.errors.rises();
        let counted = rises.iter().filter(|rise| rise.trouble == Trouble::LinkDown);
        let (count, is_least) =
            counted.fold((0, false), |(sum, least), rise| (rise.count + sum, rise.is_least || least));
        Rail {
            hca: port.hca.clone(),
            port: port.port,
            is_one_of_several: port.is_one_of_several,
            is_infiniband: port.is_infiniband,
            moved: seen.moved,
            is_lost: seen.is_lost,
            is_gone: seen.is_gone,
            downs: (count.max(seen.losses.into()), is_least),
            removals: seen.removals,
            is_hidden: seen.hidden >= hidden::LOOKS,
            was_hidden: seen.was_hidden,
            renamed: seen.renamed,
            was_renamed: seen.was_renamed,
            down_ago: seen.down_at.map(|SeenDown { from, to }| Ago {
                least: ran.saturating_sub(to),
                most: ran.saturating_sub(from),
            }),
            waits_for_manager: seen.last.errors.waits_for_manager().filter(|_| port.is_infiniband),
            counts_losses: seen.last.errors.counts_losses(),
            told: seen.told,
            first_rate: port.first.rate.clone(),
            gid_index: port.gid.as_ref().map(|gid| gid.index),
            said: seen.said,
            congestion: Congestion::default(),
            rises,
        }
    }

    /// Returns the name in documents.
    fn id(&self) -> String {
        port_id(self.renamed.as_ref().unwrap_or(&self.hca), self.port)
    }

    fn was_said(&self, finding: &Finding) -> bool {
        self.said.contains(finding.id.name())
    }

    /// Returns the fixes of those of these findings that its line has, if the watcher has not given them before.
    pub(crate) fn fixes<'f>(&self, findings: &'f [Finding]) -> Vec<&'f str> {
        let id = self.id();
        let of_rail = findings.iter().filter(|finding| {
            Account::lines_have(finding) && finding.about.ports.contains(&id) && !self.was_said(finding)
        });
        let mut fixes: Vec<&str> = Vec::new();
        for fix in of_rail.filter_map(|finding| finding.fix.as_deref()) {
            if !fixes.contains(&fix) {
                fixes.push(fix);
            }
        }
        fixes
    }

    fn wrong(&self) -> PortRises {
        PortRises {
            hca: self.hca.clone(),
            now: self.renamed.clone(),
            port: self.port,
            is_one_of_several: self.is_one_of_several,
            is_lost: self.is_lost,
            is_gone: self.is_gone,
            waits_for_manager: self.waits_for_manager.is_some(),
            rises: self.rises.clone(),
        }
    }

    fn traffic(&self) -> PortTraffic {
        PortTraffic {
            hca: self.hca.clone(),
            now: self.renamed.clone(),
            port: self.port,
            is_one_of_several: self.is_one_of_several,
            is_infiniband: self.is_infiniband,
            traffic: self.moved,
        }
    }

    /// Returns the rises that are worth telling, or that the watcher has told, without those of links that went down,
    /// which `downs` has.
    pub(crate) fn worth_telling(&self, ran: Duration) -> impl Iterator<Item = &Rise> {
        let rises = self.rises.iter().filter(|rise| rise.trouble != Trouble::LinkDown);
        let was_told = |rise: &Rise| self.said.contains(id_of(rise.trouble).name());
        rises.filter(move |rise| is_worth_reporting(rise, ran) || was_told(rise))
    }

    /// Whether there is nothing to tell about it but what it has moved.
    pub(crate) fn is_well(&self, ran: Duration) -> bool {
        !self.is_lost
            && self.removals == 0
            && !self.was_hidden
            && !self.was_renamed
            && self.downs.0 == 0
            && self.told.is_empty()
            && self.worth_telling(ran).next().is_none()
    }

    fn is_broken(&self) -> bool {
        let has_failed = |rise: &Rise| {
            matches!(rise.trouble, Trouble::NoAnswer | Trouble::NotReady | Trouble::FailedRequest)
        };
        self.is_lost
            || self.removals > 0
            || self.was_hidden
            || self.downs.0 > 0
            || self.rises.iter().any(has_failed)
    }

    /// Returns what it has moved in both directions.
    pub(crate) fn amount(&self, unit: Unit) -> Option<u64> {
        let both = self.moved.both();
        match unit {
            Unit::Bytes => both.bytes,
            Unit::Packets => both.packets,
            Unit::Requests => self.moved.requests,
        }
    }
}

#[cfg(test)]
mod tests;
