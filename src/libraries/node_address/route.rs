//! The source address that the kernel would use toward another host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::facts::Facts;
use crate::facts::route::Route;

/// The target that programs use to ask the kernel for a route.
pub(crate) const TARGET: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));
const TARGET_OF_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888));

/// What a program would use without its variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Takes {
    /// The address of this interface, selected by the route.
    ByRoute { address: IpAddr, interface: String },
    /// The value of this variable, which is loopback or not an address of this container.
    Variable { variable: &'static str, address: IpAddr },
    /// The host name's address.
    OfName(IpAddr),
    /// Nothing that another node could use: there is no route.
    Nothing,
}

/// Returns the source address that the kernel would use toward the first target with a route.
pub(crate) fn by_route(facts: &Facts) -> Option<Takes> {
    [TARGET, TARGET_OF_IPV6].into_iter().find_map(|target| source(facts, target))
}

/// Returns the source address that the kernel would use toward this host.
pub(crate) fn toward(facts: &Facts, target: IpAddr) -> Option<IpAddr> {
    match source(facts, target)? {
        Takes::ByRoute { address, .. } => Some(address),
        _ => None,
    }
}

/// Returns the address for the best route among the tables that apply to every packet: its interface's
/// address in the gateway's network, else the interface's first one (`inet_select_addr` in
/// `net/ipv4/devinet.c`).
fn source(facts: &Facts, target: IpAddr) -> Option<Takes> {
    let leads = |route: &&Route| route.is_for_all() && route.destination.contains(&target);
    let best = |route: &&Route| (route.destination.prefix_len(), std::cmp::Reverse(route.metric));
    // Of equal routes, the first counts.
    let route = facts.net.routes.iter().rev().filter(leads).max_by_key(best)?;
    let interface = facts.net.interface(&route.interface)?;
    let is_of_family =
        |net: &&ipnet::IpNet| net.addr().is_ipv4() == target.is_ipv4() && is_global(&net.addr());
    let mut own = interface.addresses.iter().filter(is_of_family);
    let beside_gateway = own.clone().find(|net| route.gateway.is_some_and(|gateway| net.contains(&gateway)));
    let address = beside_gateway.or_else(|| own.next())?.addr();
    Some(Takes::ByRoute { address, interface: interface.name.clone() })
}

pub(super) fn is_global(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_loopback(),
    }
}
