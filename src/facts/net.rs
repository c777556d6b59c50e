//! Network interfaces (`/sys/class/net`) with their addresses, routes, and rules.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Serialize};

use super::reader::Reader;
use super::route::{self, Route};
use super::rtnetlink::{Routing, links};
use super::rule::RoutingRule;

/// The network as this container sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Net {
    /// In the kernel's order, which is the order in which NCCL sees them.
    pub interfaces: Vec<Interface>,
    /// Unicast routes of every table except the local one, IPv4 first. Of a table that only a rule selects,
    /// only the routes that matter.
    pub routes: Vec<Route>,
    /// The rules that select a table for each packet, in the kernel's order, IPv4 first. `None` if the rules
    /// were not read, or the kernel does not report them; `routes` may then contain only the main table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<RoutingRule>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    pub name: String,
    pub index: Option<u32>,
    /// The flags as `ip link` names them: UP, BROADCAST, RUNNING, MULTICAST, LOOPBACK.
    pub flags: Vec<String>,
    /// In bytes.
    pub mtu: Option<u32>,
    pub addresses: Vec<IpNet>,
    /// The PCI device of a physical interface.
    pub pci_address: Option<String>,
    /// The kernel driver of a physical or virtual device (`mlx5_core`, `gve`, `virtio_net`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The bond, bridge or VRF that the interface is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Whether the kernel reports a radio behind the interface (`phy80211`, which every cfg80211 driver has).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub wireless: bool,
}

/// An interface with one address, or without one, in the form of getifaddrs(3).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InterfaceAddress {
    pub name: String,
    /// `None` for the label of an address, or if the kernel's list lacks it.
    pub index: Option<u32>,
    /// In bytes; `None` in the same cases as `index`.
    pub mtu: Option<u32>,
    pub flags: Vec<String>,
    pub address: Option<IpNet>,
}

impl Interface {
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// Returns whether this is a Wi-Fi interface, according to the kernel or to systemd's naming scheme.
    pub fn is_wireless(&self) -> bool {
        self.wireless || self.name.starts_with("wl")
    }

    pub fn is_up(&self) -> bool {
        self.has_flag("UP") && self.has_flag("RUNNING")
    }

    /// Returns its addresses without loopback addresses.
    fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|net| net.addr()).filter(|address| !address.is_loopback())
    }
}

impl Net {
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| {
            #[cfg(test)]
            super::steps::step();
            interface.name == name
        })
    }

    /// Returns all interfaces by name, for many lookups. If several have the same name, the first one counts.
    pub fn by_name(&self) -> HashMap<&str, &Interface> {
        let mut interfaces = HashMap::with_capacity(self.interfaces.len());
        for interface in &self.interfaces {
            interfaces.entry(interface.name.as_str()).or_insert(interface);
        }
        interfaces
    }

    /// Returns every address of this network namespace without loopback addresses.
    pub fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let own = self.interfaces.iter().flat_map(Interface::own_addresses);
        #[cfg(test)]
        let own = own.inspect(|_| super::steps::step());
        own
    }
}

/// Returns the addresses of the live system, in the kernel's order.
///
/// # Errors
/// The error of the netlink socket.
pub fn system_addresses() -> Result<Vec<InterfaceAddress>, Errno> {
    let list = links::list()?.into_iter().map(|entry| InterfaceAddress {
        name: entry.name,
        index: entry.index,
        mtu: entry.mtu,
        flags: flag_names(InterfaceFlags::from_bits_retain(entry.flags.cast_signed())),
        address: entry.address,
    });
    Ok(list.collect())
}

const FLAGS: [(InterfaceFlags, &str); 6] = [
    (InterfaceFlags::IFF_UP, "UP"),
    (InterfaceFlags::IFF_BROADCAST, "BROADCAST"),
    (InterfaceFlags::IFF_LOOPBACK, "LOOPBACK"),
    (InterfaceFlags::IFF_POINTOPOINT, "POINTOPOINT"),
    (InterfaceFlags::IFF_RUNNING, "RUNNING"),
    (InterfaceFlags::IFF_MULTICAST, "MULTICAST"),
];

/// Includes RUNNING if the interface has its carrier: the kernel sets that flag some time later, from a work queue
/// (`linkwatch_fire_event` in `net/core/link_watch.c`), and the first program of a container can be earlier. Only a
/// dormant interface has a carrier for long without it.
fn flag_names(mut flags: InterfaceFlags) -> Vec<String> {
    let has_carrier = flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOWER_UP);
    if has_carrier && !flags.contains(InterfaceFlags::IFF_DORMANT) {
        flags |= InterfaceFlags::IFF_RUNNING;
    }
    FLAGS.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| (*name).to_owned()).collect()
}

/// Returns the names of this container's network devices, a small part of what [`read`] finds; `None` if the
/// file cannot be read.
pub fn devices(reader: &Reader) -> Option<Vec<String>> {
    // Unlike /sys, this file always shows the network namespace of the reading process.
    let text = reader.text_if_readable("/proc/self/net/dev")?;
    // Two header lines come first, then lines such as `eth0: ...`.
    text.lines().skip(2).map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

pub fn read(
    reader: &Reader,
    addresses: Result<Vec<InterfaceAddress>, Errno>,
    routing: impl FnOnce(&BTreeSet<IpAddr>) -> Result<Routing, Errno>,
) -> Net {
    let addresses = addresses.unwrap_or_else(|errno| {
        let what = Path::new("/proc/net");
        reader.remember(what, format!("interfaces cannot be listed: {}", super::reader::describe(errno)));
        Vec::new()
    });
    let mut interfaces: Vec<Interface> = Vec::new();
    for entry in addresses {
        let position = interfaces.iter().position(|i| i.name == entry.name);
        let position = position.unwrap_or_else(|| {
            let place = place(&interfaces, &entry.name);
            interfaces.insert(place, describe(reader, &entry));
            place
        });
        interfaces[position].addresses.extend(entry.address);
    }
    let own = interfaces.iter().flat_map(Interface::own_addresses).collect();
    // In a sandbox, rtnetlink often does not answer. The files then show less.
    let routing =
        routing(&own).unwrap_or_else(|_| Routing { routes: route::read(reader), ..Routing::default() });
    if let Some(trouble) = routing.trouble {
        reader.remember(Path::new("rtnetlink"), trouble);
    }
    Net { interfaces, routes: routing.routes, rules: routing.rules }
}

/// Returns the position for a new name. The label of an address, such as `eth0:1`, belongs to its link's
/// addresses, before the next link. NCCL treats a label as an interface.
fn place(interfaces: &[Interface], name: &str) -> usize {
    let link = |name: &str| name.split(':').next().map(str::to_owned);
    let last = interfaces.iter().rposition(|known| link(&known.name) == link(name));
    last.map_or(interfaces.len(), |last| last + 1)
}

fn describe(reader: &Reader, entry: &InterfaceAddress) -> Interface {
    let folder = format!("/sys/class/net/{}", entry.name);
    Interface {
        name: entry.name.clone(),
        index: entry.index.or_else(|| reader.number(format!("{folder}/ifindex"))),
        flags: entry.flags.clone(),
        mtu: entry.mtu.or_else(|| reader.number(format!("{folder}/mtu"))),
        addresses: Vec::new(),
        pci_address: reader
            .link_name(format!("{folder}/device"))
            .filter(|name| super::rdma::is_pci_address(name)),
        driver: reader.link_name(format!("{folder}/device/driver")),
        master: reader.link_name(format!("{folder}/master")),
        wireless: reader.link_name(format!("{folder}/phy80211")).is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn an_interface_that_has_just_got_its_carrier_is_running() {
        let (up, carrier) = (InterfaceFlags::IFF_UP, InterfaceFlags::IFF_LOWER_UP);
        let names = |flags| flag_names(flags).join(",");
        assert_eq!(names(up), "UP");
        assert_eq!(names(carrier), "");
        assert_eq!(names(up | carrier), "UP,RUNNING");
        assert_eq!(names(up | carrier | InterfaceFlags::IFF_DORMANT), "UP");
    }

    #[test]
    fn labels_come_behind_their_link() {
        let root = FakeRoot::new();
        let entry = |name: &str, address: Option<&str>| InterfaceAddress {
            name: name.to_owned(),
            address: address.map(|address| address.parse().unwrap()),
            ..InterfaceAddress::default()
        };
        let entries = vec![
            entry("eth0", None),
            entry("eth1", None),
            entry("eth0", Some("10.1.0.5/24")),
            entry("eth0:1", Some("10.1.2.5/24")),
            entry("eth0:2", Some("10.1.3.5/24")),
            entry("eth1", Some("10.2.0.5/24")),
        ];
        let net = read(&root.reader(), Ok(entries), |_| Ok(Routing::default()));
        let names: Vec<_> = net.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth0:1", "eth0:2", "eth1"]);
    }

    #[test]
    fn wireless_interfaces_are_recognized() {
        let root = FakeRoot::new();
        root.folder("sys/class/net/eth0");
        root.link("../../ieee80211/phy0", "sys/class/net/radio0/phy80211");
        let entry = |name: &str| InterfaceAddress { name: name.to_owned(), ..InterfaceAddress::default() };
        let entries = ["radio0", "eth0", "wlP9s9"].map(entry).to_vec();
        let net = read(&root.reader(), Ok(entries), |_| Ok(Routing::default()));
        let wireless: Vec<bool> = net.interfaces.iter().map(Interface::is_wireless).collect();
        assert_eq!(wireless, [true, false, true]);
    }

    #[test]
    fn without_rtnetlink_files_provide_routes_but_no_rules() {
        let root = FakeRoot::new();
        let line = "eth0\t00000000\t010AF40A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n";
        root.file("proc/net/route", format!("Iface\tDestination\n{line}"));
        let net = read(&root.reader(), Ok(Vec::new()), |_| Err(Errno::EPERM));
        assert!(net.routes.len() == 1 && net.routes[0].is_default() && net.routes[0].is_for_all());
        assert_eq!(net.rules, None);
    }

    #[test]
    fn devices_are_known_by_name_or_not_at_all() {
        let root = FakeRoot::new();
        let devices = || devices(&root.reader());
        assert_eq!(devices(), None);
        let write = |text: &str| root.file("proc/self/net/dev", text);
        write(
            "Inter-|   Receive                   |  Transmit\n face |bytes    packets |bytes\n    \
             lo:  104960     720    0\neth0.100: 1 2 3\n",
        );
        assert_eq!(devices().unwrap(), ["lo", "eth0.100"]);
        write("one\ntwo\nthree\n");
        assert_eq!(devices(), None);
    }

    #[test]
    fn the_devices_of_this_machine_are_those_that_have_addresses() {
        let devices = devices(&Reader::new(Path::new("/"))).unwrap();
        for entry in system_addresses().unwrap() {
            assert!(devices.iter().any(|device| entry.name.starts_with(device.as_str())), "{}", entry.name);
        }
    }
}
