//! AMD's GPUs, as far as rdma-init can see them without ROCm: the kernel's compute driver lists them
//! (`drivers/gpu/drm/amd/amdkfd/kfd_topology.c`).

use super::gpu::{Gpus, Make};
use super::pci::{self, PciDevice};
use super::reader::Reader;

/// The device through which a job uses all GPUs.
const DEVICE: &str = "/dev/kfd";

/// The directory with a directory for each CPU and each GPU, by number; HIP counts the GPUs in this
/// order. A GPU whose render node the container's cgroup denies does not report its properties.
const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The most nodes to read; a machine with 8 GPUs of 8 partitions each has 66.
const MOST: usize = 512;

/// The files that show that the NICs' driver can access GPU memory; RCCL looks for these
/// (`src/transport/net_ib.cc`, `ncclIbGdrSupport`).
const PEER_MEMORY: &[&str] = &[
    "/sys/kernel/mm/memory_peers/amdkfd/version",
    "/sys/kernel/memory_peers/amdkfd/version",
    "/sys/memory_peers/amdkfd/version",
];

/// Reads the GPUs; `None` if this container has none. Reads their locations only if `with_places` is true.
pub(crate) fn read(reader: &Reader, with_places: bool) -> Option<Gpus> {
    if !reader.may_be_there(DEVICE) {
        return None;
    }
    let names = reader.names(NODES);
    let gpus: Vec<GpuNode> = names.iter().take(MOST).filter_map(|name| gpu(reader, name)).collect();
    let mut models: Vec<String> = gpus.iter().map(GpuNode::model).collect();
    models.sort();
    models.dedup();
    let place = |gpu: &GpuNode| pci::place(reader, &format!("/sys/bus/pci/devices/{}", gpu.address()));
    let version = reader.text_if_readable("/sys/module/amdgpu/version");
    Some(Gpus {
        make: Make::Amd,
        count: u32::try_from(gpus.len()).ok().filter(|count| *count > 0),
        models,
        driver: Some(version.map_or("amdgpu".to_owned(), |version| format!("amdgpu {version}"))),
        peer_mapping: None,
        peer_memory: PEER_MEMORY.iter().find(|path| reader.may_be_there(path)).map(|path| (*path).to_owned()),
        devices: if with_places {
            gpus.iter().filter_map(place).collect::<Vec<PciDevice>>()
        } else {
            Vec::new()
        },
    })
    .filter(|gpus| gpus.count.is_some())
}

/// A GPU among the nodes.
struct GpuNode {
    /// `gfx_target_version`: 90402 for gfx942.
    target: u32,
    /// The PCI domain.
    domain: u32,
    /// `location_id`: bus, device and function in the lower 16 bits; above them the number of a
    /// partition of the GPU.
    location: u32,
}

/// Returns the GPU with this number; `None` for a CPU, and for a node that the container may not see.
fn gpu(reader: &Reader, number: &str) -> Option<GpuNode> {
    let text = reader.text_if_readable(format!("{NODES}/{number}/properties"))?;
    let property = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u32>().ok())
    };
    let node = GpuNode {
        target: property("gfx_target_version").unwrap_or_default(),
        domain: property("domain").unwrap_or_default(),
        location: property("location_id")?,
    };
    // A CPU has no SIMD units.
    property("simd_count").is_some_and(|count| count > 0).then_some(node)
}

impl GpuNode {
    /// Returns the model: `AMD gfx942`.
    fn model(&self) -> String {
        format!("AMD gfx{}{:x}{:x}", self.target / 10_000, self.target / 100 % 100, self.target % 100)
    }

    /// Returns the PCI address: `0000:05:00.0`.
    fn address(&self) -> String {
        let GpuNode { domain, location, .. } = self;
        format!("{domain:04x}:{:02x}:{:02x}.{}", location >> 8 & 0xff, location >> 3 & 0x1f, location & 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn gpus_are_the_nodes_that_compute_and_that_the_container_may_see() {
        let root = FakeRoot::new();
        let node = |number: u32, properties: &str| {
            root.file(&format!("sys/class/kfd/kfd/topology/nodes/{number}/properties"), properties);
        };
        node(0, "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\ndomain 0\n");
        let gpu = |location: u32| {
            format!(
                "cpu_cores_count 0\nsimd_count 1216\nlocation_id {location}\ndomain 0\ngfx_target_version 90402\n"
            )
        };
        node(1, &gpu(0x0500));
        // The second partition of the same GPU.
        node(2, &gpu(0x1000_0500));
        node(10, &gpu(0x2600));
        // The properties of another container's GPU cannot be read.
        root.folder("sys/class/kfd/kfd/topology/nodes/3");
        for (address, node) in [("0000:05:00.0", "0\n"), ("0000:26:00.0", "1\n")] {
            root.file(&format!("sys/devices/pci0000:00/{address}/numa_node"), node);
            let target = format!("../../../devices/pci0000:00/{address}");
            root.link(target, &format!("sys/bus/pci/devices/{address}"));
        }
        root.file("sys/memory_peers/amdkfd/version", "1.0\n");
        root.file("sys/module/amdgpu/version", "6.12.12\n");
        assert_eq!(read(&root.reader(), true), None, "without the device");
        root.file("dev/kfd", "");
        let found = read(&root.reader(), true).unwrap();
        assert_eq!((found.count, found.make), (Some(3), Make::Amd));
        assert_eq!(found.models, ["AMD gfx942"]);
        assert_eq!(found.driver.as_deref(), Some("amdgpu 6.12.12"));
        assert_eq!(found.peer_memory.as_deref(), Some("/sys/memory_peers/amdkfd/version"));
        let nodes: Vec<_> = found.devices.iter().map(|gpu| (gpu.path.as_str(), gpu.numa_node)).collect();
        let (first, last) = ("/sys/devices/pci0000:00/0000:05:00.0", "/sys/devices/pci0000:00/0000:26:00.0");
        assert_eq!(nodes, [(first, Some(0)), (first, Some(0)), (last, Some(1))]);
        assert_eq!(read(&root.reader(), false).unwrap().devices, []);
    }

    #[test]
    fn names_are_those_of_the_compiler() {
        let model = |target| GpuNode { target, domain: 0, location: 0 }.model();
        assert_eq!(
            [90402, 90500, 90010, 120_001].map(model),
            ["AMD gfx942", "AMD gfx950", "AMD gfx90a", "AMD gfx1201"]
        );
    }
}
