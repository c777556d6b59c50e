//! What has gone over the HCAs.

use crate::facts::traffic::{CounterValue, Traffic};
use crate::findings::traffic::PortTraffic;
use crate::text::amount;
use crate::text::{counted, visible};

/// Returns a line for each port whose counters show.
pub(crate) fn lines(moved: &[PortTraffic]) -> Vec<String> {
    let shown = moved.iter().filter(|port| port.traffic.is_known());
    let line = |port: &PortTraffic| {
        let Traffic { sent, received, requests } = port.traffic;
        let is_one_of_several = moved.iter().filter(|other| other.hca == port.hca).count() > 1;
        let number = if is_one_of_several { format!(":{}", port.port) } else { String::new() };
        let name = format!("{}{number}", visible(&port.hca));
        match requests {
            Some(count) => {
                format!("{name} has served {} of peers", counted(saturated(count), "RDMA request"))
            }
            None => format!("{name} sent {} and received {}", shown_amount(sent), shown_amount(received)),
        }
    };
    shown.map(line).collect()
}

/// In bytes, or in packets if only those are counted.
fn shown_amount(of: CounterValue) -> String {
    match of {
        CounterValue { bytes: Some(bytes), .. } => amount(bytes),
        CounterValue { packets: Some(packets), .. } => counted(saturated(packets), "packet"),
        CounterValue { .. } => "what is not counted".to_owned(),
    }
}

fn saturated(count: u64) -> usize {
    count.try_into().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::traffic::names;

    #[test]
    fn a_line_says_what_is_counted() {
        let port = |hca: &str, port, bytes, packets| PortTraffic {
            hca: hca.to_owned(),
            port,
            is_infiniband: false,
            traffic: Traffic {
                sent: CounterValue { bytes, packets },
                received: CounterValue { bytes, packets: Some(1) },
                requests: None,
            },
        };
        let moved = [
            port("a_0", 1, Some(3 << 30), Some(7)),
            port("b_0", 1, None, Some(2)),
            port("b_0", 2, None, None),
        ];
        assert_eq!(
            lines(&moved),
            [
                "a_0 sent 3 GiB and received 3 GiB",
                "b_0:1 sent 2 packets and received 1 packet",
                "b_0:2 sent what is not counted and received 1 packet",
            ]
        );
        assert_eq!(names(&moved[..2]), "a_0, b_0");
        let traffic = Traffic { requests: Some(4211), ..Traffic::default() };
        let served = PortTraffic { traffic, ..port("c_0", 1, None, None) };
        assert_eq!(lines(&[served]), ["c_0 has served 4211 RDMA requests of peers"]);
    }
}
