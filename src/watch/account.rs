//! The account of a job's ports: what each of them has moved and counted since the command was started. Pure.

use std::time::Duration;

use super::judge::{History, longest_gap};
use super::track::{Track, WatchedPort};
use crate::facts::congestion::Congestion;
use crate::facts::port_errors::{Rise, Trouble};
use crate::facts::port_look::PortLook;
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{self, PortRises, kind, worth_reporting};
use crate::findings::traffic::{self, Expected, PortTraffic};

/// A port of the job, from the start on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rail {
    pub port: WatchedPort,
    pub track: Track,
    pub rises: Vec<Rise>,
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
    pub expected: Expected,
    /// How often data moved again after a pause that is worth a line, and the longest of these.
    pub pauses: (u32, Duration),
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
    pub expected: Expected,
}

impl Watcher {
    /// Returns whether its last look, at this time since the start, shows the ports as they are.
    pub(crate) fn is_recent(self, last_look: Option<Duration>, ran: Duration) -> bool {
        self.watched(last_look, ran) == Watched::Throughout
    }

    fn watched(self, last_look: Option<Duration>, ran: Duration) -> Watched {
        match last_look {
            None if self.has_ended => Watched::Until(Duration::ZERO),
            None => Watched::Never,
            Some(at) if self.has_ended || ran.saturating_sub(at) > longest_gap(self.interval) => {
                Watched::Until(at)
            }
            Some(_) => Watched::Throughout,
        }
    }
}

/// A job that ends in this time may not have begun to communicate. torchrun alone waits 30 s for nodes
/// that are late (`last_call_timeout` of its rendezvous); then the ranks import their framework and make communicators.
const BEGINNING: Duration = Duration::from_secs(60);

/// How long before the end of the job something broke that may be the reason. PyTorch ends a job whose collective has
/// not finished in 10 minutes (`default_pg_nccl_timeout`).
const LATELY: Duration = Duration::from_secs(15 * 60);

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
        seen: Option<(Duration, History)>,
        now: Option<&[PortLook]>,
        ran: Duration,
        watcher: Watcher,
    ) -> Option<Account> {
        let seen = seen.filter(|(_, seen)| seen.tracks.len() == ports.len());
        let watched = watcher.watched(seen.as_ref().map(|(at, _)| *at), ran);
        // A look that shows nothing new is not saved, but its time is.
        let seen = seen.map(|(at, mut seen)| {
            seen.tracks.iter_mut().for_each(|track| track.rest(at, watcher.interval));
            seen
        });
        let mut history = match now {
            None => seen?,
            Some(_) => seen.unwrap_or_else(|| History::new(ports)),
        };
        if let Some(now) = now {
            let moved = history.look(ran, ports, now.to_vec());
            let moves = history.tracks.iter().zip(ports).zip(&moved).any(|((track, port), change)| {
                traffic::has_moved(&track.traffic(port, change.moved), watcher.interval)
            });
            if moves && watched != Watched::Never {
                history.moved_at = Some(ran);
            }
        }
        let History { tracks, moved_at, omitted, pauses, longest_pause } = history;
        let rail = |(port, track): (&WatchedPort, Track)| Rail {
            port: port.clone(),
            rises: track.errors.rises(),
            track,
            congestion: Congestion::default(),
        };
        let rails = ports.iter().zip(tracks).map(rail).collect();
        Some(Account {
            ran,
            rails,
            watched,
            beginning: BEGINNING.min(watcher.after),
            omitted,
            rested: moved_at.map(|at| ran.saturating_sub(at)),
            tells_rest_from: watcher.after,
            expected: watcher.expected,
            pauses: (pauses, longest_pause),
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
        self.rested.filter(|rested| *rested >= self.tells_rest_from && self.expected != Expected::Nothing)
    }

    /// Whether the end of the job has something to do with its fabric, as far as is known: the fabric broke, a port had
    /// something else of which the watcher has warned, or nothing had moved for long.
    pub(crate) fn is_noteworthy(&self) -> bool {
        self.is_broken() || self.rest().is_some() || self.rails.iter().any(Rail::has_lasted)
    }

    /// Returns the findings about the whole run, the worst first. `is_cut_short`: the command failed, or was stopped.
    pub(crate) fn findings(&self, is_cut_short: bool) -> Vec<Finding> {
        let wrong: Vec<PortRises> = self.rails.iter().map(Rail::wrong).collect();
        let moved: Vec<PortTraffic> = self.rails.iter().map(Rail::traffic).collect();
        let mut findings = port_errors::findings(&wrong, Some(self.rails.len()), self.ran);
        // A fabric that broke is reason enough.
        if !self.is_broken() {
            let of_traffic = traffic::finding(&moved, self.ran, is_cut_short, self.expected);
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
        let is_of = |rail: &&Rail| ports.contains(&rail.track.rail.id());
        Account::lines_have(finding) && self.rails.iter().filter(is_of).all(|rail| rail.was_said(finding))
    }

    /// Whether the fabric broke: a link went down, a queue pair failed, or an HCA is gone or cannot be read. A name
    /// alone that changes breaks nothing: if the driver was loaded again for it, its queue pairs have failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.rails.iter().any(|rail| rail.track.broke_at.is_some())
    }

    /// Whether the fabric is broken, or broke so late that it may be why the job ends now.
    pub(crate) fn broke_lately(&self) -> bool {
        let is_late = |broke: Duration| self.ran.saturating_sub(broke) <= LATELY;
        self.rails
            .iter()
            .any(|rail| rail.is_lost() || rail.track.is_hidden() || rail.track.broke_at.is_some_and(is_late))
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
    fn was_said(&self, finding: &Finding) -> bool {
        self.track.said.contains(finding.id.name())
    }

    /// It was active at the start, and is not now: it is inactive, or gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.track.loss.is_some()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.track.loss.is_some_and(|loss| loss.is_gone)
    }

    /// Returns how often its link went down, by the counter or as the watcher has seen it, and whether it was at least so
    /// often.
    pub(crate) fn downs(&self) -> (u64, bool) {
        let counted = self.rises.iter().filter(|rise| rise.trouble == Trouble::LinkDown);
        let (count, is_least) =
            counted.fold((0, false), |(sum, least), rise| (rise.count + sum, rise.is_least || least));
        (count.max(self.track.losses.into()), is_least)
    }

    /// Returns how long before the end its link was down last, if the watcher knows.
    pub(crate) fn down_ago(&self, ran: Duration) -> Option<Ago> {
        // That it was at some time of the whole run says nothing.
        let (from, to) = self.track.down_at.filter(|(from, to)| !from.is_zero() || *to < ran)?;
        Some(Ago { least: ran.saturating_sub(to), most: ran.saturating_sub(from) })
    }

    /// The kernel's name of its state if the subnet manager has not activated it.
    pub(crate) fn waits_for_manager(&self) -> Option<&'static str> {
        self.track.waits_for_manager(&self.port)
    }

    /// Whether it had something that lasted, besides its state and what it counts.
    pub(crate) fn has_lasted(&self) -> bool {
        let Track { slow, astray, behind, .. } = &self.track;
        [slow, astray, behind].into_iter().any(|spell| spell.ever())
    }

    /// Returns the fixes of those of these findings that its line has, if the watcher has not given them before.
    pub(crate) fn fixes<'f>(&self, findings: &'f [Finding]) -> Vec<&'f str> {
        let id = self.track.rail.id();
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
            rail: self.track.rail.clone(),
            is_lost: self.is_lost(),
            is_gone: self.is_gone(),
            waits_for_manager: self.waits_for_manager().is_some(),
            rises: self.rises.clone(),
        }
    }

    fn traffic(&self) -> PortTraffic {
        self.track.traffic(&self.port, self.track.moved)
    }

    /// Returns the rises that are worth telling, or that the watcher has told, without those of links that went down,
    /// which `downs` has.
    pub(crate) fn worth_telling(&self, ran: Duration) -> impl Iterator<Item = &Rise> {
        let worth = worth_reporting(&self.rises, ran);
        let was_told = |rise: &Rise| self.track.said.contains(kind(rise.trouble).id.name());
        let others =
            self.rises.iter().filter(|rise| !matches!(rise.trouble, Trouble::LinkDown | Trouble::OutOfOrder));
        let reordered = self.rises.iter().filter(|rise| rise.trouble == Trouble::OutOfOrder);
        let reordered = reordered.filter(|rise| worth.contains(*rise)).collect::<Vec<_>>();
        let others = others.filter(|rise| worth.contains(*rise) || was_told(rise)).collect::<Vec<_>>();
        others.into_iter().chain(reordered)
    }

    /// Whether there is nothing to tell about it but what it has moved.
    pub(crate) fn is_well(&self, ran: Duration) -> bool {
        let Track { removals, was_hidden, was_renamed, .. } = self.track;
        !self.is_lost()
            && removals == 0
            && !was_hidden
            && !was_renamed
            && self.downs().0 == 0
            && !self.has_lasted()
            && self.worth_telling(ran).next().is_none()
    }

    /// Whether it has counted no error at all. What came out of order is none: see [`Trouble::OutOfOrder`].
    pub(crate) fn is_without_errors(&self) -> bool {
        self.rises.iter().all(|rise| rise.trouble == Trouble::OutOfOrder)
    }

    /// Returns what it has moved in both directions.
    pub(crate) fn amount(&self, unit: Unit) -> Option<u64> {
        let both = self.track.moved.both();
        match unit {
            Unit::Bytes => both.bytes,
            Unit::Packets => both.packets,
            Unit::Requests => self.track.moved.requests,
        }
    }
}

#[cfg(test)]
mod tests;
