//! A host with nine RDMA devices: the demo host as directories that replace /sys and /dev, and as
//! interfaces of a network namespace.

use std::fs::{self, File};
use std::io::{Error, Write};
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use rdma_init::demo;
use rdma_init::facts::Facts;
use rdma_init::facts::document::Document;
use rdma_init::facts::gid::Gid;
use rdma_init::facts::net::Interface;
use rdma_init::facts::rdma::{Hca, Port};

/// The captured host that `rdma-init plan --facts demo:cce-roce` shows.
const DEMO: &str = "cce-roce";

/// The directories that replace those of the kernel.
pub struct Host {
    pub sys: PathBuf,
    pub dev: PathBuf,
}

/// Reads the captured host.
pub fn captured() -> Facts {
    Document::parse(demo::host(DEMO).expect("a demo host")).expect("facts")
}

impl Host {
    /// Creates the devices of these facts in a directory.
    ///
    /// # Errors
    /// A file cannot be made.
    pub fn make(facts: &Facts, folder: &Path) -> Result<Host, Error> {
        let host = Host { sys: folder.join("sys"), dev: folder.join("dev") };
        for (number, hca) in facts.rdma.iter().enumerate() {
            host.hca(number, hca)?;
        }
        for interface in &facts.net.interfaces {
            host.interface(interface)?;
        }
        for hca in &facts.rdma {
            host.interface_of(hca)?;
        }
        let dmi = [("sys_vendor", &facts.dmi.vendor), ("product_name", &facts.dmi.product)];
        for (file, text) in dmi {
            host.write(&format!("class/dmi/id/{file}"), text.as_deref().unwrap_or_default())?;
        }
        // A plain container has these devices, and programs expect them.
        for (name, major, minor) in [("null", 1, 3), ("zero", 1, 5), ("urandom", 1, 9)] {
            node(&host.dev.join(name), major, minor)?;
        }
        Ok(host)
    }

    fn write(&self, path: &str, text: &str) -> Result<(), Error> {
        let path = self.sys.join(path);
        fs::create_dir_all(path.parent().expect("a folder"))?;
        fs::write(path, format!("{text}\n"))
    }

    fn hca(&self, number: usize, hca: &Hca) -> Result<(), Error> {
        let class = format!("class/infiniband/{}", hca.name);
        for (file, text) in [
            ("node_type", "1: CA".to_owned()),
            ("node_guid", format!("b859:9f03:00aa:{number:04x}")),
            ("sys_image_guid", format!("b859:9f03:00aa:{number:04x}")),
            ("fw_ver", hca.firmware.clone().unwrap_or_default()),
        ] {
            self.write(&format!("{class}/{file}"), &text)?;
        }
        let pci = hca.pci_address.as_deref().expect("a PCI device");
        let device = format!("devices/pci0000:00/{pci}");
        let numa_node = hca.numa_node.unwrap_or(-1).to_string();
        for (file, text) in [
            ("numa_node", numa_node.as_str()),
            ("vendor", "0x15b3"),
            ("device", "0x101e"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
        ] {
            self.write(&format!("{device}/{file}"), text)?;
        }
        let driver = hca.driver.as_deref().unwrap_or_default();
        symlink(format!("../../../bus/pci/drivers/{driver}"), self.sys.join(&device).join("driver"))?;
        symlink(format!("../../../{device}"), self.sys.join(&class).join("device"))?;
        for port in &hca.ports {
            self.port(&format!("{class}/ports/{}", port.number), port)?;
        }
        let uverbs = &hca.uverbs.as_ref().expect("a uverbs node").name;
        self.write(&format!("class/infiniband_verbs/{uverbs}/ibdev"), &hca.name)?;
        self.write(&format!("class/infiniband_verbs/{uverbs}/abi_version"), "1")?;
        // A start only opens the device.
        node(&self.dev.join("infiniband").join(uverbs), 1, 3)
    }

    fn port(&self, folder: &str, port: &Port) -> Result<(), Error> {
        for (file, text) in [
            ("state", format!("4: {}", port.state)),
            ("phys_state", format!("5: {}", port.physical_state)),
            ("rate", port.rate.clone()),
            ("link_layer", String::from(port.link_layer.clone())),
            ("lid", "0x0".to_owned()),
        ] {
            self.write(&format!("{folder}/{file}"), &text)?;
        }
        // Every driver for such devices has these counters. Without them, a start asks for the counters of
        // other drivers.
        for counter in ["port_xmit_data", "port_xmit_packets", "port_rcv_data", "port_rcv_packets"] {
            self.write(&format!("{folder}/counters/{counter}"), "0")?;
        }
        for index in 0..port.gids.size {
            let slot = port.gids.slots.iter().find(|slot| slot.index == index);
            self.write(&format!("{folder}/gids/{index}"), &written(slot))?;
            // The kernel has these files for empty GID entries as well, but reading them fails.
            if let Some(slot) = slot {
                let kind = String::from(slot.kind.clone());
                self.write(&format!("{folder}/gid_attrs/types/{index}"), &kind)?;
                let netdev = slot.netdev.as_deref().unwrap_or_default();
                self.write(&format!("{folder}/gid_attrs/ndevs/{index}"), netdev)?;
            }
        }
        Ok(())
    }

    /// Links the interface of an HCA to the PCI device of both, as the kernel does. If a start knows which
    /// interface belongs to the HCA, it does not read the whole GID table.
    fn interface_of(&self, hca: &Hca) -> Result<(), Error> {
        let pci = hca.pci_address.as_deref().expect("a PCI device");
        let mut slots = hca.ports.iter().flat_map(|port| &port.gids.slots);
        match slots.find_map(|slot| slot.netdev.as_deref()) {
            Some(netdev) => {
                let link = self.sys.join("class/net").join(netdev).join("device");
                symlink(format!("../../../devices/pci0000:00/{pci}"), link)
            }
            None => Ok(()),
        }
    }

    fn interface(&self, interface: &Interface) -> Result<(), Error> {
        let folder = format!("class/net/{}", interface.name);
        self.write(&format!("{folder}/ifindex"), &interface.index.unwrap_or_default().to_string())?;
        self.write(&format!("{folder}/mtu"), &interface.mtu.unwrap_or_default().to_string())
    }
}

/// Returns a GID with all leading zeros, as the kernel writes it.
fn written(slot: Option<&Gid>) -> String {
    let gid = slot.map_or(Ipv6Addr::UNSPECIFIED, |slot| slot.gid);
    gid.segments().map(|part| format!("{part:04x}")).join(":")
}

/// Makes a character device.
fn node(path: &Path, major: u32, minor: u32) -> Result<(), Error> {
    fs::create_dir_all(path.parent().expect("a folder"))?;
    let device = makedev(major.into(), minor.into());
    Ok(mknod(path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), device)?)
}

/// Moves this thread into a network namespace with the interfaces of these facts. Processes that the thread
/// starts are in it as well.
///
/// # Errors
/// A sentence that says why the interfaces cannot be made.
pub fn enter_network(facts: &Facts) -> Result<(), String> {
    let made = |error: Error| format!("a network namespace cannot be made: {error}");
    let own = network_namespace().map_err(made)?;
    // The other ends of the interfaces are in a namespace that lives as long as this program.
    std::mem::forget(network_namespace().map_err(made)?);
    let names = || facts.net.interfaces.iter().map(|interface| &interface.name).filter(|name| *name != "lo");
    let place = format!("/proc/{}/fd/{}", std::process::id(), own.as_raw_fd());
    ip(names().flat_map(|name| {
        [
            format!("link add {name} type veth peer name {name} netns {place}"),
            format!("link set {name} addrgenmode none up"),
        ]
    }))?;
    // SAFETY: plain numbers.
    let moved = unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWNET) };
    Errno::result(moved).map_err(|errno| made(errno.into()))?;
    ip(std::iter::once("link set lo up".to_owned())
        .chain(names().map(|name| format!("link set {name} addrgenmode none up"))))?;
    let interfaces = facts.net.interfaces.iter().filter(|interface| interface.name != "lo");
    ip(interfaces.flat_map(|interface| {
        interface.addresses.iter().map(|address| format!("addr add {address} dev {}", interface.name))
    }))?;
    let gateways = facts.net.routes.iter().filter_map(|route| Some((route.gateway?, &route.interface)));
    ip(gateways.map(|(gateway, interface)| format!("route add default via {gateway} dev {interface}")))
}

/// Moves this thread into its own network namespace, and returns the namespace.
fn network_namespace() -> Result<File, Error> {
    // SAFETY: a plain number.
    Errno::result(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    File::open("/proc/thread-self/ns/net")
}

/// Passes these lines to ip(8).
fn ip(lines: impl Iterator<Item = String>) -> Result<(), String> {
    let ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn();
    let mut ip = ip.map_err(|error| format!("ip(8) cannot be started: {error}"))?;
    let text = lines.collect::<Vec<_>>().join("\n");
    let given = ip.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    given.map_err(|error| format!("ip(8) takes no lines: {error}"))?;
    match ip.wait() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("ip(8) cannot make the interfaces: {text}")),
    }
}
