//! The GPUs, as far as rdma-init can see them without a driver library: NVIDIA's here, AMD's in
//! [`super::amd`].

use serde::{Deserialize, Serialize};

use super::amd;
use super::pci::{self, PciDevice};
use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    #[serde(skip_serializing_if = "Make::is_nvidia")]
    pub make: Make,
    /// The number of device nodes `/dev/nvidiaN`, or of AMD's GPUs. `None` if there are none, because GPUs of
    /// another make would not be visible.
    pub count: Option<u32>,
    /// The models in `/proc/driver/nvidia/gpus`, or the targets of AMD's GPUs, each once.
    pub models: Vec<String>,
    /// The first line of `/proc/driver/nvidia/version`, which names the kind of kernel module; or `amdgpu`,
    /// with the version if it is AMD's own package.
    pub driver: Option<String>,
    /// The file that shows that the GPU driver's module can make GPU memory available to NICs; one of the
    /// files that NCCL or RCCL looks for (`ncclIbGdrSupport`).
    pub peer_memory: Option<String>,
    /// Whether NVIDIA's driver lets a GPU write to an HCA's registers (`PeerMappingOverride=1` in its
    /// options); `None` if it does not report that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_mapping: Option<bool>,
    /// The locations of this container's GPUs, in the order of their numbers. Empty if they are unknown, and
    /// on a host that cannot have an HCA, where nothing depends on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PciDevice>,
}

/// The maker of the GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Make {
    #[default]
    Nvidia,
    Amd,
    /// A make that only a later version of rdma-init knows.
    #[serde(other)]
    Other,
}

impl Make {
    pub fn is_nvidia(&self) -> bool {
        *self == Make::Nvidia
    }

    /// Returns the name in documents and profiles; `None` for a make that this version does not know.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Make::Nvidia => Some("nvidia"),
            Make::Amd => Some("amd"),
            Make::Other => None,
        }
    }
}

impl Gpus {
    /// Returns the first model whose name contains one of these words.
    pub fn model_of(&self, words: &[&str]) -> Option<&str> {
        self.models.iter().map(String::as_str).find(|model| words.iter().any(|word| model.contains(word)))
    }

    /// Does the same as [`Gpus::model_of`] with whole words: `B200` matches `NVIDIA B200`, but not `NVIDIA
    /// GB200`.
    pub fn model_of_whole(&self, words: &[&str]) -> Option<&str> {
        let is_such = |model: &&str| model.split([' ', '-']).any(|part| words.contains(&part));
        self.models.iter().map(String::as_str).find(is_such)
    }
}

/// The files that NCCL looks for (`src/transport/net_ib.cc`, `ncclIbGdrSupport`).
const PEER_MEMORY: &[&str] = &[
    "/sys/kernel/mm/memory_peers/nv_mem/version",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "/sys/module/nvidia_peermem/version",
];

/// The directory with a subdirectory for each GPU, named after its PCI address.
const FOLDER: &str = "/proc/driver/nvidia/gpus";

/// Reads the GPUs. Reads their locations only if `with_places` is true: without an HCA, nothing depends on
/// them.
pub(crate) fn read(reader: &Reader, with_places: bool) -> Gpus {
    let mut nodes = 0u32;
    // Every driver library opens this node first. Without it, the other nodes are of no use.
    if reader.may_be_there("/dev/nvidiactl") {
        reader.each_name("/dev", |name| nodes += u32::from(is_gpu(name)));
    }
    let listed: Vec<DriverGpu> = reader
        .names(FOLDER)
        .into_iter()
        .map(|address| {
            let information = reader.text(format!("{FOLDER}/{address}/information")).unwrap_or_default();
            DriverGpu { address, information }
        })
        .collect();
    let model = |gpu: &DriverGpu| Some(value(&gpu.information, "Model:")?.to_owned());
    let mut models: Vec<String> = listed.iter().filter_map(model).collect();
    models.sort();
    models.dedup();
    if nodes == 0 {
        let of_amd = if models.is_empty() { amd::read(reader, with_places) } else { None };
        return of_amd.unwrap_or(Gpus { models, ..Gpus::default() });
    }
    let driver = reader.text("/proc/driver/nvidia/version");
    Gpus {
        make: Make::Nvidia,
        count: Some(nodes),
        models,
        driver: driver.and_then(|text| text.lines().next().map(str::to_owned)),
        peer_memory: PEER_MEMORY.iter().find(|path| reader.may_be_there(path)).map(|path| (*path).to_owned()),
        peer_mapping: if with_places { peer_mapping(reader) } else { None },
        devices: if with_places { devices(reader, listed) } else { Vec::new() },
    }
}

/// Returns whether the driver was loaded with `RegistryDwords: "PeerMappingOverride=1;"`.
fn peer_mapping(reader: &Reader) -> Option<bool> {
    let options = reader.text_if_readable("/proc/driver/nvidia/params")?;
    let of_registry = value(&options, "RegistryDwords:")?;
    Some(of_registry.trim_matches('"').split(';').any(|option| option.trim() == "PeerMappingOverride=1"))
}

/// A GPU that the driver lists.
struct DriverGpu {
    /// The address on the PCI bus.
    address: String,
    information: String,
}

/// Returns the locations of the GPUs. The driver may list all GPUs of the host; this container's GPUs have a
/// device node.
fn devices(reader: &Reader, mut listed: Vec<DriverGpu>) -> Vec<PciDevice> {
    // The addresses are hexadecimal and all have the same length, so sorting them as text sorts them as
    // numbers.
    listed.sort_by(|a, b| a.address.cmp(&b.address));
    let is_here = |gpu: &&DriverGpu| {
        value(&gpu.information, "Device Minor:")
            .is_none_or(|minor| reader.may_be_there(format!("/dev/nvidia{minor}")))
    };
    let device = |gpu: &DriverGpu| pci::place(reader, &format!("/sys/bus/pci/devices/{}", gpu.address));
    listed.iter().filter(is_here).filter_map(device).collect()
}

/// Returns the rest of the line that starts with a word.
fn value<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(word)).map(str::trim)
}

/// Returns whether this is a name such as `nvidia0`, and not `nvidiactl`.
fn is_gpu(node: &str) -> bool {
    node.strip_prefix("nvidia").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn the_gpus_of_others_are_left_out() {
        let root = FakeRoot::new();
        for (minor, address) in ["0000:1b:00.0", "0000:10:00.0", "0000:9d:00.0"].iter().enumerate() {
            root.file(
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                format!("Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n"),
            );
            root.file(&format!("sys/devices/pci0000:0{minor}/{address}/numa_node"), "1\n");
            let target = format!("../../../devices/pci0000:0{minor}/{address}");
            root.link(target, &format!("sys/bus/pci/devices/{address}"));
        }
        root.file("dev/nvidiactl", "");
        root.file("dev/nvidia0", "");
        root.file("dev/nvidia1", "");
        let reader = root.reader();
        let found = read(&reader, true).devices;
        let paths: Vec<&str> = found.iter().map(|device| device.path.as_str()).collect();
        assert_eq!(paths, ["/sys/devices/pci0000:01/0000:10:00.0", "/sys/devices/pci0000:00/0000:1b:00.0"]);
        assert_eq!(found[0].numa_node, Some(1));
        for (options, told) in [
            ("RegistryDwords: \"\"\n", Some(false)),
            ("X: 1\nRegistryDwords: \"A=1;PeerMappingOverride=1;\"\n", Some(true)),
            ("X: 1\n", None),
        ] {
            root.file("proc/driver/nvidia/params", options);
            assert_eq!(read(&reader, true).peer_mapping, told, "{options}");
        }
        let without = read(&reader, false);
        assert_eq!((without.count, without.models.len(), without.devices), (Some(2), 1, Vec::new()));
    }
}
