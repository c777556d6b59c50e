//! Whether the job has used the planned RDMA.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::traffic::{CounterValue, Traffic};
use crate::finding::{Finding, Id, Severity};
use crate::findings::port_name::RailId;
use crate::text::{condensed, duration};

/// A port, and the data that it has moved in some time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PortTraffic {
    pub rail: RailId,
    pub is_infiniband: bool,
    pub traffic: Traffic,
}

/// Returns the names of the ports: `mlx5_1..mlx5_8`.
pub(crate) fn names<'a>(moved: impl IntoIterator<Item = &'a PortTraffic>) -> String {
    condensed(&moved.into_iter().map(|port| port.rail.to_string()).collect::<Vec<_>>())
}

/// What does not count on InfiniBand in so much time, because it may come from the subnet manager.
const MANAGEMENT: CounterValue = CounterValue { bytes: Some(64 * 1024), packets: Some(256) };
pub(crate) const MANAGEMENT_TIME: Duration = Duration::from_secs(10);

/// Returns what does not count on InfiniBand in this time.
pub(crate) fn management(time: Duration) -> CounterValue {
    let times = (time.as_secs() / MANAGEMENT_TIME.as_secs()).max(1);
    let all = |value: Option<u64>| value.map(|value| value.saturating_mul(times));
    CounterValue { bytes: all(MANAGEMENT.bytes), packets: all(MANAGEMENT.packets) }
}

/// The minimum that a rail moves if it takes part in the job.
pub(crate) const MUCH: CounterValue = CounterValue { bytes: Some(1 << 30), packets: Some(1 << 20) };

/// The minimum number of busy rails for each idle one. A job that uses only a few of the GPUs leaves more
/// rails idle.
pub(crate) const BUSY_FOR_ONE_IDLE: usize = 3;

/// Whether the job is expected to move data between nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Expected {
    /// It has several nodes, and RDMA is planned.
    #[default]
    Traffic,
    /// The number of its nodes is not known: many jobs have only one.
    Unknown,
    /// It runs on this node alone, or over TCP.
    Nothing,
}

/// Returns the finding, if the counters show that no port has moved data, or only a few ports have.
/// `is_cut_short`: the job failed, or was stopped.
pub(crate) fn finding(
    moved: &[PortTraffic],
    ran: Duration,
    is_cut_short: bool,
    expected: Expected,
) -> Option<Finding> {
    if moved.is_empty() || moved.iter().any(|port| !port.traffic.is_amount_known()) {
        return None;
    }
    if moved.iter().any(has_moved_at_all) {
        return idle(moved, ran);
    }
    let why = match is_cut_short {
        true => "the job has not begun to communicate, ran on sockets, or ran on this node alone",
        false => "the job ran on sockets, or on this node alone",
    };
    let message =
        format!("RDMA was planned, but no data has moved over {} in {}: {why}.", names(moved), duration(ran));
    let ports = moved.iter().map(|port| port.rail.id());
    let severity = if expected == Expected::Traffic { Severity::Warning } else { Severity::Info };
    let finding = Finding::info(Id::NoTraffic, message).about_ports(ports).with_fix(FIX_OF_NO_TRAFFIC);
    (expected != Expected::Nothing).then_some(Finding { severity, ..finding })
}

pub(crate) const FIX_OF_NO_TRAFFIC: &str = "Start the job with NCCL_DEBUG=INFO and look for NET/IB or NET/Socket; rdma-init self-test tests the fabric.";

/// Reports that a few rails have moved nothing, while each of the others has moved a lot.
pub(crate) fn idle(moved: &[PortTraffic], ran: Duration) -> Option<Finding> {
    let (busy, idle): (Vec<&PortTraffic>, Vec<&PortTraffic>) =
        moved.iter().partition(|port| has_moved_at_all(port));
    let is_clear = !idle.is_empty()
        && busy.len() >= BUSY_FOR_ONE_IDLE * idle.len()
        && busy.iter().all(|port| exceeds(port, MUCH));
    let message = format!(
        "No data has moved over {} in {}, while much has moved over each of the {} other rails: the job did not use {}, or not all of its GPUs took part.",
        names(idle.iter().copied()),
        duration(ran),
        busy.len(),
        if idle.len() == 1 { "this rail" } else { "these rails" }
    );
    let ports = idle.iter().map(|port| port.rail.id());
    let finding = is_clear.then(|| Finding::warning(Id::IdleRail, message).about_ports(ports))?;
    Some(finding.with_fix(
        "Start the job with NCCL_DEBUG=INFO and look for the HCA in the lines with NET/IB; rdma-init preflight tests each rail between the nodes.",
    ))
}

/// Returns whether a port has moved more than the management packets of this time. Where only the requests of peers are
/// counted, one is enough: none of them is of the management.
pub(crate) fn has_moved(port: &PortTraffic, time: Duration) -> bool {
    let least = match port.is_infiniband {
        true => management(time),
        false => CounterValue { bytes: Some(0), packets: Some(0) },
    };
    exceeds(port, least) || port.traffic.requests > Some(0)
}

/// Over a long time, management packets add up to more than that: then nothing is said of the port.
fn has_moved_at_all(port: &PortTraffic) -> bool {
    has_moved(port, Duration::ZERO)
}

/// Compares bytes, or packets if only packets are counted.
fn exceeds(port: &PortTraffic, least: CounterValue) -> bool {
    let exceeds = |amount: CounterValue| match amount.bytes {
        Some(_) => amount.bytes > least.bytes,
        None => amount.packets > least.packets,
    };
    exceeds(port.traffic.sent) || exceeds(port.traffic.received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::traffic::Traffic;

    fn port(is_infiniband: bool, bytes: Option<u64>, packets: Option<u64>) -> PortTraffic {
        let sent = CounterValue { bytes, packets };
        PortTraffic {
            rail: RailId::new("mlx5_1", 1),
            is_infiniband,
            traffic: Traffic { sent, ..Traffic::default() },
        }
    }

    #[test]
    fn a_rail_that_moved_nothing_beside_busy_ones_is_told() {
        let named = |of: &[(bool, u64)]| {
            let moved = |(n, (is_infiniband, bytes)): (usize, &(bool, u64))| PortTraffic {
                rail: RailId::new(&format!("mlx5_{n}"), 1),
                ..port(*is_infiniband, Some(*bytes), None)
            };
            let moved: Vec<PortTraffic> = of.iter().enumerate().map(moved).collect();
            let finding = finding(&moved, Duration::from_secs(3600), false, Expected::Traffic);
            finding.map(|finding| (finding.id, finding.about.ports.into_iter().collect::<Vec<_>>().join(" ")))
        };
        let (busy, idle) = ((false, 5 << 30), (false, 0));
        let told = |ports: &str| Some((Id::IdleRail, ports.to_owned()));
        assert_eq!(named(&[busy, busy, busy, idle, busy, busy, busy, busy]), told("mlx5_3:1"));
        // The subnet manager's packets are not the job's traffic.
        assert_eq!(
            named(&[(true, 5 << 30), (true, 5 << 30), (true, 5 << 30), (true, 4096)]),
            told("mlx5_3:1")
        );
        assert_eq!(named(&[busy, busy, busy, busy, busy, busy, idle, idle]), told("mlx5_6:1 mlx5_7:1"));
        // A job on a few GPUs, a job that has moved little, and a job over all rails.
        assert_eq!(named(&[busy, busy, idle, idle]), None);
        assert_eq!(named(&[busy, idle]), None);
        assert_eq!(named(&[busy, busy, (false, 1 << 20), idle]), None);
        assert_eq!(named(&[busy, busy, busy, (false, 1)]), None);
        let packets = |packets| port(false, None, Some(packets));
        let all = [packets(1 << 30), packets(1 << 30), packets(1 << 30), packets(0)];
        let message = finding(&all, Duration::from_secs(3600), false, Expected::Traffic).unwrap().message;
        assert!(message.starts_with("No data has moved over mlx5_1 in 1h, while"), "{message}");
    }

    /// Messages that a port receives are not requests in this sense, so a count of 0 proves nothing.
    #[test]
    fn requests_alone_prove_nothing() {
        let requests = |requests| PortTraffic {
            traffic: Traffic { requests: Some(requests), ..Traffic::default() },
            ..port(false, None, None)
        };
        assert_eq!(finding(&[requests(0)], Duration::from_secs(90), false, Expected::Traffic), None);
        assert_eq!(
            finding(&[requests(1 << 30), requests(0)], Duration::from_secs(90), false, Expected::Traffic),
            None
        );
    }

    #[test]
    fn the_finding_needs_every_visible_port_to_be_idle() {
        let is_told = |ports: &[PortTraffic]| {
            finding(ports, Duration::from_secs(90), false, Expected::Traffic).is_some()
        };
        assert!(!is_told(&[]));
        assert!(is_told(&[port(false, Some(0), Some(0))]));
        assert!(is_told(&[port(false, None, Some(0)), port(true, Some(4096), Some(16))]));
        assert!(!is_told(&[port(false, Some(0), None), port(false, Some(1), None)]));
        assert!(!is_told(&[port(false, None, Some(1))]));
        assert!(!is_told(&[port(true, Some(1 << 20), None)]));
        assert!(!is_told(&[port(false, Some(0), None), port(false, None, None)]));
        let told = |is_cut_short| {
            let ran = Duration::from_millis(90_400);
            finding(&[port(false, Some(0), Some(0))], ran, is_cut_short, Expected::Traffic).unwrap().message
        };
        let told_at_all = "RDMA was planned, but no data has moved over mlx5_1 in 1m 30s: the job ";
        assert_eq!(told(false), format!("{told_at_all}ran on sockets, or on this node alone."));
        assert_eq!(
            told(true),
            format!("{told_at_all}has not begun to communicate, ran on sockets, or ran on this node alone.")
        );
    }
}
