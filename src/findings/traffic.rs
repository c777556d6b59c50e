//! Whether the job has used the RDMA that was planned.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::facts::traffic::{Amount, Traffic};
use crate::finding::{Finding, Id};
use crate::text::{condensed, duration, visible};

/// A port, and what went over it in some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    pub hca: String,
    pub port: u32,
    pub is_infiniband: bool,
    pub traffic: Traffic,
}

/// `mlx5_1..mlx5_8`.
pub fn names(moved: &[Moved]) -> String {
    let names: Vec<&str> = moved.iter().map(|port| port.hca.as_str()).collect();
    visible(&condensed(&names))
}

/// On InfiniBand, the packets of the subnet manager count as well.
const OF_MANAGEMENT: Amount = Amount { bytes: Some(64 * 1024), packets: Some(256) };

/// The finding, where the counters tell that nothing has moved on any port.
pub fn finding(moved: &[Moved], ran: Duration) -> Option<Finding> {
    if moved.is_empty() || moved.iter().any(|port| !port.traffic.is_known() || has_moved(port)) {
        return None;
    }
    let message = format!(
        "RDMA was planned, and nothing has moved over {} in {}: the job ran on sockets, or on this node alone.",
        names(moved),
        duration(ran)
    );
    let ports = moved.iter().map(|port| format!("{}:{}", port.hca, port.port));
    Some(Finding::warning(Id::NoTraffic, message).about_ports(ports).with_fix(
        "Start the job with NCCL_DEBUG=INFO and look for NET/IB or NET/Socket; rdma-init self-test proves the fabric.",
    ))
}

fn has_moved(port: &Moved) -> bool {
    let least = if port.is_infiniband { OF_MANAGEMENT } else { Amount { bytes: Some(0), packets: Some(0) } };
    let exceeds = |amount: Amount| match amount.bytes {
        Some(_) => amount.bytes > least.bytes,
        None => amount.packets > least.packets,
    };
    exceeds(port.traffic.sent) || exceeds(port.traffic.received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::traffic::Traffic;

    fn port(is_infiniband: bool, bytes: Option<u64>, packets: Option<u64>) -> Moved {
        let sent = Amount { bytes, packets };
        Moved {
            hca: "mlx5_1".into(),
            port: 1,
            is_infiniband,
            traffic: Traffic { sent, received: Amount::default() },
        }
    }

    #[test]
    fn nothing_is_nothing_on_every_port_that_can_be_seen() {
        let is_told = |ports: &[Moved]| finding(ports, Duration::from_secs(90)).is_some();
        assert!(!is_told(&[]));
        assert!(is_told(&[port(false, Some(0), Some(0))]));
        assert!(is_told(&[port(false, None, Some(0)), port(true, Some(4096), Some(16))]));
        assert!(!is_told(&[port(false, Some(0), None), port(false, Some(1), None)]));
        assert!(!is_told(&[port(false, None, Some(1))]));
        assert!(!is_told(&[port(true, Some(1 << 20), None)]));
        assert!(!is_told(&[port(false, Some(0), None), port(false, None, None)]));
        assert_eq!(
            finding(&[port(false, Some(0), Some(0))], Duration::from_millis(90_400)).unwrap().message,
            "RDMA was planned, and nothing has moved over mlx5_1 in 1m 30s: the job ran on sockets, or on this node alone."
        );
    }
}
