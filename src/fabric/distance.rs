//! How far PCI devices are from each other, in the terms of `nvidia-smi topo -m` and NCCL
//! (`src/graph/topo.h`, `PATH_PIX` and the constants after it).

use crate::facts::pci::PciDevice;
use crate::facts::rdma::{Hca, is_pci_address};

/// Ordered from near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// Behind one PCIe switch.
    Pix,
    /// Behind several PCIe switches, below the same port of the host.
    Pxb,
    /// Across the host bridge.
    Phb,
    /// Across host bridges of one NUMA node.
    Node,
    /// Across NUMA nodes.
    Sys,
}

impl Distance {
    /// Returns whether only PCIe switches are between the two devices, so that GPUDirect RDMA does not go
    /// through the host.
    pub fn is_near(self) -> bool {
        self <= Distance::Pxb
    }

    pub fn word(self) -> &'static str {
        match self {
            Distance::Pix => "PIX",
            Distance::Pxb => "PXB",
            Distance::Phb => "PHB",
            Distance::Node => "NODE",
            Distance::Sys => "SYS",
        }
    }
}

/// Returns how far an HCA is from a GPU; `None` if the location of either is unknown.
pub(crate) fn of_hca(gpu: &PciDevice, hca: &Hca) -> Option<Distance> {
    let path = hca.pci_path.clone()?;
    between(gpu, &PciDevice { path, numa_node: hca.numa_node })
}

/// Returns how far two PCI devices are from each other; `None` if one of them is not a PCI device.
pub(crate) fn between(one: &PciDevice, other: &PciDevice) -> Option<Distance> {
    // Without NUMA, there is one NUMA node, which the kernel calls -1.
    let node = |device: &PciDevice| device.numa_node.unwrap_or(-1);
    let (a, b) = (chain(&one.path)?, chain(&other.path)?);
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    // A switch consists of two bridges on a path: one that its devices share, and one in front of each
    // device.
    let own = a.len().max(b.len()) - shared;
    Some(match (shared, own) {
        (0, _) if node(one) == node(other) => Distance::Node,
        (0, _) => Distance::Sys,
        (1, _) => Distance::Phb,
        (_, 0..=2) => Distance::Pix,
        _ => Distance::Pxb,
    })
}

/// Splits a path into the host bridge, the bridges below it, and the device.
fn chain(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').collect();
    // The host bridge of some PCI domains is below a device of another domain, so the last host bridge
    // counts.
    let bridge = parts.iter().rposition(|part| part.starts_with("pci") && part.contains(':'))?;
    // For a sub-function, the parts below the PCI device do not count.
    let below = parts[bridge + 1..].iter().take_while(|part| is_pci_address(part)).count();
    (below > 0).then(|| parts[bridge..=bridge + below].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &str, numa_node: i32) -> PciDevice {
        PciDevice { path: format!("/sys/devices/{path}"), numa_node: Some(numa_node) }
    }

    #[test]
    fn distances_have_the_names_that_nvidia_smi_prints() {
        // A root port, then a switch with its upstream port and two downstream ports.
        let switch = "pci0000:10/0000:10:01.0/0000:11:00.0";
        let gpu = device(&format!("{switch}/0000:12:00.0/0000:13:00.0"), 0);
        for (path, node, word) in [
            (format!("{switch}/0000:12:04.0/0000:14:00.0"), 0, "PIX"),
            (format!("{switch}/0000:12:04.0/0000:14:00.3"), 0, "PIX"),
            (format!("{switch}/0000:12:04.0/0000:14:00.0/mlx5_core.sf.4"), 0, "PIX"),
            (format!("{switch}/0000:12:08.0/0000:15:00.0/0000:16:00.0/0000:17:00.0"), 0, "PXB"),
            ("pci0000:10/0000:10:02.0/0000:20:00.0".to_owned(), 0, "PHB"),
            ("pci0000:30/0000:30:01.0/0000:31:00.0".to_owned(), 0, "NODE"),
            ("pci0000:90/0000:90:01.0/0000:91:00.0".to_owned(), 1, "SYS"),
        ] {
            let nic = device(&path, node);
            assert_eq!(between(&gpu, &nic).map(Distance::word), Some(word), "{path}");
            assert_eq!(between(&nic, &gpu), between(&gpu, &nic), "{path}");
        }
    }

    #[test]
    fn a_domain_below_a_device_and_what_is_no_pci_device() {
        let below = |end: &str| {
            device(&format!("pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.{end}"), -1)
        };
        assert_eq!(between(&below("0"), &below("1")), Some(Distance::Pix));
        let gpu = device("pci0000:00/0000:00:02.0", -1);
        assert_eq!(between(&gpu, &below("0")), Some(Distance::Node));
        for path in ["virtual/net/rxe0", "pci0000:00", "pci0000:00/virtio0", ""] {
            assert_eq!(between(&gpu, &device(path, -1)), None, "{path}");
        }
    }
}
