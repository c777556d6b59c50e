//! GID tables: `ports/N/gids`, `ports/N/gid_attrs/{types,ndevs}`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::attributes::AttributeFolder;
use super::reader::{self, Reader};
use crate::json::known_texts;

/// The GID table of a port. Only used entries are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GidTable {
    /// Number of entries, used and empty.
    pub size: u32,
    /// Number of entries read, from index 0.
    pub scanned: u32,
    pub slots: Vec<Gid>,
}

/// A used entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gid {
    pub index: u32,
    /// An IPv4 address appears as `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    #[serde(rename = "type", default)]
    pub kind: GidType,
    /// The network interface that the GID comes from, by its name in its own network namespace. The name
    /// alone does not distinguish a host's eth0 from a container's.
    #[serde(default)]
    pub netdev: Option<String>,
}

/// `sgid_index` of a queue pair has eight bits (`ibv_global_route`).
pub(crate) const LARGEST_INDEX: u32 = 255;

/// Returns the IP address that a RoCE v2 GID stands for.
pub(crate) fn address(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GidType {
    RoceV2,
    /// `IB/RoCE v1`: the only type on InfiniBand. On Ethernet, it is not routable.
    IbOrRoceV1,
    Other(String),
    #[default]
    Unknown,
}

known_texts!(GidType::Other, RoceV2 = "RoCE v2", IbOrRoceV1 = "IB/RoCE v1", Unknown = "");

impl Gid {
    /// Makes the GID of an address, for tests.
    #[cfg(test)]
    pub(crate) fn of(index: u32, address: &str, kind: GidType) -> Gid {
        let gid = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Gid { index, gid, kind, netdev: None }
    }

    /// Returns the IP address that a GID of this kind stands for.
    pub fn address(&self) -> IpAddr {
        #[cfg(test)]
        super::steps::step();
        address(self.gid)
    }

    /// Returns whether the GID holds an address in 169.254.0.0/16. Hosts assign such addresses to themselves,
    /// and routers do not forward them (RFC 3927).
    pub fn is_link_local_ipv4(&self) -> bool {
        self.gid.to_ipv4_mapped().is_some_and(|address| address.is_link_local())
    }

    /// Returns whether the GID is in fe80::/10, which is not routable.
    pub fn is_link_local(&self) -> bool {
        self.gid.is_unicast_link_local()
    }
}

/// The number of consecutive empty entries after which the scan may end. The kernel puts a new GID into the
/// lowest free entry (`drivers/infiniband/core/cache.c`, `find_gid`), so a gap this long means that as many
/// addresses existed at the same time and were removed.
const LONG_GAP: u32 = 128;

/// The same number if no entry after the gap can matter. It still lets the scan read entries that are close
/// together.
const SHORT_GAP: u32 = 16;

/// What the scan looks for in a table.
#[derive(Debug, Clone, Copy)]
pub struct GidQuery<'a> {
    /// The addresses of this network namespace.
    pub own: &'a BTreeSet<IpAddr>,
    /// Those of the `own` addresses that the interface of the HCA's PCI device has; empty if it has none, or
    /// if it is part of another interface.
    pub of_device: &'a [IpAddr],
    /// Whether this container may use the HCA.
    pub is_usable: bool,
    /// The scan reads the entries before this one in any case, because a variable names one of them.
    pub at_least: u32,
    /// The size of the table that was read before.
    pub size_before: &'a Cell<u32>,
}

impl GidQuery<'_> {
    /// Returns the number of empty entries after which the scan ends, given the GIDs that it has found.
    fn gap(&self, found: &[Gid]) -> u32 {
        let has = |address: &IpAddr| {
            found.iter().any(|gid| gid.kind == GidType::RoceV2 && gid.address() == *address)
        };
        let is_complete = !self.of_device.is_empty() && self.of_device.iter().all(has);
        if !self.is_usable || is_complete {
            SHORT_GAP
        } else if found.iter().any(|gid| self.own.contains(&gid.address())) {
            LONG_GAP
        } else {
            // A GID of one of our own addresses may still follow.
            u32::MAX
        }
    }
}

/// The most entries that a table may have; the largest known table has 1024.
const MOST: u32 = 65_536;

/// Returns the number of entries in a table. Their names are the numbers from 0 up, so a binary search for
/// the last one needs fewer calls than listing them. Two calls show whether the size is the expected one.
fn size(gids: &AttributeFolder, expected: u32) -> u32 {
    let has = |index: u32| gids.has(&index.to_string());
    if expected.checked_sub(1).is_some_and(has) && expected < MOST && !has(expected) {
        return expected;
    }
    let mut beyond = 1;
    while beyond < MOST && has(beyond - 1) {
        beyond *= 2;
    }
    // All entries below the first number exist, and the entry with the second number does not.
    let (mut there, mut missing) = (beyond / 2, beyond - 1);
    while there < missing {
        let middle = there.midpoint(missing);
        if has(middle) {
            there = middle + 1;
        } else {
            missing = middle;
        }
    }
    there
}

/// How the kernel writes an empty entry.
const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000";

/// Reads a table, with three system calls for an empty entry and nine for a used one.
///
/// Stops after a gap. The length of that gap depends on what was found so far.
pub fn read(reader: &Reader, port: &str, wanted: GidQuery) -> GidTable {
    let gids = reader.folder(format!("{port}/gids"));
    let size = size(&gids, wanted.size_before.get());
    wanted.size_before.set(size);
    let mut table = GidTable { size, ..GidTable::default() };
    if size == 0 {
        // If the entries cannot be looked up, listing them records the reason.
        gids.names();
        return table;
    }
    let attributes = |name| reader.folder(format!("{port}/gid_attrs/{name}"));
    let (types, ndevs) = (attributes("types"), attributes("ndevs"));
    let mut gap = 0;
    let mut longest = wanted.gap(&[]);
    for index in 0..size {
        if gap >= longest && index >= wanted.at_least {
            break;
        }
        table.scanned = index + 1;
        gap += 1;
        let name = index.to_string();
        let text = match gids.attribute(&name) {
            Ok(text) if text == EMPTY => continue,
            Ok(text) => text,
            // Drivers return these errors for an empty entry.
            Err(Errno::EINVAL | Errno::ENOENT) => continue,
            Err(errno) => {
                reader.remember(&gids.path(&name), reader::describe(errno));
                continue;
            }
        };
        let Ok(gid) = text.parse::<Ipv6Addr>() else {
            reader.remember(&gids.path(&name), format!("it is not a GID: {text:?}"));
            continue;
        };
        if gid.is_unspecified() {
            continue;
        }
        let text = |folder: &AttributeFolder| folder.attribute(&name).ok().filter(|text| !text.is_empty());
        let kind = text(&types).unwrap_or_default().into();
        table.slots.push(Gid { index, gid, kind, netdev: text(&ndevs) });
        gap = 0;
        longest = wanted.gap(&table.slots);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn host(size: u32, used: &[(u32, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
            fs::create_dir_all(root.path().join("port").join(folder)).unwrap();
        }
        for index in 0..size {
            let gid = used.iter().find(|(i, _)| *i == index).map(|(_, gid)| *gid);
            let write = |folder: &str, text: &str| {
                fs::write(root.path().join(format!("port/{folder}/{index}")), text).unwrap();
            };
            write("gids", gid.unwrap_or("0000:0000:0000:0000:0000:0000:0000:0000\n"));
            if gid.is_some() {
                write("gid_attrs/types", "RoCE v2\n");
                write("gid_attrs/ndevs", "eth1\n");
            }
        }
        root
    }

    fn scan(root: &tempfile::TempDir, own: &[&str]) -> (GidTable, Vec<String>) {
        let reader = Reader::new(root.path());
        let own = own.iter().map(|a| a.parse().unwrap()).collect();
        let size_before = &Cell::default();
        let wanted = GidQuery { own: &own, of_device: &[], is_usable: true, at_least: 0, size_before };
        let table = read(&reader, "/port", wanted);
        (table, reader.into_unreadable().into_iter().map(|u| u.error).collect())
    }

    /// On a host with hundreds of functions and tables of 255 entries, it matters how much of each table is
    /// read.
    #[test]
    fn no_more_is_read_than_can_matter() {
        let [near, far] = [
            (3, "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            (60, "fe80:0000:0000:0000:0000:0000:0000:0002\n"),
        ];
        let root = host(255, &[near, far]);
        let [one, two]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let own = BTreeSet::from([one, two]);
        let nothing = BTreeSet::new();
        for (what, own, of_device, is_usable, at_least, scanned) in [
            ("all addresses of the device have come", &own, &[one][..], true, 0, 20),
            ("and a variable names a slot that is further", &own, &[one], true, 70, 77),
            ("one of them has not", &own, &[one, two], true, 0, 189),
            ("which they are is not known", &own, &[], true, 0, 189),
            ("none is our own", &nothing, &[], true, 0, 255),
            ("the device node is denied", &nothing, &[], false, 0, 20),
        ] {
            let size_before = &Cell::default();
            let wanted = GidQuery { own, of_device, is_usable, at_least, size_before };
            assert_eq!(read(&Reader::new(root.path()), "/port", wanted).scanned, scanned, "{what}");
        }
    }

    #[test]
    fn a_sparse_table_is_read_until_our_own_address_has_come() {
        let near = (3, "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
        let far = (900, "0000:0000:0000:0000:0000:ffff:0a00:0002\n");
        let root = host(1024, &[near, far]);
        let (table, _) = scan(&root, &["10.0.0.1"]);
        assert_eq!((table.size, table.scanned, table.slots.len()), (1024, 132, 1));
        let (table, errors) = scan(&root, &["10.0.0.2"]);
        assert_eq!((table.scanned, table.slots.len()), (1024, 2));
        let last = &table.slots[1];
        assert_eq!((last.index, last.address()), (900, "10.0.0.2".parse().unwrap()));
        assert_eq!((&last.kind, last.netdev.as_deref()), (&GidType::RoceV2, Some("eth1")));
        assert_eq!(errors, [""; 0]);
    }

    #[test]
    fn the_size_of_another_table_is_only_expected() {
        for (entries, expected) in [(1, 1), (8, 8), (8, 7), (8, 9), (8, 255), (255, 8), (3, u32::MAX)] {
            let root = host(entries, &[]);
            let reader = Reader::new(root.path());
            assert_eq!(size(&reader.folder("/port/gids"), expected), entries, "{entries} {expected}");
        }
    }

    #[test]
    fn a_slot_that_is_no_gid_is_named_and_the_others_stay() {
        let root = host(3, &[(0, "\u{1b}garbage"), (2, "fe80:0000:0000:0000:0000:0000:0000:0001")]);
        fs::remove_file(root.path().join("port/gid_attrs/types/2")).unwrap();
        let (table, errors) = scan(&root, &[]);
        assert_eq!(table.slots.len(), 1);
        assert!(table.slots[0].is_link_local());
        assert_eq!(table.slots[0].kind, GidType::Unknown);
        assert_eq!(errors, ["it is not a GID: \"\u{fffd}garbage\""]);
    }
}
