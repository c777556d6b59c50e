//! What the watcher knows of a port of the job. [`Track::look`] alone compares two looks at it: lines, the account, the
//! metrics and what other nodes learn of the port all come from there. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::balance::Share;
use super::windows::{self, Window};
use crate::facts::congestion::Congestion;
use crate::facts::device_identity::DeviceIdentity;
use crate::facts::port_errors::{PortErrors, Rise, Tally, Trouble};
use crate::facts::port_look::{GidPlace, PortLook, UsedGid};
use crate::facts::port_sample::bytes_per_second;
use crate::facts::traffic::Traffic;
use crate::findings::port_name::RailId;
use crate::findings::traffic::PortTraffic;

/// A port of the job, as it was before the command started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WatchedPort {
    pub rail: RailId,
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
    /// Whether it is the HCA of a bond: it stays active while one of the bond's links is.
    #[serde(default)]
    pub is_bond: bool,
    /// The congestion that it had counted by then.
    #[serde(default)]
    pub congestion: Congestion,
}

impl WatchedPort {
    fn waits_for_manager(&self, look: &PortLook) -> Option<&'static str> {
        look.errors.waits_for_manager().filter(|_| self.is_infiniband)
    }
}

/// A state that cannot be read in one look proves nothing; in so many looks in a row, it is a fault.
pub(crate) const HIDDEN_LOOKS: u32 = 3;

/// For how long something that broke is the likely cause of a pause, or of a rail that is behind.
pub(super) const LATELY: Duration = Duration::from_secs(3600);

/// All times are since the start of the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Track {
    /// With the name that the device has now, or had when it was last there.
    pub rail: RailId,
    /// The last look, with the last known value of each counter.
    pub last: PortLook,
    pub has_begun: bool,
    /// When its counters were read last: a port that rests is read as a whole in every second look.
    pub read_at: Duration,
    /// Sums over the looks, because a counter may begin anew in between.
    pub moved: Traffic,
    pub errors: Tally,
    /// The port was active at the start, and is not now.
    pub loss: Option<Loss>,
    /// How often its link was found down, and how often its device was found gone.
    pub losses: u32,
    pub removals: u32,
    /// When its link was down last: between two looks if only a counter shows it.
    pub down_at: Option<(Duration, Duration)>,
    /// When something broke last: a link, a device, or queue pairs.
    pub broke_at: Option<Duration>,
    /// How many looks in a row could not read its state, up to [`HIDDEN_LOOKS`], and when the first of them was.
    pub hidden: (u32, Duration),
    pub was_hidden: bool,
    pub was_renamed: bool,
    /// Whether the last look has skipped where its GID is, which may come back after the link.
    #[serde(skip)]
    pub has_unread_gid: bool,
    /// The link is slower than at the start, and its last such rate, as the kernel writes it.
    pub slow: Spell,
    pub slow_rate: String,
    /// The GID of the job is not at its index, and where it was last then.
    pub astray: Spell,
    pub place: Option<GidPlace>,
    /// The rail moves far less than the others, and counts errors meanwhile.
    pub behind: Spell,
    /// The IDs of the findings about it that were printed with their fix.
    pub said: BTreeSet<String>,
    /// What the port has moved since a time of the whole job at which data moved.
    #[serde(skip)]
    pub lately: Traffic,
    /// What it had counted shortly before data moved last.
    #[serde(skip)]
    pub before_rest: PortErrors,
    /// What it carries beside the others.
    #[serde(skip)]
    pub share: Share,
    #[serde(skip)]
    pub windows: BTreeMap<&'static str, Window>,
}

/// A port that was active at the start, and is inactive or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub since: Duration,
    pub is_gone: bool,
    /// Whether it was ever gone since then.
    pub was_gone: bool,
}

/// For how long something is so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spell {
    since: Option<Duration>,
    /// For how long it was so before.
    before: Duration,
}

impl Spell {
    /// `since`: since when it is so, if that is new; `None` if it is not. Returns for how long it was so, if it has ended
    /// now.
    pub(crate) fn set(&mut self, at: Duration, since: Option<Duration>) -> Option<Duration> {
        let ended = self.since.filter(|_| since.is_none());
        self.since = since.map(|since| self.since.unwrap_or(since));
        let time = at.saturating_sub(ended?);
        self.before = self.before.saturating_add(time);
        Some(time)
    }

    pub(crate) fn is_so(self) -> bool {
        self.since.is_some()
    }

    /// Whether it is so, or ever was.
    pub(crate) fn ever(self) -> bool {
        self.is_so() || !self.before.is_zero()
    }

    /// For how long it was so until this time, all in all.
    pub(crate) fn until(self, end: Duration) -> Duration {
        self.before.saturating_add(self.since.map_or(Duration::ZERO, |since| end.saturating_sub(since)))
    }
}

/// What is new about a port, without what it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Its device came back under another name. `away`: for how long it was seen to be gone.
    Renamed {
        away: Option<Duration>,
        by_guid: bool,
        is_lost: bool,
    },
    Unreadable(Errno),
    Readable {
        after: Duration,
    },
    /// Its device was gone between the two looks.
    Replaced,
    /// `waits`: the kernel's name of a state in which the link is up, and the subnet manager has not activated the port.
    Down {
        waits: Option<&'static str>,
    },
    Gone,
    Back {
        after: Duration,
        was_gone: bool,
    },
    Slower {
        first: String,
        now: String,
    },
    RateBack {
        now: String,
        after: Duration,
    },
    GidMoved(GidPlace),
    GidBack {
        after: Duration,
    },
    /// Counters that have reached their maximum.
    Full(Vec<&'static str>),
}

/// What a look shows that the one before did not.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub events: Vec<Event>,
    pub moved: Traffic,
    /// What the look itself shows.
    pub shown: Traffic,
    pub is_gone: bool,
    pub is_hidden: bool,
    /// Whether the port was present and active the whole time.
    pub is_sound: bool,
    /// What the port has counted since this time.
    pub rises: Vec<Rise>,
    pub since: Duration,
    /// Whether it has to be remembered.
    pub is_new: bool,
}

impl Change {
    pub(super) fn shows_nothing(&self) -> bool {
        self.is_gone || (self.is_hidden && !self.shown.is_known())
    }
}

impl Track {
    pub(super) fn new(port: &WatchedPort) -> Track {
        Track {
            rail: port.rail.clone(),
            last: port.first.clone(),
            // Zero for what the port counts, and `None` for the rest.
            moved: port.first.traffic.since(port.first.traffic),
            before_rest: port.first.errors.clone(),
            ..Track::default()
        }
    }

    /// Takes a look at this time.
    pub(super) fn look(&mut self, at: Duration, port: &WatchedPort, look: PortLook) -> Change {
        let (is_first, since) = (!std::mem::replace(&mut self.has_begun, true), self.read_at);
        let (shown, is_gone, is_hidden) = (look.traffic, look.errors.is_gone(), look.errors.is_hidden());
        if !look.is_partial && !is_gone {
            self.read_at = at;
        }
        let rests = look.is_partial || look == self.last;
        // A port that rests has nothing new to add.
        let is_settled = self.loss.is_none() && self.hidden.0 == 0 && !self.has_unread_gid;
        if rests && !is_first && is_settled && !is_hidden {
            let moved = self.moved.since(self.moved);
            return Change { moved, shown, is_gone, is_sound: !is_gone, since, ..Change::default() };
        }
        let mut events = Vec::new();
        let is_renamed = look.is_renamed_since(self.rail.now.as_deref());
        let is_replaced = look.is_replaced_since(&self.last);
        let loss_before = self.loss;
        if is_renamed {
            let gone = self.loss.filter(|loss| loss.is_gone);
            events.push(Event::Renamed {
                away: gone.map(|loss| at.saturating_sub(loss.since)),
                by_guid: look.is_found_by_guid,
                is_lost: look.errors.is_lost_since(&port.first.errors),
            });
            self.rail.now.clone_from(&look.renamed);
            self.was_renamed = true;
        }
        self.hide(at, port, &look, &mut events);
        if is_replaced {
            events.push(Event::Replaced);
            self.removals = self.removals.saturating_add(1);
            self.broke_at = Some(at);
        }
        self.lose(at, port, &look, is_renamed, &mut events);
        let is_sound = loss_before.is_none() && self.loss.is_none() && !is_renamed && !is_replaced;
        self.slow_down(at, port, &look, &mut events);
        self.has_unread_gid = !is_sound;
        if is_sound {
            self.stray(at, port, &look, &mut events);
        }
        let full_before: Vec<_> = self.last.errors.full().filter(|_| !is_first).collect();
        let full: Vec<_> = look.errors.full().filter(|counter| !full_before.contains(counter)).collect();
        if !full.is_empty() {
            events.push(Event::Full(full));
        }
        let mut rises = look.errors.since(&self.last.errors);
        // That its device went away is more than that its link went down.
        if is_renamed || is_replaced {
            rises.retain(|rise| rise.trouble != Trouble::LinkDown);
        }
        self.errors.add(&rises);
        let is_down = |rise: &Rise| rise.trouble == Trouble::LinkDown;
        let is_ended = |rise: &Rise| {
            matches!(rise.trouble, Trouble::NoAnswer | Trouble::NotReady | Trouble::FailedRequest)
        };
        if rises.iter().any(|rise| is_down(rise) || is_ended(rise)) {
            self.broke_at = Some(at);
        }
        if self.loss.is_some_and(|loss| !loss.is_gone) && !look.errors.is_hidden() {
            self.down_at = Some((at, at));
        } else if rises.iter().any(is_down) {
            self.down_at = Some((since, at));
        }
        // Its state says that already.
        rises.retain(|rise| is_sound || !is_down(rise));
        let moved = look.traffic.since(self.last.traffic);
        self.moved = self.moved.plus(moved);
        self.last = look.with_known(&self.last);
        Change { events, moved, shown, is_gone, is_hidden, is_sound, rises, since, is_new: true }
    }

    fn hide(&mut self, at: Duration, port: &WatchedPort, look: &PortLook, events: &mut Vec<Event>) {
        let (count, since) = self.hidden;
        let is_active = port.first.errors.is_active();
        self.hidden = match look.errors.hidden_by().filter(|_| is_active) {
            Some(errno) => {
                if count + 1 == HIDDEN_LOOKS {
                    events.push(Event::Unreadable(errno));
                    self.was_hidden = true;
                    self.broke_at = Some(at);
                }
                ((count + 1).min(HIDDEN_LOOKS), if count == 0 { at } else { since })
            }
            None => {
                if self.is_hidden() && !look.errors.is_gone() {
                    events.push(Event::Readable { after: at.saturating_sub(since) });
                }
                (0, at)
            }
        };
    }

    /// Whether its state cannot be read now.
    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden.0 >= HIDDEN_LOOKS
    }

    fn lose(
        &mut self,
        at: Duration,
        port: &WatchedPort,
        look: &PortLook,
        is_renamed: bool,
        events: &mut Vec<Event>,
    ) {
        // A state that cannot be read, or is not there beside counters that are, counts as the one before.
        if look.errors.is_hidden() || look.errors.state().is_none() && !look.errors.is_gone() {
            return;
        }
        let is_lost = look.errors.is_lost_since(&port.first.errors);
        let is_gone = is_lost && look.errors.is_gone();
        let waits = port.waits_for_manager(look);
        let before = self.loss;
        let is_gone_now = is_gone && !before.is_some_and(|loss| loss.is_gone);
        let is_down_now = is_lost && !is_gone && before.is_none();
        // It is lost in another way than before.
        let waited = port.waits_for_manager(&self.last).is_some();
        let is_other =
            is_lost && !is_gone && before.is_some_and(|loss| loss.is_gone || waited && waits.is_none());
        if is_gone_now {
            self.removals = self.removals.saturating_add(1);
        } else if waits.is_none() && (is_down_now || is_lost && !is_gone && waited) {
            // A link that only waits for the subnet manager is up.
            self.losses = self.losses.saturating_add(1);
        }
        if is_lost {
            self.broke_at = Some(at);
        }
        // A device that has another name had its line with that.
        let event = match before {
            _ if is_renamed => None,
            _ if is_gone_now => Some(Event::Gone),
            _ if is_down_now || is_other => Some(Event::Down { waits }),
            Some(loss) if !is_lost => {
                Some(Event::Back { after: at.saturating_sub(loss.since), was_gone: loss.was_gone })
            }
            _ => None,
        };
        events.extend(event);
        self.loss = is_lost.then(|| Loss {
            since: before.map_or(at, |loss| loss.since),
            is_gone,
            was_gone: is_gone || before.is_some_and(|loss| loss.was_gone),
        });
    }

    fn slow_down(&mut self, at: Duration, port: &WatchedPort, look: &PortLook, events: &mut Vec<Event>) {
        let (Some((first, first_value)), Some((now, value))) = (rate(&port.first), rate(look)) else {
            return;
        };
        let is_slow = value < first_value;
        let is_known = self.slow.is_so() && self.slow_rate == now;
        if let Some(after) = self.slow.set(at, is_slow.then_some(at)) {
            events.push(Event::RateBack { now: now.to_owned(), after });
        }
        if is_slow {
            now.clone_into(&mut self.slow_rate);
            if !is_known {
                events.push(Event::Slower { first: first.to_owned(), now: now.to_owned() });
            }
        }
    }

    fn stray(&mut self, at: Duration, port: &WatchedPort, look: &PortLook, events: &mut Vec<Event>) {
        let (Some(_), Some(place)) = (&port.gid, look.gid) else { return };
        if let Some(after) = self.astray.set(at, (place != GidPlace::InPlace).then_some(at)) {
            events.push(Event::GidBack { after });
            self.place = None;
        }
        let are_gone =
            |one, other| matches!((one, other), (GidPlace::Gone { .. }, Some(GidPlace::Gone { .. })));
        if self.astray.is_so() && self.place != Some(place) && !are_gone(place, self.place) {
            events.push(Event::GidMoved(place));
            self.place = Some(place);
        }
    }

    /// Whether it has something that may slow it.
    pub(super) fn is_suspect(&self, at: Duration) -> bool {
        self.slow.is_so()
            || self.broke_at.is_some_and(|broke| at.saturating_sub(broke) < LATELY)
            || windows::is_counting(self)
    }

    /// Takes that the watcher looked last at this time, and found nothing new then.
    pub(super) fn rest(&mut self, at: Duration, interval: Duration) {
        self.read_at = self.read_at.max(at.saturating_sub(interval));
    }

    /// Returns what is wrong with it now, as in `mlx5_1 ...`; `None` if it is well.
    pub(super) fn state(&self) -> Option<&'static str> {
        match self.loss {
            Some(Loss { is_gone: true, .. }) => Some("is gone"),
            Some(_) => Some("is not active"),
            None if self.is_hidden() => Some("cannot be read"),
            None => None,
        }
    }

    pub(super) fn traffic(&self, port: &WatchedPort, traffic: Traffic) -> PortTraffic {
        PortTraffic { rail: self.rail.clone(), is_infiniband: port.is_infiniband, traffic }
    }

    /// The kernel's name of the state in which the subnet manager has not activated the port.
    pub(super) fn waits_for_manager(&self, port: &WatchedPort) -> Option<&'static str> {
        port.waits_for_manager(&self.last)
    }
}

/// Returns the rate as the kernel writes it, and in bytes per second. That of a link that is down means nothing.
fn rate(look: &PortLook) -> Option<(&str, u64)> {
    let text = look.rate.as_deref().filter(|_| look.errors.is_active())?;
    Some((text, bytes_per_second(text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_in_which_it_was_so_are_added() {
        let seconds = Duration::from_secs;
        let mut spell = Spell::default();
        assert!(!spell.ever());
        let mut set = |at, since: Option<u64>| (spell.set(seconds(at), since.map(seconds)), spell);
        set(10, Some(8));
        let (ended, is_so) = set(20, Some(20));
        assert_eq!((ended, is_so.is_so(), is_so.until(seconds(25))), (None, true, seconds(17)));
        assert_eq!(set(30, None).0, Some(seconds(22)));
        let (ended, was_so) = set(40, None);
        assert_eq!((ended, was_so.is_so(), was_so.ever()), (None, false, true));
        assert_eq!(was_so.until(seconds(99)), seconds(22));
        assert_eq!(set(50, Some(50)).1.until(seconds(53)), seconds(25));
    }
}
