//! What has gone over the HCAs.

use crate::facts::traffic::{Amount, Traffic};
use crate::findings::memlock::amount;
use crate::findings::traffic::Moved;
use crate::text::{counted, visible};

/// A line for each port whose counters show.
pub fn lines(moved: &[Moved]) -> Vec<String> {
    let shown = moved.iter().filter(|port| port.traffic.is_known());
    let line = |port: &Moved| {
        let Traffic { sent, received } = port.traffic;
        let is_one_of_several = moved.iter().filter(|other| other.hca == port.hca).count() > 1;
        let number = if is_one_of_several { format!(":{}", port.port) } else { String::new() };
        format!(
            "{}{number} sent {} and received {}",
            visible(&port.hca),
            shown_amount(sent),
            shown_amount(received)
        )
    };
    shown.map(line).collect()
}

/// In bytes, or in packets where only those are counted.
fn shown_amount(of: Amount) -> String {
    match of {
        Amount { bytes: Some(bytes), .. } => amount(bytes),
        Amount { packets: Some(packets), .. } => counted(packets.try_into().unwrap_or(usize::MAX), "packet"),
        Amount { .. } => "what is not counted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::traffic::names;

    #[test]
    fn a_line_says_what_is_counted() {
        let port = |hca: &str, port, bytes, packets| Moved {
            hca: hca.to_owned(),
            port,
            is_infiniband: false,
            traffic: Traffic {
                sent: Amount { bytes, packets },
                received: Amount { bytes, packets: Some(1) },
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
    }
}
