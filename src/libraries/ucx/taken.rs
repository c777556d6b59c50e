//! Which devices and GIDs UCX takes of a host, as `ucx_info -d` lists them.
//!
//! * A port counts if it is active, its HCA can be opened, and does not speak iWARP
//!   (`uct_ib_device_port_check` in `src/uct/ib/base/ib_device.c`).
//! * `uct_ib_device_select_gid`, same file: the first slot with RoCE v2 and IPv4, else RoCE v2 and
//!   IPv6, then RoCE v1 in the same order; since 1.21, a link-local GID of IPv6 comes after the
//!   others; since 1.18, `UCX_IB_ROCE_SUBNETS` leaves out what is in no subnet of the list. UCX does not
//!   ask whose address it is, so in a container the host's may come first.
//! * TCP counts for each interface that is up and has an address (`uct_tcp_query_devices` in
//!   `src/uct/tcp/tcp_iface.c`).

use std::net::IpAddr;

use ipnet::IpNet;

use super::list::{Devices, transports};
use super::release::{EXCLUDES_DEVICES, HAS_SUBNETS, Release};
use super::{DEVICES, GID_INDEX, SUBNETS, TRANSPORTS};
use crate::fabric::Candidate;
use crate::fabric::own_slots;
use crate::facts::gid::{Gid, GidType};
use crate::facts::rdma::{Access, LinkLayer, NodeType};
use crate::libraries::Subject;

/// What UCX takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub ports: Vec<Port>,
    /// The interfaces for TCP.
    pub tcp: Vec<String>,
}

/// A port, as UCX takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// `mlx5_1:1`.
    pub name: String,
    /// Whether it is one of the job's rails.
    pub is_rail: bool,
    /// On RoCE, the slot, and what is in it.
    pub slot: Option<Slot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub index: u32,
    /// The address in it; `None` for an empty slot.
    pub address: Option<IpAddr>,
    pub is_routable: bool,
    /// Whether it is one that has an address of this container.
    pub is_right: bool,
    /// Whether another slot would be right.
    pub has_right: bool,
}

/// What a release takes with the variables of the subject; `None` where UCX does not work over verbs
/// here (EFA), or a variable is none that it can read.
pub fn taken(subject: &Subject, release: Release) -> Option<Taken> {
    let devices = Devices::read(subject.value(DEVICES), release);
    let allowed = transports(subject.value(TRANSPORTS), release);
    let choice = choice(subject, release)?;
    let ports = subject.rails.ports.iter().filter(|port| allowed.verbs && is_seen(port));
    let selected = ports.filter(|port| devices.has(&port.name(), release));
    let ports = selected.map(|port| Port {
        name: port.name(),
        is_rail: port.is_used(),
        slot: (port.port.link_layer == LinkLayer::Ethernet).then(|| slot(subject, port, &choice, release)),
    });
    let ports = ports.collect();
    let has_address = |name: &str| {
        let interface = subject.facts.net.interface(name);
        interface.is_some_and(|interface| interface.is_up() && !interface.addresses.is_empty())
    };
    let interfaces = subject.facts.net.interfaces.iter().map(|interface| interface.name.as_str());
    let tcp = interfaces.filter(|name| allowed.tcp && has_address(name) && devices.has(name, release));
    Some(Taken { ports, tcp: tcp.map(str::to_owned).collect() })
}

/// Whether UCX lists a port.
fn is_seen(port: &Candidate) -> bool {
    let opened = port.hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened);
    let is_known = matches!(port.port.link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet);
    opened && is_known && port.hca.node_type != NodeType::Rnic && port.port.is_active()
}

/// How UCX comes to a GID.
enum Choice {
    Index(u32),
    /// By its own order, among the GIDs of these subnets where there are some.
    Auto(Vec<IpNet>),
}

fn choice(subject: &Subject, release: Release) -> Option<Choice> {
    match subject.value(GID_INDEX) {
        None | Some("auto") => {}
        Some(number) => return Some(Choice::Index(number.parse().ok()?)),
    }
    let subnets = subject.value(SUBNETS).filter(|value| release >= HAS_SUBNETS && *value != "all");
    let subnets: Result<Vec<IpNet>, _> =
        subnets.unwrap_or_default().split(',').filter(|net| !net.is_empty()).map(str::parse).collect();
    Some(Choice::Auto(subnets.ok()?))
}

fn slot(subject: &Subject, port: &Candidate, choice: &Choice, release: Release) -> Slot {
    let slots = &port.port.gids.slots;
    let index = match choice {
        Choice::Index(index) => *index,
        Choice::Auto(subnets) => by_order(slots, subnets, release),
    };
    let own = own_slots(subject.facts, port.port);
    let gid = slots.iter().find(|gid| gid.index == index);
    Slot {
        index,
        address: gid.map(Gid::address),
        is_routable: gid.is_some_and(|gid| gid.kind == GidType::RoceV2 && !gid.is_link_local()),
        is_right: own.iter().any(|gid| gid.index == index),
        has_right: !own.is_empty(),
    }
}

/// The slot that UCX finds by itself; slot 0 where it finds none.
fn by_order(slots: &[Gid], subnets: &[IpNet], release: Release) -> u32 {
    let fits = |gid: &&Gid| subnets.is_empty() || subnets.iter().any(|net| net.contains(&gid.address()));
    let rank = |gid: &&Gid| {
        let ipv6 = gid.address().is_ipv6();
        (
            gid.kind != GidType::RoceV2,
            ipv6,
            release >= EXCLUDES_DEVICES && ipv6 && gid.is_link_local(),
            gid.index,
        )
    };
    slots.iter().filter(fits).min_by_key(rank).map_or(0, |gid| gid.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u32, address: &str, kind: GidType) -> Gid {
        let gid = match address.parse().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        Gid { index, gid, kind, netdev: None }
    }

    #[test]
    fn roce_v2_with_ipv4_comes_first_whoever_has_the_address() {
        let (v1, v2) = (GidType::IbOrRoceV1, GidType::RoceV2);
        let slots = [
            gid(0, "fe80::1", v1.clone()),
            gid(1, "fe80::1", v2.clone()),
            gid(2, "fd00::1", v2.clone()),
            gid(3, "10.0.0.1", v1.clone()),
            gid(4, "10.0.0.1", v2.clone()),
            gid(5, "10.1.0.1", v2),
        ];
        let all = |slots: &[Gid], subnets: &[&str]| {
            let subnets: Vec<IpNet> = subnets.iter().map(|net| net.parse().unwrap()).collect();
            [Release(1, 13), Release(1, 20), Release(1, 21)].map(|release| by_order(slots, &subnets, release))
        };
        assert_eq!(all(&slots, &[]), [4; 3]);
        assert_eq!(all(&slots, &["10.1.0.0/16"]), [5; 3]);
        assert_eq!(all(&slots[..3], &[]), [1, 1, 2], "a link-local GID comes last since 1.21");
        assert_eq!(all(&slots[..1], &[]), [0; 3]);
        assert_eq!(all(&[gid(0, "fe80::1", v1.clone()), gid(3, "10.0.0.1", v1)], &[]), [3; 3]);
        assert_eq!(all(&[], &[]), [0; 3]);
    }
}
