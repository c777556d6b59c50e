//! RDMA devices: `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and
//! `/dev/infiniband`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::gid::{self, GidTable};
use super::net::Net;
pub use super::node::Access;
use super::node::try_open;
use super::pci::{self, PciLink};
use super::pkey::{self, PkeyTable};
use super::reader::Reader;
use super::traffic_class::{self, TrafficClass};
use crate::json::known_texts;

const CLASS: &str = "/sys/class/infiniband";
const VERBS_CLASS: &str = "/sys/class/infiniband_verbs";

/// A host channel adapter, as the kernel shows it in this container. In the kernel's shared network namespace
/// mode, these are all HCAs of the host, whether or not this container may use them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hca {
    pub name: String,
    /// The kernel driver of the parent device (`mlx5_core`, `erdma`, `efa`); a software device has none.
    pub driver: Option<String>,
    pub pci_address: Option<String>,
    /// The PCI link; `None` if the device has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_link: Option<PciLink>,
    /// The path in the form of [`pci::PciDevice::path`]; `None` for a software device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_path: Option<String>,
    /// The vendor and device ID of the PCI function, such as `15b3:101e`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_id: Option<String>,
    /// Whether the kernel shows the physical function that this PCI function belongs to (`physfn`). In a virtual
    /// machine, it shows none: [`Hca::is_virtual_function`] also goes by the ID.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_physical_function: bool,
    /// -1 if the firmware does not report it.
    pub numa_node: Option<i32>,
    pub node_type: NodeType,
    pub node_guid: Option<String>,
    /// The GUID that all functions of a NIC share (`sys_image_guid`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_guid: Option<String>,
    pub firmware: Option<String>,
    /// Whether the vital product data of the PCI device marks it as a device for managing NVSwitches
    /// (`SMDL=SW_MNG`); `None` if the data was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manages_nvswitches: Option<bool>,
    /// The character device through which programs use the HCA.
    pub uverbs: Option<Uverbs>,
    pub ports: Vec<Port>,
}

/// The IDs of mlx5's virtual functions (`mlx5_core_pci_table` in `drivers/net/ethernet/mellanox/mlx5/core/main.c`,
/// `MLX5_PCI_DEV_IS_VF`).
const VIRTUAL_FUNCTIONS: [&str; 8] =
    ["15b3:1012", "15b3:1014", "15b3:1016", "15b3:1018", "15b3:101a", "15b3:101c", "15b3:101e", "15b3:a2d3"];

impl Hca {
    /// Returns whether this is a virtual function (SR-IOV), as far as the kernel or its ID shows.
    pub fn is_virtual_function(&self) -> bool {
        self.has_physical_function || self.pci_id.as_deref().is_some_and(|id| VIRTUAL_FUNCTIONS.contains(&id))
    }
}

/// `node_type` (`drivers/infiniband/core/sysfs.c`, `node_type_show`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum NodeType {
    /// A channel adapter: InfiniBand or RoCE.
    Ca,
    /// iWARP, which NCCL does not support.
    Rnic,
    /// Any other type, as the kernel wrote it.
    Other(String),
    #[default]
    Unknown,
}

impl From<String> for NodeType {
    fn from(text: String) -> NodeType {
        match text.split(':').next().unwrap_or_default().trim() {
            "1" => NodeType::Ca,
            "4" => NodeType::Rnic,
            "" => NodeType::Unknown,
            _ => NodeType::Other(text),
        }
    }
}

impl From<NodeType> for String {
    fn from(node_type: NodeType) -> String {
        match node_type {
            NodeType::Ca => "1: CA".into(),
            NodeType::Rnic => "4: RNIC".into(),
            NodeType::Other(text) => text,
            NodeType::Unknown => String::new(),
        }
    }
}

/// A device node `/dev/infiniband/uverbsN`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uverbs {
    /// Such as `uverbs0`.
    pub name: String,
    pub access: Access,
    /// The version of the ABI between the kernel's driver and its libibverbs provider (`abi_version`;
    /// `uverbs_abi_ver` of the driver). Each driver has its own numbering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abi: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Counted from 1.
    pub number: u32,
    pub link_layer: LinkLayer,
    /// Such as `ACTIVE`, `DOWN`, `INIT`, or `ARMED`.
    pub state: String,
    /// Such as `LinkUp`, `Polling`, or `Disabled`.
    pub physical_state: String,
    /// In the kernel's format: `200 Gb/sec (4X HDR)`.
    pub rate: String,
    /// The local identifier on an InfiniBand subnet; 0 on RoCE.
    pub lid: Option<u32>,
    pub gids: GidTable,
    /// The partition keys of an InfiniBand port that this container may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkeys: Option<PkeyTable>,
    /// The traffic class that the administrator has set for a RoCE port that this container may use; `None`
    /// if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_class: Option<TrafficClass>,
    /// The counters that indicate trouble, by the kernel's names; `None` if they were not read, empty if the
    /// kernel does not show them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<BTreeMap<String, u64>>,
}

impl Port {
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Returns the rate in Gbit/s; 0 if the kernel's text cannot be parsed.
    pub fn gigabits(&self) -> f64 {
        self.rate.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum LinkLayer {
    InfiniBand,
    Ethernet,
    /// `Unspecified` (EFA), or a link layer that a later kernel adds.
    Other(String),
    #[default]
    Unknown,
}

known_texts!(LinkLayer::Other, InfiniBand = "InfiniBand", Ethernet = "Ethernet", Unknown = "");

/// Records that the kernel shows no device, although this uverbs node exists.
pub fn remember_hidden(reader: &Reader, node: &str) {
    let path = reader.path(CLASS);
    reader
        .remember(&path, format!("it shows no device, but /dev/infiniband/{node} exists; is /sys mounted?"));
}

/// Returns whether there may be an HCA: without this directory, [`read`] finds none.
pub fn may_be_there(reader: &Reader) -> bool {
    reader.may_be_there(CLASS)
}

/// What decides how far the reader must read a GID table.
#[derive(Debug, Default)]
pub struct Looked {
    /// The container's addresses.
    own: BTreeSet<IpAddr>,
    /// The addresses of each PCI device's interface, without link-local ones.
    by_device: BTreeMap<String, Vec<IpAddr>>,
    /// See [`super::gid::GidQuery::at_least`].
    at_least: u32,
}

impl Looked {
    /// Makes the query for GID tables. `named` is the highest index that a variable names.
    pub fn for_gids(net: &Net, named: Option<u32>) -> Looked {
        let mut by_device: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        // The addresses of a bond's member belong to the bond.
        for interface in net.interfaces.iter().filter(|interface| interface.master.is_none()) {
            let Some(device) = &interface.pci_address else { continue };
            let addresses = interface.addresses.iter().map(|net| net.addr());
            let routed = addresses
                .filter(|address| !matches!(address, IpAddr::V6(one) if one.is_unicast_link_local()));
            by_device.entry(device.clone()).or_default().extend(routed);
        }
        let at_least = named.map_or(0, |index| index.saturating_add(1));
        Looked { own: net.own_addresses().collect(), by_device, at_least }
    }
}

/// Reads all HCAs.
pub fn read(reader: &Reader, looked: &Looked) -> Vec<Hca> {
    let names = reader.names(CLASS);
    let uverbs = uverbs_by_hca(reader);
    let size_before = Cell::default();
    names.into_iter().map(|name| hca(reader, looked, name, &uverbs, &size_before)).collect()
}

fn hca(
    reader: &Reader,
    looked: &Looked,
    name: String,
    uverbs: &BTreeMap<String, String>,
    size_before: &Cell<u32>,
) -> Hca {
    let folder = format!("{CLASS}/{name}");
    let (own, device) = (reader.folder(&folder), reader.folder(format!("{folder}/device")));
    let text = |file: &str| own.text(file).filter(|text| !text.is_empty());
    // rdma-init must try the node before libibverbs does: libibverbs waits for seconds on a node that the
    // device cgroup denies.
    let access = |node: &String| try_open(reader, &format!("/dev/infiniband/{node}"));
    let abi = |node: &String| {
        let file = reader.path(format!("{VERBS_CLASS}/{node}/abi_version"));
        reader.attribute(&file).ok()?.parse().ok()
    };
    let uverbs = uverbs.get(&name);
    let uverbs = uverbs.map(|node| Uverbs { name: node.clone(), access: access(node), abi: abi(node) });
    let is_usable = uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened);
    let pci_address = reader.link_name(format!("{folder}/device")).filter(|name| is_pci_address(name));
    let of_device = pci_address.as_ref().and_then(|device| looked.by_device.get(device));
    let wanted = gid::GidQuery {
        own: &looked.own,
        of_device: of_device.map(Vec::as_slice).unwrap_or_default(),
        is_usable,
        at_least: looked.at_least,
        size_before,
    };
    Hca {
        driver: device.link_name("driver"),
        pci_id: pci_address.as_ref().and_then(|_| pci::id(&device)),
        has_physical_function: pci_address.is_some() && device.link_name("physfn").is_some(),
        pci_address,
        pci_path: device.resolved(),
        pci_link: pci::read(&device),
        numa_node: device.number("numa_node"),
        node_type: text("node_type").unwrap_or_default().into(),
        node_guid: text("node_guid"),
        system_guid: text("sys_image_guid"),
        firmware: text("fw_ver"),
        manages_nvswitches: None,
        uverbs,
        ports: reader
            .names(format!("{folder}/ports"))
            .iter()
            .filter_map(|number| number.parse().ok())
            .map(|number| port(reader, wanted, &name, number))
            .collect(),
        name,
    }
}

fn port(reader: &Reader, wanted: gid::GidQuery, hca: &str, number: u32) -> Port {
    let path = &format!("{CLASS}/{hca}/ports/{number}");
    let folder = &reader.folder(path);
    let text = |file: &str| folder.text(file).unwrap_or_default();
    let link_layer: LinkLayer = text("link_layer").into();
    let has_partitions = wanted.is_usable && link_layer == LinkLayer::InfiniBand;
    let has_class = wanted.is_usable && link_layer == LinkLayer::Ethernet;
    Port {
        number,
        link_layer,
        state: after_colon(&text("state")),
        physical_state: after_colon(&text("phys_state")),
        // A port that is down may not report its rate.
        rate: folder.text_unless("rate", &[Errno::EINVAL]).unwrap_or_default(),
        lid: folder.text("lid").and_then(|lid| hexadecimal(&lid)),
        gids: gid::read(reader, path, wanted),
        pkeys: if has_partitions { pkey::read(reader, path) } else { None },
        traffic_class: if has_class { traffic_class::read(reader, hca, number) } else { None },
        counters: None,
    }
}

/// Returns the part after the colon, such as `ACTIVE` in `4: ACTIVE`.
fn after_colon(text: &str) -> String {
    text.split_once(':').map_or(text, |(_, name)| name).trim().to_owned()
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// Returns the uverbs node of each HCA.
fn uverbs_by_hca(reader: &Reader) -> BTreeMap<String, String> {
    let nodes = reader.names(VERBS_CLASS).into_iter().filter(|name| name.starts_with("uverbs"));
    nodes.filter_map(|name| Some((reader.text(format!("{VERBS_CLASS}/{name}/ibdev"))?, name))).collect()
}

/// Returns whether this is an address such as `0000:17:00.0`.
pub fn is_pci_address(name: &str) -> bool {
    let part = |text: Option<&str>, length: usize| {
        text.is_some_and(|t| t.len() >= length && t.chars().all(|c| c.is_ascii_hexdigit()))
    };
    let mut parts = name.split([':', '.']);
    part(parts.next(), 4)
        && part(parts.next(), 2)
        && part(parts.next(), 2)
        && part(parts.next(), 1)
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn kernel_texts_are_understood_and_unknown_ones_kept() {
        assert_eq!(NodeType::from("1: CA".to_owned()), NodeType::Ca);
        assert_eq!(NodeType::from("4: RNIC".to_owned()), NodeType::Rnic);
        let new = "7: unspecified".to_owned();
        assert_eq!(String::from(NodeType::from(new.clone())), new);
        assert_eq!(after_colon("4: ACTIVE"), "ACTIVE");
        assert_eq!(hexadecimal("0x1f"), Some(31));
        let port = Port { rate: "200 Gb/sec (4X HDR)".into(), ..Port::default() };
        assert_eq!(port.gigabits(), 200.0);
        assert_eq!(Port { rate: "2.5 Gb/sec (1X SDR)".into(), ..Port::default() }.gigabits(), 2.5);
        assert_eq!(Port::default().gigabits(), 0.0);
    }

    #[test]
    fn the_place_of_an_hca_is_the_folder_of_its_device() {
        let root = FakeRoot::new();
        let device = "devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        root.folder(&format!("sys/{device}"));
        root.folder("sys/class/infiniband/rxe0");
        root.link(format!("../../../{device}"), "sys/class/infiniband/mlx5_0/device");
        let found = read(&root.reader(), &Looked::default());
        let places: Vec<Option<&str>> = found.iter().map(|hca| hca.pci_path.as_deref()).collect();
        assert_eq!(places, [Some(format!("/sys/{device}").as_str()), None]);
        assert_eq!(found[0].pci_address.as_deref(), Some("0000:01:00.0"));
    }

    #[test]
    fn a_virtual_function_is_shown_by_the_kernel_or_by_its_id() {
        let root = FakeRoot::new();
        for (hca, address, id) in [
            ("bnxt_re0", "0000:01:00.0", ("0x14e4", "0x1750")),
            ("bnxt_re1", "0000:01:00.1", ("0x14e4", "0x1819")),
            ("mlx5_0", "0000:02:00.0", ("0x15b3", "0x1017")),
            ("mlx5_1", "0000:02:00.1", ("0x15b3", "0x1018")),
        ] {
            let device = format!("sys/devices/pci0000:00/{address}");
            root.file(&format!("{device}/vendor"), id.0);
            root.file(&format!("{device}/device"), id.1);
            root.folder(&format!("sys/class/infiniband/{hca}"));
            root.link(
                format!("../../../devices/pci0000:00/{address}"),
                &format!("sys/class/infiniband/{hca}/device"),
            );
        }
        root.link("../0000:01:00.0", "sys/devices/pci0000:00/0000:01:00.1/physfn");
        let found = read(&root.reader(), &Looked::default());
        let virtual_ones: Vec<&str> =
            found.iter().filter(|hca| hca.is_virtual_function()).map(|hca| hca.name.as_str()).collect();
        assert_eq!(virtual_ones, ["bnxt_re1", "mlx5_1"]);
    }

    #[test]
    fn the_abi_is_that_of_the_hcas_own_node() {
        let root = FakeRoot::new();
        // The class directory has an abi_version, too: the version of the calls into the kernel.
        root.file("sys/class/infiniband_verbs/abi_version", "6\n");
        for (hca, node, abi) in
            [("bnxt_re0", "uverbs1", "6\n"), ("mlx5_0", "uverbs0", "1\n"), ("odd", "uverbs2", "")]
        {
            root.folder(&format!("sys/class/infiniband/{hca}"));
            root.file(&format!("sys/class/infiniband_verbs/{node}/ibdev"), hca);
            root.file(&format!("sys/class/infiniband_verbs/{node}/abi_version"), abi);
        }
        let found = read(&root.reader(), &Looked::default());
        let abis: Vec<_> =
            found.iter().map(|hca| hca.uverbs.as_ref().and_then(|uverbs| uverbs.abi)).collect();
        assert_eq!(abis, [Some(6), Some(1), None]);
    }

    #[test]
    fn pci_addresses_are_told_from_other_devices() {
        assert!(is_pci_address("0000:17:00.0"));
        assert!(is_pci_address("10000:e1:00.1"));
        for name in ["virtio0", "mlx5_core.sf.4", "0000:17:00", "", "VMBUS:01"] {
            assert!(!is_pci_address(name), "{name}");
        }
    }
}
