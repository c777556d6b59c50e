//! Errors that a counter counts over more than one look. A threshold of 60 in a minute is passed by 10 in each of six
//! looks as well. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::port_errors::{Rise, Trouble};
use crate::findings::port_errors::{PortRises, is_worth_reporting, time_of_threshold};

/// What each counter of each port, by its index, has counted since it began to rise.
#[derive(Default)]
pub(super) struct Windows(BTreeMap<(usize, &'static str), Window>);

struct Window {
    from: Duration,
    /// The sum of what it has counted since then.
    rise: Rise,
}

impl Windows {
    /// Adds what the ports, in their order, have counted until now, each since its own earlier look. Returns what is
    /// worth reporting now, by the time in which it was counted; it does not count again.
    pub(super) fn add(
        &mut self,
        to: Duration,
        ports: Vec<(Duration, PortRises)>,
    ) -> BTreeMap<Duration, Vec<PortRises>> {
        let mut reported: BTreeMap<Duration, Vec<PortRises>> = BTreeMap::new();
        for (index, (from, port)) in ports.into_iter().enumerate() {
            for &rise in &port.rises {
                let nothing = Rise { count: 0, ..rise };
                let window = self.0.entry((index, rise.counter)).or_insert(Window { from, rise: nothing });
                window.rise.count = window.rise.count.saturating_add(rise.count);
                window.rise.is_least |= rise.is_least;
                let last_look = (to.saturating_sub(from), rise);
                let since_it_rises = (to.saturating_sub(window.from), window.rise);
                let is_passed = |(time, rise): (Duration, Rise), drift| {
                    is_worth_reporting(&rise, time.saturating_sub(drift))
                };
                // A burst is reported with its own time.
                let (time, rise) = match () {
                    () if is_passed(last_look, Duration::ZERO) => last_look,
                    () if is_passed(since_it_rises, drift(last_look.0, rise.trouble)) => since_it_rises,
                    () => continue,
                };
                self.0.remove(&(index, rise.counter));
                let same_time = reported.entry(time).or_default();
                match same_time.iter_mut().find(|one| (&one.hca, one.port) == (&port.hca, port.port)) {
                    Some(one) => one.rises.push(rise),
                    None => {
                        same_time.push(PortRises { rises: vec![rise], ..port.clone() });
                    }
                }
            }
        }
        self.0.retain(|_, window| to.saturating_sub(window.from) < time_of_threshold(window.rise.trouble));
        reported
    }
}

/// Returns how much longer the looks of a threshold's time may take: a look itself takes time, so that six of them 10 s
/// apart take a little more than a minute.
fn drift(look: Duration, trouble: Trouble) -> Duration {
    look.min(time_of_threshold(trouble) / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTER: &str = "local_ack_timeout_err";

    /// Returns the seconds and the count of each report, for these counts in looks 10 s apart.
    fn reports(trouble: Trouble, counts: &[u64]) -> Vec<(u64, u64)> {
        reports_of(10_000, trouble, counts)
    }

    /// Does the same for looks that are so many milliseconds apart.
    fn reports_of(apart: u64, trouble: Trouble, counts: &[u64]) -> Vec<(u64, u64)> {
        let mut windows = Windows::default();
        let mut reports = Vec::new();
        for (count, look) in counts.iter().zip(0..) {
            let rise = Rise { trouble, counter: COUNTER, count: *count, is_least: false };
            let rises = if *count > 0 { vec![rise] } else { Vec::new() };
            let port = PortRises { hca: "mlx5_0".to_owned(), port: 1, rises, ..PortRises::default() };
            let [from, to] = [look, look + 1].map(|look| Duration::from_millis(apart * look));
            for (time, ports) in windows.add(to, vec![(from, port)]) {
                reports.push((time.as_secs(), ports[0].rises[0].count));
            }
        }
        reports
    }

    #[test]
    fn a_rate_that_lasts_is_reported_after_its_whole_time() {
        assert_eq!(reports(Trouble::Timeout, &[10; 12]), [(60, 60), (60, 60)]);
        assert_eq!(reports(Trouble::Timeout, &[9; 12]), []);
        assert_eq!(reports(Trouble::Timeout, &[30; 4]), [(20, 60), (20, 60)]);
        assert_eq!(reports(Trouble::Symbol, &[1; 360]), [(1200, 120), (1200, 120), (1200, 120)]);
    }

    #[test]
    fn looks_that_take_a_little_longer_lose_no_report() {
        assert_eq!(reports_of(10_020, Trouble::Timeout, &[10; 12]), [(60, 60), (60, 60)]);
        assert_eq!(reports_of(30_050, Trouble::Timeout, &[30; 4]), [(60, 60), (60, 60)]);
        assert_eq!(reports_of(10_020, Trouble::Timeout, &[9; 12]), []);
        // Half of the rate in looks that take longer than its time.
        assert_eq!(reports_of(50_000, Trouble::Timeout, &[30; 12]), []);
        assert_eq!(reports_of(120_000, Trouble::Timeout, &[60; 12]), []);
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
        let mut windows = Windows::default();
        let rise = Rise { trouble: Trouble::Timeout, counter: COUNTER, count: 40, is_least: false };
        let port = |from, hca: &str| {
            let rises = vec![rise];
            (from, PortRises { hca: hca.to_owned(), port: 1, rises, ..PortRises::default() })
        };
        let ten = Duration::from_secs(10);
        assert!(
            windows.add(ten, vec![port(Duration::ZERO, "mlx5_0"), port(Duration::ZERO, "mlx5_1")]).is_empty()
        );
        let reported = windows.add(2 * ten, vec![port(ten, "mlx5_0"), port(ten, "mlx5_1")]);
        assert_eq!(reported[&(2 * ten)].iter().map(|port| port.rises[0].count).collect::<Vec<_>>(), [80, 80]);
    }
}
