//! The counters of a port that show trouble.

use std::collections::BTreeMap;

use super::port_counters::PortCounters;

/// Counters of what goes wrong on the link itself: on its cable and at its two ends. They are
/// in `counters` (`drivers/infiniband/core/sysfs.c`), and for soft-RoCE and mlx5 in
/// `hw_counters`.
pub(crate) const OF_LINK: &[&str] = &[
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "rx_icrc_encapsulated",
];

/// Counters in `hw_counters` of packets that came late, in disorder or not at all. A full
/// fabric and peers that end cause them too.
pub(crate) const OF_TRANSPORT: &[&str] = &[
    // drivers/infiniband/hw/mlx5/counters.c
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    // drivers/infiniband/sw/rxe/rxe_hw_counters.c
    "out_of_seq_request",
    "rcvd_seq_err",
    "rcvd_rnr_err",
    "send_err",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    // drivers/infiniband/hw/erdma/erdma_verbs.c
    "tx_disable_drop_cnt",
    "rx_disable_drop_cnt",
    "tx_bps_limit_drop_cnt",
    "rx_bps_limit_drop_cnt",
    "tx_pps_limit_drop_cnt",
    "rx_pps_limit_drop_cnt",
];

/// Returns the counters of a port that show trouble, by the kernel's names, since the driver was loaded
/// or a user cleared them. Empty if the kernel shows none of them here.
pub(crate) fn read(counters: &PortCounters) -> BTreeMap<String, u64> {
    let of_port = OF_LINK.iter().map(|name| (*name, counters.of_port(name)));
    let of_hardware = OF_LINK.iter().chain(OF_TRANSPORT).map(|name| (*name, counters.of_hardware(name)));
    let all = of_port.chain(of_hardware);
    all.filter_map(|(name, count)| Some((name.to_owned(), count?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;

    #[test]
    fn what_is_no_count_is_left_out() {
        let root = FakeRoot::new();
        let reader = root.reader();
        let read = || read(&Counters::new(&reader).of("mlx5_0", 1));
        assert!(read().is_empty());
        let files = [
            ("counters/symbol_error", "0\n"),
            ("counters/link_downed", "3\n"),
            ("counters/port_rcv_errors", "N/A (no PMA)\n"),
            ("counters/port_xmit_wait", "17\n"),
            ("hw_counters/out_of_sequence", "18446744073709551615\n"),
            ("hw_counters/np_cnp_sent", "4\n"),
            ("hw_counters/packet_seq_err", "-1\n"),
        ];
        root.files("sys/class/infiniband/mlx5_0/ports/1", &files);
        let counts: Vec<_> = read().into_iter().collect();
        let of = |name: &str, count| (name.to_owned(), count);
        assert_eq!(counts, [of("link_downed", 3), of("out_of_sequence", u64::MAX), of("symbol_error", 0)]);
        assert!(reader.into_unreadable().is_empty());
    }
}
