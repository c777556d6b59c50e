//! The Data Direct functions of ConnectX-8: PCI functions of their own, behind the switch of a
//! GPU, through which an HCA reaches the memory of the GPU past the CPU
//! (`drivers/infiniband/hw/mlx5/data_direct.c`).
//!
//! No file shows which HCA a function belongs to. The driver compares serial numbers in the PCI
//! configuration space, and tells the result only to a program that opens the HCA through verbs
//! (`mlx5dv_get_data_direct_sysfs_path`).

use super::pci::{self, PciDevice};
use super::rdma::is_pci_address;
use super::reader::Reader;

/// The folder of the functions' PCI driver. (The driver of the HCAs themselves is `mlx5_core`.)
const DRIVER: &str = "/sys/bus/pci/drivers/mlx5_ib";

/// The most functions that are looked at.
const MOST: usize = 64;

/// Reads all functions of the host, in the order of their PCI addresses.
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
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn functions_are_found_by_their_driver() {
        let root = tempfile::tempdir().unwrap();
        assert!(read(&Reader::new(root.path())).is_empty());
        let driver = root.path().join("sys/bus/pci/drivers/mlx5_ib");
        fs::create_dir_all(&driver).unwrap();
        fs::create_dir_all(root.path().join("sys/bus/pci/devices")).unwrap();
        for (address, node) in [("0019:03:00.0", 1), ("0008:03:00.0", 0)] {
            let device = format!("sys/devices/pci{}/{address}", &address[..7]);
            fs::create_dir_all(root.path().join(&device)).unwrap();
            fs::write(root.path().join(&device).join("numa_node"), format!("{node}\n")).unwrap();
            let link = root.path().join("sys/bus/pci/devices").join(address);
            symlink(root.path().join(&device), link).unwrap();
            symlink(root.path().join(&device), driver.join(address)).unwrap();
        }
        fs::write(driver.join("bind"), "").unwrap();
        let found = read(&Reader::new(root.path()));
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
