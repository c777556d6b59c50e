//! What one look at a port of the job shows. It is taken again and again while the job runs, so it takes few
//! system calls.

use std::cell::OnceCell;
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
    /// Whether its device was recognized by its GUID under that name, and not by its PCI function.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_found_by_guid: bool,
    /// What the kernel knows the port's directory by, as far as that was looked up: a device that goes and comes back
    /// has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<(u64, u64)>,
    /// Whether only that was read which shows that the port rests: its errors, its rate and its GID are those of an
    /// earlier look.
    #[serde(skip)]
    pub is_partial: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl PortLook {
    /// Returns this look with the last known value of each counter that it does not show: what is counted until the
    /// counter shows again is not lost. The port itself is as this look shows it.
    pub(crate) fn with_known(self, before: &PortLook) -> PortLook {
        PortLook {
            traffic: self.traffic.with_known(before.traffic),
            errors: self.errors.with_known(&before.errors),
            is_partial: false,
            ..self
        }
    }

    /// Returns whether its device went away and came back since the last look, under the same name.
    pub(crate) fn is_replaced_since(&self, last: &PortLook) -> bool {
        let is_other = self.directory.zip(last.directory).is_some_and(|(now, last)| now != last);
        is_other && self.renamed == last.renamed
    }

    /// Returns whether its device has another name than this one, under which it was last there.
    pub(crate) fn is_renamed_since(&self, name: Option<&str>) -> bool {
        !self.errors.is_gone() && self.renamed.as_deref() != name
    }
}

/// The GID that the job uses on a RoCE port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UsedGid {
    pub index: u32,
    pub gid: Ipv6Addr,
    /// RoCE v1 and v2 have the same GID of an address, at two indexes that may swap.
    pub kind: GidType,
    /// Whether NCCL searches the table for it at each new connection; `None` if its release is not known.
    pub is_searched: Option<bool>,
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
    PortLook { traffic, errors, rate, gid, ..PortLook::default() }
}

/// Looks at a port for the first time, with what shows later whether its device is still the same.
pub(crate) fn first(
    reader: &Reader,
    counters: &Counters,
    hca: &str,
    port: u32,
    gid: Option<&UsedGid>,
) -> PortLook {
    let directory = id(&reader.path(format!("/sys/class/infiniband/{hca}/ports/{port}")));
    PortLook { directory, ..read(reader, counters, hca, port, gid, None) }
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

/// Looks at the same ports again and again, with few system calls: what it reads stays open, and what has not changed
/// is not read out again.
pub(crate) struct Looker {
    root: PathBuf,
    reader: Reader,
    statistics: OnceCell<Option<Statistics>>,
    /// In the order of the ports.
    ports: Vec<LookedAt>,
    looks: u32,
}

/// A port, and what the last look at it needs to be compared with the next one.
struct LookedAt {
    /// Its directory, and what the kernel knows that by: it makes another one for another device, whatever its name.
    folder: PathBuf,
    id: Option<(u64, u64)>,
    name: DeviceName,
    last: Option<PortLook>,
    /// Whether the last look has read less than all of it.
    is_partial: bool,
    /// The files that show whether it rests, and all others; `None` if files alone do not show that.
    files: Option<[Vec<usize>; 2]>,
    /// How often these files were looked for.
    tries: u32,
}

/// The most tries: a file that cannot be read is not read better the next time.
const TRIES: u32 = 3;

/// After so many looks, all files are opened anew, so that a look shows in the end what the paths say.
const LOOKS: u32 = 30;

/// Of so many looks, one shows all of a port that is at rest: the others only show whether it still is.
const WHOLE: u32 = 2;

impl Looker {
    pub(crate) fn new(root: &Path) -> Looker {
        Looker {
            root: root.to_owned(),
            reader: Reader::keeping(root),
            statistics: OnceCell::new(),
            ports: Vec::new(),
            looks: 0,
        }
    }

    /// Looks at these ports now.
    pub(crate) fn look<'p>(&mut self, ports: impl Iterator<Item = KnownPort<'p>>) -> Vec<PortLook> {
        if self.looks >= LOOKS {
            *self = Looker::new(&self.root);
        }
        let is_whole = self.looks.is_multiple_of(WHOLE);
        self.looks += 1;
        let mut looked_at = std::mem::take(&mut self.ports).into_iter();
        let mut next = Vec::with_capacity(looked_at.len());
        for known in ports {
            let mut port = looked_at.next().unwrap_or_else(LookedAt::new);
            if port.last.is_some() && self.is_unchanged(&port, is_whole) {
                port.is_partial = !is_whole;
            } else {
                self.read(&mut port, known, is_whole);
            }
            next.push(port);
        }
        self.ports = next;
        let shown = |port: &LookedAt| PortLook {
            is_partial: port.is_partial,
            ..port.last.clone().unwrap_or_default()
        };
        self.ports.iter().map(shown).collect()
    }

    /// Makes the next look show all of every port, whether it rests or not.
    pub(crate) fn look_at_all(&mut self) {
        self.looks = self.looks.next_multiple_of(WHOLE);
    }

    /// Returns whether the files of a port contain what they did at the last look. Its directory is looked up only with
    /// all of them: the files of a device that is gone say so.
    fn is_unchanged(&self, port: &LookedAt, is_whole: bool) -> bool {
        let (Some([resting, others]), Some(kept)) = (&port.files, &self.reader.kept) else { return false };
        kept.are_unchanged(resting)
            && (!is_whole || (id(&port.folder) == port.id && kept.are_unchanged(others)))
    }

    fn read(&mut self, port: &mut LookedAt, known: KnownPort, is_whole: bool) {
        let is_known = self.is_known(port, &known);
        if !is_known {
            (port.files, port.tries) = (None, 0);
        }
        let (hca, renamed, is_found_by_guid) = match &port.name {
            DeviceName::Kept => (known.hca, None, false),
            DeviceName::Changed { name, by_guid } => (name.as_str(), Some(name.clone()), *by_guid),
            // Another device is not the job's.
            DeviceName::Taken => {
                (port.last, port.is_partial) = (Some(PortLook::default()), false);
                return;
            }
        };
        let counters = Counters::with(&self.reader, std::mem::take(&mut self.statistics));
        port.is_partial = false;
        let look = match port.last.take() {
            Some(last) if is_known && !is_whole && rests(&counters, hca, known.port, &last) => {
                port.is_partial = true;
                last
            }
            last => {
                let KnownPort { port: number, gid, before, .. } = known;
                let look = || read(&self.reader, &counters, hca, number, gid, Some(before));
                let look = PortLook { renamed, is_found_by_guid, ..look() };
                let directory = port.id.filter(|_| !look.errors.is_gone());
                let look = PortLook { directory, ..look };
                // What the kernel reports otherwise is in no file.
                let is_in_files = look.traffic.is_amount_known()
                    && look.errors.state().is_some()
                    && !matches!(look.gid, Some(GidPlace::Gone { .. }))
                    && !counters.has_asked();
                // A GID in another place is in other files.
                let has_moved = last.as_ref().is_some_and(|last| last.gid != look.gid);
                if !is_in_files || has_moved {
                    port.files = None;
                    port.tries = if has_moved { 0 } else { port.tries };
                } else if port.files.is_none() && port.tries < TRIES && last.as_ref() == Some(&look) {
                    port.tries += 1;
                    port.files = files(&self.reader, &counters, hca, known);
                }
                look
            }
        };
        port.last = Some(look);
        self.statistics = counters.into_statistics();
    }

    /// Notices whether a port is another one than before, gone, or has another name, and returns whether it is the
    /// same.
    fn is_known(&mut self, port: &mut LookedAt, known: &KnownPort) -> bool {
        let now = id(&port.folder);
        if port.id == now && now.is_some() && port.name != DeviceName::Taken {
            return true;
        }
        let name = known.device.find(&self.reader, known.hca);
        // Nothing is read of another device.
        if name == DeviceName::Taken && port.name == name && port.id == now {
            return true;
        }
        // Everything is below no path at all.
        if !port.folder.as_os_str().is_empty() {
            self.reader.forget_below(&port.folder);
            self.statistics = OnceCell::new();
        }
        port.name = name;
        let name = match &port.name {
            DeviceName::Changed { name, .. } => name.as_str(),
            DeviceName::Kept | DeviceName::Taken => known.hca,
        };
        port.folder = self.reader.path(format!("/sys/class/infiniband/{name}/ports/{}", known.port));
        port.id = id(&port.folder);
        self.reader.forget_below(&port.folder);
        false
    }
}

impl LookedAt {
    fn new() -> LookedAt {
        LookedAt {
            folder: PathBuf::new(),
            id: None,
            name: DeviceName::Kept,
            last: None,
            is_partial: false,
            files: None,
            tries: 0,
        }
    }
}

/// Returns what the kernel knows a directory by.
fn id(folder: &Path) -> Option<(u64, u64)> {
    let status = (!folder.as_os_str().is_empty()).then(|| std::fs::metadata(folder).ok()).flatten();
    status.map(|status| (status.dev(), status.ino()))
}

/// Returns the files that show whether a port rests, and the others that a look at it reads. The packets are not among
/// them if bytes are counted: one goes with the other.
fn files(reader: &Reader, counters: &Counters, hca: &str, known: KnownPort) -> Option<[Vec<usize>; 2]> {
    let kept = reader.kept.as_ref()?;
    let KnownPort { port, gid, before, .. } = known;
    let resting = kept.read_by(|| {
        let of = counters.of(hca, port);
        of.state();
        traffic::least(&of);
    })?;
    let traffic = kept.read_by(|| {
        traffic::read(&counters.of(hca, port));
    })?;
    let mut others = kept.read_by(|| drop(read(reader, counters, hca, port, gid, Some(before))))?;
    others.retain(|place| !resting.contains(place) && !traffic.contains(place));
    others.sort_unstable();
    others.dedup();
    Some([resting, others])
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
mod tests;
