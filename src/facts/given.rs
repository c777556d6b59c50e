//! The PCI functions that Kubernetes has given to this container, as variables name them:
//!
//! * The SR-IOV network device plugin sets `PCIDEVICE_RESOURCE=0000:3b:00.2,0000:3b:00.3` (README.md, "Pod device
//!   information"). `PCIDEVICE_RESOURCE_INFO` beside it is JSON, and devices of the auxiliary bus have other names
//!   (`mlx5_core.sf.4`); neither is the address of a function.
//! * The DRA driver for SR-IOV sets `SRIOVNETWORK_VF_DEVICE_0000_3b_00_2=0000:3b:00.2` for each device of the
//!   container's claims, through CDI (k8snetworkplumbingwg/dra-driver-sriov, `pkg/devicestate/state.go`). Its
//!   `SRIOVNETWORK_PCI_ADDRESSES` has the devices of the whole Pod (`pkg/cdi/cdi.go`), and is not read.

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::pci;
use super::reader::Reader;

const DEVICES: &str = "/sys/bus/pci/devices";

/// What the names of the variables begin with.
pub(crate) const PREFIXES: [&str; 2] = ["PCIDEVICE_", "SRIOVNETWORK_VF_DEVICE_"];

/// The most functions to examine; a machine has a few dozen NICs and a few hundred virtual functions.
pub(crate) const MOST: usize = 256;

/// The longest name of a variable to keep, in bytes. Kubernetes allows 316 for a resource.
const LONGEST_NAME: usize = 512;

/// A PCI function that a variable names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenDevice {
    /// The name of the variable.
    pub variable: String,
    /// In the kernel's format: `0000:3b:00.2`.
    pub address: String,
    /// The PCI class of the function, as in sysfs: `0x020000` is a network controller. `None` if this machine
    /// does not have the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

pub(crate) fn read(reader: &Reader, environment: &Environment) -> Vec<GivenDevice> {
    let names_one = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    // Without this directory, nothing shows which functions exist.
    if !environment.names().any(names_one) || !reader.is_there(DEVICES) {
        return Vec::new();
    }
    let variables = environment.iter().filter(|(name, _)| names_one(name) && name.len() <= LONGEST_NAME);
    let named = variables.flat_map(|(name, value)| {
        let addresses = value.split(',').filter_map(pci::address);
        addresses.map(|address| (name.to_owned(), address))
    });
    named
        .take(MOST)
        .map(|(variable, address)| {
            // Only text in the form of an address gets into the path.
            let class = reader.text_if_readable(format!("{DEVICES}/{address}/class"));
            GivenDevice { variable, address, class }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn addresses_are_read_and_nothing_else_is() {
        let root = FakeRoot::new();
        root.file("sys/bus/pci/devices/0000:3b:00.2/class", "0x020000\n");
        root.file("etc/class", "secret");
        let info = r#"{"0000:3b:00.2":{"generic":{"deviceID":"0000:3b:00.2"}}}"#;
        let environment = Environment::from([
            ("PCIDEVICE_NVIDIA_COM_RAILS", "00000000:3B:00.2, 0000:5e:00.1"),
            ("PCIDEVICE_NVIDIA_COM_RAILS_INFO", info),
            (
                "PCIDEVICE_X",
                "../../../../etc,mlx5_core.sf.4,0000:3b:00,00:3b:00.2,0000:3b:00.2.1,,0000:3b:0é.1",
            ),
            ("HOME", "0000:3b:00.2"),
            ("SRIOVNETWORK_VF_DEVICE_0000_3b_00_2", "0000:3b:00.2"),
            ("SRIOVNETWORK_0000_3b_00_2_RDMA_UVERB", "/dev/infiniband/uverbs0"),
            ("SRIOVNETWORK_PCI_ADDRESSES", "0000:3b:00.2,0000:99:00.0"),
        ]);
        let device = |variable: &str, address: &str, class: Option<&str>| GivenDevice {
            variable: variable.to_owned(),
            address: address.to_owned(),
            class: class.map(str::to_owned),
        };
        let wanted = [
            device("PCIDEVICE_NVIDIA_COM_RAILS", "0000:3b:00.2", Some("0x020000")),
            device("PCIDEVICE_NVIDIA_COM_RAILS", "0000:5e:00.1", None),
            device("SRIOVNETWORK_VF_DEVICE_0000_3b_00_2", "0000:3b:00.2", Some("0x020000")),
        ];
        assert_eq!(read(&root.reader(), &environment), wanted);
    }

    #[test]
    fn no_more_than_some_are_examined() {
        let all: Vec<String> = (0..100_000).map(|number| format!("{number:04x}:00:00.0")).collect();
        let all = all.join(",");
        let environment = Environment::from([("PCIDEVICE_A", all.as_str())]);
        let root = FakeRoot::new();
        assert_eq!(read(&root.reader(), &environment), []);
        root.folder("sys/bus/pci/devices");
        assert_eq!(read(&root.reader(), &environment).len(), MOST);
    }
}
