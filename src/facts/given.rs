//! The PCI functions that a device plugin of Kubernetes has given to this container: the SR-IOV network
//! device plugin sets `PCIDEVICE_RESOURCE=0000:3b:00.2,0000:3b:00.3` (README.md, "Pod device information").
//! `PCIDEVICE_RESOURCE_INFO` beside it is JSON, and devices of the auxiliary bus have other names
//! (`mlx5_core.sf.4`); neither is the address of a function.

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::reader::Reader;

const DEVICES: &str = "/sys/bus/pci/devices";

const PREFIX: &str = "PCIDEVICE_";

/// The most functions to examine; a machine has some dozen NICs, and some hundred virtual functions.
pub(crate) const MOST: usize = 256;

/// The longest name of a variable to keep, in bytes. Kubernetes allows 316 for a resource.
const LONGEST_NAME: usize = 512;

/// A PCI function that a variable names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenDevice {
    /// The name of the variable.
    pub variable: String,
    /// As the kernel writes it: `0000:3b:00.2`.
    pub address: String,
    /// What the function is, as sysfs has it: `0x020000` is a network controller. `None` if this machine has
    /// no such function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

pub(crate) fn read(reader: &Reader, environment: &Environment) -> Vec<GivenDevice> {
    // Without this, nothing shows which functions exist.
    if !environment.names().any(|name| name.starts_with(PREFIX)) || !reader.is_there(DEVICES) {
        return Vec::new();
    }
    let variables =
        environment.iter().filter(|(name, _)| name.starts_with(PREFIX) && name.len() <= LONGEST_NAME);
    let named = variables.flat_map(|(name, value)| {
        let addresses = value.split(',').filter_map(address);
        addresses.map(|address| (name.to_owned(), address))
    });
    named
        .take(MOST)
        .map(|(variable, address)| {
            // Nothing but such an address gets into the path.
            let class = reader.text_if_readable(format!("{DEVICES}/{address}/class"));
            GivenDevice { variable, address, class }
        })
        .collect()
}

/// Returns the address in the kernel's spelling, if the text has the form of one.
fn address(text: &str) -> Option<String> {
    let text = text.trim();
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let is_hex = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_one =
        is_hex(domain, 4..=8) && is_hex(bus, 2..=2) && is_hex(device, 2..=2) && is_hex(function, 1..=1);
    is_one.then(|| text.to_ascii_lowercase())
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
            ("PCIDEVICE_NVIDIA_COM_RAILS", "0000:3B:00.2, 0000:5e:00.1"),
            ("PCIDEVICE_NVIDIA_COM_RAILS_INFO", info),
            (
                "PCIDEVICE_X",
                "../../../../etc,mlx5_core.sf.4,0000:3b:00,00:3b:00.2,0000:3b:00.2.1,,0000:3b:0é.1",
            ),
            ("HOME", "0000:3b:00.2"),
        ]);
        let device = |address: &str, class: Option<&str>| GivenDevice {
            variable: "PCIDEVICE_NVIDIA_COM_RAILS".to_owned(),
            address: address.to_owned(),
            class: class.map(str::to_owned),
        };
        let wanted = [device("0000:3b:00.2", Some("0x020000")), device("0000:5e:00.1", None)];
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
