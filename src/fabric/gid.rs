//! The GIDs with an address of this container: the slots of each RoCE port that are right.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::port::Candidate;
use crate::facts::Facts;
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::{LinkLayer, Port};

/// `sgid_index` of a queue pair has eight bits (`ibv_global_route`).
pub const LARGEST_INDEX: u32 = 255;

/// The slots that hold a routable RoCE v2 GID of one of our own addresses, IPv4
/// first. The netdev does not decide: its name may be another namespace's.
pub fn own_slots<'a>(facts: &Facts, port: &'a Port) -> Vec<&'a Gid> {
    let own: BTreeSet<IpAddr> = facts.net.own_addresses().collect();
    let mut slots: Vec<&Gid> = port
        .gids
        .slots
        .iter()
        .filter(|gid| gid.kind == GidType::RoceV2 && gid.index <= LARGEST_INDEX)
        .filter(|gid| !gid.is_link_local() && own.contains(&gid.address()))
        .collect();
    slots.sort_by_key(|gid| (gid.address().is_ipv6(), gid.index));
    slots
}

/// A used RoCE port, with the slots that would be right.
#[derive(Clone)]
pub struct Rail<'a> {
    /// As [`Candidate::name`] has it.
    pub name: String,
    pub port: &'a Port,
    pub slots: Vec<&'a Gid>,
}

impl<'a> Rail<'a> {
    /// The GID of a slot, where that slot is right.
    pub fn at(&self, index: u32) -> Option<&'a Gid> {
        self.slots.iter().find(|gid| gid.index == index).copied()
    }

    pub fn has(&self, index: u32) -> bool {
        self.at(index).is_some()
    }
}

/// The used RoCE ports.
pub fn rails<'a>(facts: &Facts, ports: &[Candidate<'a>]) -> Vec<Rail<'a>> {
    let used = ports.iter().filter(|port| port.is_used() && port.port.link_layer == LinkLayer::Ethernet);
    used.map(|port| Rail { name: port.name(), port: port.port, slots: own_slots(facts, port.port) }).collect()
}

/// Each rail with its IPv4 slots where every rail has one, else with its IPv6
/// slots where every rail has one, else with what there is.
pub fn of_one_family<'a>(rails: &[Rail<'a>]) -> Vec<Rail<'a>> {
    let of = |ipv6: bool| -> Option<Vec<Rail>> {
        let filtered: Vec<Rail> = rails
            .iter()
            .map(|rail| Rail {
                slots: rail.slots.iter().filter(|g| g.address().is_ipv6() == ipv6).copied().collect(),
                ..rail.clone()
            })
            .collect();
        filtered.iter().all(|rail| !rail.slots.is_empty()).then_some(filtered)
    };
    of(false).or_else(|| of(true)).unwrap_or_else(|| rails.to_vec())
}

/// Whether a slot is right on every rail, with GIDs of one family: an IPv4 GID cannot reach an
/// IPv6 one.
#[must_use]
pub fn is_right_everywhere(rails: &[Rail], index: u32) -> bool {
    let at: Option<Vec<&Gid>> = rails.iter().map(|rail| rail.at(index)).collect();
    let mut families = at.unwrap_or_default().into_iter().map(|gid| gid.address().is_ipv6());
    families.next().is_some_and(|first| families.all(|family| family == first))
}

/// The lowest slot that is right on every rail.
#[must_use]
pub fn common_index(rails: &[Rail]) -> Option<u32> {
    let slots = rails.first()?.slots.iter().map(|gid| gid.index);
    slots.filter(|index| rails.iter().all(|rail| rail.has(*index))).min()
}

/// The slot that is right on the most rails, the lowest of several, and on how many.
#[must_use]
pub fn most_common_index(rails: &[Rail]) -> Option<(u32, usize)> {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for gid in rails.iter().flat_map(|rail| &rail.slots) {
        *count.entry(gid.index).or_default() += 1;
    }
    count.into_iter().max_by_key(|(index, rails)| (*rails, std::cmp::Reverse(*index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rails by their slots, each an index and an address.
    fn with_rails<T>(rails: &[&[(u32, &str)]], look: impl Fn(&[Rail]) -> T) -> T {
        let gid = |(index, address): &(u32, &str)| {
            let address: IpAddr = address.parse().unwrap();
            let gid = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            Gid { index: *index, gid, kind: GidType::RoceV2, netdev: None }
        };
        let gids: Vec<Vec<Gid>> = rails.iter().map(|slots| slots.iter().map(gid).collect()).collect();
        let port = Port::default();
        let rail = |slots| Rail { name: String::new(), port: &port, slots: Vec::from_iter(slots) };
        look(&gids.iter().map(rail).collect::<Vec<Rail>>())
    }

    #[test]
    fn a_slot_is_right_everywhere_or_on_the_most_rails() {
        let both: [&[_]; 2] = [&[(1, "10.0.0.1"), (3, "10.0.1.1")], &[(3, "10.0.0.2")]];
        assert_eq!(with_rails(&both, common_index), Some(3));
        assert!(with_rails(&both, |rails| is_right_everywhere(rails, 3)));
        assert!(!with_rails(&both, |rails| is_right_everywhere(rails, 1)));
        let mixed: [&[_]; 2] = [&[(3, "10.0.0.1")], &[(3, "fd00::1")]];
        assert!(!with_rails(&mixed, |rails| is_right_everywhere(rails, 3)), "of two families");
        let differ: [&[_]; 3] = [&[(3, "10.0.0.1")], &[(5, "10.0.0.2")], &[(5, "10.0.0.3")]];
        assert_eq!(
            with_rails(&differ, |rails| (common_index(rails), most_common_index(rails))),
            (None, Some((5, 2)))
        );
        let tie: [&[_]; 2] = [&[(5, "10.0.0.1")], &[(3, "10.0.0.2")]];
        assert_eq!(with_rails(&tie, most_common_index), Some((3, 1)));
        assert_eq!(with_rails(&[], |rails| (common_index(rails), most_common_index(rails))), (None, None));
        assert!(!with_rails(&[], |rails| is_right_everywhere(rails, 3)));
    }

    #[test]
    fn ipv4_comes_before_ipv6_where_every_rail_has_it() {
        let families = |rails: &[&[(u32, &str)]]| {
            with_rails(rails, |rails| {
                let of = |rail: &Rail| rail.slots.iter().map(|gid| gid.index).collect::<Vec<u32>>();
                of_one_family(rails).iter().map(of).collect::<Vec<_>>()
            })
        };
        assert_eq!(families(&[&[(1, "10.0.0.1"), (2, "fd00::1")], &[(3, "10.0.0.2")]]), [[1], [3]]);
        assert_eq!(families(&[&[(1, "10.0.0.1"), (2, "fd00::1")], &[(3, "fd00::2")]]), [[2], [3]]);
        assert_eq!(families(&[&[(1, "10.0.0.1")], &[(3, "fd00::2")]]), [[1], [3]], "neither");
    }
}
