//! Errors that a counter counts over more than one look. A threshold of 60 in a minute is passed by 10 in each of six
//! looks as well. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::track::{Change, Track};
use crate::facts::port_errors::{Rise, Trouble};
use crate::findings::port_errors::{PortRises, is_worth_reporting, kind, meaningful};

/// What a counter of a port has counted since it began to rise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    from: Duration,
    /// The sum of what it has counted since then.
    rise: Rise,
    reported: Option<Rate>,
}

/// The rate with which a counter was reported, and when it was last that fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    per_hour: u64,
    last: Duration,
}

/// A rate is another one if it is so many times as high, or comes back after so long.
const HIGHER: u64 = 2;
const QUIET: Duration = Duration::from_secs(3600);

/// Takes what the ports have counted until now, each since its own earlier look. Returns what is worth reporting now, by
/// the time in which it was counted; it does not count again.
pub(super) fn add(
    to: Duration,
    tracks: &mut [Track],
    changes: &[Change],
) -> BTreeMap<Duration, Vec<PortRises>> {
    let mut reported: BTreeMap<Duration, Vec<PortRises>> = BTreeMap::new();
    for (track, change) in tracks.iter_mut().zip(changes) {
        let passed: Vec<(Duration, Rise)> = change
            .rises
            .iter()
            .filter_map(|rise| track.count(to, to.saturating_sub(change.since), *rise))
            .collect();
        let kept = meaningful(passed.iter().map(|(_, rise)| *rise).collect());
        for (time, rise) in passed.into_iter().filter(|(_, rise)| kept.contains(rise)) {
            let same_time = reported.entry(time).or_default();
            match same_time.iter_mut().find(|one| one.rail == track.rail) {
                Some(one) => one.rises.push(rise),
                None => {
                    let rail = track.rail.clone();
                    same_time.push(PortRises { rail, rises: vec![rise], ..PortRises::default() });
                }
            }
        }
        track.windows.retain(|_, window| {
            if to.saturating_sub(window.from) >= kind(window.rise.trouble).per {
                window.rise.count = 0;
            }
            window.rise.count > 0 || window.reported.is_some_and(|rate| to.saturating_sub(rate.last) < QUIET)
        });
    }
    reported
}

/// Whether a counter of a port was lately worth a report.
pub(super) fn is_counting(track: &Track) -> bool {
    let is_reported =
        |window: &Window| window.reported.is_some() && window.rise.trouble != Trouble::OutOfOrder;
    track.windows.values().any(is_reported)
}

impl Track {
    /// Takes what a counter has counted in the time since the last look. Returns what to report, and in which time it was
    /// counted.
    fn count(&mut self, to: Duration, time: Duration, rise: Rise) -> Option<(Duration, Rise)> {
        let from = to.saturating_sub(time);
        let nothing = Rise { count: 0, ..rise };
        let window =
            self.windows.entry(rise.counter).or_insert(Window { from, rise: nothing, reported: None });
        if window.rise.count == 0 {
            (window.from, window.rise) = (from, nothing);
        }
        window.rise.count = window.rise.count.saturating_add(rise.count);
        window.rise.is_least |= rise.is_least;
        let since_it_rises = (to.saturating_sub(window.from), window.rise);
        let is_passed =
            |(time, rise): (Duration, Rise), drift| is_worth_reporting(&rise, time.saturating_sub(drift));
        // A burst is reported with its own time.
        let (time, rise) = match () {
            () if is_passed((time, rise), Duration::ZERO) => (time, rise),
            () if is_passed(since_it_rises, drift(time, rise.trouble)) => since_it_rises,
            () => return None,
        };
        window.rise.count = 0;
        // What ends a queue pair, or takes a link down, has no rate.
        if kind(rise.trouble).per == Duration::MAX {
            return Some((time, rise));
        }
        let per_hour = rise.count.saturating_mul(3600) / time.as_secs().max(1);
        let is_steady = |rate: &mut Rate| {
            let is_quiet = to.saturating_sub(rate.last) >= QUIET;
            rate.last = to;
            !is_quiet && per_hour < rate.per_hour.saturating_mul(HIGHER)
        };
        if window.reported.as_mut().is_some_and(is_steady) {
            return None;
        }
        window.reported = Some(Rate { per_hour, last: to });
        Some((time, rise))
    }
}

/// Returns how much longer the looks of a threshold's time may take: a look itself takes time, so that six of them 10 s
/// apart take a little more than a minute.
fn drift(look: Duration, trouble: Trouble) -> Duration {
    look.min(kind(trouble).per / 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::port_name::RailId;

    const COUNTER: &str = "local_ack_timeout_err";

    /// Returns the seconds and the count of each report, for these counts in looks 10 s apart.
    fn reports(trouble: Trouble, counts: &[u64]) -> Vec<(u64, u64)> {
        reports_in(10_000, trouble, counts)
    }

    /// Does the same for looks that are so many milliseconds apart.
    fn reports_in(apart: u64, trouble: Trouble, counts: &[u64]) -> Vec<(u64, u64)> {
        let mut tracks = [Track::default()];
        let mut reports = Vec::new();
        for (count, look) in counts.iter().zip(0..) {
            let [since, to] = [look, look + 1].map(|look| Duration::from_millis(apart * look));
            for (time, ports) in add(to, &mut tracks, &[change(since, trouble, *count)]) {
                reports.push((time.as_secs(), ports[0].rises[0].count));
            }
        }
        reports
    }

    fn change(since: Duration, trouble: Trouble, count: u64) -> Change {
        let rise = Rise { trouble, counter: COUNTER, count, is_least: false };
        Change { rises: (count > 0).then_some(rise).into_iter().collect(), since, ..Change::default() }
    }

    #[test]
    fn a_rate_that_lasts_is_reported_after_its_whole_time() {
        assert_eq!(reports(Trouble::Timeout, &[10; 12]), [(60, 60)]);
        assert_eq!(reports(Trouble::Timeout, &[9; 12]), []);
        assert_eq!(reports(Trouble::Timeout, &[30; 4]), [(20, 60)]);
        assert_eq!(reports(Trouble::Symbol, &[1; 360]), [(1200, 120)]);
    }

    #[test]
    fn a_rate_is_reported_again_when_it_is_another_one() {
        let hour = |count| vec![count; 360];
        assert_eq!(reports(Trouble::Timeout, &[hour(20), hour(39)].concat()), [(30, 60)]);
        assert_eq!(
            reports(Trouble::Timeout, &[hour(20), vec![41; 9], hour(41)].concat()),
            [(30, 60), (20, 82)]
        );
        // It goes away for an hour, and comes back.
        assert_eq!(reports(Trouble::Timeout, &[hour(20), hour(0), hour(20)].concat()), [(30, 60), (30, 60)]);
    }

    #[test]
    fn looks_that_take_a_little_longer_lose_no_report() {
        assert_eq!(reports_in(10_020, Trouble::Timeout, &[10; 12]), [(60, 60)]);
        assert_eq!(reports_in(30_050, Trouble::Timeout, &[30; 4]), [(60, 60)]);
        assert_eq!(reports_in(10_020, Trouble::Timeout, &[9; 12]), []);
        // Half of the rate in looks that take longer than its time.
        assert_eq!(reports_in(50_000, Trouble::Timeout, &[30; 12]), []);
        assert_eq!(reports_in(120_000, Trouble::Timeout, &[60; 12]), []);
    }

    #[test]
    fn a_burst_is_reported_at_once_with_its_own_time() {
        assert_eq!(reports(Trouble::Timeout, &[0, 3, 0, 70, 0]), [(10, 70)]);
        assert_eq!(reports(Trouble::NoAnswer, &[0, 1, 0, 2]), [(10, 1), (10, 2)]);
    }

    #[test]
    fn what_is_older_than_the_time_of_the_threshold_does_not_count() {
        let mut counts = vec![50];
        counts.extend([0; 5]);
        counts.push(50);
        assert_eq!(reports(Trouble::Timeout, &counts), []);
    }

    #[test]
    fn ports_are_counted_apart() {
        let mut tracks =
            ["mlx5_0", "mlx5_1"].map(|hca| Track { rail: RailId::new(hca, 1), ..Track::default() });
        let ten = Duration::from_secs(10);
        let changes = |since| [change(since, Trouble::Timeout, 40), change(since, Trouble::Timeout, 40)];
        assert!(add(ten, &mut tracks, &changes(Duration::ZERO)).is_empty());
        let reported = add(2 * ten, &mut tracks, &changes(ten));
        assert_eq!(reported[&(2 * ten)].iter().map(|port| port.rises[0].count).collect::<Vec<_>>(), [80, 80]);
    }
}
