//! A port at one moment, with all its counters since the driver was loaded: a look, and what only metrics show.

use std::collections::BTreeMap;

use super::port_counters::Counters;
use super::port_look::{self, PortLook};
use super::reader::Reader;
use super::traffic;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PortSample {
    pub hca: String,
    pub port: u32,
    pub look: PortLook,
    /// `enum ib_port_phys_state` of `rdma/ib_verbs.h`.
    pub physical_state: Option<u64>,
    /// By the kernel's names: those of `counters`, and those of `hw_counters`.
    pub of_port: BTreeMap<String, u64>,
    pub of_hardware: BTreeMap<String, u64>,
}

impl PortSample {
    /// Returns the rate in bytes per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.look.rate.as_deref().and_then(bytes_per_second)
    }
}

/// Returns all ports that exist now, in natural order.
pub(crate) fn all(reader: &Reader) -> Vec<PortSample> {
    let counters = Counters::new(reader);
    let look = |(hca, port): (String, u32)| {
        let look = port_look::read(reader, &counters, &hca, port, None, None);
        with_all(&counters, &hca, port, look)
    };
    traffic::ports(reader).into_iter().map(look).collect()
}

/// Adds to a look at a port what else the port shows now.
pub(crate) fn with_all(counters: &Counters, hca: &str, port: u32, look: PortLook) -> PortSample {
    let of = counters.of(hca, port);
    PortSample {
        hca: hca.to_owned(),
        port,
        look,
        physical_state: of.physical_state(),
        of_port: of.all_of_port(),
        of_hardware: of.all_of_hardware(),
    }
}

/// Of `400 Gb/sec (4X NDR)`.
pub(crate) fn bytes_per_second(text: &str) -> Option<u64> {
    let gigabits: f64 = text.split_whitespace().next()?.parse().ok()?;
    (gigabits.is_finite() && gigabits >= 0.0).then_some((gigabits * 1e9 / 8.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn a_port_shows_what_it_has() {
        let root = FakeRoot::new();
        let files = [
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("rate", "400 Gb/sec (4X NDR)\n"),
            ("counters/port_rcv_data", "10\n"),
            ("hw_counters/out_of_sequence", "2\n"),
        ];
        root.files("sys/class/infiniband/mlx5_0/ports/1", &files);
        root.folder("sys/class/infiniband/x_0/ports/2");
        let all = all(&root.reader());
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].look.errors.state(), all[0].physical_state, all[0].rate()),
            (Some(4), Some(5), Some(50_000_000_000))
        );
        assert_eq!(all[0].look.traffic.received.bytes, Some(40));
        assert_eq!((all[0].of_port.len(), all[0].of_hardware.len()), (1, 1));
        assert_eq!((all[1].hca.as_str(), all[1].port, all[1].look.errors.is_gone()), ("x_0", 2, true));
        assert!(all[1].of_port.is_empty() && all[1].of_hardware.is_empty());
    }

    #[test]
    fn a_rate_that_is_no_number_is_unknown() {
        assert_eq!(bytes_per_second("2.5 Gb/sec (1X SDR)"), Some(312_500_000));
        assert_eq!(["", "-1 Gb/sec", "NaN", "inf"].map(bytes_per_second), [None; 4]);
    }
}
