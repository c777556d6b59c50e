//! What one look at a port of the job shows. It is taken again and again while the job runs, so it takes few
//! system calls.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::device_identity::{DeviceIdentity, DeviceName};
use super::gid::{GidType, LARGEST_INDEX, address};
use super::net;
use super::port_counters::Counters;
use super::port_errors::{self, PortErrors};
use super::rdma_statistics::Statistics;
use super::reader::Reader;
use super::traffic::{self, Traffic};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortLook {
    pub traffic: Traffic,
    pub errors: PortErrors,
    /// As the kernel writes it: `200 Gb/sec (4X HDR)`.
    pub rate: Option<String>,
    /// Where the GID of the job is, if the job uses one here.
    pub gid: Option<GidPlace>,
    /// The name that its device has now, if it had another one at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renamed: Option<String>,
}

impl PortLook {
    /// Returns this look with the last known value of each counter that it does not show: what is counted until the
    /// counter shows again is not lost. The port itself is as this look shows it.
    pub(crate) fn with_known(self, before: &PortLook) -> PortLook {
        PortLook {
            traffic: self.traffic.with_known(before.traffic),
            errors: self.errors.with_known(&before.errors),
            ..self
        }
    }
}

/// The GID that the job uses on a RoCE port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsedGid {
    pub index: u32,
    pub gid: Ipv6Addr,
    /// RoCE v1 and v2 have the same GID of an address, at two indexes that may swap.
    pub kind: GidType,
    /// Whether NCCL searches the table for it at each new connection.
    pub is_searched: bool,
}

/// Where a GID of the job is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GidPlace {
    /// At the index that the job uses.
    InPlace,
    At(u32),
    /// At the index that the job uses, but of another type, and nowhere of the right one.
    Retyped,
    /// Nowhere in the table. `has_address`: whether an interface still has its address, as far as is known.
    Gone {
        has_address: bool,
    },
}

/// Looks at a port now, `before` which there may have been a look at it.
pub(crate) fn read(
    reader: &Reader,
    counters: &Counters,
    hca: &str,
    port: u32,
    gid: Option<&UsedGid>,
    before: Option<&PortLook>,
) -> PortLook {
    // Read first: if the device goes away meanwhile, the state shows that, and the GID counts for nothing.
    let gid = gid.map(|used| place(reader, &format!("/sys/class/infiniband/{hca}/ports/{port}"), used));
    let of = counters.of(hca, port);
    let errors = match before {
        Some(before) => port_errors::read_again(&of, &before.errors),
        None => port_errors::read(&of),
    };
    let traffic = traffic::read(&of);
    // A link that goes down or comes up meanwhile has a rate that means nothing. The rate from before is no news.
    let is_sure = |rate: &String| {
        before.is_some_and(|before| before.rate.as_ref() == Some(rate)) || errors.has_state(of.state())
    };
    let rate = of.rate().filter(is_sure);
    PortLook { traffic, errors, rate, gid, renamed: None }
}

/// A port to look at again.
#[derive(Clone, Copy)]
pub(crate) struct KnownPort<'p> {
    pub hca: &'p str,
    pub port: u32,
    pub gid: Option<&'p UsedGid>,
    /// What its device is recognized by under another name.
    pub device: &'p DeviceIdentity,
    /// An earlier look at it.
    pub before: &'p PortLook,
}

/// Looks at the same ports again and again, with few system calls: what it reads stays open.
pub(crate) struct Looker {
    root: PathBuf,
    reader: Reader,
    statistics: OnceCell<Option<Statistics>>,
    /// The directory of each port: the kernel makes another one for another device, whatever its name.
    folders: BTreeMap<PathBuf, Option<(u64, u64)>>,
    /// Where each device is that was last seen under another name than at the start, or nowhere.
    names: BTreeMap<String, DeviceName>,
    /// The last look at each port.
    last: Vec<PortLook>,
    looks: u32,
}

/// After so many looks, all files are opened anew, so that a look shows in the end what the paths say.
const LOOKS: u32 = 6;

/// Of so many looks, one shows all of a port that is at rest: the others only show whether it still is.
const WHOLE: u32 = 2;

impl Looker {
    pub(crate) fn new(root: &Path) -> Looker {
        Looker {
            root: root.to_owned(),
            reader: Reader::keeping(root),
            statistics: OnceCell::new(),
            folders: BTreeMap::new(),
            names: BTreeMap::new(),
            last: Vec::new(),
            looks: 0,
        }
    }

    /// Looks at these ports now.
    pub(crate) fn look<'p>(&mut self, ports: impl Iterator<Item = KnownPort<'p>> + Clone) -> Vec<PortLook> {
        if self.looks == LOOKS {
            *self = Looker::new(&self.root);
        }
        let is_whole = self.looks.is_multiple_of(WHOLE);
        self.looks += 1;
        let known: Vec<bool> = ports.clone().map(|known| self.is_known(known) && !is_whole).collect();
        let counters = Counters::with(&self.reader, std::mem::take(&mut self.statistics));
        let last = self.last.iter().zip(known).map(|(look, is_known)| is_known.then_some(look));
        let look = |(KnownPort { hca, port, gid, before, .. }, last): (_, Option<&PortLook>)| {
            let (hca, renamed) = match self.names.get(hca) {
                None | Some(DeviceName::Kept) => (hca, None),
                Some(DeviceName::Changed(name)) => (name.as_str(), Some(name.clone())),
                // Another device is not the job's.
                Some(DeviceName::Taken) => return PortLook::default(),
            };
            match last.filter(|last| rests(&counters, hca, port, last)) {
                Some(last) => last.clone(),
                None => PortLook { renamed, ..read(&self.reader, &counters, hca, port, gid, Some(before)) },
            }
        };
        let looks: Vec<PortLook> = ports.zip(last.chain(std::iter::repeat(None))).map(look).collect();
        self.statistics = counters.into_statistics();
        self.last.clone_from(&looks);
        looks
    }

    /// Notices whether a port is another one than before, gone, or has another name, and returns whether it is the
    /// same.
    fn is_known(&mut self, known: KnownPort) -> bool {
        let name = match self.names.get(known.hca) {
            Some(DeviceName::Changed(name)) => name.as_str(),
            _ => known.hca,
        };
        let (folder, now) = self.folder(name, known.port);
        let is_taken = self.names.get(known.hca) == Some(&DeviceName::Taken);
        if self.folders.get(&folder) == Some(&now) && now.is_some() && !is_taken {
            return true;
        }
        self.names.insert(known.hca.to_owned(), known.device.find(&self.reader, known.hca));
        let (folder, now) = match self.names.get(known.hca) {
            Some(DeviceName::Changed(name)) => self.folder(name, known.port),
            _ => (folder, now),
        };
        self.reader.forget_below(&folder);
        self.statistics = OnceCell::new();
        self.folders.insert(folder, now);
        false
    }

    /// Returns the directory of a port, and what the kernel knows it by.
    fn folder(&self, hca: &str, port: u32) -> (PathBuf, Option<(u64, u64)>) {
        let folder = self.reader.path(format!("/sys/class/infiniband/{hca}/ports/{port}"));
        let status = std::fs::metadata(&folder).ok();
        (folder, status.map(|status| (status.dev(), status.ino())))
    }
}

/// Returns whether a port has the state of the last look, and has moved nothing since.
fn rests(counters: &Counters, hca: &str, port: u32, last: &PortLook) -> bool {
    let of = counters.of(hca, port);
    last.traffic.is_amount_known() && last.errors.has_state(of.state()) && traffic::read(&of) == last.traffic
}

/// Reads two files, unless the GID has left its place.
fn place(reader: &Reader, port: &str, used: &UsedGid) -> GidPlace {
    let gids = reader.folder(format!("{port}/gids"));
    let is_at = |index: u32| {
        let text = gids.attribute(&index.to_string());
        text.is_ok_and(|text| text.parse() == Ok(used.gid))
    };
    let types = reader.folder(format!("{port}/gid_attrs/types"));
    let kind = |index: u32| types.attribute(&index.to_string()).ok().map(GidType::from);
    let is_there = is_at(used.index);
    // A type that cannot be read, now or at the start, proves nothing.
    let is_right = |kind: GidType| kind == used.kind || [&kind, &used.kind].contains(&&GidType::Unknown);
    if is_there && kind(used.index).is_none_or(is_right) {
        return GidPlace::InPlace;
    }
    let mut indices = (0..=LARGEST_INDEX).filter(|index| is_at(*index));
    if let Some(index) = indices.find(|index| kind(*index).as_ref() == Some(&used.kind)) {
        return GidPlace::At(index);
    }
    if is_there {
        return GidPlace::Retyped;
    }
    let own =
        if reader.is_of_this_machine() { net::system_addresses().unwrap_or_default() } else { Vec::new() };
    let mut own = own.iter().filter_map(|entry| Some(entry.address?.addr())).peekable();
    let address = address(used.gid);
    GidPlace::Gone { has_address: own.peek().is_none() || own.any(|known| known == address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    #[test]
    fn a_look_again_shows_what_is_there_now() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        let files = |state: &str, sent: &str| {
            root.files(port, &[("state", state), ("counters/port_xmit_data", sent)]);
        };
        let mut looker = Looker::new(&root.path(""));
        let (before, device) = (PortLook::default(), DeviceIdentity::default());
        let mut look = || {
            let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
            let look = looker.look(std::iter::once(known)).remove(0);
            (look.errors.state(), look.traffic.sent.bytes)
        };
        files("4: ACTIVE\n", "1\n");
        assert_eq!(look(), (Some(4), Some(4)));
        files("1: DOWN\n", "2\n");
        assert_eq!(look(), (Some(1), Some(8)));
        // The device goes, and another one gets its name.
        std::fs::rename(root.path("sys/class/infiniband/x_0"), root.path("away")).unwrap();
        assert_eq!(look(), (None, None));
        files("4: ACTIVE\n", "7\n");
        assert_eq!(look(), (Some(4), Some(28)));
        // Another file in the place of an open one shows in the end.
        std::fs::remove_file(root.path(&format!("{port}/state"))).unwrap();
        files("2: INIT\n", "8\n");
        assert_eq!(look(), (Some(4), Some(32)));
        assert!((0..LOOKS).any(|_| look() == (Some(2), Some(32))));
    }

    #[test]
    fn a_device_is_followed_to_another_name() {
        let root = FakeRoot::new();
        let class = "sys/class/infiniband";
        let put = |hca: &str, sent: &str| {
            let files = [("ports/1/state", "4: ACTIVE\n"), ("ports/1/counters/port_xmit_data", sent)];
            root.files(&format!("{class}/{hca}"), &files);
            root.file(&format!("{class}/{hca}/node_guid"), "b859:9f03:00aa:0001\n");
        };
        put("x_0", "1\n");
        let device = DeviceIdentity { node_guid: Some("b859:9f03:00aa:0001".into()), pci_address: None };
        let before = PortLook::default();
        let mut looker = Looker::new(&root.path(""));
        let mut look = || {
            let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
            let look = looker.look(std::iter::once(known)).remove(0);
            (look.errors.state(), look.traffic.sent.bytes, look.renamed)
        };
        let mv = |from: &str, to: &str| {
            std::fs::rename(root.path(&format!("{class}/{from}")), root.path(&format!("{class}/{to}")))
                .unwrap();
        };
        assert_eq!(look(), (Some(4), Some(4), None));
        mv("x_0", "x_9");
        let other = Some("x_9".to_owned());
        // At once, or at the next look at least.
        look();
        assert_eq!(look(), (Some(4), Some(4), other.clone()));
        // A made-up file is the same under its new name.
        root.file(&format!("{class}/x_9/ports/1/counters/port_xmit_data"), "3\n");
        for _ in 0..2 * LOOKS {
            assert_eq!(look(), (Some(4), Some(12), other.clone()));
        }
        // Another device takes the name.
        put("x_0", "5\n");
        root.file(&format!("{class}/x_0/node_guid"), "b859:9f03:00aa:0002\n");
        assert_eq!(look().2, other);
        std::fs::rename(root.path(&format!("{class}/x_9")), root.path("away")).unwrap();
        look();
        assert_eq!(look(), (None, None, None), "the other device is not this one");
        std::fs::rename(root.path(&format!("{class}/x_0")), root.path("away_2")).unwrap();
        std::fs::rename(root.path("away"), root.path(&format!("{class}/x_0"))).unwrap();
        look();
        assert_eq!(look(), (Some(4), Some(12), None));
    }

    #[test]
    fn every_second_look_at_a_port_that_rests_shows_all_of_it() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        let mut looker = Looker::new(&root.path(""));
        let (before, device) = (PortLook::default(), DeviceIdentity::default());
        let mut shown = |sent: u64, downs: u64| {
            let [sent, downs] = [sent, downs].map(|count| format!("{count}\n"));
            let counters = [("counters/port_xmit_data", &*sent), ("counters/link_downed", &*downs)];
            root.files(port, &[&[("state", "4: ACTIVE\n")], &counters[..]].concat());
            let known = KnownPort { hca: "x_0", port: 1, gid: None, device: &device, before: &before };
            let look = looker.look(std::iter::once(known)).remove(0);
            let rises = look.errors.since(&zero());
            rises.first().map_or(0, |rise| rise.count)
        };
        let rests: Vec<u64> = (1..9).map(|downs| shown(5, downs)).collect();
        assert_eq!(rests, [1, 1, 3, 3, 5, 5, 7, 7]);
        let moves: Vec<u64> = (9..13).map(|downs| shown(downs, downs)).collect();
        assert_eq!(moves, [9, 10, 11, 12]);
    }

    /// No counter has counted anything.
    fn zero() -> PortErrors {
        let root = FakeRoot::new();
        root.file("sys/class/infiniband/x_0/ports/1/counters/link_downed", "0\n");
        let reader = root.reader();
        port_errors::read(&Counters::new(&reader).of("x_0", 1))
    }

    #[test]
    fn a_gid_is_found_where_it_is() {
        let root = FakeRoot::new();
        let port = "sys/class/infiniband/x_0/ports/1";
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let used = UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched: true };
        let look = |files: &[(&str, &str)]| {
            root.files(port, files);
            let reader = root.reader();
            let found = read(&reader, &Counters::new(&reader), "x_0", 1, Some(&used), None);
            (found.gid.unwrap(), found.rate)
        };
        let (own, none) =
            ("0000:0000:0000:0000:0000:ffff:0a00:0003\n", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        let gone = GidPlace::Gone { has_address: true };
        assert_eq!(look(&[]), (gone, None));
        let rate = ("rate", "200 Gb/sec (4X HDR)\n");
        assert_eq!(
            look(&[("gids/3", own), rate]),
            (GidPlace::InPlace, Some("200 Gb/sec (4X HDR)".to_owned()))
        );
        // RoCE v1 has the same GID.
        let v1 = [("gids/3", none), ("gids/4", own), ("gid_attrs/types/4", "IB/RoCE v1\n")];
        assert_eq!(look(&v1).0, gone);
        assert_eq!(look(&[("gids/5", own), ("gid_attrs/types/5", "RoCE v2\n")]).0, GidPlace::At(5));
        // It swaps its index with that of RoCE v1.
        let v2_at = |index: &str| {
            let other = if index == "3" { "4" } else { "3" };
            let types = [index, other].map(|index| format!("gid_attrs/types/{index}"));
            look(&[
                ("gids/3", own),
                ("gids/4", own),
                ("gids/5", none),
                (&types[0], "RoCE v2\n"),
                (&types[1], "IB/RoCE v1\n"),
            ])
            .0
        };
        assert_eq!([v2_at("3"), v2_at("4")], [GidPlace::InPlace, GidPlace::At(4)]);
        assert_eq!(look(&[("gids/4", none)]).0, GidPlace::Retyped);
    }
}
