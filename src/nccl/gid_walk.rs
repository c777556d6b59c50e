//! NCCL's own search for a GID, in 2.21 and later, when `NCCL_IB_GID_INDEX` is
//! unset (`src/transport/net_ib.cc`: `ncclIbGetGidIndex`, `ncclUpdateGidIndex`).

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

impl Walk {
    /// The slot that NCCL ends on. It starts at slot 0, whatever is in there,
    /// and ends there when nothing better comes.
    pub fn ends_on(&self, table: &GidTable) -> u32 {
        let mut at = 0;
        for candidate in 1..table.size {
            if self.prefers(slot(table, candidate), slot(table, at)) {
                at = candidate;
            }
        }
        at
    }

    fn prefers(&self, candidate: Option<&Gid>, current: Option<&Gid>) -> bool {
        let fits = family(candidate) == self.family && self.in_range(candidate);
        if !fits {
            return false;
        }
        if family(current) != self.family {
            return true;
        }
        let version = |gid: Option<&Gid>| gid.is_some_and(|g| g.kind == GidType::RoceV2);
        is_valid(candidate) && version(candidate) && (!version(current) || !is_valid(current))
    }

    fn in_range(&self, gid: Option<&Gid>) -> bool {
        match (&self.range, gid) {
            (None, _) => true,
            (Some(range), Some(gid)) => range.contains(&gid.address()),
            (Some(_), None) => false,
        }
    }
}

fn slot(table: &GidTable, index: u32) -> Option<&Gid> {
    table.slots.iter().find(|gid| gid.index == index)
}

/// An empty slot reads as `::`, which is of the IPv6 family.
fn family(gid: Option<&Gid>) -> Family {
    match gid.and_then(|g| g.gid.to_ipv4_mapped()) {
        Some(_) => Family::Inet,
        None => Family::Inet6,
    }
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
        assert_eq!(Walk::default().ends_on(&slots), 3);
        let range = |text: &str| Walk { range: Some(text.parse().unwrap()), ..Walk::default() };
        assert_eq!(range("25.11.128.8/29").ends_on(&slots), 5);
        assert_eq!(range("10.0.0.0/8").ends_on(&slots), 0);
    }

    #[test]
    fn tables_without_ipv4_end_at_zero_unless_the_family_is_set() {
        let slots = table(&[(0, "fe80::1", "v1"), (1, "fe80::1", "v2"), (2, "fd00::5", "v2")]);
        assert_eq!(Walk::default().ends_on(&slots), 0);
        let v6 = Walk { family: Family::Inet6, range: None };
        assert_eq!(v6.ends_on(&slots), 2);
        assert_eq!(v6.ends_on(&table(&[(0, "fe80::1", "v1"), (1, "fe80::1", "v2")])), 0);
    }
}
