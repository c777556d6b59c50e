//! How much has gone over a port, from its counters of bytes and packets. Each driver names
//! them in its own way.

use serde::{Deserialize, Serialize, Serializer};

use super::port_counters::PortCounters;
use super::reader::Reader;

/// Counts since the driver was loaded, or between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    pub sent: CounterValue,
    pub received: CounterValue,
    /// The writes, reads and atomic operations of peers that the port has served, if no amount is counted: in a
    /// network namespace that shares the HCAs of the host's, mlx5 shows no more than these.
    pub requests: Option<u64>,
}

/// A field is `None` if the driver does not count it, or does not show it here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CounterValue {
    pub bytes: Option<u64>,
    pub packets: Option<u64>,
}

impl Traffic {
    /// Writes its counters as documents contain them: beside the other fields of a port.
    pub(crate) fn flat<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map([
            ("sent_bytes", self.sent.bytes),
            ("sent_packets", self.sent.packets),
            ("received_bytes", self.received.bytes),
            ("received_packets", self.received.packets),
            ("served_requests", self.requests),
        ])
    }

    /// Returns the difference to an earlier look.
    pub(crate) fn since(self, before: Traffic) -> Traffic {
        Traffic {
            sent: self.sent.since(before.sent),
            received: self.received.since(before.received),
            requests: self.requests.zip(before.requests).map(|(now, before)| more_requests(now, before)),
        }
    }

    /// Returns the sum with what moved before, or elsewhere. What only one of them counts is as that one has it.
    pub(crate) fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            sent: self.sent.plus(other.sent),
            received: self.received.plus(other.received),
            requests: sum(self.requests, other.requests),
        }
    }

    /// Returns this look with the last known value of each counter that it does not show.
    pub(crate) fn with_known(self, before: Traffic) -> Traffic {
        Traffic {
            sent: self.sent.with_known(before.sent),
            received: self.received.with_known(before.received),
            requests: self.requests.or(before.requests),
        }
    }

    /// Returns what has gone in either direction.
    pub(crate) fn both(self) -> CounterValue {
        CounterValue {
            bytes: sum(self.sent.bytes, self.received.bytes),
            packets: sum(self.sent.packets, self.received.packets),
        }
    }

    pub(crate) fn is_known(self) -> bool {
        self.is_amount_known() || self.requests.is_some()
    }

    /// Returns whether all that moves in one direction is counted, and not only what peers ask for.
    pub(crate) fn is_amount_known(self) -> bool {
        self.sent.is_known() || self.received.is_known()
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).reduce(u64::saturating_add)
}

/// mlx5 counts writes, reads and atomic operations with 32 bits each. If the sum has fallen by nearly as much, one of
/// the counters began anew by itself.
fn more_requests(now: u64, before: u64) -> u64 {
    const END: u64 = 1 << 32;
    const CLOSE: u64 = 1 << 28;
    match before.saturating_sub(now) {
        0 => now - before,
        fell if (END - CLOSE..END).contains(&fell) => END - fell,
        _ => now,
    }
}

/// A counter that is lower than before has begun anew, with the driver.
fn since(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    let (now, before) = (now?, before?);
    Some(now.checked_sub(before).unwrap_or(now))
}

impl CounterValue {
    fn since(self, before: CounterValue) -> CounterValue {
        CounterValue { bytes: since(self.bytes, before.bytes), packets: since(self.packets, before.packets) }
    }

    fn with_known(self, before: CounterValue) -> CounterValue {
        CounterValue { bytes: self.bytes.or(before.bytes), packets: self.packets.or(before.packets) }
    }

    fn plus(self, other: CounterValue) -> CounterValue {
        CounterValue { bytes: sum(self.bytes, other.bytes), packets: sum(self.packets, other.packets) }
    }

    fn is_known(self) -> bool {
        self.bytes.is_some() || self.packets.is_some()
    }
}

/// Where a counter is: in `counters`, or in `hw_counters`.
enum Place {
    Port,
    Hardware,
}

use Place::{Hardware, Port};

/// Counters whose sum is a number of units, each of this many bytes.
struct CounterSource(Place, &'static [&'static str], u64);

/// Possible sources; the first that exists counts.
struct CounterSources {
    bytes: &'static [CounterSource],
    packets: &'static [CounterSource],
}

const SENT: CounterSources = CounterSources {
    bytes: &[
        // Counted in words of 32 bits, as in the InfiniBand specification
        // (Documentation/ABI/stable/sysfs-class-infiniband).
        CounterSource(Port, &["port_xmit_data"], 4),
        // drivers/infiniband/hw/efa/efa_verbs.c, bnxt_re/hw_counters.c
        CounterSource(Hardware, &["tx_bytes"], 1),
        // erdma/erdma_verbs.c, and Alibaba's own driver
        CounterSource(Hardware, &["tx_bytes_cnt"], 1),
        CounterSource(Hardware, &["hw_tx_bytes_cnt"], 1),
        // irdma/verbs.c
        CounterSource(Hardware, &["ip4OutOctets", "ip6OutOctets"], 1),
    ],
    packets: &[
        CounterSource(Port, &["port_xmit_packets"], 1),
        CounterSource(Hardware, &["tx_pkts"], 1),
        CounterSource(Hardware, &["tx_packets_cnt"], 1),
        CounterSource(Hardware, &["hw_tx_packets_cnt"], 1),
        CounterSource(Hardware, &["ip4OutPkts", "ip6OutPkts"], 1),
        // drivers/infiniband/sw/rxe/rxe_hw_counters.c, which counts no bytes
        CounterSource(Hardware, &["sent_pkts"], 1),
    ],
};

const RECEIVED: CounterSources = CounterSources {
    bytes: &[
        CounterSource(Port, &["port_rcv_data"], 4),
        CounterSource(Hardware, &["rx_bytes"], 1),
        CounterSource(Hardware, &["rx_bytes_cnt"], 1),
        CounterSource(Hardware, &["hw_rx_bytes_cnt"], 1),
        CounterSource(Hardware, &["ip4InOctets", "ip6InOctets"], 1),
    ],
    packets: &[
        CounterSource(Port, &["port_rcv_packets"], 1),
        CounterSource(Hardware, &["rx_pkts"], 1),
        CounterSource(Hardware, &["rx_packets_cnt"], 1),
        CounterSource(Hardware, &["hw_rx_packets_cnt"], 1),
        CounterSource(Hardware, &["ip4InPkts", "ip6InPkts"], 1),
        CounterSource(Hardware, &["rcvd_pkts"], 1),
    ],
};

/// What peers ask for: drivers/infiniband/hw/mlx5/counters.c.
const REQUESTS: &[&str] = &["rx_write_requests", "rx_read_requests", "rx_atomic_requests"];

/// Returns the counts of a port since its driver was loaded.
pub(crate) fn read(counters: &PortCounters) -> Traffic {
    let amount = |sources: &CounterSources| CounterValue {
        bytes: first(counters, sources.bytes),
        packets: first(counters, sources.packets),
    };
    let traffic = Traffic { sent: amount(&SENT), received: amount(&RECEIVED), requests: None };
    if traffic.is_amount_known() {
        return traffic;
    }
    let requests = REQUESTS.iter().filter_map(|name| counters.of_hardware(name));
    Traffic { requests: requests.reduce(u64::saturating_add), ..traffic }
}

/// Returns only the bytes that have gone in each direction, or the packets if no bytes are counted: what shows whether
/// a port rests.
pub(crate) fn least(counters: &PortCounters) -> [Option<u64>; 2] {
    [&SENT, &RECEIVED]
        .map(|sources| first(counters, sources.bytes).or_else(|| first(counters, sources.packets)))
}

/// Returns every port of every HCA, in natural order.
pub(crate) fn ports(reader: &Reader) -> Vec<(String, u32)> {
    let mut ports = Vec::new();
    for hca in reader.names("/sys/class/infiniband") {
        let numbers = reader.names(format!("/sys/class/infiniband/{hca}/ports"));
        ports.extend(numbers.iter().filter_map(|number| Some((hca.clone(), number.parse().ok()?))));
    }
    ports
}

fn first(counters: &PortCounters, sources: &[CounterSource]) -> Option<u64> {
    sources.iter().find_map(|CounterSource(place, names, unit)| {
        let count = |name: &&str| match place {
            Port => counters.of_port(name),
            Hardware => counters.of_hardware(name),
        };
        // Without the extended counters of the IBTA, they have 32 bits, and stay at the maximum.
        let counts = |count: &u64| !matches!(place, Port) || *count != u64::from(u32::MAX);
        let sum = names.iter().filter_map(count).filter(counts).reduce(u64::saturating_add)?;
        Some(sum.saturating_mul(*unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;
    use crate::facts::port_counters::Counters;

    fn host(files: &[(&str, &str)]) -> (FakeRoot, Reader) {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        root.folder(port);
        root.files(port, files);
        let reader = root.reader();
        (root, reader)
    }

    #[test]
    fn each_driver_is_read_by_its_own_names() {
        let of = |files: &[(&str, &str)]| {
            let (_root, reader) = host(files);
            assert_eq!(ports(&reader), [("x_0".to_owned(), 1)]);
            let traffic = read(&Counters::new(&reader).of("x_0", 1));
            assert!(reader.into_unreadable().is_empty());
            (traffic.sent.bytes, traffic.sent.packets, traffic.received.bytes, traffic.received.packets)
        };
        assert_eq!(of(&[]), (None, None, None, None));
        let mlx5 = [
            ("counters/port_xmit_data", "1000\n"),
            ("counters/port_xmit_packets", "7\n"),
            ("counters/port_rcv_data", "2000\n"),
            ("counters/port_rcv_packets", "N/A (no PMA)\n"),
            ("hw_counters/rx_write_requests", "3\n"),
        ];
        assert_eq!(of(&mlx5), (Some(4000), Some(7), Some(8000), None));
        let irdma = [
            ("hw_counters/ip4OutOctets", "5\n"),
            ("hw_counters/ip6OutOctets", "6\n"),
            ("hw_counters/ip4InPkts", "2"),
        ];
        assert_eq!(of(&irdma), (Some(11), None, None, Some(2)));
        assert_eq!(of(&[("hw_counters/sent_pkts", "9\n")]), (None, Some(9), None, None));
        assert_eq!(of(&[("hw_counters/hw_tx_bytes_cnt", "9\n")]), (Some(9), None, None, None));
    }

    #[test]
    fn peer_requests_count_if_no_other_counter_exists() {
        let requests = |files: &[(&str, &str)]| {
            let (_root, reader) = host(files);
            let traffic = read(&Counters::new(&reader).of("x_0", 1));
            (traffic.requests, traffic.is_known(), traffic.is_amount_known())
        };
        let asked = [("hw_counters/rx_write_requests", "3\n"), ("hw_counters/rx_read_requests", "4\n")];
        assert_eq!(requests(&asked), (Some(7), true, false));
        assert_eq!(requests(&[asked[0], ("counters/port_rcv_data", "5\n")]), (None, true, true));
    }

    #[test]
    fn a_counter_that_fell_began_anew() {
        let amount = |bytes| CounterValue { bytes, packets: Some(1) };
        let moved = |before, now| {
            let traffic = |bytes| Traffic { sent: amount(bytes), ..Traffic::default() };
            traffic(now).since(traffic(before)).sent
        };
        assert_eq!(moved(Some(5), Some(7)), CounterValue { bytes: Some(2), packets: Some(0) });
        assert_eq!(moved(Some(5), Some(3)).bytes, Some(3));
        assert_eq!(moved(None, Some(3)).bytes, None);
    }

    #[test]
    fn requests_that_peers_have_made_wrap_and_sums_keep_what_is_known() {
        let of = |requests| Traffic { requests, ..Traffic::default() };
        let more = |before, now| of(Some(now)).since(of(Some(before))).requests.unwrap();
        assert_eq!((more(5, 5), more(5, 9), more(7, 5)), (0, 4, 5));
        assert_eq!(more(u64::from(u32::MAX), 5), 6, "one of 32 bits began anew");
        assert_eq!(more((1 << 32) + 90, 100), 10, "and the others did not");
        assert_eq!(more(1 << 31, 5), 5, "cleared");
        let sent = |bytes| Traffic { sent: CounterValue { bytes, packets: None }, ..Traffic::default() };
        assert_eq!(sent(Some(3)).plus(sent(Some(4))), sent(Some(7)));
        assert_eq!(sent(Some(3)).plus(sent(None)), sent(Some(3)));
        assert_eq!(sent(None).plus(sent(None)), Traffic::default());
    }
}
