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
    /// Under another name.
    Changed(String),
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
            pci_address: reader.link_name(format!("{folder}/device")).filter(|name| is_pci_address(name)),
            node_guid: reader.text_if_readable(format!("{folder}/node_guid")).filter(|guid| is_guid(guid)),
        })
    }

    /// Returns whether both are certainly the same device, or certainly not. A function keeps its place while its
    /// GUID may be set anew.
    fn is(&self, other: &DeviceIdentity) -> Option<bool> {
        let are_same = |one: &Option<String>, other: &Option<String>| Some(one.as_ref()? == other.as_ref()?);
        match (are_same(&self.pci_address, &other.pci_address), are_same(&self.node_guid, &other.node_guid)) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (None, None) => None,
            _ => Some(false),
        }
    }

    /// Looks for the device that had this name.
    pub(crate) fn find(&self, reader: &Reader, name: &str) -> DeviceName {
        let now = DeviceIdentity::read(reader, name);
        // What cannot be read proves nothing.
        if *self == DeviceIdentity::default() || now.as_ref().is_some_and(|now| self.is(now) != Some(false)) {
            return DeviceName::Kept;
        }
        let mut found = Vec::new();
        reader.each_name_if_listable(CLASS, MOST, |other| {
            let is_it = || DeviceIdentity::read(reader, other).is_some_and(|now| self.is(&now) == Some(true));
            found.extend((other != name && is_it()).then(|| other.to_owned()));
        });
        match found.pop() {
            Some(other) if found.is_empty() => DeviceName::Changed(other),
            _ if now.is_some() => DeviceName::Taken,
            _ => DeviceName::Kept,
        }
    }
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
            root.file(&format!("{folder}/node_guid"), &format!("{guid}\n"));
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
        let changed = |name: &str| DeviceName::Changed(name.to_owned());
        assert_eq!(found(&start, &start), DeviceName::Kept);
        assert_eq!(found(&start, std::slice::from_ref(&other)), DeviceName::Kept, "it is gone");
        assert_eq!(found(&start, &[other.clone(), hca("mlx5_9", PCI, GUID)]), changed("mlx5_9"));
        assert_eq!(found(&start, &[other.clone(), hca("mlx5_9", PCI, OTHER_GUID)]), changed("mlx5_9"));
        assert_eq!(found(&start, &[hca("mlx5_9", Some("0000:99:00.0"), GUID)]), changed("mlx5_9"));
        // The two have swapped their names, or another device has its name.
        let swapped = [hca("mlx5_0", OTHER_PCI, OTHER_GUID), hca("mlx5_1", PCI, GUID)];
        assert_eq!(found(&start, &swapped), changed("mlx5_1"));
        assert_eq!(found(&start, &[hca("mlx5_0", OTHER_PCI, OTHER_GUID)]), DeviceName::Taken);
        // A function whose GUID is set anew, and what cannot be read.
        assert_eq!(found(&start, &[hca("mlx5_0", PCI, OTHER_GUID)]), DeviceName::Kept);
        assert_eq!(found(&start, &[hca("mlx5_0", None, None)]), DeviceName::Kept);
    }

    #[test]
    fn what_several_devices_have_identifies_none() {
        let rxe = |name| hca(name, None, GUID);
        let start = [rxe("rxe0"), rxe("rxe1")];
        assert_eq!(DeviceIdentity::of(&start[0], &start), DeviceIdentity::default());
        assert_eq!(found(&start, &[rxe("rxe1")]), DeviceName::Kept, "it is gone");
        assert_eq!(found(&start[..1], &[rxe("rxe1"), rxe("rxe2")]), DeviceName::Kept, "it may be either");
        assert_eq!(found(&start[..1], &[rxe("rxe7")]), DeviceName::Changed("rxe7".to_owned()));
        let zero = [hca("rxe0", None, Some("0000:0000:0000:0000"))];
        assert_eq!(DeviceIdentity::of(&zero[0], &zero), DeviceIdentity::default());
    }
}
