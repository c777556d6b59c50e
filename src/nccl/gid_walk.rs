//! NCCL's own search for a GID, in 2.21 and later, when `NCCL_IB_GID_INDEX` is
//! unset (`src/transport/net_ib.cc`: `ncclIbGetGidIndex`, `ncclUpdateGidIndex`).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ipnet::IpNet;

use crate::facts::gid::{Gid, GidTable, GidType};

/// `NCCL_IB_ADDR_FAMILY`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Family {
    #[default]
    Inet,
    Inet6,
}

/// What steers the search besides the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    pub family: Family,
    /// `NCCL_IB_ADDR_RANGE`.
    pub range: Option<IpNet>,
}

/// No HCA has a larger table; a document that says so is not to keep us busy.
const LARGEST: u32 = 65536;

/// How the search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub slot: u32,
    /// On the way it asks for the type of an empty slot, where the kernel answers
    /// EINVAL; NCCL before 2.26.2 ends with an error there.
    pub reads_empty_slot: bool,
}

impl Walk {
    /// Replays the search. It starts at slot 0, whatever is in there, and ends
    /// there when nothing better comes.
    pub fn run(&self, table: &GidTable) -> End {
        let mut end = End { slot: 0, reads_empty_slot: false };
        let slots: BTreeMap<u32, &Gid> = table.slots.iter().map(|gid| (gid.index, gid)).collect();
        let slot = |index: u32| slots.get(&index).copied();
        for index in 1..table.size.min(LARGEST) {
            let (candidate, current) = (slot(index), slot(end.slot));
            if family(candidate) != self.family || !self.in_range(candidate) {
                continue;
            }
            if family(current) != self.family {
                end.slot = index;
            } else if is_valid(candidate) {
                end.reads_empty_slot |= current.is_none();
                if is_v2(candidate) && (!is_v2(current) || !is_valid(current)) {
                    end.slot = index;
                }
            }
        }
        end
    }

    fn in_range(&self, gid: Option<&Gid>) -> bool {
        match (&self.range, gid) {
            (None, _) => true,
            (Some(range), Some(gid)) => range.contains(&gid.address()),
            (Some(_), None) => false,
        }
    }
}

/// An empty slot reads as `::`, which is of the IPv6 family.
fn family(gid: Option<&Gid>) -> Family {
    match gid.and_then(|g| g.gid.to_ipv4_mapped()) {
        Some(_) => Family::Inet,
        None => Family::Inet6,
    }
}

fn is_v2(gid: Option<&Gid>) -> bool {
    gid.is_some_and(|gid| gid.kind == GidType::RoceV2)
}

/// `validGid`: neither empty nor link-local.
fn is_valid(gid: Option<&Gid>) -> bool {
    gid.is_some_and(|g| g.gid != Ipv6Addr::UNSPECIFIED && !g.is_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_first_ipv4_v2_slot_wins_unless_the_range_says_otherwise() {
        let slots = table(&[
            (0, "fe80::1", "v1"),
            (1, "fe80::1", "v2"),
            (2, "::ffff:25.11.128.2", "v1"),
            (3, "::ffff:25.11.128.2", "v2"),
            (4, "::ffff:25.11.128.9", "v1"),
            (5, "::ffff:25.11.128.9", "v2"),
        ]);
        assert_eq!(Walk::default().run(&slots).slot, 3);
        let range = |text: &str| Walk { range: Some(text.parse().unwrap()), ..Walk::default() };
        assert_eq!(range("25.11.128.8/29").run(&slots).slot, 5);
        assert_eq!(range("10.0.0.0/8").run(&slots).slot, 0);
    }

    #[test]
    fn tables_without_ipv4_end_at_zero_unless_the_family_is_set() {
        let slots = table(&[(0, "fe80::1", "v1"), (1, "fe80::1", "v2"), (2, "fd00::5", "v2")]);
        assert_eq!(Walk::default().run(&slots).slot, 0);
        let v6 = Walk { family: Family::Inet6, range: None };
        assert_eq!(v6.run(&slots), End { slot: 2, reads_empty_slot: false });
        // An empty slot counts as IPv6, so the search compares types with it.
        let empty_first = table(&[(3, "fd00::5", "v2")]);
        assert_eq!(v6.run(&empty_first), End { slot: 3, reads_empty_slot: true });
        assert_eq!(v6.run(&table(&[(0, "fe80::1", "v1"), (1, "fe80::1", "v2")])).slot, 0);
    }
}
