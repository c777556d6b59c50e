//! The Data Direct functions of ConnectX-8: separate PCI functions behind a GPU's switch. Through them, an
//! HCA accesses the GPU's memory without going through the CPU (`drivers/infiniband/hw/mlx5/data_direct.c`).
//!
//! No file shows which HCA a function belongs to. The driver compares serial numbers in the PCI configuration
//! space, and reports the result only to programs that open the HCA through verbs
//! (`mlx5dv_get_data_direct_sysfs_path`).

use super::pci::{self, PciDevice};
use super::rdma::is_pci_address;
use super::reader::Reader;

/// The directory of the functions' PCI driver. (The driver of the HCAs themselves is `mlx5_core`.)
const DRIVER: &str = "/sys/bus/pci/drivers/mlx5_ib";

/// The most functions to examine.
const MOST: usize = 64;

/// Reads all Data Direct functions of the host, in the order of their PCI addresses.
pub(crate) fn read(reader: &Reader) -> Vec<PciDevice> {
    let mut names = Vec::new();
    reader.each_name_if_listable(DRIVER, 4 * MOST, |name| {
        if is_pci_address(name) {
            names.push(name.to_owned());
        }
    });
    names.sort_unstable();
    names.truncate(MOST);
    names.iter().filter_map(|name| pci::place(reader, &format!("/sys/bus/pci/devices/{name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn functions_are_found_by_their_driver() {
        let root = FakeRoot::new();
        assert!(read(&root.reader()).is_empty());
        for (address, node) in [("0019:03:00.0", 1), ("0008:03:00.0", 0)] {
            let device = format!("sys/devices/pci{}/{address}", &address[..7]);
            root.file(&format!("{device}/numa_node"), format!("{node}\n"));
            for folder in ["sys/bus/pci/devices", "sys/bus/pci/drivers/mlx5_ib"] {
                root.link(root.path(&device), &format!("{folder}/{address}"));
            }
        }
        root.file("sys/bus/pci/drivers/mlx5_ib/bind", "");
        let found = read(&root.reader());
        let shown: Vec<(&str, Option<i32>)> =
            found.iter().map(|function| (function.path.as_str(), function.numa_node)).collect();
        assert_eq!(
            shown,
            [
                ("/sys/devices/pci0008:03/0008:03:00.0", Some(0)),
                ("/sys/devices/pci0019:03/0019:03:00.0", Some(1))
            ]
        );
    }
}
