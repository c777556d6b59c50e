//! The table of metrics: the name of each one, and where its value comes from.

use crate::facts::port_sample::PortSample;

pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A metric of a port.
pub(super) struct Field {
    /// Without the common prefix, and without `_total`.
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    /// Reads a value that is not simply a counter with one name.
    value: Option<fn(&PortSample) -> Option<u64>>,
    /// The kernel's names; the first one that exists counts.
    of_port: &'static [&'static str],
    pub of_hardware: &'static [&'static str],
}

impl Field {
    /// Returns the value; `None` if the port does not report it.
    pub(super) fn of(&self, port: &PortSample) -> Option<u64> {
        let of_port = || self.of_port.iter().find_map(|name| port.of_port.get(*name).copied());
        let of_hardware = || self.of_hardware.iter().find_map(|name| port.of_hardware.get(*name).copied());
        match self.value {
            Some(value) => value(port),
            None => of_port().or_else(of_hardware),
        }
    }

    const fn told(
        name: &'static str,
        kind: Kind,
        help: &'static str,
        value: fn(&PortSample) -> Option<u64>,
    ) -> Field {
        Field { name, kind, help, value: Some(value), of_port: &[], of_hardware: &[] }
    }

    const fn counter(
        name: &'static str,
        help: &'static str,
        of_port: &'static [&'static str],
        of_hardware: &'static [&'static str],
    ) -> Field {
        Field { name, kind: Kind::Counter, help, value: None, of_port, of_hardware }
    }
}

pub(super) const FIELDS: &[Field] = &[
    Field::told(
        "state_id",
        Kind::Gauge,
        "The state of the port: 1 is down, 2 is initializing, 3 is armed, 4 is active.",
        |port| port.look.errors.state(),
    ),
    Field::told(
        "physical_state_id",
        Kind::Gauge,
        "The physical state of the port: 2 is polling, 3 is disabled, 5 is up.",
        |port| port.physical_state,
    ),
    Field::told("rate_bytes_per_second", Kind::Gauge, "The rate of the port.", PortSample::rate),
    Field::told("port_data_received_bytes", Kind::Counter, "Bytes that the port has received.", |port| {
        port.look.traffic.received.bytes
    }),
    Field::told("port_data_transmitted_bytes", Kind::Counter, "Bytes that the port has sent.", |port| {
        port.look.traffic.sent.bytes
    }),
    Field::told("port_packets_received", Kind::Counter, "Packets that the port has received.", |port| {
        port.look.traffic.received.packets
    }),
    Field::told("port_packets_transmitted", Kind::Counter, "Packets that the port has sent.", |port| {
        port.look.traffic.sent.packets
    }),
    // Soft-RoCE counts this among its hardware counters.
    Field::counter("link_downed", "Times that the link went down.", &["link_downed"], &["link_downed"]),
    Field::counter(
        "excessive_buffer_overrun_errors",
        "Times that the buffers of the port overran in several flow control periods in a row.",
        &["excessive_buffer_overrun_errors"],
        &[],
    ),
    Field::counter(
        "link_error_recovery",
        "Times that the link recovered from an error by itself.",
        &["link_error_recovery"],
        &[],
    ),
    Field::counter(
        "local_link_integrity_errors",
        "Times that local physical errors passed their threshold.",
        &["local_link_integrity_errors"],
        &[],
    ),
    Field::counter(
        "multicast_packets_received",
        "Multicast packets that the port has received.",
        &["multicast_rcv_packets"],
        &[],
    ),
    Field::counter(
        "multicast_packets_transmitted",
        "Multicast packets that the port has sent.",
        &["multicast_xmit_packets"],
        &[],
    ),
    Field::counter(
        "port_constraint_errors_received",
        "Received packets that a constraint of the port discarded, such as a partition key.",
        &["port_rcv_constraint_errors"],
        &[],
    ),
    Field::counter(
        "port_constraint_errors_transmitted",
        "Packets that a constraint of the port kept from being sent, such as a partition key.",
        &["port_xmit_constraint_errors"],
        &[],
    ),
    Field::counter(
        "port_discards_transmitted",
        "Packets that the port discarded instead of sending them, because it was down or congested.",
        &["port_xmit_discards"],
        &[],
    ),
    Field::counter(
        "port_errors_received",
        "Packets with an error that the port has received.",
        &["port_rcv_errors"],
        &[],
    ),
    Field::counter(
        "port_receive_remote_physical_errors",
        "Packets that a switch or a port before this one had marked as bad.",
        &["port_rcv_remote_physical_errors"],
        &[],
    ),
    Field::counter(
        "port_receive_switch_relay_errors",
        "Packets that a switch could not forward.",
        &["port_rcv_switch_relay_errors"],
        &[],
    ),
    Field::counter(
        "port_transmit_wait",
        "Ticks in which the port had data to send and could not send it.",
        &["port_xmit_wait"],
        &[],
    ),
    Field::counter("symbol_error", "Errors of symbols on the lanes of the link.", &["symbol_error"], &[]),
    Field::counter(
        "unicast_packets_received",
        "Unicast packets that the port has received.",
        &["unicast_rcv_packets"],
        &[],
    ),
    Field::counter(
        "unicast_packets_transmitted",
        "Unicast packets that the port has sent.",
        &["unicast_xmit_packets"],
        &[],
    ),
    Field::counter(
        "vl15_dropped",
        "Management packets that the port dropped for lack of buffers.",
        &["VL15_dropped"],
        &[],
    ),
    Field::counter(
        "duplicate_requests_packets",
        "Requests that arrived again although they had been served.",
        &[],
        &["duplicate_request"],
    ),
    Field::counter(
        "implied_nak_seq_errors",
        "Acknowledgements of a later packet than the expected one.",
        &[],
        &["implied_nak_seq_err"],
    ),
    Field::counter(
        "local_ack_timeout_errors",
        "Times that an acknowledgement did not arrive in time, so the packet was sent again.",
        &[],
        &["local_ack_timeout_err"],
    ),
    Field::counter(
        "np_cnp_packets_sent",
        "Notifications of congestion that the port has sent.",
        &[],
        &["np_cnp_sent"],
    ),
    Field::counter(
        "np_ecn_marked_roce_packets_received",
        "Packets that a switch had marked for congestion.",
        &[],
        &["np_ecn_marked_roce_packets"],
    ),
    Field::counter(
        "out_of_buffer_drops",
        "Packets that were dropped because no receive request was posted.",
        &[],
        &["out_of_buffer"],
    ),
    Field::counter(
        "out_of_sequence_packets_received",
        "Packets that arrived out of sequence.",
        &[],
        &["out_of_sequence"],
    ),
    Field::counter(
        "packet_sequence_errors",
        "Notices of peers that packets were missing, after which they were sent again.",
        &[],
        &["packet_seq_err"],
    ),
    Field::counter("req_cqes_errors", "Requests of this side that failed.", &[], &["req_cqe_error"]),
    Field::counter(
        "req_cqes_flush_errors",
        "Requests of this side that failed because an earlier one did.",
        &[],
        &["req_cqe_flush_error"],
    ),
    Field::counter(
        "req_remote_access_errors",
        "Requests of this side that the peer refused for its memory.",
        &[],
        &["req_remote_access_errors"],
    ),
    Field::counter(
        "req_remote_invalid_request_errors",
        "Requests of this side that the peer found invalid.",
        &[],
        &["req_remote_invalid_request"],
    ),
    Field::counter(
        "resp_cqes_errors",
        "Requests of peers that failed on this side.",
        &[],
        &["resp_cqe_error"],
    ),
    Field::counter(
        "resp_cqes_flush_errors",
        "Requests of peers that failed because an earlier one did.",
        &[],
        &["resp_cqe_flush_error"],
    ),
    Field::counter(
        "resp_local_length_errors",
        "Requests of peers that were longer than the memory for them.",
        &[],
        &["resp_local_length_error"],
    ),
    Field::counter(
        "resp_remote_access_errors",
        "Requests of peers that this side refused for its memory.",
        &[],
        &["resp_remote_access_errors"],
    ),
    Field::counter(
        "rnr_nak_retry_packets_received",
        "Notices of peers that they were not ready to receive, after which packets were sent again.",
        &[],
        &["rnr_nak_retry_err"],
    ),
    Field::counter("roce_adp_retransmits", "Adaptive retransmissions.", &[], &["roce_adp_retrans"]),
    Field::counter(
        "roce_adp_retransmits_timeout",
        "Timeouts of adaptive retransmissions.",
        &[],
        &["roce_adp_retrans_to"],
    ),
    Field::counter(
        "roce_slow_restart_used",
        "Times that slow restart was used.",
        &[],
        &["roce_slow_restart"],
    ),
    Field::counter(
        "roce_slow_restart_cnps",
        "Notifications of congestion that slow restart has sent.",
        &[],
        &["roce_slow_restart_cnps"],
    ),
    Field::counter("roce_slow_restart", "Times that slow restart began.", &[], &["roce_slow_restart_trans"]),
    Field::counter(
        "rp_cnp_packets_handled",
        "Notifications of congestion that made the port slow down.",
        &[],
        &["rp_cnp_handled"],
    ),
    Field::counter(
        "rp_cnp_ignored_packets_received",
        "Notifications of congestion that the port ignored.",
        &[],
        &["rp_cnp_ignored"],
    ),
    Field::counter(
        "rx_atomic_requests",
        "Atomic operations of peers that the port has received.",
        &[],
        &["rx_atomic_requests"],
    ),
    Field::counter(
        "rx_dct_connect_requests",
        "Requests for dynamic connections that the port has received.",
        &[],
        &["rx_dct_connect"],
    ),
    Field::counter(
        "rx_read_requests",
        "Reads of peers that the port has received.",
        &[],
        &["rx_read_requests"],
    ),
    Field::counter(
        "rx_write_requests",
        "Writes of peers that the port has received.",
        &[],
        &["rx_write_requests"],
    ),
    Field::counter(
        "rx_icrc_encapsulated_errors",
        "RoCE packets with a bad checksum that the port has received.",
        &[],
        &["rx_icrc_encapsulated"],
    ),
];
