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
