//! Whether a process reaches itself over an HCA, without TCP.
//!
//! NIXL connects each agent to itself as soon as it is made (`nixlAgent::createBackend` in
//! `src/core/nixl_agent.cpp` and `nixlUcxEngine::connect` in `src/plugins/ucx/ucx_backend.cpp`, NIXL
//! 0.1 to 1.5), and asks for transports that tell when a peer fails (`UCP_ERR_HANDLING_MODE_PEER`,
//! unless its parameter `ucx_error_handling_mode` says otherwise). Shared memory and `self` do not tell;
//! TCP does, and so do RC, DC and UD. If UCX finds none, NIXL fails with `NIXL_ERR_BACKEND`. It finds
//! one over an HCA (`ucp_wireup_add_am_lane` and `ucp_wireup_fill_aux_criteria` in
//! `src/ucp/wireup/select.c`), unless
//!
//! * `UCX_TLS` allows no datagrams, without which RC makes no connection;
//! * the HCA has none. mlx5 and mlx4 have them; which others do is up to their drivers;
//! * it is RoCE v2, and the interface of the GID has no route to the GID's own address
//!   (`uct_ib_iface_roce_is_routable` in `src/uct/ib/base/ib_iface.c`, 1.19 and later). The kernel has
//!   one to each address of its own, and none on an interface of another network namespace. It
//!   may be what sgl-project/sglang#40641 met, which says only that no datagrams reach the other side.

use std::net::IpAddr;

use super::release::{ASKS_ROUTES, HAS_LOCAL_SUBNET, Release};
use super::subnets;
use super::taken::{Slot, Taken, UcxPort, taken};
use super::transports::transports;
use super::wheel;
use super::{DEVICES, LOCAL_SUBNET, REACHABILITY, TRANSPORTS};
use crate::libraries::LibraryContext;

/// The drivers whose HCAs have datagrams for programs, in all of their models.
const HAVE_DATAGRAMS: [&str; 2] = ["mlx5_core", "mlx4_core"];

/// Why a process does not reach itself without TCP, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// `UCX_TLS` allows RC and nothing that it could connect with.
    Transports,
    /// No route leads to the GID's address.
    Gid { port: String, slot: u32, address: IpAddr },
    /// It is unknown whether the HCAs of this driver have datagrams, or this port if none is named.
    Driver(String),
}

/// Returns why a process may not reach itself over any of the ports that a release takes.
pub(crate) fn lost(subject: &LibraryContext, taken: &Taken, release: Release) -> Option<Lost> {
    let mut lost = Vec::new();
    for port in &taken.ports {
        lost.push(over(subject, port, release)?);
    }
    lost.into_iter().next()
}

/// Returns whether each process reaches itself over each of the job's ports, by each release in the image.
pub(crate) fn each_rail_will_do(subject: &LibraryContext) -> bool {
    // A worker takes its own from among the rails.
    let rails = subject.rails.port_names().join(",");
    let with_it = |name: &str| if name == DEVICES { Some(rails.as_str()) } else { subject.value(name) };
    let subject = &LibraryContext { values: &with_it, ..*subject };
    wheel::unserved(subject).is_empty()
        && super::release::all(subject).into_iter().all(|release| {
            let Some(taken) = taken(subject, release) else { return false };
            let mut rails = taken.ports.iter().filter(|port| port.is_rail).peekable();
            rails.peek().is_some() && rails.all(|port| over(subject, port, release).is_none())
        })
}

fn over(subject: &LibraryContext, port: &UcxPort, release: Release) -> Option<Lost> {
    if !transports(subject.value(TRANSPORTS), release).datagrams {
        return Some(Lost::Transports);
    }
    if let Some(slot) = port.slot.as_ref().filter(|_| asks_routes(subject, release))
        && let Some(address) = slot.address.filter(|address| !has_route(subject, slot, *address))
    {
        return Some(Lost::Gid { port: port.name.clone(), slot: slot.index, address });
    }
    let driver = port.driver.as_ref().unwrap_or(&port.name);
    (!HAVE_DATAGRAMS.contains(&driver.as_str())).then(|| Lost::Driver(driver.clone()))
}

/// Returns whether the routing table decides what RoCE v2 reaches.
fn asks_routes(subject: &LibraryContext, release: Release) -> bool {
    let local = subject.value(LOCAL_SUBNET).filter(|_| release >= HAS_LOCAL_SUBNET);
    release >= ASKS_ROUTES
        && local.and_then(subnets::read_bool) != Some(true)
        && subject.value(REACHABILITY).is_none_or(|mode| mode.eq_ignore_ascii_case("route"))
}

/// Returns whether the interface of a GID has a route to its address, as far as addresses tell: UCX takes the
/// interface of this container that has the name.
fn has_route(subject: &LibraryContext, slot: &Slot, address: IpAddr) -> bool {
    let Some(name) = &slot.netdev else { return slot.is_right };
    let of_name = subject.facts.net.interface(name);
    let nets = of_name.into_iter().flat_map(|interface| &interface.addresses);
    slot.is_v1 || slot.is_right || nets.into_iter().any(|net| net.contains(&address))
}
