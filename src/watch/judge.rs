//! Judges the job from successive readings of the ports. Pure: it reads nothing, and the caller passes the time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::balance::Balance;
use super::fold::{About, Fold};
use super::lines::{self, News};
use super::pace::{Pace, Speed};
use super::ranks::Doubt;
use super::track::{Change, LATELY, Track, WatchedPort};
use super::windows;
use crate::facts::port_look::PortLook;
use crate::facts::traffic::Traffic;
use crate::finding::{Finding, Id, Severity};
use crate::findings::port_errors::{self, has_its_fix};
use crate::findings::traffic::{Expected, FIX_OF_NO_TRAFFIC, PortTraffic, names};
use crate::text::{amount, coarse, condensed};

/// What breaks so shortly before data stops may be why: connections fail only after some retries. NCCL_IB_TIMEOUT of 20 and
/// 7 retries make half a minute, and an HCA may take up to four times as long.
const SHORTLY: Duration = Duration::from_secs(120);

/// A pause that nothing explains is a note at first: a compilation, a checkpoint or a rollout may take that long. After
/// so many times `watch-after`, it is a warning.
const PAUSES_OF_STALL: u32 = 3;

/// What the watcher has seen of the job. It is kept in memory for the account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    pub tracks: Vec<Track>,
    /// When data last moved, if it ever did.
    pub moved_at: Option<Duration>,
    /// What to say at the end about lines that were omitted, without the full stop.
    pub omitted: Vec<String>,
    /// How often data moved again after a pause that is worth a line, and the longest of these.
    pub pauses: u32,
    pub longest_pause: Duration,
}

impl History {
    pub(crate) fn new(ports: &[WatchedPort]) -> History {
        History { tracks: ports.iter().map(Track::new).collect(), ..History::default() }
    }

    /// Takes a look at all ports, in their order, at this time since the start.
    pub(super) fn look(&mut self, at: Duration, ports: &[WatchedPort], looks: Vec<PortLook>) -> Vec<Change> {
        let all = self.tracks.iter_mut().zip(ports).zip(looks);
        all.map(|((track, port), look)| track.look(at, port, look)).collect()
    }
}

/// What the metrics say of the job.
pub(crate) struct Standing<'a> {
    /// For how long nothing has moved, if data ever moved.
    pub rested: Option<Duration>,
    /// How many findings there were of each kind.
    pub findings: &'a BTreeMap<(Id, Severity), u64>,
}

/// How the judge measures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How often somebody looks.
    pub interval: Duration,
    /// How long traffic may pause before this is reported.
    pub after: Duration,
    pub expected: Expected,
    /// Whether the job answers requests, and may rest for as long as none come.
    pub is_server: bool,
}

/// How much later than the interval a look may come: one itself may take long.
pub(super) fn longest_gap(interval: Duration) -> Duration {
    interval.saturating_mul(3).saturating_add(Duration::from_secs(5))
}

/// How long a pause may be before it is reported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    /// As a note.
    pub note: Duration,
    /// As a warning, if it can be one.
    pub stall: Option<Duration>,
    /// Whether a port that broke, or queue pairs that failed, explain it.
    pub is_broken: bool,
}

pub(super) struct Judge {
    ports: Vec<WatchedPort>,
    limits: Limits,
    pub(super) history: History,
    last_at: Duration,
    pace: Pace,
    /// Whether something that broke explains the pause that has not ended. It may be well again since.
    is_rest_broken: bool,
    /// As what that pause was reported.
    reported_rest: Option<Severity>,
    balance: Balance,
    fold: Fold,
    /// Whether it is known that nothing moves if the counters stand still.
    is_movement_known: bool,
    /// How many findings there were of each kind, with those that no line has.
    findings: BTreeMap<(Id, Severity), u64>,
    /// Whether the history has changed since it was last remembered.
    is_changed: bool,
}

impl Judge {
    pub(super) fn new(ports: Vec<WatchedPort>, limits: Limits) -> Judge {
        Judge {
            history: History::new(&ports),
            balance: Balance::default(),
            ports,
            limits,
            last_at: Duration::ZERO,
            pace: Pace::default(),
            is_rest_broken: false,
            reported_rest: None,
            fold: Fold::default(),
            is_movement_known: false,
            findings: BTreeMap::new(),
            is_changed: true,
        }
    }

    /// Judges ports at which somebody may look at any time.
    #[cfg(test)]
    pub(super) fn patient(ports: Vec<WatchedPort>, after: Duration) -> Judge {
        let interval = Duration::from_secs(3600);
        Judge::new(ports, Limits { interval, after, expected: Expected::Traffic, is_server: false })
    }

    pub(super) fn ports(&self) -> &[WatchedPort] {
        &self.ports
    }

    /// Returns when data last moved and when the look before that was, unless that is not known: `None` in it if data has
    /// never moved.
    pub(super) fn movement_seen(&self) -> Option<Option<(Duration, Duration)>> {
        let Pace { moved_from, moved_at, has_moved, .. } = self.pace;
        self.is_movement_known.then(|| has_moved.then_some((moved_from, moved_at)))
    }

    /// Returns what to remember, if it has changed since the last call.
    pub(super) fn changed(&mut self) -> Option<&History> {
        std::mem::take(&mut self.is_changed).then_some(&self.history)
    }

    /// Returns what to report after a reading of all ports, in their order, at this time since the start.
    pub(super) fn judge(&mut self, at: Duration, looks: Vec<PortLook>) -> Vec<Finding> {
        let gap = at.saturating_sub(self.last_at);
        if gap > longest_gap(self.limits.interval) {
            self.pace.miss(gap.saturating_sub(self.limits.interval));
        }
        let errors_before: Vec<_> =
            self.history.tracks.iter().map(|track| track.last.errors.clone()).collect();
        let changes = self.history.look(at, &self.ports, looks);
        self.is_changed |= changes.iter().any(|change| change.is_new);
        let counted = self.counters(at, &changes);
        let movement = self.movement(at, &changes);
        if self.pace.moved_at == at && self.pace.has_moved {
            for (track, errors) in self.history.tracks.iter_mut().zip(errors_before) {
                track.before_rest = errors;
            }
            self.history.moved_at = Some(at);
        }
        self.last_at = at;
        let news: Vec<News> = self
            .history
            .tracks
            .iter()
            .zip(&self.ports)
            .zip(&changes)
            .map(|((track, port), change)| News { port, track, events: &change.events })
            .collect();
        let states = lines::changes(&news).into_iter().map(|finding| {
            let ports = &finding.about.ports;
            let is_one_of_several = |one: &&News| ports.len() > 1 && ports.contains(&one.track.rail.id());
            let of_each = news.iter().filter(is_one_of_several).flat_map(|one| lines::changes(&[*one]));
            let is_same = |one: &Finding| (one.id, one.severity) == (finding.id, finding.severity);
            (About::State(of_each.filter(is_same).collect()), finding)
        });
        let events = counted.into_iter().chain(lines::full_counters(&news));
        let events = events.map(|finding| (About::Event, finding));
        let movement = movement.into_iter().map(|finding| (About::State(Vec::new()), finding));
        let findings = states.chain(events).chain(movement).collect();
        self.report(at, findings)
    }

    /// Filters findings from another source through the limit on lines, and returns those to report.
    pub(super) fn pass(&mut self, at: Duration, findings: Vec<Finding>) -> Vec<Finding> {
        self.report(at, findings.into_iter().map(|finding| (About::Event, finding)).collect())
    }

    fn report(&mut self, at: Duration, findings: Vec<(About, Finding)>) -> Vec<Finding> {
        for (_, finding) in &findings {
            *self.findings.entry((finding.id, finding.severity)).or_default() += 1;
        }
        let reported = self.fold.pass(at, findings, &self.history.tracks);
        for track in &mut self.history.tracks {
            let id = track.rail.id();
            // Others say something else, such as that a link is active again, or that a counter is full.
            let about = reported.iter().filter(|one| one.about.ports.contains(&id) && has_its_fix(one));
            for finding in about {
                self.is_changed |= track.said.insert(finding.id.name().to_owned());
            }
        }
        let omitted = self.fold.omitted(&self.history.tracks);
        let omitted: Vec<String> =
            omitted.iter().map(|finding| finding.message.trim_end_matches('.').to_owned()).collect();
        self.is_changed |= omitted != self.history.omitted;
        self.history.omitted = omitted;
        reported
    }

    /// Returns what programs may know of the job.
    pub(super) fn standing(&self, at: Duration) -> Standing<'_> {
        let rested = self.history.moved_at.map(|_| at.saturating_sub(self.pace.moved_at));
        Standing { rested, findings: &self.findings }
    }

    /// Returns why the ranks of the job may be worth a question, as the last report said.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        match self.reported_rest {
            Some(_) => Some(Doubt::Rests),
            None => {
                let mut tracks = self.history.tracks.iter();
                tracks.any(|track| track.share.reported.is_some()).then_some(Doubt::Lopsided)
            }
        }
    }

    /// Reports the errors that the ports have counted.
    fn counters(&mut self, at: Duration, changes: &[Change]) -> Vec<Finding> {
        let reported = windows::add(at, &mut self.history.tracks, changes);
        let rails = Some(self.ports.len());
        reported.into_iter().flat_map(|(time, ports)| port_errors::findings(&ports, rails, time)).collect()
    }

    /// Reports if nothing has moved since the start or for some time, or if some rails move less than others.
    fn movement(&mut self, at: Duration, changes: &[Change]) -> Vec<Finding> {
        let rested = at.saturating_sub(self.pace.moved_at);
        let pauses = self.pauses();
        let (moving, speed) = self.pace.look(at, &self.ports, &mut self.history.tracks, changes);
        self.is_rest_broken = pauses.is_broken && moving.is_empty();
        self.is_movement_known = is_movement_known(&self.ports, changes, self.pace.has_moved);
        let tracks = &self.history.tracks;
        let moved: Vec<PortTraffic> = tracks
            .iter()
            .zip(&self.ports)
            .zip(changes)
            .map(|((track, port), change)| track.traffic(port, change.moved))
            .collect();
        let times = [self.last_at, at];
        let tracks = &mut self.history.tracks;
        let mut findings = self.balance.judge(times, self.limits.after, &self.ports, tracks, changes);
        findings.extend(speed.map(|speed| self.speed(at, &speed)));
        findings.extend(self.rest(rested, pauses, changes, &moved, &moving));
        findings
    }

    /// Reports that the whole job is slower than before. One rail that is slow slows all of them: NCCL's collectives wait
    /// for the last one.
    fn speed(&self, at: Duration, speed: &Speed) -> Finding {
        let Speed::Slow { now, fastest } = speed else {
            return Finding::info(Id::IdleRail, "The job moves about as much as before again.".to_owned());
        };
        let suspect: Vec<&Track> = self.history.tracks.iter().filter(|track| track.is_suspect(at)).collect();
        let percent = now.saturating_mul(100) / fastest.max(&1);
        let shown =
            |value: u64| match self.history.tracks.iter().all(|track| track.moved.both().bytes.is_some()) {
                true => format!("{}/s", amount(value)),
                false => format!("{value} packets/s"),
            };
        let rails = match &suspect[..] {
            [] => "no rail shows errors".to_owned(),
            rails => {
                let names: Vec<String> = rails.iter().map(|track| track.rail.to_string()).collect();
                let verb = if names.len() == 1 { "shows" } else { "show" };
                format!("{} {verb} errors, and one slow rail slows all", condensed(&names))
            }
        };
        let message = format!(
            "The job's rate has been {} in its last 20 minutes of traffic, {percent} % of that in its best 10 minutes ({}): {rails}.",
            shown(*now),
            shown(*fastest),
        );
        Finding::info(Id::IdleRail, message).about_ports(suspect.iter().map(|track| track.rail.id()))
    }

    /// A job that has paused for longer by itself may do so again.
    pub(super) fn pauses(&self) -> Pauses {
        let Limits { after, expected, is_server, .. } = self.limits;
        let learned = self.history.longest_pause.saturating_mul(2);
        let note = after.max(learned);
        // What has been lost for long does not stop a job that went on without it.
        let broke = |track: &Track| track.loss.map(|loss| loss.since).or(track.broke_at);
        let Pace { moved_from, moved_at, .. } = self.pace;
        let times = moved_from.saturating_sub(SHORTLY)..moved_at.saturating_add(LATELY);
        let is_broken = self.is_rest_broken
            || self.history.tracks.iter().filter_map(broke).any(|broke| times.contains(&broke));
        let stall = if is_broken { note } else { after.saturating_mul(PAUSES_OF_STALL).max(learned) };
        let is_sure = self.pace.has_moved || expected == Expected::Traffic;
        Pauses { note, stall: (is_sure && !is_server).then_some(stall), is_broken }
    }

    /// `rested`: for how long nothing had moved until this look.
    fn rest(
        &mut self,
        rested: Duration,
        pauses: Pauses,
        changes: &[Change],
        moved: &[PortTraffic],
        moving: &[PortTraffic],
    ) -> Option<Finding> {
        if !moving.is_empty() {
            let again = if self.history.moved_at.is_some() { " again" } else { "" };
            if rested >= self.limits.after
                && self.limits.expected != Expected::Nothing
                && !pauses.is_broken
                && self.history.moved_at.is_some()
            {
                self.history.pauses = self.history.pauses.saturating_add(1);
                self.history.longest_pause = self.history.longest_pause.max(rested);
                self.is_changed = true;
            }
            return self.reported_rest.take().map(|_| {
                let ports = moving.iter().map(|port| port.rail.id());
                let over = names(moving);
                let message = format!("Data moves over {over}{again}, after {}.", coarse(rested));
                Finding::info(Id::NoTraffic, message).about_ports(ports)
            });
        }
        let severity = match pauses.stall {
            Some(stall) if rested >= stall => Severity::Warning,
            _ if rested >= pauses.note => Severity::Info,
            _ => return None,
        };
        if !self.is_movement_known
            || self.limits.expected == Expected::Nothing
            || self.reported_rest >= Some(severity)
        {
            return None;
        }
        let are_gone = changes.iter().all(|change| change.is_gone);
        let gone = match (are_gone, changes.iter().all(Change::shows_nothing), moved.len()) {
            (true, _, 1) => Some("this HCA is gone"),
            (true, ..) => Some("all of these HCAs are gone"),
            (false, true, 1) => Some("this HCA cannot be read"),
            (false, true, _) => Some("none of these HCAs can be read"),
            (false, false, _) => None,
        };
        self.reported_rest = Some(if gone.is_some() { Severity::Warning } else { severity });
        let why_none = "the job has not begun to communicate, runs on sockets, or runs on this node alone";
        let (names, time) = (names(moved), coarse(rested));
        let message = match self.pace.has_moved {
            false => format!(
                "RDMA was planned, but no data has moved over {names} in the first {time}: {}.",
                gone.unwrap_or(why_none)
            ),
            true => format!(
                "No data has moved over {names} for {time}, after earlier traffic: {}.",
                gone.unwrap_or("the job may have stalled")
            ),
        };
        let finding =
            Finding::info(Id::NoTraffic, message).about_ports(moved.iter().map(|port| port.rail.id()));
        if gone.is_some() {
            // That was a warning of its own.
            return Some(finding);
        }
        let fix = if self.pace.has_moved { FIX_OF_STALL } else { FIX_OF_NO_TRAFFIC };
        Some(Finding { severity, ..finding }.with_fix(fix))
    }
}

const FIX_OF_STALL: &str = "Ask NCCL which rank is behind: rdma-init status --ras. Where its RAS is off, PyTorch's Flight Recorder or py-spy dump shows what each rank waits for.";

/// Returns whether it is known that the ports move nothing if their counters stand still. Those that count only the
/// requests of peers prove that only of a job that has moved data: messages that a port receives are no requests. A
/// device that is gone, or of which nothing can be read, moves nothing, if it counted before.
fn is_movement_known(ports: &[WatchedPort], changes: &[Change], has_moved: bool) -> bool {
    let is_known = |traffic: Traffic| match has_moved {
        true => traffic.is_known(),
        false => traffic.is_amount_known(),
    };
    let mut there = changes.iter().filter(|change| !change.shows_nothing()).peekable();
    match there.peek() {
        Some(_) => there.all(|change| is_known(change.shown)),
        None => !ports.is_empty() && ports.iter().all(|port| is_known(port.first.traffic)),
    }
}

#[cfg(test)]
mod tests;
