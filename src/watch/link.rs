//! Checks whether the links are as fast as at the start, and whether their counters still count. Pure.

use std::time::Duration;

use super::WatchedPort;
use crate::facts::port_look::PortLook;
use crate::facts::port_sample::bytes_per_second;
use crate::finding::{Finding, Id};
use crate::text::{coarse, condensed, grouped};

#[derive(Clone, Default)]
struct Reported {
    /// Since when the link has been slower than at the start, and at which rate it was last then.
    slow_since: Option<Duration>,
    slow_rate: String,
    /// The counters that were reported as full, and still are.
    full: Vec<&'static str>,
}

pub(super) struct Links(Vec<Reported>);

impl Links {
    pub(super) fn new(ports: usize) -> Links {
        Links(vec![Reported::default(); ports])
    }

    /// Returns what to report about rates.
    pub(super) fn judge(&mut self, at: Duration, ports: &[WatchedPort], looks: &[PortLook]) -> Vec<Finding> {
        let (mut slow, mut back) = (Vec::new(), Vec::new());
        for ((port, look), told) in ports.iter().zip(looks).zip(&mut self.0) {
            // The rate of a link that is down means nothing.
            if let (Some((first, at_first)), Some((now, value))) = (rate(&port.first), rate(look)) {
                let is_slow = value < at_first;
                match told.slow_since {
                    None if is_slow => {
                        slow.push((format!("{now} instead of {first}, the rate at the start"), port.id()));
                    }
                    Some(since) if !is_slow => {
                        let time = coarse(at.saturating_sub(since));
                        back.push((format!("{now} again, after {time}"), port.id()));
                    }
                    _ => {}
                }
                told.slow_since = is_slow.then(|| told.slow_since.unwrap_or(at));
                if is_slow && told.slow_rate != now {
                    now.clone_into(&mut told.slow_rate);
                }
            }
        }
        let runs = |(rate, ids): (String, Vec<String>), finding: fn(Id, String) -> Finding| {
            let verb = if ids.len() == 1 { "runs" } else { "run" };
            let message = format!("{} {verb} at {rate}.", named(ports, &ids));
            finding(Id::SlowLink, message).about_ports(ids)
        };
        let warning = |id, message| Finding::warning(id, message).with_fix(FIX);
        let mut findings: Vec<Finding> =
            grouped(slow).into_iter().map(|group| runs(group, warning)).collect();
        findings.extend(grouped(back).into_iter().map(|group| runs(group, Finding::info)));
        findings
    }

    /// Returns since when the link of a port, by its index, has been slower than at the start, and its last such rate.
    pub(super) fn slow(&self, index: usize) -> (Option<Duration>, &str) {
        self.0.get(index).map_or((None, ""), |told| (told.slow_since, &told.slow_rate))
    }

    /// Returns notes about counters that are full. They belong below what these counters have counted.
    pub(super) fn full(&mut self, ports: &[WatchedPort], looks: &[PortLook]) -> Vec<Finding> {
        let mut full = Vec::new();
        for ((port, look), told) in ports.iter().zip(looks).zip(&mut self.0) {
            let counters: Vec<&'static str> = look.errors.full().collect();
            if counters == told.full {
                continue;
            }
            let new = counters.iter().filter(|counter| !told.full.contains(counter)).copied();
            let new = new.collect::<Vec<_>>().join(", ");
            if !new.is_empty() {
                full.push((new, port.id()));
            }
            told.full = counters;
        }
        let mut findings = Vec::new();
        for (counters, ids) in grouped(full) {
            let message = format!(
                "Counters of {} have reached their maximum and no longer count: {counters}.",
                named(ports, &ids)
            );
            findings.push(Finding::info(Id::LinkErrors, message).about_ports(ids));
        }
        findings
    }
}

const FIX: &str = "Check the cable, the transceiver and the switch's port: lanes may have failed.";

/// Returns the rate as the kernel writes it, and in bytes per second.
fn rate(look: &PortLook) -> Option<(&str, u64)> {
    let text = look.rate.as_deref().filter(|_| look.errors.is_active())?;
    Some((text, bytes_per_second(text)?))
}

pub(super) fn named(ports: &[WatchedPort], ids: &[String]) -> String {
    let named = ports.iter().filter(|port| ids.contains(&port.id()));
    condensed(&named.map(WatchedPort::name).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;
    use crate::facts::port_look::read;
    use crate::finding::Severity;

    /// Makes a reading of a port with this state, this rate, and this value of `link_downed`.
    fn look(state: &str, rate: &str, downed: &str) -> PortLook {
        let root = FakeRoot::new();
        let files = [("state", state), ("rate", rate), ("counters/link_downed", downed)];
        root.files("sys/class/infiniband/x_0/ports/1", &files);
        let reader = root.reader();
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    }

    fn said(looks: &[[PortLook; 2]]) -> Vec<(u64, Severity, String)> {
        let first = look("4: ACTIVE\n", FULL, "0\n");
        let port = |hca: &str| WatchedPort {
            hca: hca.into(),
            port: 1,
            first: first.clone(),
            ..WatchedPort::default()
        };
        let ports = [port("mlx5_1"), port("mlx5_2")];
        let mut links = Links::new(2);
        let mut all = Vec::new();
        for (number, looks) in (1..).zip(looks) {
            let mut found = links.judge(Duration::from_secs(number * 10), &ports, looks);
            found.extend(links.full(&ports, looks));
            all.extend(found.into_iter().map(|one| (number, one.severity, one.message)));
        }
        all
    }

    const FULL: &str = "200 Gb/sec (4X HDR)\n";

    #[test]
    fn a_rate_that_is_lost_and_found_again_is_told_once_each() {
        let up = |rate| look("4: ACTIVE\n", rate, "0\n");
        let narrow = || up("50 Gb/sec (1X HDR)\n");
        let down = || look("1: DOWN\n", "10 Gb/sec (4X SDR)\n", "0\n");
        let looks = [
            [up(FULL), up("?")],
            [narrow(), narrow()],
            [narrow(), narrow()],
            [down(), up(FULL)],
            [up(FULL), up(FULL)],
            [down(), up(FULL)],
        ];
        assert_eq!(
            said(&looks),
            [
                (
                    2,
                    Severity::Warning,
                    "mlx5_1, mlx5_2 run at 50 Gb/sec (1X HDR) instead of 200 Gb/sec (4X HDR), the rate at the start."
                        .to_owned()
                ),
                (4, Severity::Info, "mlx5_2 runs at 200 Gb/sec (4X HDR) again, after 20s.".to_owned()),
                (5, Severity::Info, "mlx5_1 runs at 200 Gb/sec (4X HDR) again, after 30s.".to_owned()),
            ]
        );
    }

    #[test]
    fn one_of_two_ports_of_an_hca_is_told_alone() {
        let up = |rate| look("4: ACTIVE\n", rate, "0\n");
        let port = |port| WatchedPort {
            hca: "mlx5_1".into(),
            port,
            is_one_of_several: true,
            first: up(FULL),
            ..WatchedPort::default()
        };
        let slow = up("50 Gb/sec (1X HDR)\n");
        let found = Links::new(2).judge(Duration::from_secs(10), &[port(1), port(2)], &[up(FULL), slow]);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.message.starts_with("mlx5_1:2 runs at 50 Gb/sec"), "{found:?}");
        assert_eq!(found.about.ports, ["mlx5_1:2"]);
    }

    #[test]
    fn a_counter_at_its_end_is_told_once() {
        let counted = |count| look("4: ACTIVE\n", FULL, count);
        let looks = [
            [counted("254\n"), counted("255\n")],
            [counted("255\n"), counted("255\n")],
            [counted("255\n"), counted("255\n")],
            // Cleared, and full again.
            [counted("255\n"), counted("7\n")],
            [counted("255\n"), counted("255\n")],
        ];
        let told = |number, hca: &str| {
            let message =
                format!("Counters of {hca} have reached their maximum and no longer count: link_downed.");
            (number, Severity::Info, message)
        };
        assert_eq!(said(&looks), [told(1, "mlx5_2"), told(2, "mlx5_1"), told(5, "mlx5_2")]);
    }

    #[test]
    fn each_counter_at_its_end_is_told() {
        let counted = |symbols: &str, downs: &str| {
            let root = FakeRoot::new();
            let files = [("counters/symbol_error", symbols), ("counters/link_downed", downs)];
            root.files("sys/class/infiniband/x_0/ports/1", &files);
            let reader = root.reader();
            read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
        };
        let ports = [WatchedPort { hca: "mlx5_1".into(), port: 1, ..WatchedPort::default() }];
        let mut links = Links::new(1);
        let mut said = |symbols, downs| {
            let found = links.full(&ports, &[counted(symbols, downs)]);
            let told = found.iter().filter_map(|one| one.message.split_once(": "));
            told.map(|(_, names)| names.to_owned()).collect::<Vec<String>>()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(said("65535\n", "0\n"), ["symbol_error."]);
        assert_eq!(said("65535\n", "255\n"), ["link_downed."]);
        assert_eq!(said("65535\n", "255\n"), none);
    }
}
