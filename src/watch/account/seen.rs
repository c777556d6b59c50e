//! What the watcher has seen of the ports so far. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::port_errors::{Tally, Trouble};
use crate::facts::port_look::PortLook;
use crate::facts::traffic::Traffic;
use crate::finding::Finding;
use crate::findings::port_errors;
use crate::findings::port_name::port_id;
use crate::findings::traffic;
use crate::watch::told::PortTold;
use crate::watch::{WatchedPort, hidden};

/// What the looks at the ports have shown so far. The watcher saves it after each look that shows something new, so
/// that the account at the end covers what happened in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(super) ports: Vec<SeenPort>,
    /// Whether something was taken; before, there is nothing to keep.
    has_begun: bool,
    /// When it looked last.
    pub(super) looked_at: Duration,
    /// When data moved last, as far as the looks show.
    #[serde(default)]
    pub(super) moved_at: Option<Duration>,
    /// What to say about lines that were omitted, without the full stop.
    pub(super) omitted: Vec<String>,
}

/// Sums over the looks, because a counter may begin anew in between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenPort {
    /// The last look, with the last known value of each counter.
    pub last: PortLook,
    /// When its counters were read last.
    #[serde(default)]
    read_at: Duration,
    pub moved: Traffic,
    pub errors: Tally,
    /// Whether the port was active at the start, and is not now.
    pub is_lost: bool,
    pub is_gone: bool,
    /// How often its link was found down, and how often its device was found gone.
    pub losses: u32,
    pub removals: u32,
    pub down_at: Option<SeenDown>,
    /// How many of the last looks could not read its state, up to [`hidden::LOOKS`], and whether it ever were so many.
    #[serde(default)]
    pub hidden: u32,
    #[serde(default)]
    pub was_hidden: bool,
    /// The name under which its device was last there, if that is not its original one, and whether it ever had another
    /// one.
    #[serde(default)]
    pub renamed: Option<String>,
    #[serde(default)]
    pub was_renamed: bool,
    /// The IDs of the findings about it that the watcher has printed with their fix.
    pub said: BTreeSet<String>,
    /// What else the watcher has warned of.
    #[serde(default)]
    pub told: PortTold,
}

/// When a link was down last, since the start: between two looks if only a counter shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SeenDown {
    pub from: Duration,
    pub to: Duration,
}

impl SeenPort {
    pub(super) fn add(&mut self, port: &WatchedPort, now: &PortLook) {
        self.moved = self.moved.plus(now.traffic.since(self.last.traffic));
        let mut rises = now.errors.since(&self.last.errors);
        if now.is_renamed_since(self.renamed.as_deref()) {
            self.renamed.clone_from(&now.renamed);
            self.was_renamed = true;
            // That its device went away is more than that its link went down.
            rises.retain(|rise| rise.trouble != Trouble::LinkDown);
        }
        if now.is_replaced_since(&self.last) {
            self.removals = self.removals.saturating_add(1);
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
            read_at: Duration::ZERO,
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
            told: PortTold::default(),
        };
        Seen {
            ports: ports.iter().map(port).collect(),
            has_begun: false,
            looked_at: Duration::ZERO,
            moved_at: None,
            omitted: Vec::new(),
        }
    }

    /// Takes what the watcher sees of the ports, in their order, at this time since the start. Returns whether that is
    /// new.
    pub(crate) fn watch(&mut self, at: Duration, ports: &[WatchedPort], looks: &[PortLook]) -> bool {
        let mut is_new = !std::mem::replace(&mut self.has_begun, true);
        let mut moves = false;
        for ((seen, port), now) in self.ports.iter_mut().zip(ports).zip(looks) {
            let is_hidden = now.errors.is_hidden();
            let read_before = seen.read_at;
            if !now.is_partial {
                seen.read_at = at;
            }
            let rests = now.is_partial || *now == seen.last;
            // A port that rests has nothing new to add.
            if rests && !is_hidden && !seen.is_lost && !now.errors.is_lost_since(&port.first.errors) {
                continue;
            }
            moves |= traffic::has_moved(&port.moved(now, &seen.last));
            let is_lost = if is_hidden { seen.is_lost } else { now.errors.is_lost_since(&port.first.errors) };
            match is_lost && now.errors.is_gone() {
                true if !seen.is_gone => seen.removals = seen.removals.saturating_add(1),
                false if is_lost && !seen.is_lost => seen.losses = seen.losses.saturating_add(1),
                _ => {}
            }
            let mut rises = now.errors.since(&seen.last.errors);
            let is_other = now.is_renamed_since(seen.renamed.as_deref()) || now.is_replaced_since(&seen.last);
            rises.retain(|rise| rise.trouble == Trouble::LinkDown && !is_other);
            if is_lost && !is_hidden && !now.errors.is_gone() {
                seen.down_at = Some(SeenDown { from: at, to: at });
            } else if !rises.is_empty() {
                seen.down_at = Some(SeenDown { from: read_before, to: at });
            }
            is_new |= is_lost || !rests;
            let hidden = seen.hidden;
            seen.add(port, now);
            is_new |= hidden != seen.hidden;
        }
        if moves {
            self.moved_at = Some(at);
        }
        self.looked_at = at;
        is_new
    }

    /// Takes that the watcher looked last at this time, and found nothing new then. A port that rests is read as a
    /// whole in every second look.
    pub(super) fn looked(&mut self, at: Duration, interval: Duration) {
        self.looked_at = at;
        for seen in &mut self.ports {
            seen.read_at = seen.read_at.max(at.saturating_sub(interval));
        }
    }

    /// Takes what was said about the ports, what to say in the end about lines that were omitted, and what each port
    /// was warned of besides. Returns whether that is new.
    pub(crate) fn remember(
        &mut self,
        ports: &[WatchedPort],
        said: &[Finding],
        omitted: &[Finding],
        told: &[PortTold],
    ) -> bool {
        let mut is_new = false;
        for (seen, told) in self.ports.iter_mut().zip(told).filter(|(seen, told)| seen.told != **told) {
            seen.told.clone_from(told);
            is_new = true;
        }
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
