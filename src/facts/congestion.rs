//! How often a RoCE port took part in congestion control. In a lossless network that is usual, so it is no trouble of
//! the port.

use serde::{Deserialize, Serialize};

use super::port_counters::PortCounters;

/// Counts since the driver was loaded, or between two looks. A field is `None` if the driver does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Congestion {
    /// Congestion notification packets (CNP) that the port has sent.
    pub cnps_sent: Option<u64>,
    /// Those that it has received, and has slowed down for.
    pub cnps_handled: Option<u64>,
    /// Packets that it has received with a switch's mark (ECN).
    pub ecn_marked: Option<u64>,
}

/// The names of drivers/infiniband/hw/mlx5/counters.c, bnxt_re/hw_counters.c and irdma/verbs.c.
const SENT: &[&str] = &["np_cnp_sent", "tx_cnp_pkts", "cnpSent"];
const HANDLED: &[&str] = &["rp_cnp_handled", "rx_cnp_pkts", "cnpHandled"];
const MARKED: &[&str] = &["np_ecn_marked_roce_packets", "rx_ecn_marked_pkts", "RxECNMrkd"];

pub(crate) fn read(counters: &PortCounters) -> Congestion {
    let first = |names: &[&str]| names.iter().find_map(|name| counters.of_hardware(name));
    Congestion { cnps_sent: first(SENT), cnps_handled: first(HANDLED), ecn_marked: first(MARKED) }
}

impl Congestion {
    /// Returns the difference to an earlier look. A counter that is lower than before has begun anew.
    pub(crate) fn since(self, before: Congestion) -> Congestion {
        let since = |now: Option<u64>, before: Option<u64>| {
            let (now, before) = (now?, before?);
            Some(now.checked_sub(before).unwrap_or(now))
        };
        Congestion {
            cnps_sent: since(self.cnps_sent, before.cnps_sent),
            cnps_handled: since(self.cnps_handled, before.cnps_handled),
            ecn_marked: since(self.ecn_marked, before.ecn_marked),
        }
    }

    pub(crate) fn plus(self, other: Congestion) -> Congestion {
        let sum =
            |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).reduce(u64::saturating_add);
        Congestion {
            cnps_sent: sum(self.cnps_sent, other.cnps_sent),
            cnps_handled: sum(self.cnps_handled, other.cnps_handled),
            ecn_marked: sum(self.ecn_marked, other.ecn_marked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;

    #[test]
    fn each_driver_is_read_by_its_own_names() {
        let root = FakeRoot::new();
        let look = |hca: &str, files: &[(&str, &str)]| {
            root.files(&format!("sys/class/infiniband/{hca}/ports/1/hw_counters"), files);
            let reader = root.reader();
            read(&Counters::new(&reader).of(hca, 1))
        };
        let of = |cnps_sent, cnps_handled, ecn_marked| Congestion { cnps_sent, cnps_handled, ecn_marked };
        let before = look("x_0", &[("np_cnp_sent", "7\n"), ("np_ecn_marked_roce_packets", "9\n")]);
        assert_eq!(before, of(Some(7), None, Some(9)));
        let now = look("x_0", &[("np_cnp_sent", "9\n"), ("np_ecn_marked_roce_packets", "4\n")]);
        assert_eq!(now.since(before), of(Some(2), None, Some(4)), "one was cleared");
        let bnxt = look("x_1", &[("tx_cnp_pkts", "1\n"), ("rx_cnp_pkts", "2\n")]);
        assert_eq!(bnxt.plus(now.since(before)), of(Some(3), Some(2), Some(4)));
        assert_eq!(look("x_2", &[("cnpHandled", "5\n")]), of(None, Some(5), None));
        assert_eq!(look("x_3", &[]), Congestion::default());
    }
}
