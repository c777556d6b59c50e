//! The right indexes of each RoCE port: the GIDs that hold an address of this container, or else the node's own.
//!
//! In the shared mode of RDMA namespaces, a container sees the GIDs of all network namespaces, and the kernel lets
//! a queue pair use any of them: it looks up the route in the namespace of the GID's interface
//! (`set_addr_netns_by_gid_rcu`, drivers/infiniband/core/addr.c). A GID of the node is there as long as the node
//! has its address. One of another container ends with that container, so no choice ends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::port::Candidate;
use crate::facts::Facts;
use crate::facts::gid::{Gid, GidType, LARGEST_INDEX};
use crate::facts::rdma::{LinkLayer, Port};

/// The addresses of this container, as a set, so that the GIDs of many ports can be looked up in it.
pub(crate) struct OwnAddresses(BTreeSet<IpAddr>);

impl OwnAddresses {
    pub(crate) fn of(facts: &Facts) -> OwnAddresses {
        OwnAddresses(facts.net.own_addresses().collect())
    }

    /// Returns the entries with a routable RoCE v2 GID of one of our own addresses, or else of the node, IPv4 first.
    /// The netdev does not decide on our own, because its name may be from another namespace. A link-local IPv4
    /// address counts only on a port that has no other address.
    pub(crate) fn slots<'a>(&self, port: &'a Port) -> Vec<&'a Gid> {
        slots(port, |address| self.0.contains(&address))
    }

    /// Returns whether the port has a GID of this container.
    pub(crate) fn has_own(&self, port: &Port) -> bool {
        self.slots(port).first().is_some_and(|gid| self.is_own(gid))
    }

    pub(crate) fn is_own(&self, gid: &Gid) -> bool {
        self.0.contains(&gid.address())
    }
}

/// Does the same as [`OwnAddresses::slots`] for a single port, for which no set is worth its making.
pub fn own_slots<'a>(facts: &Facts, port: &'a Port) -> Vec<&'a Gid> {
    slots(port, |address| facts.net.own_addresses().any(|own| own == address))
}

fn slots(port: &Port, is_own: impl Fn(IpAddr) -> bool) -> Vec<&Gid> {
    let mut slots: Vec<&Gid> = routable(port).filter(|gid| is_own(gid.address())).collect();
    if slots.is_empty() {
        slots = node_slots(port);
    }
    if slots.iter().any(|gid| !gid.is_link_local_ipv4()) {
        slots.retain(|gid| !gid.is_link_local_ipv4());
    }
    slots.sort_by_key(|gid| (gid.address().is_ipv6(), gid.index));
    slots
}

/// Returns the RoCE v2 GIDs that a queue pair can use beyond its own Ethernet segment.
fn routable(port: &Port) -> impl Iterator<Item = &Gid> {
    let slots = port.gids.slots.iter();
    slots.filter(|gid| gid.kind == GidType::RoceV2 && gid.index <= LARGEST_INDEX && !gid.is_link_local())
}

/// Returns the name of the HCA's own interface in the namespace where it is: the kernel keeps the first entries of
/// the table for it, or for the bond above it, and fills them with its link-local GID (`gid_table_reserve_default`
/// in drivers/infiniband/core/cache.c, `add_default_gids` in roce_gid_mgmt.c).
fn own_interface(port: &Port) -> Option<&str> {
    let first = port.gids.slots.iter().find(|gid| gid.index == 0 && gid.is_link_local())?;
    first.netdev.as_deref()
}

/// Returns the routable entries of the HCA's own interface, those of the node if the interface is not here.
///
/// The interface of another container may have the same name, and then brings a link-local GID of its own. So if
/// the name has several of these, only the lowest entry counts: the node's addresses are there first.
pub(crate) fn node_slots(port: &Port) -> Vec<&Gid> {
    let Some(name) = own_interface(port) else { return Vec::new() };
    let is_of_it = |gid: &&Gid| gid.netdev.as_deref() == Some(name);
    let mut slots: Vec<&Gid> = routable(port).filter(is_of_it).collect();
    let link_local: BTreeSet<IpAddr> =
        port.gids.slots.iter().filter(|gid| gid.is_link_local() && is_of_it(gid)).map(Gid::address).collect();
    if link_local.len() > 1 {
        slots.truncate(1);
    }
    slots
}

/// Returns the network of the interface that has an address.
pub(crate) fn own_network(facts: &Facts, address: IpAddr) -> Option<IpNet> {
    let mut nets = facts.net.interfaces.iter().flat_map(|interface| &interface.addresses);
    nets.find(|net| net.addr() == address).map(|net| net.trunc())
}

/// Returns the narrowest network that contains all of these; `None` if they are of two address families.
pub(crate) fn common_network(nets: &[IpNet]) -> Option<IpNet> {
    let (first, rest) = nets.split_first()?;
    rest.iter().try_fold(first.trunc(), |mut common, net| {
        while !common.contains(net) {
            common = common.supernet()?;
        }
        Some(common)
    })
}

/// A used RoCE port, with the entries whose indexes are right.
#[derive(Clone)]
pub(crate) struct RailGids<'a> {
    /// In the form of [`Candidate::name`].
    pub name: String,
    pub port: &'a Port,
    pub slots: Vec<&'a Gid>,
}

impl<'a> RailGids<'a> {
    /// Returns the GID of an index, if that index is right.
    pub(crate) fn at(&self, index: u32) -> Option<&'a Gid> {
        self.slots.iter().find(|gid| gid.index == index).copied()
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        self.at(index).is_some()
    }
}

/// Returns the used RoCE ports.
pub(crate) fn rails<'a>(facts: &Facts, ports: &[Candidate<'a>]) -> Vec<RailGids<'a>> {
    let used = ports.iter().filter(|port| port.is_used() && port.port.link_layer == LinkLayer::Ethernet);
    let own = OwnAddresses::of(facts);
    used.map(|port| RailGids { name: port.name(), port: port.port, slots: own.slots(port.port) }).collect()
}

/// Returns each rail with only its IPv4 entries if every rail has one; else with only its IPv6 entries if
/// every rail has one; else with all of its entries.
pub(crate) fn of_one_family<'a>(rails: &[RailGids<'a>]) -> Vec<RailGids<'a>> {
    let of = |ipv6: bool| -> Option<Vec<RailGids>> {
        let filtered: Vec<RailGids> = rails
            .iter()
            .map(|rail| RailGids {
                slots: rail.slots.iter().filter(|g| g.address().is_ipv6() == ipv6).copied().collect(),
                ..rail.clone()
            })
            .collect();
        filtered.iter().all(|rail| !rail.slots.is_empty()).then_some(filtered)
    };
    of(false).or_else(|| of(true)).unwrap_or_else(|| rails.to_vec())
}

/// Returns whether an index is right on every rail, with GIDs of one address family: an IPv4 GID cannot reach
/// an IPv6 GID.
#[must_use]
pub(crate) fn is_right_everywhere(rails: &[RailGids], index: u32) -> bool {
    let at: Option<Vec<&Gid>> = rails.iter().map(|rail| rail.at(index)).collect();
    let mut families = at.unwrap_or_default().into_iter().map(|gid| gid.address().is_ipv6());
    families.next().is_some_and(|first| families.all(|family| family == first))
}

/// Returns the lowest index that is right on every rail.
#[must_use]
pub(crate) fn common_index(rails: &[RailGids]) -> Option<u32> {
    let slots = rails.first()?.slots.iter().map(|gid| gid.index);
    slots.filter(|index| rails.iter().all(|rail| rail.has(*index))).min()
}

/// Returns the index that is right on the most rails (on a tie, the lowest), and the number of these rails.
#[must_use]
pub(crate) fn most_common_index(rails: &[RailGids]) -> Option<(u32, usize)> {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for gid in rails.iter().flat_map(|rail| &rail.slots) {
        *count.entry(gid.index).or_default() += 1;
    }
    count.into_iter().max_by_key(|(index, rails)| (*rails, std::cmp::Reverse(*index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_network_that_holds_all() {
        let range = |nets: &[&str]| {
            let nets: Vec<IpNet> = nets.iter().map(|net| net.parse().unwrap()).collect();
            common_network(&nets).map(|net| net.to_string())
        };
        for (nets, wanted) in [
            (&["25.11.128.2/32", "25.11.128.34/32"][..], Some("25.11.128.0/26")),
            (&["10.0.0.1/32"], Some("10.0.0.1/32")),
            (&["10.0.1.0/24", "10.0.1.0/24"], Some("10.0.1.0/24")),
            (&["10.0.1.0/24", "10.0.2.0/30"], Some("10.0.0.0/22")),
            (&["172.16.1.9/32", "172.16.1.11/32"], Some("172.16.1.8/30")),
            (&["172.16.1.0/24", "172.16.3.0/24"], Some("172.16.0.0/22")),
            (&["10.0.0.0/8", "10.1.0.0/16"], Some("10.0.0.0/8")),
            (&["10.0.0.1/32", "192.168.0.1/32"], Some("0.0.0.0/0")),
            (&["fd00::1/128", "fd00::2/128"], Some("fd00::/126")),
            (&["fd00:1::/64", "fd00:2::/64"], Some("fd00::/30")),
            (&["10.0.0.1/32", "fd00::1/128"], None),
            (&[], None),
        ] {
            assert_eq!(range(nets).as_deref(), wanted, "{nets:?}");
        }
    }

    /// Makes rails from lists of entries, each an index and an address.
    fn with_rails<T>(rails: &[&[(u32, &str)]], look: impl Fn(&[RailGids]) -> T) -> T {
        let gid = |(index, address): &(u32, &str)| Gid::of(*index, address, GidType::RoceV2);
        let gids: Vec<Vec<Gid>> = rails.iter().map(|slots| slots.iter().map(gid).collect()).collect();
        let port = Port::default();
        let rail = |slots| RailGids { name: String::new(), port: &port, slots: Vec::from_iter(slots) };
        look(&gids.iter().map(rail).collect::<Vec<RailGids>>())
    }

    #[test]
    fn a_gid_index_is_right_on_all_rails_or_on_the_most() {
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
    fn a_link_local_address_counts_if_there_is_no_other() {
        let slots = |addresses: &[&str]| {
            let mut facts = Facts::default();
            let own = addresses.iter().map(|address| format!("{address}/24").parse().unwrap());
            let interface = crate::facts::net::Interface { addresses: own.collect(), ..Default::default() };
            facts.net.interfaces.push(interface);
            let gids = addresses.iter().zip(0..).map(|(address, index)| Gid {
                index,
                gid: format!("::ffff:{address}").parse().unwrap(),
                kind: GidType::RoceV2,
                netdev: None,
            });
            let gids = crate::facts::gid::GidTable { slots: gids.collect(), ..Default::default() };
            let port = Port { gids, ..Port::default() };
            own_slots(&facts, &port).iter().map(|gid| gid.index).collect::<Vec<u32>>()
        };
        assert_eq!(slots(&["169.254.1.9", "10.0.0.1"]), [1]);
        assert_eq!(slots(&["169.254.1.9", "169.254.2.9"]), [0, 1]);
    }

    #[test]
    fn the_nodes_gids_count_if_there_is_none_of_our_own() {
        let slots = |own: &str, entries: &[(&str, &str)]| {
            let mut facts = Facts::default();
            let addresses = vec![own.parse().unwrap()];
            let interface = crate::facts::net::Interface { addresses, ..Default::default() };
            facts.net.interfaces.push(interface);
            let gids = entries.iter().zip(0..).map(|((address, netdev), index)| Gid {
                netdev: Some((*netdev).to_owned()),
                ..Gid::of(index, address, GidType::RoceV2)
            });
            let gids = crate::facts::gid::GidTable { slots: gids.collect(), ..Default::default() };
            let port = Port { gids, ..Port::default() };
            own_slots(&facts, &port).iter().map(|gid| gid.index).collect::<Vec<u32>>()
        };
        let table = [
            ("fe80::1", "eth1"),
            ("192.168.4.10", "eth1"),
            ("192.168.5.10", "eth1"),
            ("10.1.0.9", "net1"),
            ("fe80::9", "net1"),
        ];
        assert_eq!(slots("10.20.0.9/24", &table), [1, 2]);
        assert_eq!(slots("10.1.0.9/24", &table), [3], "its own");
        // The second link-local GID may be that of another container whose interface has the same name.
        let with_namesake = [&table[..], &[("fe80::2", "eth1")]].concat();
        assert_eq!(slots("10.20.0.9/24", &with_namesake), [1]);
        // Without the entry that the kernel keeps for the HCA's own interface, nothing tells which ones are its.
        assert_eq!(slots("10.20.0.9/24", &table[3..]), <[u32; 0]>::default());
    }

    #[test]
    fn ipv4_comes_before_ipv6_if_every_rail_has_it() {
        let families = |rails: &[&[(u32, &str)]]| {
            with_rails(rails, |rails| {
                let of = |rail: &RailGids| rail.slots.iter().map(|gid| gid.index).collect::<Vec<u32>>();
                of_one_family(rails).iter().map(of).collect::<Vec<_>>()
            })
        };
        assert_eq!(families(&[&[(1, "10.0.0.1"), (2, "fd00::1")], &[(3, "10.0.0.2")]]), [[1], [3]]);
        assert_eq!(families(&[&[(1, "10.0.0.1"), (2, "fd00::1")], &[(3, "fd00::2")]]), [[2], [3]]);
        assert_eq!(families(&[&[(1, "10.0.0.1")], &[(3, "fd00::2")]]), [[1], [3]], "neither");
    }
}
