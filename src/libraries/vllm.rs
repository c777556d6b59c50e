//! vLLM, and what it tells the libraries of its workers.
//!
//! `VLLM_GPU_NIC_PCIE_MAPPING` names a NIC for each GPU by their PCI addresses
//! (`GPU=NIC,...`), and `VLLM_NIC_SELECTION_VARS` the variables that a worker sets to the RDMA
//! device of its own GPU's NIC, each with what follows the name (`UCX_NET_DEVICES:1`). Either of
//! them alone ends vLLM, and so does a GPU that the mapping does not name
//! (`vllm/v1/executor/vllm_net_devices.py`, vLLM 0.23 to 0.33). What such a variable holds already
//! comes after the new name, with a comma between them.

use super::nccl::version::Version;
use super::node_address::{AddressingProgram, has};
use super::{
    Fill, FillReason as OfFill, Library, LibraryContext, LibraryRemark as OfLibrary, node_address, ray, ucx,
};
use crate::fabric::Candidate;
use crate::fabric::distance::{Distance, of_hca};
use crate::fabric::of_gpu::{self, GpuHca};
use crate::facts::pci::PciDevice;
use crate::facts::rdma::Hca;
use crate::image::Image;

pub(crate) const MAPPING: &str = "VLLM_GPU_NIC_PCIE_MAPPING";
pub(crate) const SELECTION: &str = "VLLM_NIC_SELECTION_VARS";

pub(crate) const HOST_IP: &str = "VLLM_HOST_IP";
/// Where the processes of one node meet; unset, the loopback (`get_loopback_ip` in
/// `vllm/utils/network_utils.py`).
const LOOPBACK_IP: &str = "VLLM_LOOPBACK_IP";

const ADDRESS: AddressingProgram = AddressingProgram {
    library: "vLLM",
    variable: HOST_IP,
    also: None,
    of_interface: None,
    asks_for_name: false,
};

/// The first release that reads the map.
const SINCE: Version = Version::new(0, 23, 0);

/// The variables of libraries that are told their NIC by a worker, and the packages of those
/// libraries as vLLM uses them: NIXL on UCX, and NVSHMEM below DeepEP. NCCL finds the nearest HCA
/// of each GPU itself.
const TOLD: [(&str, &str); 2] = [("UCX_NET_DEVICES", "nixl"), ("NVSHMEM_HCA_LIST", "deep-ep")];

pub(crate) const LIBRARY: Library = Library {
    name: "vllm",
    title: "vLLM",
    filled: &[MAPPING, SELECTION, HOST_IP],
    gid: &[],
    read: &[MAPPING, SELECTION, HOST_IP, LOOPBACK_IP, "VLLM_GPU_NIC_", "VLLM_NIC_"],
    is_here,
    fills: |subject| fills(subject).into_iter().chain(host_ip(subject)).collect(),
    remarks: |subject| {
        let of_address = ADDRESS.remarks(subject).into_iter();
        let of_address = of_address.chain(node_address::inside(subject, "vLLM", LOOPBACK_IP));
        remarks(subject)
            .into_iter()
            .map(OfLibrary::Vllm)
            .chain(of_address.map(OfLibrary::NodeAddress))
            .collect()
    },
    will: |_| None,
};

/// Why the NICs are mapped: without it, each worker may take any of so many HCAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingReason {
    pub hcas: usize,
    /// How far the NIC of a GPU is at most.
    pub distance: &'static str,
}

/// What is wrong with the mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// One of the two is set without the other one.
    Alone { set: &'static str, unset: &'static str },
    /// The release of vLLM reads neither of them.
    NotRead(String),
    /// vLLM maps NVIDIA's GPUs alone.
    OtherMake,
    /// No pair of PCI addresses.
    NoPair(String),
    /// GPUs of this container that are not named.
    GpusWithout(Vec<String>),
    /// Addresses of NICs that no RDMA device here has.
    NoHca(Vec<String>),
    /// Ports of HCAs that the job does not use.
    Idle(Vec<String>),
    /// A GPU that is given an HCA which is farther than another one.
    Far { gpu: String, hca: String, distance: Distance, nearer: String, nearer_at: Distance },
    /// A variable that a worker puts a name in front of, and whose own value then means something
    /// else.
    InFront { variable: &'static str, value: String },
}

fn image<'a>(subject: &LibraryContext<'a>) -> Option<&'a Image> {
    subject.facts.image.as_ref()
}

fn is_here(subject: &LibraryContext) -> bool {
    image(subject).is_some_and(|image| image.packages("vllm").next().is_some())
        || [MAPPING, SELECTION, HOST_IP].iter().any(|name| subject.value(name).is_some())
}

/// The release in the image, if it is one: a build from source has its own number (`0.1.dev1`).
fn release(subject: &LibraryContext) -> Option<Version> {
    let package = image(subject)?.packages("vllm").next()?;
    Version::parse(&package.version).filter(|_| !package.version.contains("dev"))
}

/// On Ray, vLLM waits for its place on the node of this address, so it has to be the one by which Ray
/// knows the node: that of the command line, or else both take that of the same route, if there is one.
fn host_ip(subject: &LibraryContext) -> Option<Fill> {
    if let Some(known_by) = ray::named(subject) {
        return ADDRESS.fill_on_ray(subject, known_by);
    }
    let is_sound_on_ray = has(subject, "ray") && node_address::by_route(subject.facts).is_some();
    if is_sound_on_ray { None } else { ADDRESS.fill(subject) }
}

fn fills(subject: &LibraryContext) -> Vec<Fill> {
    let stays = |name: &str| subject.value(name).is_some() || (subject.is_kept)(name);
    if release(subject).is_none_or(|release| release < SINCE)
        || !subject.facts.gpu.make.is_nvidia()
        // Either of them alone ends vLLM.
        || stays(MAPPING)
        || stays(SELECTION)
    {
        return Vec::new();
    }
    let Some(pairs) = of_gpu::pairs(subject.facts, subject.rails.ports) else { return Vec::new() };
    // One number of a port holds for all workers.
    let mut used = subject.rails.ports.iter().filter(|port| port.is_used());
    let Some(port) = used.next().map(|first| first.port.number) else { return Vec::new() };
    if used.any(|other| other.port.number != port) {
        return Vec::new();
    }
    let selection: Vec<String> = TOLD
        .iter()
        .filter(|(variable, package)| !stays(variable) && is_told(subject, package))
        .map(|(variable, _)| format!("{variable}:{port}"))
        .collect();
    if selection.is_empty() {
        return Vec::new();
    }
    let mapping: Vec<String> =
        pairs.iter().filter_map(|pair| Some(format!("{}={}", address(pair.gpu), nic(pair.hca)?))).collect();
    if mapping.len() != pairs.len() {
        return Vec::new();
    }
    let hcas = subject.rails.ports.iter().filter(|port| port.is_used()).count();
    let distance = pairs.iter().map(|GpuHca { distance, .. }| *distance).max().map_or("", Distance::word);
    let why = || OfFill::Vllm(MappingReason { hcas, distance });
    vec![
        Fill { variable: MAPPING, value: Some(mapping.join(",")), why: why() },
        Fill { variable: SELECTION, value: Some(selection.join(",")), why: why() },
    ]
}

/// Whether the library of a package is to be told its NIC. A worker leaves UCX nothing but the
/// HCA then, over which each agent of NIXL has to reach itself: see [`ucx::alone`].
fn is_told(subject: &LibraryContext, package: &str) -> bool {
    let has = image(subject).is_some_and(|image| {
        let is_it = |name: &str| {
            name.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        image.packages.iter().any(|package| is_it(&package.name))
    });
    has && (package != "nixl" || ucx::alone::each_rail_will_do(subject))
}

/// Whether a worker of vLLM sets this variable itself, as the user has said.
pub(crate) fn is_set_by_worker(selection: &str, variable: &str) -> bool {
    let names = selection.split(',').map(|entry| entry.split(':').next().unwrap_or_default().trim());
    names.into_iter().any(|name| name == variable)
}

fn remarks(subject: &LibraryContext) -> Vec<Remark> {
    let value = |name: &str| subject.value(name).filter(|value| !value.trim().is_empty());
    let (mapping, selection) = match (value(MAPPING), value(SELECTION)) {
        (None, None) => return Vec::new(),
        (Some(_), None) => return vec![Remark::Alone { set: MAPPING, unset: SELECTION }],
        (None, Some(_)) => return vec![Remark::Alone { set: SELECTION, unset: MAPPING }],
        (Some(mapping), Some(selection)) => (mapping, selection),
    };
    if let Some(release) = release(subject).filter(|release| *release < SINCE) {
        return vec![Remark::NotRead(release.to_string())];
    }
    let gpus = &subject.facts.gpu;
    if !gpus.make.is_nvidia() && !gpus.devices.is_empty() {
        return vec![Remark::OtherMake];
    }
    let mut remarks = Vec::new();
    let mut pairs = Vec::new();
    for segment in mapping.split(',').map(str::trim).filter(|segment| !segment.is_empty()) {
        let pair = segment.split_once('=').and_then(|(gpu, nic)| Some((Bdf::parse(gpu)?, Bdf::parse(nic)?)));
        match pair {
            Some(pair) => pairs.push(pair),
            None => return vec![Remark::NoPair(segment.to_owned())],
        }
    }
    let of_gpu = |gpu: &PciDevice| Bdf::parse(address(gpu));
    let without = gpus
        .devices
        .iter()
        .filter(|gpu| of_gpu(gpu).is_some_and(|address| !pairs.iter().any(|(named, _)| *named == address)));
    let without: Vec<String> = without.map(|gpu| address(gpu).to_owned()).collect();
    if !without.is_empty() {
        remarks.push(Remark::GpusWithout(without));
    }
    let hca_at =
        |address: Bdf| subject.facts.rdma.iter().find(|hca| nic(hca).and_then(Bdf::parse) == Some(address));
    let lost: Vec<String> =
        pairs.iter().filter(|(_, nic)| hca_at(*nic).is_none()).map(|(_, nic)| nic.to_string()).collect();
    if !lost.is_empty() {
        remarks.push(Remark::NoHca(lost));
    }
    let is_used =
        |hca: &Hca| subject.rails.ports.iter().any(|port| port.is_used() && port.hca.name == hca.name);
    let named =
        |hca: &Hca| pairs.iter().filter_map(|(_, nic)| hca_at(*nic)).any(|named| named.name == hca.name);
    let ports = subject.rails.ports.iter();
    let idle: Vec<String> =
        ports.filter(|port| named(port.hca) && !is_used(port.hca)).map(Candidate::name).collect();
    if !idle.is_empty() {
        remarks.push(Remark::Idle(idle));
    }
    // One example of a far NIC is enough.
    let far = gpus.devices.iter().find_map(|gpu| {
        let named =
            pairs.iter().find(|(named, _)| Some(*named) == of_gpu(gpu)).and_then(|(_, nic)| hca_at(*nic))?;
        let distance = of_hca(gpu, named).filter(|_| is_used(named))?;
        let used = subject.facts.rdma.iter().filter(|hca| is_used(hca));
        let (nearer_at, nearer) =
            used.filter_map(|hca| Some((of_hca(gpu, hca)?, hca))).min_by_key(|(distance, _)| *distance)?;
        (nearer_at < distance).then(|| Remark::Far {
            gpu: address(gpu).to_owned(),
            hca: named.name.clone(),
            distance,
            nearer: nearer.name.clone(),
            nearer_at,
        })
    });
    remarks.extend(far);
    let in_front = |variable: &'static str| {
        let value = value(variable).filter(|value| value.starts_with(['=', '^']))?;
        is_set_by_worker(selection, variable).then(|| Remark::InFront { variable, value: value.to_owned() })
    };
    remarks.extend(["NCCL_IB_HCA", "NVSHMEM_HCA_LIST"].into_iter().filter_map(in_front));
    remarks
}

/// The PCI address of a GPU.
fn address(gpu: &PciDevice) -> &str {
    gpu.path.rsplit('/').next().unwrap_or_default()
}

/// The PCI address of an HCA, as vLLM finds it (`/sys/class/infiniband/NAME/device`).
fn nic(hca: &Hca) -> Option<&str> {
    let path = hca.pci_path.as_deref()?;
    path.rsplit('/').next().filter(|address| Bdf::parse(address).is_some())
}

/// A PCI address as vLLM reads it: a domain of any width, or none (`normalize_pci`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bdf {
    domain: u64,
    bus: u8,
    device: u8,
    function: u8,
}

impl Bdf {
    fn parse(text: &str) -> Option<Bdf> {
        let text: String = text.trim().to_ascii_lowercase().chars().filter(|c| *c != ' ').collect();
        let text = text.strip_prefix("0x").unwrap_or(&text);
        let (body, function) = text.rsplit_once('.')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let byte = |text: &str| hex(text).and_then(|number| u8::try_from(number).ok());
        let mut parts = body.rsplit(':');
        let (device, bus) = (byte(parts.next()?)?, byte(parts.next()?)?);
        let domain = parts.next().map_or(Some(0), hex)?;
        let is_whole = parts.next().is_none() && device <= 0x1f;
        is_whole.then_some(Bdf { domain, bus, device, function: byte(function)? })
    }
}

impl std::fmt::Display for Bdf {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Bdf { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_however_wide_its_domain_is() {
        let parse = |text| Bdf::parse(text).map(|bdf| bdf.to_string());
        for text in ["00000009:01:00.0", "0009:01:00.0", "9:01:00.0", " 0x0009:01:00.0 "] {
            assert_eq!(parse(text).as_deref(), Some("0009:01:00.0"), "{text}");
        }
        assert_eq!(parse("40:00.1").as_deref(), Some("0000:40:00.1"));
        for text in ["", "40:00", "40:20.0", "x:40:00.0", "1:2:3:4.0", "mlx5_0", "40:00.", ".0"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_worker_sets_what_is_named() {
        let is_set = |name| is_set_by_worker("UCX_NET_DEVICES:1, NCCL_IB_HCA", name);
        assert!(is_set("UCX_NET_DEVICES") && is_set("NCCL_IB_HCA"));
        assert!(!is_set("UCX_NET") && !is_set("NCCL_IB_HCA:1") && !is_set_by_worker("", "UCX_NET_DEVICES"));
    }
}
