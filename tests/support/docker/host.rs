//! Simulates an RDMA host for a real container: a directory with the layout of /sys, and device nodes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::{Engine, Network, engine};

/// The size of each simulated GID table.
const SLOTS: usize = 16;

/// The index of the RoCE v2 GID with the container's own address. The entries before it contain the host's
/// GIDs.
pub const OWN_SLOT: &str = "5";

/// A simulated host with RDMA devices that a container sees.
pub struct Host {
    folder: TempDir,
    options: Vec<String>,
}

impl Host {
    /// Returns a host without RDMA devices.
    pub fn new() -> Host {
        let host = Host { folder: tempfile::tempdir().unwrap(), options: Vec::new() };
        host.write("class/dmi/id/sys_vendor", "Example Cloud");
        host.write("class/dmi/id/product_name", "gpu.8x");
        for folder in ["class/net", "class/infiniband", "fs/cgroup", "firmware"] {
            fs::create_dir_all(host.sys().join(folder)).unwrap();
        }
        let sys = host.sys();
        host.option("--volume", &format!("{}:/sys:ro", sys.display()))
    }

    /// Returns a host with one HCA, mlx5_0, on the container's only network.
    pub fn with_one_hca(engine: &Engine) -> Host {
        let network = engine.network();
        let address = network.address();
        Host::new().on(network, address).hca(0, "eth0", network, address).allot(0)
    }

    /// Returns that host and the engine; if there is no engine here, prints that and returns `None`.
    pub fn of_engine() -> Option<(&'static Engine, Host)> {
        let engine = engine()?;
        Some((engine, Host::with_one_hca(engine)))
    }

    /// Returns the directory that the container sees as /sys.
    pub fn sys(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    /// Creates another directory of the host, for another mount.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.sys().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn option(mut self, name: &str, value: &str) -> Host {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Puts the container on this network, with this address.
    pub fn on(self, network: &Network, address: Ipv4Addr) -> Host {
        self.option("--network", &network.name).option("--ip", &address.to_string())
    }

    /// Adds mlx5_N, an HCA with one ACTIVE RoCE port. The host and the container share its interface, and the
    /// GIDs with the host's address come first in its table.
    pub fn hca(self, number: u8, netdev: &str, network: &Network, own: Ipv4Addr) -> Host {
        let device = format!("class/infiniband/mlx5_{number}");
        let port = format!("{device}/ports/1");
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xba59, 0x9fff, 0xfe00, number.into());
        let used = [IpAddr::V6(link_local), network.host_address().into(), own.into()]
            .into_iter()
            .flat_map(|address| ["IB/RoCE v1", "RoCE v2"].map(|kind| (gid(address), kind)));
        for (path, text) in [
            (
                &device,
                [("node_type", "1: CA"), ("fw_ver", "28.39.1002"), ("node_guid", "b859:9f03:00aa:0001")]
                    .as_slice(),
            ),
            (
                &port,
                &[
                    ("state", "4: ACTIVE"),
                    ("phys_state", "5: LinkUp"),
                    ("rate", "200 Gb/sec (4X HDR)"),
                    ("link_layer", "Ethernet"),
                    ("lid", "0x0"),
                ],
            ),
        ] {
            for (file, text) in text {
                self.write(&format!("{path}/{file}"), text);
            }
        }
        let empty = (gid(Ipv6Addr::UNSPECIFIED.into()), "");
        for (slot, (gid, kind)) in used.chain(std::iter::repeat(empty)).take(SLOTS).enumerate() {
            self.write(&format!("{port}/gids/{slot}"), &gid);
            // The kernel also has these files for empty entries, but reading them fails.
            if !kind.is_empty() {
                self.write(&format!("{port}/gid_attrs/types/{slot}"), kind);
                self.write(&format!("{port}/gid_attrs/ndevs/{slot}"), netdev);
            }
        }
        self.write(&format!("class/infiniband_verbs/uverbs{number}/ibdev"), &format!("mlx5_{number}"));
        self
    }

    /// Gives the container an HCA's device node, as a device plugin does.
    pub fn allot(self, number: u8) -> Host {
        self.option("--device", &format!("/dev/null:/dev/infiniband/uverbs{number}"))
    }

    /// Sets an HCA's kernel driver.
    pub fn driver(self, number: u8, name: &str) -> Host {
        let device = self.sys().join(format!("class/infiniband/mlx5_{number}/device"));
        fs::create_dir_all(&device).unwrap();
        symlink(format!("../../bus/pci/drivers/{name}"), device.join("driver")).unwrap();
        self
    }

    /// Sets an HCA's port to DOWN, as if the cable had been pulled.
    pub fn unplug(self, number: u8) -> Host {
        self.write(&format!("class/infiniband/mlx5_{number}/ports/1/state"), "1: DOWN");
        self.write(&format!("class/infiniband/mlx5_{number}/ports/1/phys_state"), "3: Disabled");
        self
    }

    /// Mounts this directory of the host into the container as /dev/infiniband.
    pub fn mount_nodes(self, folder: &str) -> Host {
        let folder = self.folder(folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        self.option("--volume", &format!("{}:/dev/infiniband", folder.display()))
    }

    /// Returns the options of `docker run` for this host, followed by `more`.
    pub fn options<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.options.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }
}

/// Returns a GID in the kernel's format.
fn gid(address: IpAddr) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.segments().map(|segment| format!("{segment:04x}")).join(":")
}
