//! Judges the job from successive readings of the ports. Pure: it reads nothing, and the caller passes the
//! time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::balance::{Balance, Interval};
use super::fold::Fold;
use super::hidden::Hidden;
use super::identity::{self, Identity};
use super::link::Links;
use super::ranks::Doubt;
use super::told::PortTold;
use super::windows::Windows;
use crate::facts::congestion::Congestion;
use crate::facts::device_identity::DeviceIdentity;
use crate::facts::port_errors::Trouble;
use crate::facts::port_look::{PortLook, UsedGid};
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{self, FIX_OF_GONE, PortRises, fix_of_lost};
use crate::findings::port_name::{names_of_port, port_id};
use crate::findings::traffic::{FIX_OF_NO_TRAFFIC, PortTraffic, has_moved, names};
use crate::plan::failover::SWITCH;
use crate::text::{coarse, condensed, grouped};

/// The ports of one device, each with the last look at it.
type PortsOfDevice<'a> = Vec<(&'a WatchedPort, &'a PortLook)>;

/// A port of the job, with its reading before the command started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WatchedPort {
    pub hca: String,
    /// The name under which the watcher has found the HCA last, if that is not its original one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    pub port: u32,
    /// Whether the job uses several ports of the HCA.
    #[serde(default)]
    pub is_one_of_several: bool,
    pub is_infiniband: bool,
    /// The GID that NCCL uses.
    pub gid: Option<UsedGid>,
    /// What its device is recognized by under another name.
    #[serde(default)]
    pub device: DeviceIdentity,
    /// Whether NCCL may continue over another port of the NIC.
    #[serde(default)]
    pub fails_over: bool,
    pub first: PortLook,
    /// The congestion that it had counted by then.
    #[serde(default)]
    pub congestion: Congestion,
}

impl WatchedPort {
    pub(super) fn name(&self) -> String {
        names_of_port(&self.hca, self.now.as_deref(), self.port, self.is_one_of_several)
    }

    pub(super) fn id(&self) -> String {
        port_id(self.now.as_ref().unwrap_or(&self.hca), self.port)
    }

    /// Returns what the port moved between two readings.
    pub(crate) fn moved(&self, now: &PortLook, before: &PortLook) -> PortTraffic {
        PortTraffic {
            hca: self.hca.clone(),
            now: self.now.clone(),
            port: self.port,
            is_one_of_several: self.is_one_of_several,
            is_infiniband: self.is_infiniband,
            traffic: now.traffic.since(before.traffic),
        }
    }
}

pub(super) struct Judge {
    ports: Vec<WatchedPort>,
    /// How long traffic may pause before this is reported.
    after: Duration,
    /// The last reading of each port, with the last known value of each counter.
    last: Vec<PortLook>,
    last_at: Duration,
    /// When the counters of each port were last read: what it counts is counted since then.
    shown_at: Vec<Duration>,
    /// Since when each port has been inactive or gone, and whether it was gone at the last reading.
    lost_since: Vec<Option<Duration>>,
    is_gone: Vec<bool>,
    /// Whether it was ever gone since then.
    has_gone: Vec<bool>,
    /// Whether it is no wonder if nothing moves: see `WatchOrders`.
    needs_no_rdma: bool,
    /// When data last moved.
    moved_at: Duration,
    has_ever_moved: bool,
    has_told_rest: bool,
    rates: Links,
    hidden: Hidden,
    identity: Identity,
    balance: Balance,
    windows: Windows,
    fold: Fold,
    told: Vec<PortTold>,
}

impl Judge {
    pub(super) fn new(ports: Vec<WatchedPort>, after: Duration) -> Judge {
        Judge {
            last: ports.iter().map(|port| port.first.clone()).collect(),
            lost_since: vec![None; ports.len()],
            is_gone: vec![false; ports.len()],
            has_gone: vec![false; ports.len()],
            needs_no_rdma: false,
            told: vec![PortTold::default(); ports.len()],
            shown_at: vec![Duration::ZERO; ports.len()],
            rates: Links::new(ports.len()),
            hidden: Hidden::new(ports.len()),
            identity: Identity::new(ports.len()),
            balance: Balance::new(ports.len()),
            fold: Fold::new(&ports),
            ports,
            after,
            last_at: Duration::ZERO,
            moved_at: Duration::ZERO,
            has_ever_moved: false,
            has_told_rest: false,
            windows: Windows::default(),
        }
    }

    /// Sets whether it is no wonder if nothing moves.
    pub(super) fn without_need(self, needs_no_rdma: bool) -> Judge {
        Judge { needs_no_rdma, ..self }
    }

    /// Returns what was warned of on each port, besides its state and what it counts.
    pub(super) fn told(&self) -> &[PortTold] {
        &self.told
    }

    pub(super) fn ports(&self) -> &[WatchedPort] {
        &self.ports
    }

    /// Returns what to report after a reading of all ports, in their order, at this time since the start.
    pub(super) fn judge(&mut self, at: Duration, looks: Vec<PortLook>) -> Vec<Finding> {
        let was_lost: Vec<bool> = self.lost_since.iter().map(Option::is_some).collect();
        let is_renamed = |(port, look): (&WatchedPort, &PortLook)| look.is_renamed_since(port.now.as_deref());
        let renamed: Vec<bool> = self.ports.iter().zip(&looks).map(is_renamed).collect();
        let replaced: Vec<bool> =
            looks.iter().zip(&self.last).map(|(look, last)| look.is_replaced_since(last)).collect();
        let mut findings = self.names(at, &looks, &renamed);
        findings.extend(self.hidden.judge(at, &self.ports, &looks));
        findings.extend(self.replaced(&replaced));
        findings.extend(self.links(at, &looks, &renamed));
        let is_sound = |((was_lost, since), is_other): ((&bool, &Option<Duration>), bool)| {
            !was_lost && since.is_none() && !is_other
        };
        let others =
            renamed.iter().zip(&replaced).map(|(is_renamed, is_replaced)| *is_renamed || *is_replaced);
        let sound: Vec<bool> = was_lost.iter().zip(&self.lost_since).zip(others).map(is_sound).collect();
        findings.extend(self.rates.judge(at, &self.ports, &looks));
        findings.extend(self.identity.judge(at, &self.ports, &looks, &sound));
        findings.extend(self.counters(at, &looks, &sound));
        findings.extend(self.rates.full(&self.ports, &looks));
        findings.extend(self.movement(at, &looks, &sound));
        for ((last, shown_at), look) in self.last.iter_mut().zip(&mut self.shown_at).zip(looks) {
            if !look.errors.is_gone() && !look.is_partial {
                *shown_at = at;
            }
            *last = look.with_known(last);
        }
        self.last_at = at;
        for (index, told) in self.told.iter_mut().enumerate() {
            let (slow, rate) = self.rates.slow(index);
            let (astray, place) = self.identity.astray(index);
            told.slow.set(at, slow);
            if slow.is_some() && told.rate != rate {
                rate.clone_into(&mut told.rate);
            }
            told.astray.set(at, astray);
            told.place = astray.map(|_| place).or(told.place);
            told.behind.set(at, self.balance.behind(index));
        }
        self.fold.pass(at, findings)
    }

    /// Reports devices that went away and came back between two looks.
    fn replaced(&self, replaced: &[bool]) -> Option<Finding> {
        let ports: Vec<&WatchedPort> = self
            .ports
            .iter()
            .zip(replaced)
            .filter(|(_, is_replaced)| **is_replaced)
            .map(|(port, _)| port)
            .collect();
        let (was, is, them) = if ports.len() == 1 { ("was", "is", "it") } else { ("were", "are", "them") };
        let message = format!(
            "{} {was} gone since the last look, and {is} back. Connections over {them} from before have failed.",
            listed(&ports)
        );
        let ids = ports.iter().map(|port| port.id());
        let finding = Finding::warning(Id::LinkDown, message).about_ports(ids).with_fix(FIX_OF_GONE);
        (!ports.is_empty()).then_some(finding)
    }

    /// Filters findings from another source through the limit on lines, and returns those to report.
    pub(super) fn pass(&mut self, at: Duration, findings: Vec<Finding>) -> Vec<Finding> {
        self.fold.pass(at, findings)
    }

    /// Returns what to say about the lines that the limit has omitted, unless it was said.
    pub(super) fn omitted(&self) -> Vec<Finding> {
        self.fold.omitted()
    }

    /// Returns why the ranks of the job may be worth a question, as the last report said.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        match self.has_told_rest {
            true => Some(Doubt::Rests),
            false => self.balance.is_lopsided().then_some(Doubt::Lopsided),
        }
    }

    /// Reports devices that have come back under another name, each once for all of its ports.
    fn names(&mut self, at: Duration, looks: &[PortLook], renamed: &[bool]) -> Vec<Finding> {
        let states = self.lost_since.iter().zip(&self.is_gone).zip(renamed);
        let mut devices: Vec<(Option<Duration>, PortsOfDevice)> = Vec::new();
        for ((port, look), ((since, was_gone), _)) in
            self.ports.iter().zip(looks).zip(states).filter(|(_, (_, is_renamed))| **is_renamed)
        {
            let away = since.filter(|_| *was_gone).map(|since| at.saturating_sub(since));
            let is_of = |(other, one): &(&WatchedPort, &PortLook)| {
                (&other.hca, &one.renamed) == (&port.hca, &look.renamed)
            };
            match devices.iter_mut().find(|(_, ports)| ports.first().is_some_and(is_of)) {
                Some((_, ports)) => ports.push((port, look)),
                None => devices.push((away, vec![(port, look)])),
            }
        }
        let findings =
            devices.into_iter().filter_map(|(away, ports)| identity::renamed(&ports, away)).collect();
        for ((port, look), _) in
            self.ports.iter_mut().zip(looks).zip(renamed).filter(|(_, is_renamed)| **is_renamed)
        {
            port.now.clone_from(&look.renamed);
            self.fold.rename(port);
        }
        findings
    }

    /// Reports ports that are no longer active, are gone, or are active again. Of those that have another name,
    /// everything was said.
    fn links(&mut self, at: Duration, looks: &[PortLook], renamed: &[bool]) -> Vec<Finding> {
        let (mut lost, mut back) = (Vec::new(), Vec::new());
        let states = self.lost_since.iter_mut().zip(&mut self.is_gone).zip(&mut self.has_gone).zip(renamed);
        for ((port, look), (((since, was_gone), has_gone), is_renamed)) in
            self.ports.iter().zip(looks).zip(states)
        {
            // A state that cannot be read counts as the one before.
            if look.errors.is_hidden() {
                continue;
            }
            let is_lost = look.errors.is_lost_since(&port.first.errors);
            let is_gone = is_lost && look.errors.is_gone();
            let was_gone = std::mem::replace(was_gone, is_gone);
            let waits = if port.is_infiniband { look.errors.waits_for_manager() } else { None };
            match *since {
                _ if *is_renamed => {}
                // Its link may have been down before.
                _ if is_gone && !was_gone => lost.push(((true, None), port.id())),
                None if is_lost => lost.push(((false, waits), port.id())),
                Some(when) if !is_lost => back.push((port, at.saturating_sub(when), *has_gone)),
                _ => {}
            }
            *since = is_lost.then(|| since.unwrap_or(at));
            *has_gone = is_lost && (*has_gone || is_gone);
        }
        // Those that are down are first.
        lost.sort_by_key(|(state, _)| *state);
        let mut findings = Vec::new();
        for ((are_gone, state), ids) in grouped(lost) {
            let ports: Vec<&WatchedPort> =
                self.ports.iter().filter(|port| ids.contains(&port.id())).collect();
            let failover = match ports.iter().all(|port| port.fails_over) {
                true => format!(" NCCL may continue over another port of the NIC ({SWITCH})."),
                false => String::new(),
            };
            let what = if are_gone { "gone" } else { "no longer active" };
            let its = if ports.len() == 1 { "Its state is" } else { "Their state is" };
            let named = state.map(|state| format!(" {its} {state}.")).unwrap_or_default();
            let message = format!("{} {} {what}.{named}{failover}", listed(&ports), is_or_are(ports.len()));
            let fix = fix_of_lost(are_gone, state.is_some());
            findings.push(Finding::warning(Id::LinkDown, message).about_ports(ids).with_fix(fix));
        }
        for (port, time, has_gone) in back {
            let (name, time) = (listed(&[port]), coarse(time));
            let message = match has_gone {
                true => format!("{name} is back, after {time}. Connections over it from before have failed."),
                false => format!("{name} is active again, after {time}."),
            };
            findings.push(Finding::info(Id::LinkDown, message).about_ports([port.id()]));
        }
        findings
    }

    /// Reports the errors that the ports have counted. If a lost port's link went down, this was already reported.
    fn counters(&mut self, at: Duration, looks: &[PortLook], sound: &[bool]) -> Vec<Finding> {
        let rises = |index: usize| {
            let (now, before) = (looks.get(index)?, self.last.get(index)?);
            let is_sound = sound.get(index)?;
            let mut rises = now.errors.since(&before.errors);
            rises.retain(|rise| *is_sound || rise.trouble != Trouble::LinkDown);
            Some(rises)
        };
        let of_port = |(index, (port, since)): (usize, (&WatchedPort, &Duration))| {
            let rises = PortRises {
                hca: port.hca.clone(),
                now: port.now.clone(),
                port: port.port,
                is_one_of_several: port.is_one_of_several,
                rises: rises(index).unwrap_or_default(),
                ..PortRises::default()
            };
            (*since, rises)
        };
        let ports = self.ports.iter().zip(&self.shown_at).enumerate().map(of_port).collect();
        let reported = self.windows.add(at, ports);
        reported.into_iter().flat_map(|(time, ports)| port_errors::findings(&ports, time)).collect()
    }

    /// Reports if nothing has moved since the start or for some time, or if some rails move less than
    /// others.
    fn movement(&mut self, at: Duration, looks: &[PortLook], sound: &[bool]) -> Vec<Finding> {
        let all = self.ports.iter().zip(looks);
        // Compared with the last reading: over a longer time, InfiniBand management traffic would add up to
        // data.
        let moved = all.clone().zip(&self.last).map(|((port, look), before)| port.moved(look, before));
        let moved: Vec<PortTraffic> = moved.collect();
        let interval = Interval { moved: &moved, sound, from: self.last_at, to: at };
        let total = || all.clone().map(|(port, look)| port.moved(look, &port.first)).collect();
        let mut findings = self.balance.judge(&interval, self.after, &total);
        findings.extend(self.rest(at, looks, moved));
        findings
    }

    fn rest(&mut self, at: Duration, looks: &[PortLook], moved: Vec<PortTraffic>) -> Option<Finding> {
        let rested = at.saturating_sub(self.moved_at);
        if moved.iter().any(has_moved) {
            let moving: Vec<&PortTraffic> = moved.iter().filter(|port| has_moved(port)).collect();
            let again = if self.has_ever_moved { " again" } else { "" };
            let goes_on = std::mem::take(&mut self.has_told_rest).then(|| {
                let ports = moving.iter().map(|port| port.id());
                let over = names(moving.iter().copied());
                let message = format!("Data moves over {over}{again}, after {}.", coarse(rested));
                Finding::info(Id::NoTraffic, message).about_ports(ports)
            });
            self.moved_at = at;
            self.has_ever_moved = true;
            return goes_on;
        }
        let is_known = is_movement_known(&self.ports, looks, self.has_ever_moved);
        if !is_known || self.has_told_rest || self.needs_no_rdma || rested < self.after {
            return None;
        }
        self.has_told_rest = true;
        let are_gone = looks.iter().all(|look| look.errors.is_gone());
        let gone = match (are_gone, looks.iter().all(shows_nothing), looks.len()) {
            (true, _, 1) => Some("this HCA is gone"),
            (true, ..) => Some("all of these HCAs are gone"),
            (false, true, 1) => Some("this HCA cannot be read"),
            (false, true, _) => Some("none of these HCAs can be read"),
            (false, false, _) => None,
        };
        let why_none = "the job has not begun to communicate, runs on sockets, or runs on this node alone";
        let message = match self.has_ever_moved {
            false => format!(
                "RDMA was planned, but no data has moved over {} in the first {}: {}.",
                names(&moved),
                coarse(rested),
                gone.unwrap_or(why_none)
            ),
            true => format!(
                "No data has moved over {} for {}, after earlier traffic: {}.",
                names(&moved),
                coarse(rested),
                gone.unwrap_or("the job may have stalled")
            ),
        };
        let about = self.ports.iter().map(WatchedPort::id);
        let finding = match gone {
            // That was a warning of its own.
            Some(_) => return Some(Finding::info(Id::NoTraffic, message).about_ports(about)),
            None => Finding::warning(Id::NoTraffic, message).about_ports(about),
        };
        Some(finding.with_fix(if self.has_ever_moved { FIX_OF_STALL } else { FIX_OF_NO_TRAFFIC }))
    }
}

const FIX_OF_STALL: &str = "Ask NCCL which rank is behind: rdma-init status --ras. Where its RAS is off, PyTorch's Flight Recorder or py-spy dump shows what each rank waits for.";

/// Returns whether it is known that the ports move nothing if their counters stand still. Those that count only the
/// requests of peers prove that only of a job that has moved data: messages that a port receives are no requests. A
/// device that is gone, or of which nothing can be read, moves nothing, if it counted before.
pub(super) fn is_movement_known(ports: &[WatchedPort], looks: &[PortLook], has_moved: bool) -> bool {
    let is_known = |look: &PortLook| match has_moved {
        true => look.traffic.is_known(),
        false => look.traffic.is_amount_known(),
    };
    let mut there = looks.iter().filter(|look| !shows_nothing(look)).peekable();
    match there.peek() {
        Some(_) => there.all(is_known),
        None => !ports.is_empty() && ports.iter().all(|port| is_known(&port.first)),
    }
}

fn shows_nothing(look: &PortLook) -> bool {
    look.errors.is_gone() || (look.errors.is_hidden() && !look.traffic.is_known())
}

fn listed(ports: &[&WatchedPort]) -> String {
    condensed(&ports.iter().map(|port| port.name()).collect::<Vec<_>>())
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests;
