//! Checks whether the rails carry similar amounts of traffic. A job may use fewer rails by design, so this
//! reports a rail only if it carried as much as the others before, or if it has never carried anything.
//! Pure.

use std::time::Duration;

use super::track::{Change, Track, WatchedPort};
use crate::facts::traffic::{CounterValue, Traffic};
use crate::finding::{Finding, Id, Severity};
use crate::findings::traffic::{BUSY_FOR_ONE_IDLE, MUCH, has_moved, idle, management};
use crate::text::{amount, coarse, counted};

/// So many looks, and so much time in them, make a rail one that carries as much as the others, or one that carries
/// far less. At a short interval, the looks alone would be a moment of one collective.
const LOOKS: u32 = 6;
const LEAST: Duration = Duration::from_secs(30);

/// The same for a rail that falls behind if there are two or three rails in all, which are too few to be sure.
const LOOKS_OF_FEW: u32 = 30;
const LEAST_OF_FEW: Duration = Duration::from_secs(300);

/// Far less means less than one part in this many of what the median rail carries.
const PART: u64 = 10;

const FIX: &str = "Compare its rate and its counters with those of the others (rdma-init stat --format prometheus). If the job uses fewer rails now, this is not a fault.";

#[derive(Default)]
pub(super) struct Balance {
    /// When data first moved.
    began: Option<Duration>,
    has_reported_idle: bool,
}

/// What a rail carries beside the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Share {
    has_moved: bool,
    /// Where it has carried as much as the others.
    level: Streak,
    /// Since when it carries far less, in which looks, and how much in them; and how much the others.
    since: Duration,
    less: Streak,
    own: u64,
    others: u64,
    /// As what that was reported.
    pub reported: Option<Severity>,
}

/// Looks that are alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Streak {
    looks: u32,
    time: Duration,
}

impl Streak {
    fn add(&mut self, time: Duration) {
        self.looks = self.looks.saturating_add(1);
        self.time = self.time.saturating_add(time);
    }

    fn is_long(self) -> bool {
        self.looks >= LOOKS && self.time >= LEAST
    }

    fn is_long_for_few(self) -> bool {
        self.looks >= LOOKS_OF_FEW && self.time >= LEAST_OF_FEW
    }
}

impl Balance {
    /// Takes what the ports have moved between these two times, and returns what to report of it. `after`: how long a rail
    /// may be idle.
    pub(super) fn judge(
        &mut self,
        times: [Duration; 2],
        after: Duration,
        ports: &[WatchedPort],
        tracks: &mut [Track],
        changes: &[Change],
    ) -> Vec<Finding> {
        let [from, to] = times;
        for ((track, port), change) in tracks.iter_mut().zip(ports).zip(changes) {
            track.share.has_moved |= has_moved(&track.traffic(port, change.moved), to.saturating_sub(from));
        }
        if self.began.is_none() && tracks.iter().any(|track| track.share.has_moved) {
            self.began = Some(from);
        }
        let mut findings = compare(times, tracks, changes);
        for Track { share, behind, .. } in &mut *tracks {
            behind.set(to, (share.reported == Some(Severity::Warning)).then_some(share.since));
        }
        findings.extend(self.never_used(to, after, ports, tracks, changes));
        findings
    }

    /// Returns a note, once, about the rails that have moved nothing since the job began to communicate.
    fn never_used(
        &mut self,
        to: Duration,
        after: Duration,
        ports: &[WatchedPort],
        tracks: &[Track],
        changes: &[Change],
    ) -> Option<Finding> {
        let time = to.checked_sub(self.began?).filter(|time| *time >= after)?;
        let mut unused = tracks.iter().zip(changes).filter(|(track, _)| !track.share.has_moved).peekable();
        unused.peek()?;
        // If a port is lost, this was already reported. One whose counters are not visible may have carried anything.
        if self.has_reported_idle
            || unused.any(|(_, change)| !change.is_sound)
            || tracks.iter().any(|track| !track.moved.is_amount_known())
        {
            return None;
        }
        // Management packets of InfiniBand add up to more than nothing.
        let moved = |track: &Track| if track.share.has_moved { track.moved } else { Traffic::default() };
        let total = tracks.iter().zip(ports).map(|(track, port)| track.traffic(port, moved(track)));
        let finding = idle(&total.collect::<Vec<_>>(), time)?;
        self.has_reported_idle = true;
        Some(Finding { severity: Severity::Info, ..finding })
    }
}

/// Returns what is new about rails that carry far less than the others.
fn compare([from, to]: [Duration; 2], tracks: &mut [Track], changes: &[Change]) -> Vec<Finding> {
    let time = to.saturating_sub(from);
    let sound = || changes.iter().filter(|change| change.is_sound);
    let in_bytes = sound().all(|change| change.moved.both().bytes.is_some());
    let unit = |value: CounterValue| if in_bytes { value.bytes } else { value.packets };
    let values: Option<Vec<u64>> = sound().map(|change| unit(change.moved.both())).collect();
    let Some(mut values) = values else { return Vec::new() };
    values.sort_unstable();
    let most = values.get(values.len() / 2).copied().unwrap_or_default();
    // The job is computing or doing something else, which proves nothing about a rail.
    if most <= unit(management(time)).unwrap_or_default() {
        return Vec::new();
    }
    let is_less = |value: u64| value.saturating_mul(PART) < most;
    let lesser = values.iter().filter(|value| is_less(**value)).count();
    let busy = values.len() - lesser;
    let is_clear = busy >= BUSY_FOR_ONE_IDLE * lesser;
    let is_of_few = !is_clear && lesser == 1;
    let shown = |value: u64| match in_bytes {
        true => amount(value),
        false => counted(value.try_into().unwrap_or(usize::MAX), "packet"),
    };
    let mut findings = Vec::new();
    for (track, change) in tracks.iter_mut().zip(changes).filter(|(_, change)| change.is_sound) {
        let Some(value) = unit(change.moved.both()) else { continue };
        let (is_suspect, about) = (track.is_suspect(to), [track.rail.id()]);
        let Track { rail, share, .. } = track;
        if !is_less(value) {
            share.level.add(time);
            share.less = Streak::default();
            if share.reported.take().is_some() {
                let time = coarse(to.saturating_sub(share.since));
                let message = format!("{rail} moves about as much as the other rails again, after {time}.");
                findings.push(Finding::info(Id::IdleRail, message).about_ports(about));
            }
            continue;
        }
        if !(is_clear || is_of_few) || !share.level.is_long() || share.reported.is_some() {
            // A streak begins anew.
            share.less = Streak::default();
            continue;
        }
        if share.less.looks == 0 {
            (share.since, share.own, share.others) = (from, 0, 0);
        }
        share.less.add(time);
        share.own = share.own.saturating_add(value);
        share.others = share.others.saturating_add(most);
        let is_long = if is_of_few { share.less.is_long_for_few() } else { share.less.is_long() };
        if is_long && share.others >= unit(MUCH).unwrap_or_default() {
            // A phase of the job may need fewer rails. One that counts errors would be used if it could be.
            let severity = if is_suspect { Severity::Warning } else { Severity::Info };
            share.reported = Some(severity);
            let (own, others) = (shown(share.own), shown(share.others));
            let time = coarse(to.saturating_sub(share.since));
            let message = match busy {
                1 => format!(
                    "{rail} has moved {own} in {time}, and the other rail {others}, after it had moved about as much."
                ),
                _ => format!(
                    "{rail} has moved {own} in {time}, and most other rails {others} each, after it had moved about as much as they did."
                ),
            };
            let finding = Finding::warning(Id::IdleRail, message).about_ports(about).with_fix(FIX);
            findings.push(Finding { severity, ..finding });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::port_name::RailId;

    const GIB: u64 = 1 << 30;

    /// Four rails, of which the third shows something that may slow it.
    struct Rails {
        balance: Balance,
        ports: [WatchedPort; 4],
        tracks: [Track; 4],
    }

    impl Rails {
        fn new() -> Rails {
            let track = |hca: &str| Track { rail: RailId::new(hca, 1), ..Track::default() };
            let mut tracks = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"].map(track);
            tracks[2].slow.set(Duration::ZERO, Some(Duration::ZERO));
            Rails {
                balance: Balance::default(),
                ports: std::array::from_fn(|_| WatchedPort::default()),
                tracks,
            }
        }

        /// `None` for a rail whose counters do not show.
        fn judge(&mut self, times: [Duration; 2], bytes: [Option<u64>; 4], sound: [bool; 4]) -> Vec<Finding> {
            let change = |(bytes, is_sound)| {
                let sent = CounterValue { bytes, packets: None };
                Change { moved: Traffic { sent, ..Traffic::default() }, is_sound, ..Change::default() }
            };
            let changes: Vec<Change> = bytes.into_iter().zip(sound).map(change).collect();
            for (track, change) in self.tracks.iter_mut().zip(&changes) {
                track.moved = track.moved.plus(change.moved);
            }
            let after = Duration::from_secs(100);
            self.balance.judge(times, after, &self.ports, &mut self.tracks, &changes)
        }
    }

    /// Returns what is reported after each of these readings, which are 10 seconds apart.
    fn said(looks: &[([u64; 4], [bool; 4])]) -> Vec<(u64, Severity, String)> {
        said_at(Duration::from_secs(10), looks)
    }

    fn said_at(interval: Duration, looks: &[([u64; 4], [bool; 4])]) -> Vec<(u64, Severity, String)> {
        let mut rails = Rails::new();
        let mut all = Vec::new();
        for (number, (bytes, sound)) in (1..).zip(looks) {
            let times = [number - 1, number].map(|number: u32| interval * number);
            let found = rails.judge(times, bytes.map(Some), *sound).into_iter();
            all.extend(found.map(|one| (number.into(), one.severity, one.message)));
        }
        all
    }

    fn times(count: usize, bytes: [u64; 4]) -> Vec<([u64; 4], [bool; 4])> {
        vec![(bytes, [true; 4]); count]
    }

    const LEVEL: [u64; 4] = [GIB, GIB, GIB * 3 / 4, GIB];
    const LESS: [u64; 4] = [GIB, GIB, GIB / 64, GIB];
    const REST: [u64; 4] = [0; 4];

    #[test]
    fn a_rail_that_falls_behind_is_told_once_and_when_it_is_back() {
        let job =
            [times(8, LEVEL), times(3, LESS), times(50, REST), times(20, LESS), times(5, LEVEL)].concat();
        let told = "mlx5_2 has moved 96 MiB in 9m 20s, and most other rails 6 GiB each, after it had moved about as much as they did.";
        let back = "mlx5_2 moves about as much as the other rails again, after 12m 20s.";
        assert_eq!(
            said(&job),
            [(64, Severity::Warning, told.to_owned()), (82, Severity::Info, back.to_owned())]
        );
    }

    #[test]
    fn a_job_that_uses_fewer_rails_is_not_accused() {
        // One rail carries little from the start.
        assert_eq!(said(&times(60, LESS)), []);
        // The rails differ only at times, two of four differ, or there is little data.
        assert_eq!(
            said(&[times(9, LEVEL), [times(5, LESS), times(1, LEVEL)].concat().repeat(9)].concat()),
            []
        );
        assert_eq!(said(&[times(9, LEVEL), times(60, [GIB, GIB, 1, 1])].concat()), []);
        // A rail carries little for five looks at a time, with one between them in which two do.
        let pause = [times(5, LESS), times(1, [GIB, GIB, 1, 1])].concat();
        assert_eq!(said(&[times(9, LEVEL), pause.repeat(9)].concat()), []);
        let little = LESS.map(|bytes| bytes / 1024);
        assert_eq!(said(&[times(9, LEVEL), times(60, little)].concat()), []);
        // The port is down, which was already reported.
        let mut down = [times(9, LEVEL), times(60, [GIB, GIB, 0, GIB])].concat();
        down.iter_mut().skip(9).for_each(|(_, sound)| sound[2] = false);
        assert_eq!(said(&down), []);
    }

    /// Two rails are too few to tell a faulty one from a job that uses fewer, so it takes longer, and is a note.
    #[test]
    fn one_of_two_rails_that_falls_behind_is_a_note_after_five_minutes() {
        let rails = |bytes: [u64; 2], count| {
            let look = ([bytes[0], bytes[1], 0, 0], [true, true, false, false]);
            vec![look; count]
        };
        let (level, less) = ([GIB, GIB], [GIB, GIB / 64]);
        let told = said(&[rails(level, 6), rails(less, 31), rails(level, 1)].concat());
        let message =
            "mlx5_1 has moved 480 MiB in 5m, and the other rail 30 GiB, after it had moved about as much.";
        let back = "mlx5_1 moves about as much as the other rails again, after 5m 20s.";
        assert_eq!(told, [(36, Severity::Info, message.to_owned()), (38, Severity::Info, back.to_owned())]);
        // Less than five minutes, or never level.
        assert_eq!(said(&[rails(level, 6), rails(less, 29), rails(level, 1), rails(less, 29)].concat()), []);
        assert_eq!(said(&rails(less, 90)), []);
    }

    #[test]
    fn a_short_interval_accuses_no_rail_within_a_moment() {
        let interval = Duration::from_millis(100);
        // 29 s of either are not enough.
        assert_eq!(said_at(interval, &[times(400, LEVEL), times(290, LESS), times(9, LEVEL)].concat()), []);
        assert_eq!(said_at(interval, &[times(290, LEVEL), times(600, LESS)].concat()), []);
        let said = said_at(interval, &[times(400, LEVEL), times(400, LESS)].concat());
        let [(700, Severity::Warning, message)] = &said[..] else { panic!("{said:?}") };
        assert!(message.starts_with("mlx5_2 has moved ") && message.contains(" in 30s, "), "{message}");
        // At a long one, six looks are what counts.
        let told = said_at(Duration::from_secs(60), &[times(6, LEVEL), times(6, LESS)].concat());
        assert_eq!(told.first().map(|(number, ..)| *number), Some(12));
    }

    #[test]
    fn a_rail_that_never_moves_is_a_note() {
        let message = "No data has moved over mlx5_3 in 1m 40s, while much has moved over each of the 3 other rails: the job did not use this rail, or not all of its GPUs took part.";
        let job = [times(4, REST), times(30, [GIB, GIB, GIB, 0])].concat();
        assert_eq!(said(&job), [(14, Severity::Info, message.to_owned())]);
    }

    #[test]
    fn a_rail_whose_counters_do_not_show_is_not_accused() {
        let mut rails = Rails::new();
        for number in 1..30 {
            let times = [number - 1, number].map(|number: u64| Duration::from_secs(number * 10));
            let bytes = [Some(GIB), Some(GIB), Some(GIB), None];
            assert!(rails.judge(times, bytes, [true; 4]).is_empty());
        }
    }
}
