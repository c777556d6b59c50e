//! Which devices and GIDs UCX uses on a host, as `ucx_info -d` lists them.
//!
//! * UCX uses a port if it is active and its HCA can be opened and is not iWARP; since 1.11, also only if the
//!   GID entry of `UCX_IB_GID_INDEX`, or entry 0 if that is not set, is not empty (`uct_ib_device_port_check`
//!   in `src/uct/ib/base/ib_device.c`).
//! * `uct_ib_device_select_gid` in the same file selects the first RoCE v2 entry with IPv4, else RoCE v2 with
//!   IPv6, then RoCE v1 in the same order. Since 1.21, link-local IPv6 GIDs come after the others. Since
//!   1.18, `UCX_IB_ROCE_SUBNETS` drops GIDs in none of its subnets, and UCX fails if none remain. UCX does
//!   not check whose address it is, so in a container the host's may come first.
//! * UCX uses TCP on each interface that is up and has an address (`uct_tcp_query_devices` in
//!   `src/uct/tcp/tcp_iface.c`).

use std::net::IpAddr;

use super::index::{self, GidIndex};
use super::list::Devices;
use super::release::{EXCLUDES_DEVICES, HAS_SUBNETS, PASSES_OVER_EMPTY_SLOTS, Release, has_verbs};
use super::subnets::Filter;
use super::transports::{transports, unreadable};
use super::{DEVICES, GID_INDEX, SUBNETS, TRANSPORTS};
use crate::fabric::Candidate;
use crate::fabric::own_slots;
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::{Access, LinkLayer, NodeType};
use crate::libraries::LibraryContext;

/// What UCX uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub ports: Vec<UcxPort>,
    /// Ports that it would use if the first GID entry that it checks were not empty.
    pub passed_over: Vec<UcxPort>,
    /// The interfaces for TCP.
    pub tcp: Vec<String>,
    /// Whether UCX has transports over HCAs at all.
    pub has_verbs: bool,
}

/// A port as UCX uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UcxPort {
    /// `mlx5_1:1`.
    pub name: String,
    /// Whether it is one of the job's rails.
    pub is_rail: bool,
    /// The driver of its HCA.
    pub driver: Option<String>,
    /// The GID entry that UCX selects on RoCE.
    pub slot: Option<Slot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub index: u32,
    /// The entry's address; `None` if the entry is empty.
    pub address: Option<IpAddr>,
    /// The GID's interface.
    pub netdev: Option<String>,
    pub is_v1: bool,
    /// Whether the entry contains one of this container's addresses, or the port has none and it contains the node's.
    pub is_right: bool,
    /// Whether the entry contains one of this container's addresses.
    pub is_own: bool,
    /// Whether another entry would be right.
    pub has_right: bool,
}

/// Returns what a release uses with the context's variables; `None` if UCX does not work over verbs here
/// (EFA) or fails.
pub fn taken(subject: &LibraryContext, release: Release) -> Option<Taken> {
    if subject.value(TRANSPORTS).is_some_and(|value| unreadable(value, release).is_some()) {
        return None;
    }
    let choice = choice(subject, release)?;
    let allowed = transports(subject.value(TRANSPORTS), release);
    let with = |port: &Candidate, slot| UcxPort {
        name: port.name(),
        is_rail: port.is_used(),
        driver: port.hca.driver.clone(),
        slot,
    };
    let (mut ports, mut passed_over) = (Vec::new(), Vec::new());
    for port in selected(subject, release) {
        let is_roce = port.port.link_layer == LinkLayer::Ethernet;
        match first_is_empty(port, &choice, release) {
            Some(index) => passed_over.push(with(port, is_roce.then(|| at(subject, port, index)))),
            None if is_roce => ports.push(with(port, Some(slot(subject, port, &choice, release)?))),
            None => ports.push(with(port, None)),
        }
    }
    let devices = Devices::read(subject.value(DEVICES), release);
    let has_address = |name: &str| {
        let interface = subject.facts.net.interface(name);
        interface.is_some_and(|interface| interface.is_up() && !interface.addresses.is_empty())
    };
    let interfaces = subject.facts.net.interfaces.iter().map(|interface| interface.name.as_str());
    let tcp = interfaces.filter(|name| allowed.tcp && has_address(name) && devices.has(name, release));
    let tcp = tcp.map(str::to_owned).collect();
    Some(Taken { ports, passed_over, tcp, has_verbs: has_verbs(subject) })
}

/// Returns the index of the GID entry that a release checks before it uses a port, if that entry is empty.
fn first_is_empty(port: &Candidate, choice: &Choice, release: Release) -> Option<u32> {
    let index = match choice {
        Choice::Index(index) => *index,
        Choice::Auto(_) => 0,
    };
    let table = &port.port.gids;
    // If the table could not be read, nothing is known about it.
    let is_read = index < table.scanned || table.scanned == table.size && table.size > 0;
    let is_empty = is_read && !table.slots.iter().any(|gid| gid.index == index);
    (release >= PASSES_OVER_EMPTY_SLOTS && is_empty).then_some(index)
}

/// Returns the ports that a release uses, or on which it fails, and that are not rails of the job.
pub fn strangers(subject: &LibraryContext, release: Release) -> Vec<String> {
    let is_readable = |value| unreadable(value, release).is_none();
    let Some(choice) = choice(subject, release).filter(|_| subject.value(TRANSPORTS).is_none_or(is_readable))
    else {
        return Vec::new();
    };
    let strangers = selected(subject, release).filter(|port| !port.is_used());
    strangers.filter(|port| first_is_empty(port, &choice, release).is_none()).map(Candidate::name).collect()
}

/// Returns the ports that a release selects.
fn selected<'a>(subject: &LibraryContext<'a>, release: Release) -> impl Iterator<Item = &'a Candidate<'a>> {
    let devices = Devices::read(subject.value(DEVICES), release);
    let allowed = transports(subject.value(TRANSPORTS), release);
    let has_verbs = allowed.verbs && has_verbs(subject);
    let ports = subject.rails.ports.iter().filter(move |port| has_verbs && is_seen(port));
    ports.filter(move |port| devices.has(&port.name(), release))
}

/// Returns whether a RoCE port lacks the GID that a release would take on it, whatever the port's state.
pub(super) fn lacks_gid(subject: &LibraryContext, port: &Candidate, release: Release) -> bool {
    let table = &port.port.gids;
    let is_read = table.scanned == table.size && table.size > 0;
    let slot = choice(subject, release).and_then(|choice| slot(subject, port, &choice, release));
    is_read && slot.is_some_and(|slot| slot.address.is_none())
}

/// Returns a port on which `UCX_IB_ROCE_SUBNETS` leaves a release no GID.
pub fn without_gid(subject: &LibraryContext, release: Release) -> Option<String> {
    let choice = choice(subject, release)?;
    let mut roce = selected(subject, release).filter(|port| port.port.link_layer == LinkLayer::Ethernet);
    let is_without = |port: &&Candidate| {
        first_is_empty(port, &choice, release).is_none() && slot(subject, port, &choice, release).is_none()
    };
    roce.find(is_without).map(Candidate::name)
}

/// Returns whether UCX lists a port.
fn is_seen(port: &Candidate) -> bool {
    let opened = port.hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened);
    let is_known = matches!(port.port.link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet);
    opened && is_known && port.hca.node_type != NodeType::Rnic && port.port.is_active()
}

/// How UCX selects a GID.
enum Choice {
    Index(u32),
    /// By its own order, among the GIDs that match the filter.
    Auto(Filter),
}

fn choice(subject: &LibraryContext, release: Release) -> Option<Choice> {
    let filter = match subject.value(SUBNETS).filter(|_| release >= HAS_SUBNETS) {
        Some(value) => Filter::read(value).ok()?,
        None => Filter::All,
    };
    match subject.value(GID_INDEX).map(index::read) {
        None | Some(Some(GidIndex::Auto)) => Some(Choice::Auto(filter)),
        Some(Some(GidIndex::Slot(number))) if filter == Filter::All => Some(Choice::Index(number)),
        // UCX fails if both are set, or if the value is not an index.
        Some(_) => None,
    }
}

/// Returns the GID entry that UCX selects; `None` if no GID matches.
fn slot(subject: &LibraryContext, port: &Candidate, choice: &Choice, release: Release) -> Option<Slot> {
    let index = match choice {
        Choice::Index(index) => *index,
        Choice::Auto(filter) => by_order(&port.port.gids.slots, filter, release)?,
    };
    Some(at(subject, port, index))
}

fn at(subject: &LibraryContext, port: &Candidate, index: u32) -> Slot {
    let own = own_slots(subject.facts, port.port);
    let gid = port.port.gids.slots.iter().find(|gid| gid.index == index);
    Slot {
        index,
        address: gid.map(Gid::address),
        netdev: gid.and_then(|gid| gid.netdev.clone()),
        is_v1: gid.is_some_and(|gid| gid.kind == GidType::IbOrRoceV1),
        is_own: gid.is_some_and(|gid| subject.facts.net.own_addresses().any(|own| own == gid.address())),
        is_right: own.iter().any(|gid| gid.index == index),
        has_right: !own.is_empty(),
    }
}

/// Returns the index of the entry that UCX finds itself: 0 if the table is empty; `None` if no GID matches.
fn by_order(slots: &[Gid], filter: &Filter, release: Release) -> Option<u32> {
    let fits = |gid: &&Gid| filter.lets_pass(gid.address());
    let rank = |gid: &&Gid| {
        let ipv6 = gid.address().is_ipv6();
        (
            gid.kind != GidType::RoceV2,
            ipv6,
            release >= EXCLUDES_DEVICES && ipv6 && gid.is_link_local(),
            gid.index,
        )
    };
    let first = slots.iter().filter(fits).min_by_key(rank).map(|gid| gid.index);
    first.or((*filter == Filter::All).then_some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_takes_the_first_roce_v2_gid_with_ipv4_that_passes_the_filter() {
        let (v1, v2) = (GidType::IbOrRoceV1, GidType::RoceV2);
        let slots = [
            Gid::of(0, "fe80::1", v1.clone()),
            Gid::of(1, "fe80::1", v2.clone()),
            Gid::of(2, "fd00::1", v2.clone()),
            Gid::of(3, "10.0.0.1", v1.clone()),
            Gid::of(4, "10.0.0.1", v2.clone()),
            Gid::of(5, "10.1.0.1", v2),
        ];
        let all = |slots: &[Gid], subnets: &str| {
            let filter = Filter::read(subnets).unwrap();
            [Release(1, 13), Release(1, 20), Release(1, 21)].map(|release| by_order(slots, &filter, release))
        };
        assert_eq!(all(&slots, "all"), [Some(4); 3]);
        assert_eq!(all(&slots, "10.1.0.0/16"), [Some(5); 3]);
        assert_eq!(all(&slots, "^10.0.0.0/16"), [Some(5); 3]);
        assert_eq!(all(&slots, "10.9.0.0/16"), [None; 3]);
        assert_eq!(all(&slots[..3], "all"), [1, 1, 2].map(Some), "a link-local GID comes last since 1.21");
        assert_eq!(all(&slots[..1], "all"), [Some(0); 3]);
        assert_eq!(
            all(&[Gid::of(0, "fe80::1", v1.clone()), Gid::of(3, "10.0.0.1", v1)], "all"),
            [Some(3); 3]
        );
        assert_eq!(all(&[], "all"), [Some(0); 3]);
    }
}
