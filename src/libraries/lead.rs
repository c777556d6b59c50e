//! Finds values that steer a library's GID search to the right entries, for libraries that search as NCCL
//! does (NVSHMEM, UCCL's EP): an address family and an address range, in NCCL's grammar. Unlike an index,
//! both stay right if the addresses move to other entries of the table.

use std::net::IpAddr;

use ipnet::IpNet;

use super::LibraryContext;
use super::nccl::gid::{FAMILY, Family, RANGE, Search};
use super::own_verbs::SEARCHES_AS;
use crate::fabric::Candidate;
use crate::fabric::gid::{RailGids, common_network, of_one_family, own_network, rails};

/// A family and a range; each is set only if it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lead {
    /// In the form of `NCCL_IB_ADDR_FAMILY`.
    family: Option<String>,
    /// In the form of `NCCL_IB_ADDR_RANGE`.
    range: Option<String>,
    /// Whether they match only this container's addresses, so that the entries' positions do not matter.
    lasts: bool,
}

/// Returns the values that steer a search to the right entries or else select one of them, in this order: a
/// family and a range that last, the index, a family and a range that do not last. The index comes first if
/// it is unknown whether the library searches.
pub(super) fn by_lead_or(
    subject: &LibraryContext,
    searches: bool,
    taken: impl Fn(&LibraryContext, &Candidate) -> Option<i64>,
    [family, range]: [&'static str; 2],
    index: impl FnOnce() -> Option<(&'static str, String)>,
) -> Vec<(&'static str, String)> {
    let lead = lead(subject, taken);
    if !lead.as_ref().is_some_and(|lead| lead.lasts && searches)
        && let Some(index) = index()
    {
        return vec![index];
    }
    let values = lead.map(|lead| [(family, lead.family), (range, lead.range)]);
    values.into_iter().flatten().filter_map(|(variable, value)| Some((variable, value?))).collect()
}

/// Returns the family and range that steer a search like NCCL's (`SEARCHES_AS`) to a right entry on each of the job's
/// RoCE ports that the library uses and that has one. Prefers values that last, then NCCL's own variables,
/// then the interfaces' networks, then the addresses. Returns `None` if no values work or none are needed.
fn lead(
    subject: &LibraryContext,
    taken: impl Fn(&LibraryContext, &Candidate) -> Option<i64>,
) -> Option<Lead> {
    let used = subject.rails.ports.iter().filter(|port| taken(subject, port).is_some());
    let all = rails(subject.facts, &used.cloned().collect::<Vec<Candidate>>());
    let with_slots = all.into_iter().filter(|rail| !rail.slots.is_empty());
    let rails = of_one_family(&with_slots.collect::<Vec<RailGids>>());
    let addresses: Vec<IpAddr> =
        rails.iter().filter_map(|rail| Some(rail.slots.first()?.address())).collect();
    let is_ipv6 = addresses.first()?.is_ipv6();
    let family = is_ipv6.then(|| "AF_INET6".to_owned());
    let networks: Option<Vec<IpNet>> =
        addresses.iter().map(|address| own_network(subject.facts, *address)).collect();
    let of_nccl = subject.value(RANGE).filter(|_| subject.value(FAMILY) == family.as_deref());
    let common = |nets: &[IpNet]| common_network(nets).map(|net| net.to_string());
    let of_networks = networks.and_then(|networks| common(&networks));
    let of_addresses = common(&addresses.iter().copied().map(IpNet::from).collect::<Vec<IpNet>>());
    let ranges = [of_nccl.map(str::to_owned), None, of_networks, of_addresses];
    let leads: Vec<Lead> =
        ranges.into_iter().filter_map(|range| judged(subject, &rails, family.clone(), range)).collect();
    leads.iter().find(|lead| lead.lasts).or(leads.first()).cloned()
}

/// Returns a family and a range with which the search ends at a right entry of each rail.
fn judged(
    subject: &LibraryContext,
    rails: &[RailGids],
    family: Option<String>,
    range: Option<String>,
) -> Option<Lead> {
    if family.is_none() && range.is_none() {
        return None;
    }
    let net = range.as_deref().map(str::parse::<IpNet>).transpose().ok()?;
    let of = if family.is_some() { Family::Inet6 } else { Family::Inet };
    let search = Search { family: of, range: net.map(Into::into), ..Search::default() };
    let is_own = |address| subject.facts.net.own_addresses().any(|own| own == address);
    let passes = |address: IpAddr| {
        address.is_ipv6() == (of == Family::Inet6) && net.is_none_or(|net| net.contains(&address))
    };
    let is_kept_out = |rail: &RailGids| {
        let mut others = rail.port.gids.slots.iter().filter(|gid| !gid.is_link_local());
        others.all(|gid| !passes(gid.address()) || is_own(gid.address()))
    };
    let lasts = rails.iter().all(is_kept_out);
    search.first_wrong(rails, SEARCHES_AS).is_none().then_some(Lead { family, range, lasts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Rails, Verdict};
    use crate::facts::Facts;
    use crate::facts::gid::{Gid, GidTable, GidType};
    use crate::facts::net::Interface;
    use crate::facts::rdma::{Hca, LinkLayer, Port};

    /// Returns the values that steer to these interfaces' addresses if each port has these entries.
    fn found(own: &[&str], ports: &[&[(u32, &str)]]) -> Option<Lead> {
        let interface = Interface {
            addresses: own.iter().map(|net| net.parse().unwrap()).collect(),
            ..Interface::default()
        };
        let mut facts = Facts::default();
        facts.net.interfaces = vec![interface];
        let port = |slots: &&[(u32, &str)]| {
            let slots =
                slots.iter().map(|(index, address)| Gid::of(*index, address, GidType::RoceV2)).collect();
            let gids = GidTable { slots, size: 16, scanned: 16 };
            Port { number: 1, link_layer: LinkLayer::Ethernet, gids, ..Port::default() }
        };
        let (hca, table): (Hca, Vec<Port>) = (Hca::default(), ports.iter().map(port).collect());
        let candidates: Vec<Candidate> =
            table.iter().map(|port| Candidate { hca: &hca, port, verdict: Verdict::Used }).collect();
        let rails = Rails { ports: &candidates, gid_index: None, interface: None };
        let subject = LibraryContext::of(&facts, &rails, &|_| None);
        lead(&subject, |_, _| Some(0))
    }

    fn ranged(range: &str, lasts: bool) -> Option<Lead> {
        Some(Lead { family: None, range: Some(range.to_owned()), lasts })
    }

    #[test]
    fn the_networks_of_the_interfaces_lead_before_the_addresses() {
        let own = ["172.16.1.9/24", "172.16.2.9/24"];
        let ports: [&[_]; 2] =
            [&[(3, "192.168.1.9"), (5, "172.16.1.9")], &[(3, "192.168.1.9"), (7, "172.16.2.9")]];
        assert_eq!(found(&own, &ports), ranged("172.16.0.0/22", true));
        // The host's address is in the pod's network.
        let ports: [&[_]; 2] =
            [&[(3, "172.16.1.1"), (5, "172.16.1.9")], &[(3, "172.16.3.77"), (7, "172.16.2.9")]];
        assert_eq!(found(&own, &ports), None);
        let one: [&[_]; 1] = [&[(3, "172.16.1.1"), (5, "172.16.1.9")]];
        assert_eq!(found(&own, &one), ranged("172.16.1.9/32", true));
    }

    #[test]
    fn ipv6_is_a_family_and_where_that_does_not_last_a_range() {
        let own = ["fd00:1::9/64"];
        let family = |range: Option<&str>, lasts| {
            Some(Lead { family: Some("AF_INET6".to_owned()), range: range.map(str::to_owned), lasts })
        };
        assert_eq!(found(&own, &[&[(0, "fe80::9"), (1, "fd00:1::9")]]), family(None, true));
        assert_eq!(found(&own, &[&[(1, "fd00:2::1"), (3, "fd00:1::9")]]), family(Some("fd00:1::/64"), true));
    }
}
