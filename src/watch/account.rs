//! The account of a job's ports: what each of them has moved and counted since the command was started. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{WatchedPort, hidden};
use crate::facts::port_errors::{Rise, Tally, Trouble};
use crate::facts::port_look::PortLook;
use crate::facts::traffic::Traffic;
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{self, PortRises, id_of, is_worth_reporting};
use crate::findings::port_name::port_id;
use crate::findings::traffic::{self, PortTraffic};

/// What the looks at the ports have shown so far. The watcher saves it after each look that shows something new, so
/// that the account at the end covers what happened in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    ports: Vec<SeenPort>,
    /// Whether something was taken; before, there is nothing to keep.
    has_begun: bool,
    /// When it looked last.
    looked_at: Duration,
    /// What to say about lines that were omitted, without the full stop.
    omitted: Vec<String>,
}

/// Sums over the looks, because a counter may begin anew in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenPort {
    /// The last look, with the last known value of each counter.
    last: PortLook,
    moved: Traffic,
    errors: Tally,
    /// Whether the port was active at the start, and is not now.
    is_lost: bool,
    is_gone: bool,
    /// How often its link was found down, and how often its device was found gone.
    losses: u32,
    removals: u32,
    down_at: Option<SeenDown>,
    /// How many of the last looks could not read its state, up to [`hidden::LOOKS`], and whether it ever were so many.
    #[serde(default)]
    hidden: u32,
    #[serde(default)]
    was_hidden: bool,
    /// The name under which its device was last there, if that is not its original one, and whether it ever had another
    /// one.
    #[serde(default)]
    renamed: Option<String>,
    #[serde(default)]
    was_renamed: bool,
    /// The IDs of the findings about it that the watcher has printed with their fix.
    said: BTreeSet<String>,
}

/// When a link was down last, since the start: between two looks if only a counter shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SeenDown {
    from: Duration,
    to: Duration,
}

impl SeenPort {
    fn add(&mut self, port: &WatchedPort, now: &PortLook) {
        self.moved = self.moved.plus(now.traffic.since(self.last.traffic));
        let mut rises = now.errors.since(&self.last.errors);
        if now.is_renamed_since(self.renamed.as_deref()) {
            self.renamed.clone_from(&now.renamed);
            self.was_renamed = true;
            // That its device went away is more than that its link went down.
            rises.retain(|rise| rise.trouble != Trouble::LinkDown);
        }
        self.errors.add(&rises);
        self.hidden = hidden::next(self.hidden, port, now);
        self.was_hidden |= self.hidden >= hidden::LOOKS;
        if !now.errors.is_hidden() {
            self.is_lost = now.errors.is_lost_since(&port.first.errors);
            self.is_gone = now.errors.is_gone() && !port.first.errors.is_gone();
        }
        self.last = now.clone().with_known(&self.last);
    }
}

impl Seen {
    /// Begins with the first look at these ports.
    pub(crate) fn new(ports: &[WatchedPort]) -> Seen {
        let port = |port: &WatchedPort| SeenPort {
            last: port.first.clone(),
            // Zero for what the port counts, and `None` for the rest.
            moved: port.first.traffic.since(port.first.traffic),
            errors: Tally::default(),
            is_lost: false,
            is_gone: false,
            losses: 0,
            removals: 0,
            down_at: None,
            hidden: 0,
            was_hidden: false,
            renamed: None,
            was_renamed: false,
            said: BTreeSet::new(),
        };
        Seen {
            ports: ports.iter().map(port).collect(),
            has_begun: false,
            looked_at: Duration::ZERO,
            omitted: Vec::new(),
        }
    }

    /// Takes what the watcher sees of the ports, in their order, at this time since the start. Returns whether that is
    /// new.
    pub(crate) fn watch(&mut self, at: Duration, ports: &[WatchedPort], looks: &[PortLook]) -> bool {
        let mut is_new = !std::mem::replace(&mut self.has_begun, true);
        for ((seen, port), now) in self.ports.iter_mut().zip(ports).zip(looks) {
            let is_hidden = now.errors.is_hidden();
            // A port that rests has nothing new to add.
            if *now == seen.last
                && !is_hidden
                && !seen.is_lost
                && !now.errors.is_lost_since(&port.first.errors)
            {
                continue;
            }
            let is_lost = if is_hidden { seen.is_lost } else { now.errors.is_lost_since(&port.first.errors) };
            match is_lost && now.errors.is_gone() {
                true if !seen.is_gone => seen.removals = seen.removals.saturating_add(1),
                false if is_lost && !seen.is_lost => seen.losses = seen.losses.saturating_add(1),
                _ => {}
            }
            let mut rises = now.errors.since(&seen.last.errors);
            let is_renamed = now.is_renamed_since(seen.renamed.as_deref());
            rises.retain(|rise| rise.trouble == Trouble::LinkDown && !is_renamed);
            if is_lost && !is_hidden && !now.errors.is_gone() {
                seen.down_at = Some(SeenDown { from: at, to: at });
            } else if !rises.is_empty() {
                seen.down_at = Some(SeenDown { from: self.looked_at, to: at });
            }
            is_new |= is_lost || *now != seen.last;
            let hidden = seen.hidden;
            seen.add(port, now);
            is_new |= hidden != seen.hidden;
        }
        self.looked_at = at;
        is_new
    }

    /// Takes what was said about the ports, and what to say in the end about lines that were omitted. Returns whether
    /// that is new.
    pub(crate) fn remember(&mut self, ports: &[WatchedPort], said: &[Finding], omitted: &[Finding]) -> bool {
        let mut is_new = false;
        for (seen, port) in self.ports.iter_mut().zip(ports) {
            let id = port_id(seen.renamed.as_ref().unwrap_or(&port.hca), port.port);
            let about = said.iter().filter(|finding| finding.about.ports.contains(&id));
            // Others say something else, such as that a link is active again, or that a counter is full.
            for finding in about.filter(|finding| port_errors::has_its_fix(finding)) {
                is_new |= seen.said.insert(finding.id.name().to_owned());
            }
        }
        let omitted = omitted.iter().map(|finding| finding.message.trim_end_matches('.').to_owned());
        let omitted: Vec<String> = omitted.collect();
        is_new |= omitted != self.omitted;
        self.omitted = omitted;
        is_new
    }
}

/// A port of the job, from the start on.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The IDs of what the watcher has said about it, with the fix.
    pub said: BTreeSet<String>,
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
        let seen = seen.map(|(at, seen)| Seen { looked_at: at, ..seen });
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
        let omitted = seen.omitted;
        let rails = ports.iter().zip(seen.ports).map(|(port, seen)| Rail::new(port, seen, ran)).collect();
        Some(Account { ran, rails, watched, beginning: BEGINNING.min(watcher.after), omitted })
    }

    /// Returns the findings about the whole run, the worst first. `is_cut_short`: the command failed, or was stopped.
    pub(crate) fn findings(&self, is_cut_short: bool) -> Vec<Finding> {
        let wrong: Vec<PortRises> = self.rails.iter().map(Rail::wrong).collect();
        let moved: Vec<PortTraffic> = self.rails.iter().map(Rail::traffic).collect();
        let mut findings = port_errors::findings(&wrong, self.ran);
        // A fabric that broke is reason enough.
        if !self.is_broken() {
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

    /// Whether the fabric broke: a link went down, a queue pair failed, or an HCA is gone or cannot be read. A name alone
    /// that changes breaks nothing: if the driver was loaded again for it, its queue pairs have failed.
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
            said: seen.said,
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
    pub(crate) fn told(&self, ran: Duration) -> impl Iterator<Item = &Rise> {
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
            && self.told(ran).next().is_none()
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
