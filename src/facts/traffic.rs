//! How much has gone over a port, from its counters of bytes and packets. Each driver names
//! them in its own way.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::reader::Reader;

/// Counts since the driver was loaded, or between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    pub sent: Amount,
    pub received: Amount,
}

/// A field is `None` if the driver does not count it, or if the counters do not show: they do
/// not in a network namespace that shares the HCAs of the host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    pub bytes: Option<u64>,
    pub packets: Option<u64>,
}

impl Traffic {
    /// The difference to an earlier look.
    pub fn since(self, before: Traffic) -> Traffic {
        Traffic { sent: self.sent.since(before.sent), received: self.received.since(before.received) }
    }

    pub fn is_known(self) -> bool {
        self.sent.is_known() || self.received.is_known()
    }
}

impl Amount {
    fn since(self, before: Amount) -> Amount {
        // A counter that is lower than before has begun anew, with the driver.
        let since = |now: Option<u64>, before: Option<u64>| {
            let (now, before) = (now?, before?);
            Some(now.checked_sub(before).unwrap_or(now))
        };
        Amount { bytes: since(self.bytes, before.bytes), packets: since(self.packets, before.packets) }
    }

    fn is_known(self) -> bool {
        self.bytes.is_some() || self.packets.is_some()
    }
}

/// Counters whose sum is a number of units, each of this many bytes.
struct Source(&'static [&'static str], u64);

/// Possible sources; the first that exists counts.
struct Sources {
    bytes: &'static [Source],
    packets: &'static [Source],
}

const SENT: Sources = Sources {
    bytes: &[
        // Counted in words of 32 bits, as in the InfiniBand specification
        // (Documentation/ABI/stable/sysfs-class-infiniband).
        Source(&["counters/port_xmit_data"], 4),
        // drivers/infiniband/hw/efa/efa_verbs.c, bnxt_re/hw_counters.c
        Source(&["hw_counters/tx_bytes"], 1),
        // erdma/erdma_verbs.c, and Alibaba's own driver
        Source(&["hw_counters/tx_bytes_cnt"], 1),
        Source(&["hw_counters/hw_tx_bytes_cnt"], 1),
        // irdma/verbs.c
        Source(&["hw_counters/ip4OutOctets", "hw_counters/ip6OutOctets"], 1),
    ],
    packets: &[
        Source(&["counters/port_xmit_packets"], 1),
        Source(&["hw_counters/tx_pkts"], 1),
        Source(&["hw_counters/tx_packets_cnt"], 1),
        Source(&["hw_counters/hw_tx_packets_cnt"], 1),
        Source(&["hw_counters/ip4OutPkts", "hw_counters/ip6OutPkts"], 1),
        // drivers/infiniband/sw/rxe/rxe_hw_counters.c, which counts no bytes
        Source(&["hw_counters/sent_pkts"], 1),
    ],
};

const RECEIVED: Sources = Sources {
    bytes: &[
        Source(&["counters/port_rcv_data"], 4),
        Source(&["hw_counters/rx_bytes"], 1),
        Source(&["hw_counters/rx_bytes_cnt"], 1),
        Source(&["hw_counters/hw_rx_bytes_cnt"], 1),
        Source(&["hw_counters/ip4InOctets", "hw_counters/ip6InOctets"], 1),
    ],
    packets: &[
        Source(&["counters/port_rcv_packets"], 1),
        Source(&["hw_counters/rx_pkts"], 1),
        Source(&["hw_counters/rx_packets_cnt"], 1),
        Source(&["hw_counters/hw_rx_packets_cnt"], 1),
        Source(&["hw_counters/ip4InPkts", "hw_counters/ip6InPkts"], 1),
        Source(&["hw_counters/rcvd_pkts"], 1),
    ],
};

/// The counts of a port since its driver was loaded.
pub fn read(reader: &Reader, hca: &str, port: u32) -> Traffic {
    let folder = reader.path(format!("/sys/class/infiniband/{hca}/ports/{port}"));
    let amount = |sources: &Sources| Amount {
        bytes: first(reader, &folder, sources.bytes),
        packets: first(reader, &folder, sources.packets),
    };
    Traffic { sent: amount(&SENT), received: amount(&RECEIVED) }
}

/// Every port of every HCA, in natural order.
pub fn ports(reader: &Reader) -> Vec<(String, u32)> {
    let mut ports = Vec::new();
    for hca in reader.names("/sys/class/infiniband") {
        let numbers = reader.names(format!("/sys/class/infiniband/{hca}/ports"));
        ports.extend(numbers.iter().filter_map(|number| Some((hca.clone(), number.parse().ok()?))));
    }
    ports
}

fn first(reader: &Reader, folder: &Path, sources: &[Source]) -> Option<u64> {
    sources.iter().find_map(|Source(files, unit)| {
        let counts = files.iter().filter_map(|file| super::counters::count(reader, &folder.join(file)));
        let sum = counts.reduce(u64::saturating_add)?;
        Some(sum.saturating_mul(*unit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Reader) {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("sys/class/infiniband/x_0/ports/1");
        fs::create_dir_all(&port).unwrap();
        for (file, text) in files {
            let path = port.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let reader = Reader::new(root.path());
        (root, reader)
    }

    #[test]
    fn each_driver_is_read_by_its_own_names() {
        let of = |files: &[(&str, &str)]| {
            let (_root, reader) = host(files);
            assert_eq!(ports(&reader), [("x_0".to_owned(), 1)]);
            let traffic = read(&reader, "x_0", 1);
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
    fn a_counter_that_fell_began_anew() {
        let amount = |bytes| Amount { bytes, packets: Some(1) };
        let moved = |before, now| {
            let traffic = |bytes| Traffic { sent: amount(bytes), received: Amount::default() };
            traffic(now).since(traffic(before)).sent
        };
        assert_eq!(moved(Some(5), Some(7)), Amount { bytes: Some(2), packets: Some(0) });
        assert_eq!(moved(Some(5), Some(3)).bytes, Some(3));
        assert_eq!(moved(None, Some(3)).bytes, None);
    }
}
