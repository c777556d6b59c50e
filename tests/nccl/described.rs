//! Makes the described host of a test from captured facts.

use nix::libc::{self, EPERM};
use rdma_init::facts::gid::{Gid, GidType};
use rdma_init::facts::rdma::{self, Access, LinkLayer};
use rdma_init::facts::{Facts, net};

use super::host::{
    Address, Hca, Host, Interface, LINK_ETHERNET, LINK_INFINIBAND, PORT_ACTIVE, PORT_DOWN, Port, Slot,
    TypeFile,
};

impl Host {
    pub fn of(facts: &Facts) -> Host {
        Host {
            hcas: facts.rdma.iter().filter_map(hca).collect(),
            interfaces: interfaces(&facts.net),
            ..Host::default()
        }
    }
}

/// Returns `None` for a device without a node in /dev, which libibverbs does not list.
fn hca(hca: &rdma::Hca) -> Option<Hca> {
    let open_error = match hca.uverbs.as_ref()?.access {
        Access::Opened => 0,
        Access::NoNode => return None,
        Access::Failed(_) => EPERM,
    };
    let guid = hca.system_guid.as_deref().unwrap_or_default().replace(':', "");
    let pci = |address| format!("/sys/devices/pci0000:00/{address}");
    Some(Hca {
        name: hca.name.clone(),
        open_error,
        guid: u64::from_str_radix(&guid, 16).unwrap_or_default(),
        // Only a soft device has no parent. The facts do not contain the path of a parent that is not a PCI
        // device, so this path is made up.
        pci_path: hca
            .pci_address
            .as_ref()
            .map(pci)
            .or_else(|| hca.driver.as_ref().map(|driver| format!("/sys/devices/{driver}/{}", hca.name))),
        // No file tells which function belongs to which HCA.
        data_direct: None,
        ports: hca.ports.iter().map(port).collect(),
    })
}

fn port(port: &rdma::Port) -> Port {
    Port {
        number: port.number,
        state: match port.state.as_str() {
            "DOWN" => PORT_DOWN,
            "INIT" => 2,
            "ARMED" => 3,
            "ACTIVE" => PORT_ACTIVE,
            "ACTIVE_DEFER" => 5,
            _ => 0,
        },
        link_layer: match port.link_layer {
            LinkLayer::InfiniBand => LINK_INFINIBAND,
            LinkLayer::Ethernet => LINK_ETHERNET,
            LinkLayer::Other(_) | LinkLayer::Unknown => 0,
        },
        table_size: port.gids.size,
        slots: port.gids.slots.iter().map(slot).collect(),
    }
}

fn slot(gid: &Gid) -> Slot {
    let file = match gid.kind.clone() {
        GidType::Unknown => TypeFile::Missing,
        kind => TypeFile::Text(kind.into()),
    };
    Slot { index: gid.index, gid: gid.gid, file }
}

/// Returns the entries in the order of getifaddrs(3): links, then IPv4, then IPv6.
fn interfaces(net: &net::Net) -> Vec<Interface> {
    let entries = |select: fn(&net::Interface) -> Vec<Address>| {
        net.interfaces.iter().enumerate().flat_map(move |(position, interface)| {
            select(interface).into_iter().map(move |address| Interface {
                name: interface.name.clone(),
                index: interface.index.unwrap_or(position as u32 + 1),
                flags: flags(interface),
                address,
            })
        })
    };
    entries(|_| vec![Address::Link]).chain(entries(v4)).chain(entries(v6)).collect()
}

fn v4(interface: &net::Interface) -> Vec<Address> {
    interface.addresses.iter().filter(|net| net.addr().is_ipv4()).map(|net| Address::Ip(*net)).collect()
}

fn v6(interface: &net::Interface) -> Vec<Address> {
    interface.addresses.iter().filter(|net| net.addr().is_ipv6()).map(|net| Address::Ip(*net)).collect()
}

fn flags(interface: &net::Interface) -> u32 {
    let known = [
        ("UP", libc::IFF_UP),
        ("BROADCAST", libc::IFF_BROADCAST),
        ("LOOPBACK", libc::IFF_LOOPBACK),
        ("POINTOPOINT", libc::IFF_POINTOPOINT),
        ("RUNNING", libc::IFF_RUNNING),
        ("MULTICAST", libc::IFF_MULTICAST),
    ];
    known.iter().filter(|(name, _)| interface.has_flag(name)).map(|(_, flag)| *flag as u32).sum()
}
