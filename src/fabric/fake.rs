//! Made-up hosts, for tests of the choice of rails.

use crate::facts::Facts;
use crate::facts::pci::PciDevice;
use crate::facts::rdma::{Hca, LinkLayer, Port, Uverbs};

/// Returns an InfiniBand HCA with one port, which is up.
pub(super) fn hca(n: usize) -> Hca {
    let port =
        Port { number: 1, link_layer: LinkLayer::InfiniBand, state: "ACTIVE".to_owned(), ..Port::default() };
    Hca { name: format!("mlx5_{n}"), uverbs: Some(Uverbs::default()), ports: vec![port], ..Hca::default() }
}

/// Returns a host. Each GPU and HCA is given as its NUMA node and the number of the switch in front of it.
pub(super) fn host(gpus: &[(i32, u32)], hcas: &[(i32, u32)]) -> Facts {
    let path = |switch: u32, device: usize| {
        format!(
            "/sys/devices/pci0000:{switch:02x}/0000:{switch:02x}:01.0/0000:40:00.0/0000:41:{device:02x}.0/0000:{device:02x}:00.0"
        )
    };
    let gpu = |(n, (node, switch)): (usize, &(i32, u32))| PciDevice {
        path: path(*switch, n),
        numa_node: Some(*node),
    };
    let hca = |(n, (node, switch)): (usize, &(i32, u32))| Hca {
        pci_path: Some(path(*switch, 16 + n)),
        numa_node: Some(*node),
        ..hca(n)
    };
    let mut facts = Facts { rdma: hcas.iter().enumerate().map(hca).collect(), ..Facts::default() };
    facts.gpu.count = u32::try_from(gpus.len()).ok();
    facts.gpu.devices = gpus.iter().enumerate().map(gpu).collect();
    facts
}
