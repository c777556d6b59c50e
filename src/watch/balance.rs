//! Checks whether the rails carry similar amounts of traffic. A job may use fewer rails by design, so this
//! reports a rail only if it carried as much as the others before, or if it has never carried anything.
//! Pure.

use std::time::Duration;

use crate::facts::traffic::{CounterValue, Traffic};
use crate::finding::{Finding, Id, Severity};
use crate::findings::traffic::{BUSY_FOR_ONE_IDLE, MUCH, PortTraffic, has_moved, idle, management};
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

pub(super) struct Balance {
    rails: Vec<Rail>,
    /// When data first moved.
    began: Option<Duration>,
    has_told_idle: bool,
}

#[derive(Clone, Default)]
struct Rail {
    has_moved: bool,
    /// Where it has carried as much as the others.
    level: Streak,
    /// Since when it carries far less, in which looks, and how much in them; and how much the others.
    since: Duration,
    less: Streak,
    own: u64,
    others: u64,
    /// As what that was reported.
    told: Option<Severity>,
}

/// Looks that are alike.
#[derive(Clone, Copy, Default)]
struct Streak {
    looks: u32,
    time: Duration,
}

impl Streak {
    fn add(&mut self, interval: &Interval) {
        self.looks = self.looks.saturating_add(1);
        self.time = self.time.saturating_add(interval.to.saturating_sub(interval.from));
    }

    fn is_long(self) -> bool {
        self.looks >= LOOKS && self.time >= LEAST
    }

    fn is_long_for_few(self) -> bool {
        self.looks >= LOOKS_OF_FEW && self.time >= LEAST_OF_FEW
    }
}

/// What the ports have moved between two looks.
pub(super) struct Interval<'a> {
    pub moved: &'a [PortTraffic],
    /// Whether each port was present and active the whole time.
    pub sound: &'a [bool],
    /// Whether each port has counted errors lately.
    pub suspect: &'a [bool],
    pub from: Duration,
    pub to: Duration,
}

impl Balance {
    pub(super) fn new(rails: usize) -> Balance {
        Balance { rails: vec![Rail::default(); rails], began: None, has_told_idle: false }
    }

    /// Returns what to report after an interval. `total` returns what the ports have moved since the start.
    pub(super) fn judge(
        &mut self,
        interval: &Interval,
        after: Duration,
        total: &dyn Fn() -> Vec<PortTraffic>,
    ) -> Vec<Finding> {
        for (rail, moved) in self.rails.iter_mut().zip(interval.moved) {
            rail.has_moved |= has_moved(moved, interval.to.saturating_sub(interval.from));
        }
        if self.began.is_none() && self.rails.iter().any(|rail| rail.has_moved) {
            self.began = Some(interval.from);
        }
        let mut findings = self.lopsided(interval);
        findings.extend(self.never_used(interval, after, total));
        findings
    }

    /// Returns since when a rail, by its index, has carried far less than the others, if that was a warning.
    pub(super) fn behind(&self, index: usize) -> Option<Duration> {
        self.rails.get(index).filter(|rail| rail.told == Some(Severity::Warning)).map(|rail| rail.since)
    }

    /// Returns whether the last report about a rail says that it carries far less than the others.
    pub(super) fn is_lopsided(&self) -> bool {
        self.rails.iter().any(|rail| rail.told.is_some())
    }

    fn lopsided(&mut self, interval: &Interval) -> Vec<Finding> {
        let Interval { moved, sound, suspect, from, to } = interval;
        let values = |of: fn(&PortTraffic) -> Option<u64>| -> Option<Vec<(usize, u64)>> {
            let sound = moved.iter().zip(*sound).enumerate().filter(|(_, (_, is_sound))| **is_sound);
            sound.map(|(index, (port, _))| Some((index, of(port)?))).collect()
        };
        let in_bytes = values(|port| port.traffic.both().bytes);
        let unit = in_bytes.is_some();
        let Some(values) = in_bytes.or_else(|| values(|port| port.traffic.both().packets)) else {
            return Vec::new();
        };
        let of_unit =
            |value: CounterValue| if unit { value.bytes } else { value.packets }.unwrap_or_default();
        let mut sorted: Vec<u64> = values.iter().map(|(_, value)| *value).collect();
        sorted.sort_unstable();
        let most = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        // The job is computing or doing something else, which proves nothing about a rail.
        if most <= of_unit(management(to.saturating_sub(*from))) {
            return Vec::new();
        }
        let is_less = |value: u64| value.saturating_mul(PART) < most;
        let lesser = values.iter().filter(|(_, value)| is_less(*value)).count();
        let busy = values.len() - lesser;
        let is_clear = busy >= BUSY_FOR_ONE_IDLE * lesser;
        let is_of_few = !is_clear && lesser == 1;
        let mut findings = Vec::new();
        for (index, value) in &values {
            let (Some(rail), Some(port)) = (self.rails.get_mut(*index), moved.get(*index)) else { continue };
            let name = &port.rail;
            let about = || [port.rail.id()];
            if !is_less(*value) {
                rail.level.add(interval);
                rail.less = Streak::default();
                if rail.told.take().is_some() {
                    let time = coarse(to.saturating_sub(rail.since));
                    let message =
                        format!("{name} moves about as much as the other rails again, after {time}.");
                    findings.push(Finding::info(Id::IdleRail, message).about_ports(about()));
                }
                continue;
            }
            if !(is_clear || is_of_few) || !rail.level.is_long() || rail.told.is_some() {
                // A streak begins anew.
                rail.less = Streak::default();
                continue;
            }
            if rail.less.looks == 0 {
                (rail.since, rail.own, rail.others) = (*from, 0, 0);
            }
            rail.less.add(interval);
            rail.own = rail.own.saturating_add(*value);
            rail.others = rail.others.saturating_add(most);
            let is_long = if is_of_few { rail.less.is_long_for_few() } else { rail.less.is_long() };
            if is_long && rail.others >= of_unit(MUCH) {
                // A phase of the job may need fewer rails. One that counts errors would be used if it could be.
                let is_suspect = suspect.get(*index) == Some(&true);
                let severity = if is_suspect { Severity::Warning } else { Severity::Info };
                rail.told = Some(severity);
                let shown = |value: u64| match unit {
                    true => amount(value),
                    false => counted(value.try_into().unwrap_or(usize::MAX), "packet"),
                };
                let (own, others) = (shown(rail.own), shown(rail.others));
                let time = coarse(to.saturating_sub(rail.since));
                let message = match busy {
                    1 => format!(
                        "{name} has moved {own} in {time}, and the other rail {others}, after it had moved about as much."
                    ),
                    _ => format!(
                        "{name} has moved {own} in {time}, and most other rails {others} each, after it had moved about as much as they did."
                    ),
                };
                let finding = Finding::warning(Id::IdleRail, message).about_ports(about()).with_fix(FIX);
                findings.push(Finding { severity, ..finding });
            }
        }
        findings
    }

    /// Returns a note, once, about the rails that have moved nothing since the job began to communicate.
    fn never_used(
        &mut self,
        interval: &Interval,
        after: Duration,
        total: &dyn Fn() -> Vec<PortTraffic>,
    ) -> Option<Finding> {
        let time = interval.to.checked_sub(self.began?).filter(|time| *time >= after)?;
        // The totals are not used for these rails, because InfiniBand management traffic adds up, too. If a
        // port is lost, this was already reported.
        let mut unused = self.rails.iter().zip(interval.sound).filter(|(rail, _)| !rail.has_moved).peekable();
        unused.peek()?;
        if self.has_told_idle || unused.any(|(_, is_sound)| !is_sound) {
            return None;
        }
        let mut total = total();
        // A rail whose counters are not visible may have carried anything.
        if total.iter().any(|port| !port.traffic.is_amount_known()) {
            return None;
        }
        for (port, rail) in total.iter_mut().zip(&self.rails) {
            if !rail.has_moved {
                port.traffic = Traffic::default();
            }
        }
        let finding = idle(&total, time)?;
        self.has_told_idle = true;
        Some(Finding { severity: Severity::Info, ..finding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::port_name::RailId;

    const GIB: u64 = 1 << 30;

    fn ports(bytes: [u64; 4]) -> Vec<PortTraffic> {
        let port = |(index, bytes): (u32, u64)| PortTraffic {
            rail: RailId::new(&format!("mlx5_{index}"), 1),
            is_infiniband: false,
            traffic: Traffic {
                sent: CounterValue { bytes: Some(bytes), packets: None },
                ..Traffic::default()
            },
        };
        (0..).zip(bytes).map(port).collect()
    }

    /// Returns what is reported after each of these readings, which are 10 seconds apart.
    fn said(looks: &[([u64; 4], [bool; 4])]) -> Vec<(u64, Severity, String)> {
        said_at(Duration::from_secs(10), looks)
    }

    fn said_at(interval: Duration, looks: &[([u64; 4], [bool; 4])]) -> Vec<(u64, Severity, String)> {
        let mut balance = Balance::new(4);
        let mut all = Vec::new();
        let mut total = [0; 4];
        for (number, (bytes, sound)) in (1..).zip(looks) {
            for (sum, bytes) in total.iter_mut().zip(bytes) {
                *sum += bytes;
            }
            let [from, to] = [number - 1, number].map(|number: u32| interval * number);
            let interval =
                Interval { moved: &ports(*bytes), sound, suspect: &[false, false, true, false], from, to };
            let found = balance.judge(&interval, Duration::from_secs(100), &|| ports(total));
            all.extend(found.into_iter().map(|one| (number.into(), one.severity, one.message)));
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
        let without_last = |bytes| {
            let mut ports = ports(bytes);
            ports[3].traffic = Traffic::default();
            ports
        };
        let mut balance = Balance::new(4);
        for number in 1..30 {
            let [from, to] = [number - 1, number].map(|number: u64| Duration::from_secs(number * 10));
            let moved = without_last([GIB; 4]);
            let interval = Interval { moved: &moved, sound: &[true; 4], suspect: &[false; 4], from, to };
            let total = || without_last([number * GIB; 4]);
            assert!(balance.judge(&interval, Duration::from_secs(100), &total).is_empty());
        }
    }
}
