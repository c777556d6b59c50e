//! What a device is recognized by if it comes back under another name: its PCI function, or its node GUID.

use serde::{Deserialize, Serialize};

use super::rdma::{Hca, is_pci_address};
use super::reader::Reader;

const CLASS: &str = "/sys/class/infiniband";

/// What no other device of the host has. A field is `None` if the device has none, or shares it with another one:
/// software devices over one interface have the same GUID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DeviceIdentity {
    /// `0000:17:00.0`
    pub pci_address: Option<String>,
    pub node_guid: Option<String>,
}

/// Where the device is now that had a name at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceName {
    /// Under its name, or nowhere.
    Kept,
    /// Under another name. `by_guid`: recognized by its GUID, not by its PCI function.
    Changed { name: String, by_guid: bool },
    /// Nowhere, and another device has its name.
    Taken,
}

impl DeviceIdentity {
    /// Returns that of one of these devices, which are all of the host.
    pub(crate) fn of(hca: &Hca, all: &[Hca]) -> DeviceIdentity {
        let unique = |of: fn(&Hca) -> &Option<String>| {
            let own = of(hca).as_ref()?;
            let others = all.iter().filter(|other| other.name != hca.name);
            (others.filter_map(|other| of(other).as_ref()).all(|other| other != own)).then(|| own.clone())
        };
        DeviceIdentity {
            pci_address: unique(|hca| &hca.pci_address),
            node_guid: unique(|hca| &hca.node_guid).filter(|guid| is_guid(guid)),
        }
    }

    /// `None` if there is no device of this name.
    fn read(reader: &Reader, name: &str) -> Option<DeviceIdentity> {
        let folder = format!("{CLASS}/{name}");
        reader.is_there(&folder).then(|| DeviceIdentity {
            pci_address: function(reader, name),
            node_guid: reader.text_if_readable(format!("{folder}/node_guid")).filter(|guid| is_guid(guid)),
        })
    }

    /// Looks for the device that had this name. A function keeps its place while its GUID may be set anew, or may move
    /// to another function, so that the GUID only counts if no device is at the function.
    pub(crate) fn find(&self, reader: &Reader, name: &str) -> DeviceName {
        // Nearly always, and nothing else counts then.
        if self.pci_address.is_some() && self.pci_address == function(reader, name) {
            return DeviceName::Kept;
        }
        let now = DeviceIdentity::read(reader, name);
        let [at_function, has_guid] = now.as_ref().map(|now| self.compared(now)).unwrap_or_default();
        // What cannot be read proves nothing.
        let is_sure = matches!((at_function, has_guid), (Some(false), _) | (_, Some(false)));
        if *self == DeviceIdentity::default() || (now.is_some() && !is_sure) {
            return DeviceName::Kept;
        }
        let (mut by_function, mut by_guid) = (Vec::new(), Vec::new());
        reader.each_name_if_listable(CLASS, MOST, |other| {
            let other_device = (other != name).then(|| DeviceIdentity::read(reader, other)).flatten();
            match other_device.map(|now| self.compared(&now)) {
                Some([Some(true), _]) => by_function.push(other.to_owned()),
                Some([_, Some(true)]) => by_guid.push(other.to_owned()),
                _ => {}
            }
        });
        let is_there = now.is_some();
        let (mut found, by_guid) = match () {
            () if !by_function.is_empty() => (by_function, false),
            () if is_there && has_guid == Some(true) => return DeviceName::Kept,
            () => (by_guid, true),
        };
        match found.pop() {
            Some(name) if found.is_empty() => DeviceName::Changed { name, by_guid },
            _ if is_there => DeviceName::Taken,
            _ => DeviceName::Kept,
        }
    }

    /// Returns whether both have the same PCI function, and the same GUID, if both have one.
    fn compared(&self, other: &DeviceIdentity) -> [Option<bool>; 2] {
        let are_same = |one: &Option<String>, other: &Option<String>| Some(one.as_ref()? == other.as_ref()?);
        [are_same(&self.pci_address, &other.pci_address), are_same(&self.node_guid, &other.node_guid)]
    }
}

/// Returns the PCI function of the device with this name.
fn function(reader: &Reader, name: &str) -> Option<String> {
    reader.link_name(format!("{CLASS}/{name}/device")).filter(|name| is_pci_address(name))
}

/// The most devices among which to look for one.
const MOST: usize = 1024;

/// Virtual functions may have no GUID yet, which reads as zero.
fn is_guid(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_hexdigit() && byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    fn hca(name: &str, pci: Option<&str>, guid: Option<&str>) -> Hca {
        let [pci_address, node_guid] = [pci, guid].map(|text| text.map(str::to_owned));
        Hca { name: name.to_owned(), pci_address, node_guid, ..Hca::default() }
    }

    fn put(root: &FakeRoot, hca: &Hca) {
        let folder = format!("sys/class/infiniband/{}", hca.name);
        root.file(&format!("{folder}/ports/1/state"), "4: ACTIVE\n");
        if let Some(guid) = &hca.node_guid {
            root.file(&format!("{folder}/node_guid"), format!("{guid}\n"));
        }
        if let Some(pci) = &hca.pci_address {
            root.link(format!("../../../devices/pci0000:00/{pci}"), &format!("{folder}/device"));
        }
    }

    /// Returns where a device of the start is, among these.
    fn found(start: &[Hca], now: &[Hca]) -> DeviceName {
        let root = FakeRoot::new();
        now.iter().for_each(|hca| put(&root, hca));
        DeviceIdentity::of(&start[0], start).find(&root.reader(), &start[0].name)
    }

    const PCI: Option<&str> = Some("0000:17:00.0");
    const OTHER_PCI: Option<&str> = Some("0000:18:00.0");
    const GUID: Option<&str> = Some("b859:9f03:00aa:0001");
    const OTHER_GUID: Option<&str> = Some("b859:9f03:00aa:0002");

    #[test]
    fn a_device_is_found_under_another_name_by_its_function_or_its_guid() {
        let (own, other) = (hca("mlx5_0", PCI, GUID), hca("mlx5_1", OTHER_PCI, OTHER_GUID));
        let start = [own.clone(), other.clone()];
        let changed = |name: &str| DeviceName::Changed { name: name.to_owned(), by_guid: false };
        assert_eq!(found(&start, &start), DeviceName::Kept);
        assert_eq!(found(&start, std::slice::from_ref(&other)), DeviceName::Kept, "it is gone");
        assert_eq!(found(&start, &[other.clone(), hca("mlx5_9", PCI, GUID)]), changed("mlx5_9"));
        assert_eq!(found(&start, &[other.clone(), hca("mlx5_9", PCI, OTHER_GUID)]), changed("mlx5_9"));
        let by_guid = DeviceName::Changed { name: "mlx5_9".to_owned(), by_guid: true };
        assert_eq!(found(&start, &[hca("mlx5_9", Some("0000:99:00.0"), GUID)]), by_guid);
        // The two have swapped their names, or another device has its name.
        let swapped = [hca("mlx5_0", OTHER_PCI, OTHER_GUID), hca("mlx5_1", PCI, GUID)];
        assert_eq!(found(&start, &swapped), changed("mlx5_1"));
        assert_eq!(found(&start, &[hca("mlx5_0", OTHER_PCI, OTHER_GUID)]), DeviceName::Taken);
        // A function whose GUID is set anew, and what cannot be read.
        assert_eq!(found(&start, &[hca("mlx5_0", PCI, OTHER_GUID)]), DeviceName::Kept);
        assert_eq!(found(&start, &[hca("mlx5_0", None, None)]), DeviceName::Kept);
    }

    #[test]
    fn a_guid_only_counts_if_no_device_is_at_the_function() {
        let start = [hca("mlx5_0", PCI, GUID), hca("mlx5_1", OTHER_PCI, OTHER_GUID)];
        let changed = |name: &str| DeviceName::Changed { name: name.to_owned(), by_guid: false };
        // Their names have changed, and they have exchanged their GUIDs.
        let exchanged = [hca("roce0", PCI, OTHER_GUID), hca("roce1", OTHER_PCI, GUID)];
        assert_eq!(found(&start, &exchanged), changed("roce0"));
        let swapped = [hca("mlx5_0", OTHER_PCI, GUID), hca("mlx5_1", PCI, OTHER_GUID)];
        assert_eq!(found(&start, &swapped), changed("mlx5_1"));
        assert_eq!(found(&start, &[hca("mlx5_0", OTHER_PCI, GUID)]), DeviceName::Kept);
    }

    #[test]
    fn what_several_devices_have_identifies_none() {
        let rxe = |name| hca(name, None, GUID);
        let start = [rxe("rxe0"), rxe("rxe1")];
        assert_eq!(DeviceIdentity::of(&start[0], &start), DeviceIdentity::default());
        assert_eq!(found(&start, &[rxe("rxe1")]), DeviceName::Kept, "it is gone");
        assert_eq!(found(&start[..1], &[rxe("rxe1"), rxe("rxe2")]), DeviceName::Kept, "it may be either");
        assert_eq!(
            found(&start[..1], &[rxe("rxe7")]),
            DeviceName::Changed { name: "rxe7".to_owned(), by_guid: true }
        );
        let zero = [hca("rxe0", None, Some("0000:0000:0000:0000"))];
        assert_eq!(DeviceIdentity::of(&zero[0], &zero), DeviceIdentity::default());
    }
}
