//! Checks what the other node reports about its ends before any device uses it. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::report::Rail;
use crate::verbs::port_test::LEAST_SIZE;
use crate::verbs::talk::End;

/// Queue pair numbers have 24 bits. 0 and 1 are for management, and the last one is for multicast (the
/// InfiniBand specification, volume 1, section 9.2).
const NUMBERS: std::ops::RangeInclusive<u32> = 2..=0xff_fffe;

/// The LIDs of single ports (section 4.1.3), and 0 for a port that has none yet.
const LIDS: std::ops::RangeInclusive<u16> = 0..=0xbfff;

/// In bytes; 0 if the MTU has no name in verbs.h.
const MTUS: [u32; 6] = [0, 256, 512, 1024, 2048, 4096];

/// Returns what is impossible about this end, if anything is. `rail` is what the same node reported
/// about the rail before.
pub(super) fn wrong(end: &End, rail: &Rail) -> Option<&'static str> {
    let is_roce = rail.link_layer == "Ethernet";
    let last = end.address.checked_add(end.size);
    if !NUMBERS.contains(&end.number) {
        Some("the number of the queue pair")
    } else if is_roce && end.gid.is_none() || end.gid.is_some_and(|gid| !is_of_one_port(gid)) {
        Some("the GID")
    } else if !LIDS.contains(&end.lid) {
        Some("the LID")
    } else if !MTUS.contains(&end.mtu) {
        Some("the MTU")
    } else if end.size < LEAST_SIZE || last.is_none() {
        Some("the memory")
    } else {
        None
    }
}

fn is_of_one_port(gid: Ipv6Addr) -> bool {
    let is_odd = gid.is_unspecified() || gid.is_loopback() || gid.is_multicast();
    let is_odd_as_ipv4 = |address: Ipv4Addr| {
        address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast()
    };
    !is_odd && !gid.to_ipv4_mapped().is_some_and(is_odd_as_ipv4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roce() -> (End, Rail) {
        let end = End {
            number: 17,
            lid: 0,
            gid: Some("::ffff:25.11.128.1".parse().unwrap()),
            mtu: 4096,
            address: 0x7f00_0000_0000,
            key: 0x1234,
            size: 1 << 26,
        };
        (end, Rail { link_layer: "Ethernet".into(), ..Rail::default() })
    }

    #[test]
    fn ends_of_devices_are_right() {
        let (end, rail) = roce();
        assert_eq!(wrong(&end, &rail), None);
        for gid in ["fe80::1", "fd00::1", "2001:db8::1"] {
            assert_eq!(wrong(&End { gid: Some(gid.parse().unwrap()), ..end }, &rail), None);
        }
        let infiniband = Rail { link_layer: "InfiniBand".into(), ..rail };
        assert_eq!(wrong(&End { lid: 5, gid: None, ..end }, &infiniband), None);
    }

    #[test]
    fn what_no_device_has_is_wrong() {
        let (end, rail) = roce();
        let gid = |text: &str| End { gid: Some(text.parse().unwrap()), ..end };
        for (odd, what) in [
            (End { number: 0, ..end }, "the number of the queue pair"),
            (End { number: 1, ..end }, "the number of the queue pair"),
            (End { number: 0xff_ffff, ..end }, "the number of the queue pair"),
            (End { number: 1 << 24, ..end }, "the number of the queue pair"),
            (End { gid: None, ..end }, "the GID"),
            (gid("::"), "the GID"),
            (gid("::1"), "the GID"),
            (gid("ff02::1"), "the GID"),
            (gid("::ffff:224.0.0.1"), "the GID"),
            (gid("::ffff:255.255.255.255"), "the GID"),
            (gid("::ffff:127.0.0.1"), "the GID"),
            (End { mtu: 1500, ..end }, "the MTU"),
            (End { lid: 0xc000, ..end }, "the LID"),
            (End { mtu: 9000, ..end }, "the MTU"),
            (End { size: 4095, ..end }, "the memory"),
            (End { size: u64::MAX, ..end }, "the memory"),
            (End { address: u64::MAX - 5, ..end }, "the memory"),
        ] {
            assert_eq!(wrong(&odd, &rail), Some(what), "{odd:?}");
        }
        let infiniband = Rail { link_layer: "InfiniBand".into(), ..rail };
        assert_eq!(wrong(&End { gid: Some(Ipv6Addr::LOCALHOST), ..end }, &infiniband), Some("the GID"));
        for lid in [0xc000, 0xffff] {
            assert_eq!(wrong(&End { lid, ..end }, &infiniband), Some("the LID"));
        }
    }
}
