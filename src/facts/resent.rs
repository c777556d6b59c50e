//! How often a port has retransmitted packets because the other end missed some of them. Each driver uses its
//! own names for these counters, and also counts the packets that it has sent.

use super::port_counters::PortCounters;
use super::traffic;

/// Counters of events at the sending end.
const AGAIN: &[&str] = &[
    // drivers/infiniband/hw/mlx5/counters.c, and newer drivers/infiniband/hw/bnxt_re/hw_counters.c
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    // older bnxt_re/hw_counters.c
    "to_retransmits",
    "seq_err_naks_rcvd",
    // drivers/infiniband/hw/efa/efa_verbs.c
    "retrans_pkts",
    // drivers/infiniband/sw/rxe/rxe_hw_counters.c
    "completer_retry_err",
];

/// Counts since the driver was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resent {
    /// `None` if the driver does not count packets, or the counter is not visible here.
    pub packets: Option<u64>,
    pub again: u64,
}

impl Resent {
    /// Returns the difference to an earlier reading.
    pub(crate) fn since(self, before: Resent) -> Resent {
        let packets = self.packets.zip(before.packets).map(|(now, before)| now.saturating_sub(before));
        Resent { packets, again: self.again.saturating_sub(before.again) }
    }
}

/// Reads the counters; `None` if the port has none of them, or shows none here.
pub(crate) fn read(counters: &PortCounters) -> Option<Resent> {
    let again = AGAIN.iter().filter_map(|name| counters.of_hardware(name)).reduce(u64::saturating_add)?;
    Some(Resent { packets: traffic::read(counters).sent.packets, again })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;

    #[test]
    fn a_driver_is_read_by_its_names_or_not_at_all() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        root.folder(&format!("{port}/hw_counters"));
        root.folder(&format!("{port}/counters"));
        let reader = root.reader();
        let read = || read(&Counters::new(&reader).of("x_0", 1));
        assert_eq!(read(), None, "the kernel has no such device");
        let files = [
            ("hw_counters/packet_seq_err", "4\n"),
            ("hw_counters/local_ack_timeout_err", "1\n"),
            ("hw_counters/out_of_sequence", "99\n"),
            ("counters/port_xmit_packets", "7000\n"),
        ];
        root.files(port, &files);
        assert_eq!(read(), Some(Resent { packets: Some(7000), again: 5 }));
    }

    #[test]
    fn what_is_not_counted_makes_no_difference() {
        let of = |packets, again| Resent { packets, again };
        assert_eq!(of(Some(9), 7).since(of(Some(4), 5)), of(Some(5), 2));
        assert_eq!(of(None, 1).since(of(Some(4), 5)), of(None, 0));
    }
}
