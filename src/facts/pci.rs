//! The link of a PCI device, and its location in the machine (`drivers/pci/pci-sysfs.c`).

use serde::{Deserialize, Serialize};

use super::attributes::AttributeFolder;
use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciLink {
    /// In the kernel's format: `32.0 GT/s PCIe`.
    pub speed: String,
    pub most_speed: String,
    /// The number of lanes.
    pub width: Option<u32>,
    pub most_width: Option<u32>,
}

/// The location of a device in the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// The path of the device, with every bridge above it:
    /// `/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0`.
    pub path: String,
    /// -1 if the firmware does not report it.
    pub numa_node: Option<i32>,
}

/// Returns the location of a device in `/sys/bus/pci/devices`; `None` if it does not exist.
pub(crate) fn place(reader: &Reader, folder: &str) -> Option<PciDevice> {
    let numa_node = reader.text_if_readable(format!("{folder}/numa_node"));
    let numa_node = numa_node.and_then(|text| text.parse().ok());
    Some(PciDevice { path: reader.resolved(folder)?, numa_node })
}

/// Returns the vendor and device ID of the function in this directory, as `lspci -n` shows them.
pub(crate) fn id(device: &AttributeFolder) -> Option<String> {
    let number = |file: &str| {
        let text = device.attribute(file).ok()?;
        text.strip_prefix("0x").map(str::to_owned)
    };
    Some(format!("{}:{}", number("vendor")?, number("device")?))
}

/// Returns the address of a PCI function in the kernel's spelling (`0000:3b:00.2`), if the text has the form of one.
/// Other programs write upper-case digits, or eight digits of the domain.
pub(crate) fn address(text: &str) -> Option<String> {
    let text = text.trim();
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let is_hex = |part: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let is_one =
        is_hex(domain, 4..=8) && is_hex(bus, 2..=2) && is_hex(device, 2..=2) && is_hex(function, 1..=1);
    // The kernel writes at least four digits of the domain.
    let domain = u32::from_str_radix(domain, 16).ok().filter(|_| is_one)?;
    Some(format!("{domain:04x}:{bus}:{device}.{function}").to_ascii_lowercase())
}

/// Reads the PCI link; `None` for a device without one, such as a virtual device.
pub(crate) fn read(device: &AttributeFolder) -> Option<PciLink> {
    let text = |file: &str| device.attribute(file).unwrap_or_default();
    let number = |file: &str| text(file).parse().ok();
    let speed = text("current_link_speed");
    // The speed is "Unknown" if no bridge above the device reports it.
    (speed.contains("GT/s")).then(|| PciLink {
        speed,
        most_speed: text("max_link_speed"),
        width: number("current_link_width"),
        most_width: number("max_link_width"),
    })
}

impl PciLink {
    /// Returns whether the link is slower or narrower than both ends support.
    pub fn is_degraded(&self) -> bool {
        let speed = |text: &str| text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
        let slower = speed(&self.speed).zip(speed(&self.most_speed)).is_some_and(|(now, most)| now < most);
        slower || self.width.zip(self.most_width).is_some_and(|(now, most)| now < most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_in_any_spelling() {
        for text in ["0000:3b:00.2", "00000000:3B:00.2", " 0000:3B:00.2\n"] {
            assert_eq!(address(text).as_deref(), Some("0000:3b:00.2"), "{text:?}");
        }
        assert_eq!(address("00010000:e1:00.1").as_deref(), Some("10000:e1:00.1"));
        for text in
            ["", " ", "3b:00.2", "0000:3b:00", "mlx5_core.sf.4", "0000:3b:00.2.1", "0000:3b:0\u{e9}.1"]
        {
            assert_eq!(address(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_link_below_its_best_is_degraded() {
        let link = |speed: &str, width| PciLink {
            speed: speed.to_owned(),
            most_speed: "32.0 GT/s PCIe".to_owned(),
            width: Some(width),
            most_width: Some(16),
        };
        assert!(!link("32.0 GT/s PCIe", 16).is_degraded());
        assert!(link("16.0 GT/s PCIe", 16).is_degraded());
        assert!(link("32.0 GT/s PCIe", 8).is_degraded());
        assert!(!PciLink::default().is_degraded());
    }
}
