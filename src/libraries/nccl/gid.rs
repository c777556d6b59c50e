//! Which GID of a RoCE port NCCL selects (`src/transport/net_ib.cc`, later `net_ib/connect.cc`:
//! `ncclIbGetGidIndex`, `ncclUpdateGidIndex`).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::number::{atoi, integer};
use super::version::{CHECKS_RANGE, SEARCHES_GIDS, TOLERATES_EMPTY_SLOTS, Version};
use crate::fabric::gid::RailGids;
use crate::facts::gid::{Gid, GidTable, GidType};

pub(crate) const INDEX: &str = "NCCL_IB_GID_INDEX";
pub(crate) const RANGE: &str = "NCCL_IB_ADDR_RANGE";
pub(crate) const FAMILY: &str = "NCCL_IB_ADDR_FAMILY";
pub(crate) const ROCE_VERSION: &str = "NCCL_IB_ROCE_VERSION_NUM";

/// `NCCL_IB_ADDR_FAMILY`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Family {
    #[default]
    Inet,
    Inet6,
}

impl Family {
    /// Treats any text except the two names, in capitals, as unset.
    fn parse(text: Option<&str>) -> Family {
        if text == Some("AF_INET6") { Family::Inet6 } else { Family::Inet }
    }
}

/// `NCCL_IB_ADDR_RANGE`: an address and the number of its bits to compare. A negative number matches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    base: Base,
    bits: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
}

impl From<IpNet> for Range {
    fn from(net: IpNet) -> Range {
        let base = match net {
            IpNet::V4(net) => Base::V4(net.addr()),
            IpNet::V6(net) => Base::V6(net.addr()),
        };
        Range { base, bits: net.prefix_len().into() }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.base {
            Base::V4(base) => write!(f, "{base}/{}", self.bits),
            Base::V6(base) => write!(f, "{base}/{}", self.bits),
        }
    }
}

/// A text of `NCCL_IB_ADDR_RANGE` that is not a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadRange {
    NoSlash,
    /// The text is not an address, or is one of the other family.
    Address,
    TooLong,
}

/// The number of bytes that fit into NCCL's buffer for the text.
const LONGEST_RANGE: usize = 127;

impl Range {
    /// # Errors
    /// Returns what is wrong with the text; NCCL then continues without a range, or crashes.
    pub(crate) fn parse(text: &str, family: Family) -> Result<Range, BadRange> {
        let text = text.get(..LONGEST_RANGE).unwrap_or(text);
        let (address, bits) = text.split_once('/').ok_or(BadRange::NoSlash)?;
        let (base, most) = match family {
            Family::Inet => (Base::V4(address.parse().map_err(|_| BadRange::Address)?), 32),
            Family::Inet6 => (Base::V6(address.parse().map_err(|_| BadRange::Address)?), 128),
        };
        let bits = atoi(bits);
        if bits > most { Err(BadRange::TooLong) } else { Ok(Range { base, bits }) }
    }

    /// Returns whether the range contains the GID. An IPv4 range compares the last 32 bits of any GID.
    #[must_use]
    pub(crate) fn contains(&self, gid: Ipv6Addr) -> bool {
        let Ok(bits) = u32::try_from(self.bits) else { return false };
        match self.base {
            Base::V4(base) => {
                let last = u128::from(gid) as u32;
                (u32::from(base) ^ last).checked_shr(32 - bits.min(32)).unwrap_or(0) == 0
            }
            Base::V6(base) => {
                let differ = u128::from(base) ^ u128::from(gid);
                differ.checked_shr(128 - bits.min(128)).unwrap_or(0) == 0
            }
        }
    }
}

/// The parameters of the search besides the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Search {
    pub family: Family,
    pub range: Option<Range>,
    /// `NCCL_IB_ROCE_VERSION_NUM`.
    pub roce_version: i64,
}

impl Default for Search {
    fn default() -> Search {
        Search { family: Family::Inet, range: None, roce_version: 2 }
    }
}

/// Why NCCL gets no GID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// NCCL cannot read the type of this empty entry (NVIDIA/nccl#1573).
    EmptySlot(u32),
    /// `NCCL_IB_ADDR_RANGE` has no slash, and the release does not check that.
    Crash,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Failure::EmptySlot(slot) => {
                write!(f, "fails at index {slot}, which is empty (ncclIbRoceGetVersionNum: Invalid argument)")
            }
            Failure::Crash => write!(f, "crashes on {RANGE} without a slash"),
        }
    }
}

/// Returns the index of the GID entry that NCCL selects from a RoCE port's table in this environment.
///
/// # Errors
/// Fails if NCCL would fail instead.
pub(crate) fn index<'a>(
    table: &GidTable,
    get: impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<i64, Failure> {
    let number = |variable| get(variable).and_then(|text| integer(text, version));
    let set = number(INDEX);
    if version < SEARCHES_GIDS {
        return Ok(set.unwrap_or(0));
    }
    // NCCL stores the value in an int.
    if let Some(index) = set.map(|index| i64::from(index as i32)).filter(|index| *index >= 0) {
        return Ok(index);
    }
    let family = Family::parse(get(FAMILY));
    let range = match get(RANGE).filter(|text| !text.is_empty()).map(|text| Range::parse(text, family)) {
        Some(Err(BadRange::NoSlash)) if version < CHECKS_RANGE => return Err(Failure::Crash),
        range => range.and_then(Result::ok),
    };
    let search = Search { family, range, roce_version: number(ROCE_VERSION).unwrap_or(2) };
    search.run(table, version).map(i64::from)
}

/// No HCA has a larger table; a document that claims one must not cause excessive work.
const LARGEST: u32 = 65536;

impl Search {
    /// Returns the first rail on which the search does not end at a right entry, and how it ends there.
    pub(crate) fn first_wrong<'r, 'a>(
        &self,
        rails: &'r [RailGids<'a>],
        version: Version,
    ) -> Option<(&'r RailGids<'a>, Result<u32, Failure>)> {
        let ends = rails.iter().map(|rail| (rail, self.run(&rail.port.gids, version)));
        ends.into_iter().find(|(rail, end)| !end.is_ok_and(|slot| rail.has(slot)))
    }

    /// Replays the search of NCCL 2.21 and later. The search starts at entry 0, whatever it contains, and
    /// returns it if no better entry follows.
    ///
    /// # Errors
    /// Fails if the search reads the type of an empty entry, which made NCCL fail before 2.26.
    pub(crate) fn run(&self, table: &GidTable, version: Version) -> Result<u32, Failure> {
        let slots: BTreeMap<u32, &Gid> = table.slots.iter().map(|gid| (gid.index, gid)).collect();
        let slot = |index: u32| Slot::of(slots.get(&index).copied());
        let mut index = 0;
        for next in 1..table.size.min(LARGEST) {
            let (current, candidate) = (slot(index), slot(next));
            let fits = candidate.family() == self.family
                && self.range.is_none_or(|range| range.contains(candidate.gid));
            if !fits {
                continue;
            }
            if current.family() != self.family {
                index = next;
            } else if candidate.is_valid() {
                for (index, slot) in [(index, current), (next, candidate)] {
                    if slot.version.is_none() && version < TOLERATES_EMPTY_SLOTS {
                        return Err(Failure::EmptySlot(index));
                    }
                }
                let differs = current.version != candidate.version || !current.is_valid();
                if differs && candidate.version == Some(self.roce_version) {
                    index = next;
                }
            }
        }
        Ok(index)
    }
}

/// A GID entry as NCCL sees it: an empty one reads as `::`.
#[derive(Clone, Copy)]
struct Slot {
    gid: Ipv6Addr,
    /// `None` if NCCL cannot read the type, -1 if it is not a RoCE type.
    version: Option<i64>,
}

impl Slot {
    fn of(gid: Option<&Gid>) -> Slot {
        let Some(gid) = gid else { return Slot { gid: Ipv6Addr::UNSPECIFIED, version: None } };
        let version = match gid.kind {
            GidType::RoceV2 => Some(2),
            GidType::IbOrRoceV1 => Some(1),
            GidType::Other(_) => Some(-1),
            GidType::Unknown => None,
        };
        Slot { gid: gid.gid, version }
    }

    /// Replays `getGidAddrFamily`: IPv4-mapped addresses, including multicast ones, are IPv4.
    fn family(self) -> Family {
        let segments = self.gid.segments();
        let mapped = segments[2..6] == [0, 0, 0, 0xffff];
        match (segments[0], segments[1]) {
            (0 | 0xff0e, 0) if mapped => Family::Inet,
            _ => Family::Inet6,
        }
    }

    /// Replays `validGid`: the GID is neither empty nor in fe80::/64.
    fn is_valid(self) -> bool {
        !self.gid.is_unspecified() && self.gid.segments()[..4] != [0xfe80, 0, 0, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    fn table(slots: &[(u32, &str, &str)]) -> GidTable {
        GidTable {
            size: 16,
            scanned: 16,
            slots: slots
                .iter()
                .map(|(index, gid, kind)| Gid {
                    index: *index,
                    gid: gid.parse().unwrap(),
                    kind: format!("{}RoCE {kind}", if *kind == "v1" { "IB/" } else { "" }).into(),
                    netdev: None,
                })
                .collect(),
        }
    }

    fn at(table: &GidTable, environment: &[(&str, &str)], version: Version) -> Result<i64, Failure> {
        let get = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        index(table, get, version)
    }

    const POD_AND_HOST: [(u32, &str, &str); 6] = [
        (0, "fe80::1", "v1"),
        (1, "fe80::1", "v2"),
        (2, "::ffff:25.11.128.2", "v1"),
        (3, "::ffff:25.11.128.2", "v2"),
        (4, "::ffff:25.11.128.9", "v1"),
        (5, "::ffff:25.11.128.9", "v2"),
    ];

    #[test]
    fn the_first_ipv4_v2_slot_wins_unless_the_range_says_otherwise() {
        let slots = table(&POD_AND_HOST);
        let range = |text| at(&slots, &[(RANGE, text)], NEWEST);
        assert_eq!(at(&slots, &[], NEWEST), Ok(3));
        assert_eq!(range("25.11.128.8/29"), Ok(5));
        assert_eq!(range("10.0.0.0/8"), Ok(0));
        assert_eq!(range(""), Ok(3));
        assert_eq!(at(&slots, &[(ROCE_VERSION, "1")], NEWEST), Ok(2));
        // NCCL ignores a text that is not a range, but not a range of -1 bits.
        for text in ["25.11.128.8", "fd00::/16", "25.11.128.8/33", "here/8"] {
            assert_eq!(range(text), Ok(3), "{text}");
        }
        assert_eq!(range("25.11.128.8/-1"), Ok(0));
        assert_eq!(at(&slots, &[(RANGE, "25.11.128.8")], Version::new(2, 22, 3)), Err(Failure::Crash));
    }

    #[test]
    fn an_index_counts_and_before_2_21_it_is_all_there_is() {
        let slots = table(&POD_AND_HOST);
        let old = Version::new(2, 19, 3);
        assert_eq!(at(&slots, &[(INDEX, "5")], NEWEST), Ok(5));
        assert_eq!(at(&slots, &[(INDEX, "three")], Version::new(2, 30, 7)), Ok(0));
        assert_eq!(at(&slots, &[(INDEX, "three")], NEWEST), Ok(3));
        assert_eq!(at(&slots, &[(INDEX, "")], NEWEST), Ok(3));
        assert_eq!(at(&slots, &[(INDEX, "-1")], NEWEST), Ok(3));
        assert_eq!(at(&slots, &[(INDEX, "-1")], old), Ok(-1));
        assert_eq!(at(&slots, &[(RANGE, "25.11.128.8/29")], old), Ok(0));
    }

    #[test]
    fn tables_without_ipv4_end_at_zero_unless_the_family_is_set() {
        let slots = table(&[(0, "fe80::1", "v1"), (1, "fe80::1", "v2"), (2, "fd00::5", "v2")]);
        let v6 = [(FAMILY, "AF_INET6")];
        assert_eq!(at(&slots, &[], NEWEST), Ok(0));
        assert_eq!(at(&slots, &v6, NEWEST), Ok(2));
        assert_eq!(at(&slots, &[(FAMILY, "af_inet6")], NEWEST), Ok(0));
        // An empty entry counts as IPv6, so the search compares its type.
        let empty_first = table(&[(3, "fd00::5", "v2")]);
        assert_eq!(at(&empty_first, &v6, NEWEST), Ok(3));
        assert_eq!(at(&empty_first, &v6, Version::new(2, 25, 1)), Err(Failure::EmptySlot(0)));
        let only_link_local = table(&[(0, "fe80::1", "v1"), (1, "fe80::1", "v2")]);
        assert_eq!(at(&only_link_local, &v6, NEWEST), Ok(0));
        // Without a range, the search prefers an empty entry, which counts as IPv6, to an IPv4 one.
        assert_eq!(at(&table(&[(0, "::ffff:10.0.0.1", "v2")]), &v6, NEWEST), Ok(1));
    }
}
