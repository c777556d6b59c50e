//! Judges the job from successive readings of the ports. Pure: it reads nothing, and the caller passes the
//! time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::balance::{Balance, Interval};
use super::fold::Fold;
use super::identity::Identity;
use super::link::Links;
use super::windows::Windows;
use crate::facts::port_errors::Trouble;
use crate::facts::port_look::{PortLook, UsedGid};
use crate::finding::{Finding, Id};
use crate::findings::port_errors::{self, PortRises};
use crate::findings::traffic::{PortTraffic, has_moved, names};
use crate::plan::failover::SWITCH;
use crate::text::{condensed, duration, visible};

/// A port of the job, with its reading before the command started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct WatchedPort {
    pub hca: String,
    pub port: u32,
    pub is_infiniband: bool,
    /// The GID that NCCL uses.
    pub gid: Option<UsedGid>,
    /// Whether NCCL may continue over another port of the NIC.
    #[serde(default)]
    pub fails_over: bool,
    pub first: PortLook,
}

impl WatchedPort {
    /// Returns what the port moved between two readings.
    pub(crate) fn moved(&self, now: &PortLook, before: &PortLook) -> PortTraffic {
        PortTraffic {
            hca: self.hca.clone(),
            port: self.port,
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
    /// Since when each port has been inactive or gone, and whether it was gone at the last reading.
    lost_since: Vec<Option<Duration>>,
    is_gone: Vec<bool>,
    /// When data last moved.
    moved_at: Duration,
    has_ever_moved: bool,
    has_told_rest: bool,
    rates: Links,
    identity: Identity,
    balance: Balance,
    windows: Windows,
    fold: Fold,
}

impl Judge {
    pub(super) fn new(ports: Vec<WatchedPort>, after: Duration) -> Judge {
        Judge {
            last: ports.iter().map(|port| port.first.clone()).collect(),
            lost_since: vec![None; ports.len()],
            is_gone: vec![false; ports.len()],
            rates: Links::new(ports.len()),
            identity: Identity::new(ports.len()),
            balance: Balance::new(ports.len()),
            ports,
            after,
            last_at: Duration::ZERO,
            moved_at: Duration::ZERO,
            has_ever_moved: false,
            has_told_rest: false,
            windows: Windows::default(),
            fold: Fold::default(),
        }
    }

    pub(super) fn ports(&self) -> &[WatchedPort] {
        &self.ports
    }

    /// Returns what to report after a reading of all ports, in their order, at this time since the start.
    pub(super) fn judge(&mut self, at: Duration, looks: Vec<PortLook>) -> Vec<Finding> {
        let was_lost: Vec<bool> = self.lost_since.iter().map(Option::is_some).collect();
        let mut findings = self.links(at, &looks);
        let is_sound = |(was_lost, since): (&bool, &Option<Duration>)| !was_lost && since.is_none();
        let sound: Vec<bool> = was_lost.iter().zip(&self.lost_since).map(is_sound).collect();
        findings.extend(self.rates.judge(at, &self.ports, &looks));
        findings.extend(self.identity.judge(at, &self.ports, &looks, &sound));
        findings.extend(self.counters(at, &looks, &sound));
        findings.extend(self.movement(at, &looks, &sound));
        let last = looks.into_iter().zip(&self.last);
        self.last = last.map(|(look, before)| look.with_known(before)).collect();
        self.last_at = at;
        self.fold.pass(at, findings)
    }

    /// Filters findings from another source through the limit on lines, and returns those to report.
    pub(super) fn pass(&mut self, at: Duration, findings: Vec<Finding>) -> Vec<Finding> {
        self.fold.pass(at, findings)
    }

    /// Returns whether the last report said that nothing moves, and nothing has moved since.
    pub(super) fn rests(&self) -> bool {
        self.has_told_rest
    }

    /// Reports ports that are no longer active, are gone, or are active again.
    fn links(&mut self, at: Duration, looks: &[PortLook]) -> Vec<Finding> {
        let (mut down, mut gone, mut back) = (Vec::new(), Vec::new(), Vec::new());
        let states = self.lost_since.iter_mut().zip(&mut self.is_gone);
        for ((port, look), (since, was_gone)) in self.ports.iter().zip(looks).zip(states) {
            let is_lost = look.errors.is_lost_since(&port.first.errors);
            let is_gone = is_lost && look.errors.is_gone();
            let was_gone = std::mem::replace(was_gone, is_gone);
            match *since {
                // Its link may have been down before.
                _ if is_gone && !was_gone => gone.push(port),
                None if is_lost => down.push(port),
                Some(when) if !is_lost => back.push((port, at.saturating_sub(when))),
                _ => {}
            }
            *since = is_lost.then(|| since.unwrap_or(at));
        }
        let mut findings = Vec::new();
        for (ports, what) in [(down, "no longer active"), (gone, "gone")] {
            if !ports.is_empty() {
                let failover = match ports.iter().all(|port| port.fails_over) {
                    true => format!(" NCCL may continue over another port of the NIC ({SWITCH})."),
                    false => String::new(),
                };
                let message = format!("{} {} {what}.{failover}", listed(&ports), is_or_are(ports.len()));
                findings.push(
                    Finding::warning(Id::LinkDown, message).about_ports(ports.iter().map(|port| id(port))),
                );
            }
        }
        for (port, time) in back {
            let message = format!("{} is active again, after {}.", listed(&[port]), duration(time));
            findings.push(Finding::info(Id::LinkDown, message).about_ports([id(port)]));
        }
        findings
    }

    /// Reports the errors that the ports have counted. If a lost port's link went down, this was already reported.
    fn counters(&mut self, at: Duration, looks: &[PortLook], sound: &[bool]) -> Vec<Finding> {
        let rises = |index: usize, port: &WatchedPort| {
            let (now, before) = (looks.get(index)?, self.last.get(index)?);
            let is_sound = sound.get(index)?;
            let mut rises = now.errors.since(&before.errors);
            rises.retain(|rise| *is_sound || rise.trouble != Trouble::LinkDown);
            Some(rises)
        };
        let of_port = |(index, port): (usize, &WatchedPort)| PortRises {
            hca: port.hca.clone(),
            port: port.port,
            is_lost: false,
            is_gone: false,
            rises: rises(index, port).unwrap_or_default(),
        };
        let ports = self.ports.iter().enumerate().map(of_port).collect();
        let reported = self.windows.add(self.last_at, at, ports);
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

    fn rest(&mut self, at: Duration, looks: &[PortLook], mut moved: Vec<PortTraffic>) -> Option<Finding> {
        let rested = at.saturating_sub(self.moved_at);
        if moved.iter().any(has_moved) {
            moved.retain(has_moved);
            let again = if self.has_ever_moved { " again" } else { "" };
            let goes_on = std::mem::take(&mut self.has_told_rest).then(|| {
                let message =
                    format!("Data moves over {}{again}, after {}.", names(&moved), duration(rested));
                Finding::info(Id::NoTraffic, message)
            });
            self.moved_at = at;
            self.has_ever_moved = true;
            return goes_on;
        }
        if !is_amount_known(&self.ports, looks) || self.has_told_rest || rested < self.after {
            return None;
        }
        self.has_told_rest = true;
        let gone = match looks {
            all if !all.iter().all(|look| look.errors.is_gone()) => None,
            [_] => Some("this HCA is gone"),
            _ => Some("all of these HCAs are gone"),
        };
        let why_none = "the job has not begun to communicate, runs on sockets, or runs on this node alone";
        let message = match self.has_ever_moved {
            false => format!(
                "RDMA was planned, but no data has moved over {} in the first {}: {}.",
                names(&moved),
                duration(rested),
                gone.unwrap_or(why_none)
            ),
            true => format!(
                "No data has moved over {} for {}, after earlier traffic: {}.",
                names(&moved),
                duration(rested),
                gone.unwrap_or("the job may have stalled")
            ),
        };
        Some(Finding::warning(Id::NoTraffic, message).about_ports(self.ports.iter().map(id)))
    }
}

/// Returns whether it is known what the ports have moved. A device that is gone moves nothing, if it counted before.
pub(super) fn is_amount_known(ports: &[WatchedPort], looks: &[PortLook]) -> bool {
    let mut there = looks.iter().filter(|look| !look.errors.is_gone()).peekable();
    match there.peek() {
        Some(_) => there.all(|look| look.traffic.is_amount_known()),
        None => !ports.is_empty() && ports.iter().all(|port| port.first.traffic.is_amount_known()),
    }
}

fn id(port: &WatchedPort) -> String {
    format!("{}:{}", port.hca, port.port)
}

fn listed(ports: &[&WatchedPort]) -> String {
    let names: Vec<&str> = ports.iter().map(|port| port.hca.as_str()).collect();
    visible(&condensed(&names))
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Reader;
    use crate::facts::port_counters::Counters;
    use crate::facts::port_look::read;

    /// Makes a reading of a soft-RoCE port with this state and these counters; without a state, the port is
    /// gone.
    fn look(state: Option<&str>, counters: &[(&str, u64)]) -> PortLook {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("sys/class/infiniband/x_0/ports/1");
        if let Some(state) = state {
            std::fs::create_dir_all(port.join("hw_counters")).unwrap();
            std::fs::write(port.join("state"), state).unwrap();
            for (name, count) in counters {
                std::fs::write(port.join("hw_counters").join(name), format!("{count}\n")).unwrap();
            }
        }
        let reader = Reader::new(root.path());
        read(&reader, &Counters::new(&reader), "x_0", 1, None, None)
    }

    fn up(sent: u64) -> PortLook {
        look(Some("4: ACTIVE\n"), &[("sent_pkts", sent), ("rcvd_pkts", 0), ("link_downed", 0)])
    }

    fn judge(after: u64) -> Judge {
        let port =
            |hca: &str| WatchedPort { hca: hca.into(), port: 1, first: up(0), ..WatchedPort::default() };
        Judge::new(vec![port("mlx5_1"), port("mlx5_2")], Duration::from_secs(after))
    }

    fn said(judge: &mut Judge, seconds: u64, looks: [PortLook; 2]) -> Vec<String> {
        let findings = judge.judge(Duration::from_secs(seconds), looks.into());
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_sound_job_is_silent() {
        let mut judge = judge(600);
        for look in 1..200 {
            assert!(said(&mut judge, look * 10, [up(look), up(0)]).is_empty());
        }
    }

    #[test]
    fn a_port_whose_nic_has_another_one_may_be_replaced() {
        let port = |hca: &str| WatchedPort {
            hca: hca.into(),
            port: 1,
            first: up(0),
            fails_over: true,
            ..WatchedPort::default()
        };
        let mut judge = Judge::new(vec![port("mlx5_1"), port("mlx5_2")], Duration::from_secs(600));
        let line = "mlx5_2 is gone. NCCL may continue over another port of the NIC (NCCL_IB_RESILIENCY_PORT_FAILOVER).";
        assert_eq!(said(&mut judge, 10, [up(1), look(None, &[])]), [line]);
    }

    #[test]
    fn a_link_that_goes_down_and_comes_back_is_told_once_each() {
        let mut judge = judge(600);
        let down = || look(Some("1: DOWN\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 1)]);
        let again = || look(Some("4: ACTIVE\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 1)]);
        assert_eq!(said(&mut judge, 10, [up(1), down()]), ["mlx5_2 is no longer active."]);
        assert!(said(&mut judge, 20, [up(2), down()]).is_empty());
        assert_eq!(said(&mut judge, 30, [up(3), again()]), ["mlx5_2 is active again, after 20s."]);
        assert!(said(&mut judge, 40, [up(4), again()]).is_empty());
        // The link went down and up between two readings, so only the counter shows it.
        let flapped = look(Some("4: ACTIVE\n"), &[("sent_pkts", 0), ("rcvd_pkts", 0), ("link_downed", 2)]);
        assert_eq!(said(&mut judge, 50, [up(5), flapped]), ["The link went down within 10s: mlx5_2, 1 time."]);
    }

    #[test]
    fn a_device_that_goes_and_comes_back_with_new_counters_is_no_error() {
        let mut judge = judge(600);
        assert_eq!(said(&mut judge, 10, [up(1), look(None, &[])]), ["mlx5_2 is gone."]);
        assert_eq!(said(&mut judge, 20, [up(2), up(0)]), ["mlx5_2 is active again, after 10s."]);
        assert_eq!(said(&mut judge, 30, [look(None, &[]), look(None, &[])]), ["mlx5_1, mlx5_2 are gone."]);
    }

    #[test]
    fn a_device_that_goes_after_its_link_is_told_as_well() {
        let mut judge = judge(600);
        let down = || look(Some("1: DOWN\n"), &[("link_downed", 1)]);
        assert_eq!(said(&mut judge, 10, [up(1), down()]), ["mlx5_2 is no longer active."]);
        assert_eq!(said(&mut judge, 20, [up(2), look(None, &[])]), ["mlx5_2 is gone."]);
        assert!(said(&mut judge, 30, [up(3), look(None, &[])]).is_empty());
        assert!(said(&mut judge, 40, [up(4), down()]).is_empty());
        assert_eq!(said(&mut judge, 50, [up(5), up(0)]), ["mlx5_2 is active again, after 40s."]);
    }

    #[test]
    fn queue_pairs_that_ended_are_told_and_a_few_retries_are_not() {
        let mut judge = judge(600);
        let counted = |name: &str, count| {
            look(
                Some("4: ACTIVE\n"),
                &[("sent_pkts", 9), ("rcvd_pkts", 0), ("link_downed", 0), (name, count)],
            )
        };
        assert!(said(&mut judge, 10, [counted("retry_exceeded_err", 0), up(0)]).is_empty());
        let told = said(&mut judge, 20, [counted("retry_exceeded_err", 2), up(0)]);
        assert!(matches!(&told[..], [one] if one.starts_with("Queue pairs failed in 10s: mlx5_1: 2 ")));
        assert!(said(&mut judge, 30, [counted("completer_retry_err", 0), up(0)]).is_empty());
        assert!(said(&mut judge, 40, [counted("completer_retry_err", 5), up(0)]).is_empty());
        let told = said(&mut judge, 50, [counted("completer_retry_err", 905), up(0)]);
        assert!(matches!(&told[..], [one] if one.starts_with("Packets were sent again in 10s: mlx5_1: ")));
    }

    #[test]
    fn errors_that_were_counted_while_a_counter_did_not_show_are_told() {
        let mut judge = judge(600);
        let counted = |count: &[(&str, u64)]| {
            look(
                Some("4: ACTIVE\n"),
                &[&[("sent_pkts", 9), ("rcvd_pkts", 0), ("link_downed", 0)], count].concat(),
            )
        };
        let ended = |count| counted(&[("retry_exceeded_err", count)]);
        assert!(said(&mut judge, 10, [ended(1), up(0)]).is_empty());
        assert!(said(&mut judge, 20, [counted(&[]), up(0)]).is_empty());
        let told = said(&mut judge, 30, [ended(3), up(0)]);
        assert!(
            matches!(&told[..], [one] if one.starts_with("Queue pairs failed in 10s: mlx5_1: 2 ")),
            "{told:?}"
        );
        assert!(said(&mut judge, 40, [ended(3), up(0)]).is_empty());
    }

    #[test]
    fn a_job_that_moves_nothing_or_stops_moving_is_told_once() {
        let mut judge = judge(20);
        assert!(said(&mut judge, 10, [up(0), up(0)]).is_empty());
        let told = said(&mut judge, 20, [up(0), up(0)]);
        assert!(
            matches!(&told[..], [one] if one.contains("no data has moved over mlx5_1, mlx5_2 in the first 20s"))
        );
        assert!(said(&mut judge, 90, [up(0), up(0)]).is_empty());
        assert_eq!(said(&mut judge, 100, [up(5), up(0)]), ["Data moves over mlx5_1, after 1m 40s."]);
        assert!(said(&mut judge, 110, [up(5), up(0)]).is_empty());
        let stall =
            "No data has moved over mlx5_1, mlx5_2 for 20s, after earlier traffic: the job may have stalled.";
        assert_eq!(said(&mut judge, 120, [up(5), up(0)]), [stall]);
        assert_eq!(said(&mut judge, 130, [up(5), up(7)]), ["Data moves over mlx5_2 again, after 30s."]);
    }

    #[test]
    fn a_lost_device_hides_no_stall() {
        let mut judge = judge(20);
        assert!(said(&mut judge, 10, [up(5), up(5)]).is_empty());
        assert_eq!(said(&mut judge, 20, [up(5), look(None, &[])]), ["mlx5_2 is gone."]);
        let told = said(&mut judge, 30, [up(5), look(None, &[])]);
        assert!(matches!(&told[..], [one] if one.contains("the job may have stalled")), "{told:?}");
    }

    #[test]
    fn a_node_whose_devices_are_all_gone_has_stopped() {
        let gone = || [look(None, &[]), look(None, &[])];
        let mut judge = judge(20);
        assert!(said(&mut judge, 10, [up(5), up(5)]).is_empty());
        assert_eq!(said(&mut judge, 20, gone()), ["mlx5_1, mlx5_2 are gone."]);
        assert_eq!(
            said(&mut judge, 30, gone()),
            [
                "No data has moved over mlx5_1, mlx5_2 for 20s, after earlier traffic: all of these HCAs are gone."
            ]
        );
        assert!(judge.rests() && said(&mut judge, 40, gone()).is_empty());
    }

    #[test]
    fn infiniband_management_traffic_never_counts_as_data() {
        let port = |hca: &str| WatchedPort {
            hca: hca.into(),
            port: 1,
            is_infiniband: true,
            first: up(0),
            ..WatchedPort::default()
        };
        let mut judge = Judge::new(vec![port("mlx5_1")], Duration::from_secs(600));
        for look in 1..60 {
            let findings = judge.judge(Duration::from_secs(look * 10), vec![up(look)]);
            assert!(findings.is_empty(), "{findings:?}");
        }
        let findings = judge.judge(Duration::from_secs(600), vec![up(60)]);
        assert!(findings[0].message.contains("no data has moved"), "{findings:?}");
    }

    #[test]
    fn counters_that_are_not_there_prove_no_stall() {
        let unknown = || look(Some("4: ACTIVE\n"), &[]);
        let mut judge = judge(20);
        assert!(said(&mut judge, 100, [unknown(), unknown()]).is_empty());
    }
}
