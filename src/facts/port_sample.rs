//! A port at one moment, with all its counters since the driver was loaded: a look, and what only metrics show.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::port_counters::Counters;
use super::port_look::{self, PortLook};
use super::rdma_statistics::Statistics;
use super::reader::Reader;
use super::traffic;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PortSample {
    pub hca: String,
    pub port: u32,
    pub device: DeviceInfo,
    pub look: PortLook,
    /// `enum ib_port_phys_state` of `rdma/ib_verbs.h`.
    pub physical_state: Option<u64>,
    /// By the kernel's names: those of `counters`, and those of `hw_counters`.
    pub of_port: BTreeMap<String, u64>,
    pub of_hardware: BTreeMap<String, u64>,
}

/// What a device says about itself (`/sys/class/infiniband/DEVICE`); `None` for what its driver does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeviceInfo {
    pub board_id: Option<String>,
    pub firmware: Option<String>,
    pub kind: Option<String>,
}

impl DeviceInfo {
    fn read(reader: &Reader, hca: &str) -> DeviceInfo {
        let of = |file: &str| reader.text(format!("/sys/class/infiniband/{hca}/{file}"));
        DeviceInfo { board_id: of("board_id"), firmware: of("fw_ver"), kind: of("hca_type") }
    }
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
        with_all(&counters, DeviceInfo::read(reader, &hca), &hca, port, look)
    };
    traffic::ports(reader).into_iter().map(look).collect()
}

/// Adds to looks at the same ports what else they show, again and again: what it reads stays open.
pub(crate) struct Sampler {
    root: PathBuf,
    reader: Reader,
    statistics: OnceCell<Option<Statistics>>,
    devices: BTreeMap<String, DeviceInfo>,
    samples: u32,
}

/// After so many samples, all files are opened anew, so that a sample shows in the end what the paths say.
const SAMPLES: u32 = 30;

impl Sampler {
    pub(crate) fn new(root: &Path) -> Sampler {
        Sampler {
            root: root.to_owned(),
            reader: Reader::keeping(root),
            statistics: OnceCell::new(),
            devices: BTreeMap::new(),
            samples: 0,
        }
    }

    /// Takes looks at ports, each by the name of its device and its number.
    pub(crate) fn sample<'p>(
        &mut self,
        looks: impl Iterator<Item = (&'p str, u32, &'p PortLook)>,
    ) -> Vec<PortSample> {
        if self.samples == SAMPLES {
            *self = Sampler::new(&self.root);
        }
        self.samples += 1;
        let counters = Counters::with(&self.reader, std::mem::take(&mut self.statistics));
        let devices = &mut self.devices;
        let mut device = |hca: &str| {
            devices.entry(hca.to_owned()).or_insert_with(|| DeviceInfo::read(&self.reader, hca)).clone()
        };
        let samples = looks
            .map(|(hca, port, look)| with_all(&counters, device(hca), hca, port, look.clone()))
            .collect();
        self.statistics = counters.into_statistics();
        samples
    }
}

/// Adds to a look at a port what else the port shows now.
fn with_all(counters: &Counters, device: DeviceInfo, hca: &str, port: u32, look: PortLook) -> PortSample {
    let of = counters.of(hca, port);
    PortSample {
        hca: hca.to_owned(),
        port,
        device,
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
        root.files(
            "sys/class/infiniband/mlx5_0",
            &[("board_id", "MT_0000000838\n"), ("fw_ver", "28.39.1002\n")],
        );
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
        let device = &all[0].device;
        assert_eq!(
            device.board_id.as_deref().zip(device.firmware.as_deref()),
            Some(("MT_0000000838", "28.39.1002"))
        );
        assert_eq!((&device.kind, &all[1].device), (&None, &DeviceInfo::default()));
        assert!(all[1].of_port.is_empty() && all[1].of_hardware.is_empty());
    }

    #[test]
    fn a_sampler_shows_what_is_there_now() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        let mut sampler = Sampler::new(&root.path(""));
        let look = PortLook::default();
        let mut sampled = |sent: &str| {
            root.files(port, &[("phys_state", "5: LinkUp\n"), ("counters/port_xmit_data", sent)]);
            let sample = sampler.sample(std::iter::once(("x_0", 1, &look))).remove(0);
            (sample.physical_state, sample.of_port.get("port_xmit_data").copied())
        };
        for (sent, wanted) in [("1\n", 1), ("2\n", 2)] {
            assert_eq!(sampled(sent), (Some(5), Some(wanted)));
        }
        std::fs::remove_file(root.path(&format!("{port}/counters/port_xmit_data"))).unwrap();
        assert!((0..=SAMPLES).any(|_| sampled("3\n") == (Some(5), Some(3))));
    }

    #[test]
    fn a_rate_that_is_no_number_is_unknown() {
        assert_eq!(bytes_per_second("2.5 Gb/sec (1X SDR)"), Some(312_500_000));
        assert_eq!(["", "-1 Gb/sec", "NaN", "inf"].map(bytes_per_second), [None; 4]);
    }
}
