//! Decides what the env plugin answers NCCL. It needs only `core` and allocates nothing, because the shared
//! object that NCCL loads (`src/sys/nccl_env_plugin.rs`) also contains this file.
//!
//! The decision for this node is a text file, one item per line:
//!
//! ```text
//! rdma-init env plugin 1
//! node 5d2c0f9a
//! sys /sys
//! proc /proc
//! set NCCL_IB_HCA==mlx5_0,mlx5_1
//! user NCCL_DEBUG=INFO
//! conf NCCL_IB_TC=106
//! hca mlx5_0 b859:9f03:00aa:bbcc 0000:17:00.0
//! interface eth0 - 0000:31:00.0
//! late mlx5_2 1 mlx5_2 b859:9f03:00aa:bbdd 0000:18:00.0
//! end
//! ```
//!
//! A `user` line has a variable that this node's user set in the environment or the configuration; if the
//! line has no value, the value must not be written here. A `conf` line has a variable that one of NCCL's
//! conf files sets. NCCL reads conf files itself, so such a value is used only instead of a copy.
//!
//! A `late` line has a port that was not ACTIVE when the decision was made: the text to add to `NCCL_IB_HCA`
//! if the port is ACTIVE now, the port's number, and its HCA.

use core::ffi::CStr;

const FIRST_LINE: &[u8] = b"rdma-init env plugin 1";
const LAST_LINE: &[u8] = b"end";

/// The variable that travels with values that rdma-init filled in: `1:NODE:NAME=HASH,...`. Names of NCCL's
/// variables omit their `NCCL_`. It also lists variables of other libraries, for `rdma-init exec` and for a
/// start; these have a dot before their whole name, because an application's variable may have the rest of an
/// NCCL variable's name (`DEBUG`). Its own name starts with `NCCL_`, because some launchers copy only such
/// variables.
pub const MARKER: &str = "NCCL_RDMA_INIT";
const MARKER_VERSION: &[u8] = b"1";
const PREFIX: &str = "NCCL_";
const WHOLE: &str = ".";

/// Returns what stands before a variable's name in a marker, and the part of the name that stands there.
pub fn in_marker(name: &str) -> (&str, &str) {
    name.strip_prefix(PREFIX).map_or((WHOLE, name), |rest| ("", rest))
}

/// The variables whose values name devices: HCAs, or interfaces.
const OF_HCAS: &[u8] = b"NCCL_IB_HCA";
const OF_INTERFACES: [&[u8]; 2] = [b"NCCL_SOCKET_IFNAME", b"NCCL_OOB_NET_IFNAME"];

/// Returns whether the value of a variable is a list of devices.
pub fn names_devices(name: &[u8]) -> bool {
    name == OF_HCAS || OF_INTERFACES.contains(&name)
}

/// The most variables and devices; on a host with more, the decision provides no answers.
pub const MOST_VARIABLES: usize = 128;
pub const MOST_DEVICES: usize = 256;
/// The most ports that are not ACTIVE yet.
pub const MOST_LATE: usize = 16;

/// A list of at most `N` items.
#[derive(Clone, Copy)]
pub struct List<T: Copy, const N: usize> {
    items: [T; N],
    count: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    pub const fn new(empty: T) -> List<T, N> {
        List { items: [empty; N], count: 0 }
    }

    /// Returns `None` if the list is full.
    pub fn push(&mut self, item: T) -> Option<()> {
        *self.items.get_mut(self.count)? = item;
        self.count += 1;
        Some(())
    }

    pub fn as_slice(&self) -> &[T] {
        self.items.get(..self.count).unwrap_or_default()
    }
}

/// An HCA or an interface, with identifiers that do not depend on its name: an HCA's node GUID, and the PCI
/// address of both. An unknown field is empty.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Device<'a> {
    pub name: &'a [u8],
    pub id: &'a [u8],
    pub pci: &'a [u8],
}

pub const NO_DEVICE: Device = Device { name: b"", id: b"", pci: b"" };

impl Device<'_> {
    /// Returns whether both are the same device, regardless of their names.
    fn is(&self, other: &Device) -> bool {
        match is_known(self.id) && is_known(other.id) {
            true => self.id == other.id,
            false => !self.pci.is_empty() && self.pci == other.pci,
        }
    }
}

/// Returns whether an address identifies anything: a virtual function's GUID may be all zeros.
fn is_known(id: &[u8]) -> bool {
    id.iter().any(|byte| !matches!(byte, b'0' | b':'))
}

pub type Devices<'a> = List<Device<'a>, MOST_DEVICES>;

/// What decided a variable: this start, the user, or a conf file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Us,
    User,
    /// A conf file, which NCCL reads itself.
    ConfFile,
}

/// A variable with its value; a user's variable may have an unknown value.
#[derive(Clone, Copy)]
struct Variable<'a> {
    name: &'a [u8],
    value: Option<&'a [u8]>,
    by: By,
}

/// A port that is used if it is ACTIVE when the decision is settled.
#[derive(Clone, Copy)]
struct Late<'a> {
    /// The text to add to the list of HCAs: `mlx5_2`, or `mlx5_2:1`.
    entry: &'a [u8],
    number: &'a [u8],
    hca: Device<'a>,
}

/// The decision for one node.
pub struct Decision<'a> {
    node: &'a [u8],
    /// The machine's boot on which the decision was made: the state may be on a file system that nodes share.
    /// Empty if the decision applies on any boot.
    pub boot: &'a [u8],
    /// Where sysfs is mounted.
    pub sys: &'a [u8],
    /// Where procfs is mounted.
    pub proc: &'a [u8],
    variables: List<Variable<'a>, MOST_VARIABLES>,
    hcas: Devices<'a>,
    interfaces: Devices<'a>,
    late: List<Late<'a>, MOST_LATE>,
}

impl<'a> Decision<'a> {
    /// Parses a decision; returns `None` if the text is not a complete decision in this format.
    pub fn parse(text: &'a [u8]) -> Option<Decision<'a>> {
        let none = Variable { name: b"", value: None, by: By::Us };
        let mut decision = Decision {
            node: b"",
            boot: b"",
            sys: b"/sys",
            proc: b"/proc",
            variables: List::new(none),
            hcas: List::new(NO_DEVICE),
            interfaces: List::new(NO_DEVICE),
            late: List::new(Late { entry: b"", number: b"", hca: NO_DEVICE }),
        };
        let mut lines = text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
        if lines.next()? != FIRST_LINE || text.contains(&0) {
            return None;
        }
        let mut is_whole = false;
        for line in lines {
            if is_whole {
                return None;
            }
            let (kind, rest) = split_at(line, b' ').unwrap_or((line, b""));
            match kind {
                b"node" => decision.node = rest,
                b"boot" => decision.boot = rest,
                b"sys" => decision.sys = rest,
                b"proc" => decision.proc = rest,
                b"set" => decision.variables.push(variable(rest, By::Us))?,
                b"user" => decision.variables.push(variable(rest, By::User))?,
                b"conf" => decision.variables.push(variable(rest, By::ConfFile))?,
                b"hca" => decision.hcas.push(device(rest)?)?,
                b"interface" => decision.interfaces.push(device(rest)?)?,
                b"late" => decision.late.push(late(rest)?)?,
                LAST_LINE => is_whole = true,
                // A later release may add lines.
                _ => {}
            }
        }
        (is_whole && !decision.node.is_empty()).then_some(decision)
    }
}

/// Parses `NAME=VALUE` or `NAME`.
fn variable(text: &[u8], by: By) -> Variable<'_> {
    match split_at(text, b'=') {
        Some((name, value)) => Variable { name, value: Some(value), by },
        None => Variable { name: text, value: None, by },
    }
}

/// Parses `NAME ID PCI`, where `-` stands for an unknown ID or PCI address.
fn device(text: &[u8]) -> Option<Device<'_>> {
    let (name, rest) = split_at(text, b' ')?;
    let (id, pci) = split_at(rest, b' ')?;
    let known = |field| if field == b"-" { &b""[..] } else { field };
    Some(Device { name, id: known(id), pci: known(pci) })
}

/// Parses `ENTRY NUMBER NAME GUID PCI`.
fn late(text: &[u8]) -> Option<Late<'_>> {
    let (entry, rest) = split_at(text, b' ')?;
    let (number, rest) = split_at(rest, b' ')?;
    Some(Late { entry, number, hca: device(rest)? })
}

fn split_at(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|found| *found == byte)?;
    Some((text.get(..place)?, text.get(place + 1..)?))
}

/// The devices that this node has now; `None` if they cannot be read.
#[derive(Default)]
pub struct Present<'a> {
    pub hcas: Option<&'a [Device<'a>]>,
    pub interfaces: Option<&'a [Device<'a>]>,
}

/// Returns whether a port is ACTIVE now, given the HCA's name and the port's number.
pub type IsActive<'f> = &'f dyn Fn(&[u8], &[u8]) -> bool;

/// Memory for NUL-terminated values.
pub struct Arena<'a> {
    free: &'a mut [u8],
}

impl<'a> Arena<'a> {
    pub fn new(free: &'a mut [u8]) -> Arena<'a> {
        Arena { free }
    }

    /// Returns the parts, concatenated; `None` if there is no room or a part contains NUL.
    pub fn join<'p>(&mut self, parts: impl Iterator<Item = &'p [u8]>) -> Option<&'a CStr> {
        let mut length = 0;
        for part in parts.chain(core::iter::once(&b"\0"[..])) {
            let end = length + part.len();
            self.free.get_mut(length..end)?.copy_from_slice(part);
            length = end;
        }
        let (text, free) = core::mem::take(&mut self.free).split_at_mut_checked(length)?;
        self.free = free;
        CStr::from_bytes_with_nul(text).ok()
    }
}

/// The decided value of a variable.
#[derive(Clone, Copy)]
struct Decided<'a> {
    name: &'a [u8],
    /// The value as decided; NCCL finds this one in a conf file and in the environment.
    written: &'a [u8],
    /// The value with the names that the devices have now; `None` if it names only interfaces that the process's
    /// network namespace lacks: NCCL then chooses itself, and would fail with the value.
    now: Option<&'a CStr>,
    by: By,
}

impl<'a> Decided<'a> {
    fn answer(&self) -> Answer<'a> {
        self.now.map_or(Answer::Unset, Answer::Decided)
    }
}

/// The answer for a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// The value in the process's environment.
    OfProcess,
    Decided(&'a CStr),
    /// The same as `Decided`, but instead of a value that names only another node's devices.
    InPlaceOfForeign(&'a CStr),
    Unset,
}

/// A decision, settled for the devices that this node has now.
pub struct Settled<'a> {
    node: &'a [u8],
    decided: List<Decided<'a>, MOST_VARIABLES>,
    /// The user's variables with unknown values.
    unknown: List<&'a [u8], MOST_VARIABLES>,
    present: Present<'a>,
}

impl<'a> Settled<'a> {
    /// Settles a decision; returns `None` if the arena has no room.
    pub fn new(
        decision: &Decision<'a>,
        present: Present<'a>,
        is_active: IsActive,
        arena: &mut Arena<'a>,
    ) -> Option<Settled<'a>> {
        let mut decided = List::new(Decided { name: b"", written: b"", now: None, by: By::Us });
        let mut unknown = List::new(&b""[..]);
        for variable in decision.variables.as_slice() {
            let Variable { name, value, by } = *variable;
            let Some(written) = value else {
                unknown.push(name)?;
                continue;
            };
            let (saved, here) = match () {
                () if by != By::Us => (&[][..], None),
                () if name == OF_HCAS => (decision.hcas.as_slice(), present.hcas),
                () if OF_INTERFACES.contains(&name) => (decision.interfaces.as_slice(), present.interfaces),
                () => (&[][..], None),
            };
            let now = match here {
                Some(here) => {
                    let late = if name == OF_HCAS { decision.late.as_slice() } else { &[] };
                    settle(written, (saved, late), here, is_active, arena)?
                }
                None => arena.join(core::iter::once(written))?,
            };
            let is_here = |here| OF_HCAS == name || names_any(now.to_bytes(), here);
            let now = here.is_none_or(is_here).then_some(now);
            decided.push(Decided { name, written, now, by })?;
        }
        Some(Settled { node: decision.node, decided, unknown, present })
    }

    /// Returns the answer for a variable that has this value in the process, together with this marker.
    pub fn answer(&self, name: &[u8], value: Option<&[u8]>, marker: Option<&[u8]>) -> Answer<'a> {
        let decided = self.decided.as_slice().iter().find(|decided| decided.name == name);
        let Some(value) = value else {
            let decided = decided.filter(|decided| decided.by != By::ConfFile);
            return decided.map_or(Answer::OfProcess, Decided::answer);
        };
        if self.unknown.as_slice().contains(&name) {
            return Answer::OfProcess;
        }
        let is_copy = marker.is_some_and(|marker| is_copy(marker, self.node, name, value));
        // A person may have set an equal value, which must then stay.
        let is_own = || marker.is_some_and(|marker| is_own(marker, self.node, name, value));
        match decided {
            Some(decided) if is_copy || value == decided.written && is_own() => decided.answer(),
            None if is_copy => Answer::Unset,
            Some(Decided { by: By::Us, now: Some(now), .. }) if self.is_foreign(name, value) => {
                Answer::InPlaceOfForeign(now)
            }
            _ => Answer::OfProcess,
        }
    }

    /// Returns whether a value names devices but none that this node has.
    fn is_foreign(&self, name: &[u8], value: &[u8]) -> bool {
        let present = match () {
            () if name == OF_HCAS => self.present.hcas,
            () if OF_INTERFACES.contains(&name) => self.present.interfaces,
            () => None,
        };
        present.is_some_and(|present| names_only_absent(value, present))
    }
}

/// Returns whether a list in NCCL's grammar (`[=]NAME[:PORT],...`) selects none of these devices. Returns
/// `false`, because it is unknown, for a list that excludes devices (`^`) and for a word that does not look
/// like a device, such as `none`.
fn names_only_absent(value: &[u8], present: &[Device]) -> bool {
    let list = value.strip_prefix(b"=").unwrap_or(value);
    let mut names = list.split(|byte| *byte == b',').map(name_of).filter(|name| !name.is_empty()).peekable();
    let is_device = |name: &[u8]| name.len() > 1 && name.last().is_some_and(u8::is_ascii_digit);
    names.peek().is_some() && names.all(is_device) && !names_any(value, present)
}

/// Returns whether a list in NCCL's grammar selects one of these devices. Returns `true`, because it is unknown, for
/// a list that excludes devices (`^`).
fn names_any(value: &[u8], present: &[Device]) -> bool {
    let (list, is_exact) = match value.strip_prefix(b"=") {
        Some(list) => (list, true),
        None => (value, false),
    };
    let names = || list.split(|byte| *byte == b',').map(name_of).filter(|name| !name.is_empty());
    let is_named = |device: &Device| {
        names().any(|name| device.name == name || !is_exact && device.name.starts_with(name))
    };
    value.starts_with(b"^") || present.iter().any(is_named)
}

/// Returns a list's entry without its port.
fn name_of(entry: &[u8]) -> &[u8] {
    split_at(entry, b':').map_or(entry, |(name, _)| name)
}

/// Returns a name or an exact list with the names that the devices have now, and adds the ports that have
/// come up to such a list. A device that is missing or ambiguous keeps its name.
fn settle<'a>(
    written: &[u8],
    (saved, late): (&[Device], &[Late]),
    present: &[Device],
    is_active: IsActive,
    arena: &mut Arena<'a>,
) -> Option<&'a CStr> {
    // For an interface, rdma-init fills in only the name. It selects by prefix, so it may also mean another
    // device.
    let is_alone = !saved.iter().any(|other| other.name != written && other.name.starts_with(written));
    if let Some(now) = name_now(written, saved, present).filter(|_| is_alone) {
        return arena.join([&b"="[..], now].into_iter());
    }
    let is_list = written.starts_with(b"=");
    let separator = |byte: &u8| matches!(byte, b',' | b'=');
    let parts = written.split_inclusive(separator).flat_map(|part| {
        let length = part.len() - usize::from(part.last().is_some_and(separator));
        let name = name_of(part.get(..length).unwrap_or(part));
        let rest = part.get(name.len()..).unwrap_or_default();
        let now = if is_list { name_now(name, saved, present) } else { None };
        [now.unwrap_or(name), rest]
    });
    let late = late.iter().filter(|_| is_list).flat_map(|late| {
        let name = name_of(late.entry);
        let now = name_now(name, &[late.hca], present).unwrap_or(name);
        let is_here = present.iter().any(|device| device.name == now && device.is(&late.hca));
        let rest = late.entry.get(name.len()..).unwrap_or_default();
        let entry = if is_here && is_active(now, late.number) { [b",", now, rest] } else { [&b""[..]; 3] };
        entry.into_iter()
    });
    arena.join(parts.chain(late))
}

/// Returns a device's new name, if it has one.
fn name_now<'p>(name: &[u8], saved: &[Device], present: &[Device<'p>]) -> Option<&'p [u8]> {
    let saved = saved.iter().find(|device| device.name == name)?;
    let is_unchanged = |device: &Device| device.name == name && device.is(saved);
    let mut same = present.iter().filter(|device| device.is(saved));
    let found = same.next()?;
    (same.next().is_none() && !present.iter().any(is_unchanged)).then_some(found.name)
}

/// Returns a marker's node and its list of filled variables; `None` if the text is not a marker.
pub fn read_marker(marker: &[u8]) -> Option<(&[u8], &[u8])> {
    let (version, rest) = split_at(marker, b':')?;
    split_at(rest, b':').filter(|_| version == MARKER_VERSION)
}

/// Returns the entries of a marker that fit into this many bytes.
pub fn beginning(marker: &str, most: usize) -> &str {
    match marker.get(..=most).and_then(|longer| longer.rfind(',')) {
        Some(end) => marker.get(..end).unwrap_or_default(),
        None => marker,
    }
}

/// Returns whether a marker's list contains this variable with this value.
pub fn lists(list: &[u8], name: &[u8], value: &[u8]) -> bool {
    let is_name = |entry: &[u8]| match name.strip_prefix(PREFIX.as_bytes()) {
        Some(rest) => entry == rest,
        None => entry.strip_prefix(WHOLE.as_bytes()) == Some(name),
    };
    let mut entries = list.split(|byte| *byte == b',').filter_map(|entry| split_at(entry, b'='));
    entries.find(|(entry, _)| is_name(entry)).is_some_and(|(_, listed)| listed == hash(value))
}

/// Returns whether another node's marker lists this variable with this value.
pub fn is_copy(marker: &[u8], node: &[u8], name: &[u8], value: &[u8]) -> bool {
    read_marker(marker).is_some_and(|(of, list)| of != node && lists(list, name, value))
}

/// Returns whether this node's own marker lists this variable with this value.
fn is_own(marker: &[u8], node: &[u8], name: &[u8], value: &[u8]) -> bool {
    read_marker(marker).is_some_and(|(of, list)| of == node && lists(list, name, value))
}

/// Returns a value's FNV-1a hash in hexadecimal digits. The hash recognizes a value but protects nothing: the
/// process controls its own environment.
pub fn hash(value: &[u8]) -> [u8; 8] {
    let hash =
        value.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    core::array::from_fn(|place| {
        let digit = (hash >> (28 - 4 * place)) as u8 & 15;
        if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
    })
}

#[cfg(test)]
mod tests;
