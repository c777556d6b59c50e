//! Determines whether a process reaches itself over an HCA, without TCP.
//!
//! NIXL connects each agent to itself when it creates the agent (`nixlAgent::createBackend` in
//! `src/core/nixl_agent.cpp` and `nixlUcxEngine::connect` in `src/plugins/ucx/ucx_backend.cpp`, NIXL 0.1 to
//! 1.5), and requests transports that report a peer's failure (`UCP_ERR_HANDLING_MODE_PEER`, unless its
//! parameter `ucx_error_handling_mode` says otherwise). Shared memory and `self` do not report it; TCP, RC,
//! DC and UD do. If UCX finds no such transport, NIXL fails with `NIXL_ERR_BACKEND`. UCX finds one over an
//! HCA (`ucp_wireup_add_am_lane` and `ucp_wireup_fill_aux_criteria` in `src/ucp/wireup/select.c`), unless
//!
//! * `UCX_TLS` allows no datagrams, without which RC cannot connect;
//! * the HCA has no datagrams. mlx5 and mlx4 have them; for others, it depends on the driver;
//! * it is RoCE v2, and the GID's interface has no route to the GID's own address
//!   (`uct_ib_iface_roce_is_routable` in `src/uct/ib/base/ib_iface.c`, 1.19 and later). The kernel has a
//!   route to each of its own addresses, but none on an interface of another network namespace. This may be
//!   the cause of sgl-project/sglang#40641, which says only that no datagrams reach the other side.

use std::net::IpAddr;

use super::release::{ASKS_ROUTES, HAS_LOCAL_SUBNET, Release};
use super::subnets;
use super::taken::{Slot, Taken, UcxPort, taken};
use super::transports::transports;
use super::wheel;
use super::{DEVICES, LOCAL_SUBNET, REACHABILITY, TRANSPORTS};
use crate::libraries::LibraryContext;

/// The drivers whose HCAs offer datagrams to programs on all models.
const HAVE_DATAGRAMS: [&str; 2] = ["mlx5_core", "mlx4_core"];

/// Why a process cannot, or may not be able to, reach itself without TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// `UCX_TLS` allows RC but no transport through which RC could connect.
    Transports,
    /// There is no route to the GID's address.
    Gid { port: String, slot: u32, address: IpAddr },
    /// It is unknown whether HCAs with this driver have datagrams; if the driver is unknown, this is the
    /// port.
    Driver(String),
}

/// Returns why a process may not reach itself over any of the ports that a release uses.
pub(crate) fn lost(subject: &LibraryContext, taken: &Taken, release: Release) -> Option<Lost> {
    let mut lost = Vec::new();
    for port in &taken.ports {
        lost.push(over(subject, port, release)?);
    }
    lost.into_iter().next()
}

/// Returns whether each process reaches itself over each of the job's ports, with each release in the image.
pub(crate) fn each_rail_will_do(subject: &LibraryContext) -> bool {
    // A worker selects its own port from the rails.
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

/// Returns a GID of the node that a release selects for one of the job's ports, and to whose interface it finds no route,
/// so that it takes no peer to be reachable over that port.
pub(super) fn without_route(subject: &LibraryContext, release: Release) -> Option<(String, Slot)> {
    let rails = taken(subject, release)?.ports.into_iter().filter(|port| port.is_rail);
    let mut slots = rails.filter_map(|port| Some((port.name, port.slot?)));
    let finds_none =
        |slot: &Slot| slot.is_right && slot.address.is_some_and(|address| !has_route(subject, slot, address));
    slots.find(|(_, slot)| finds_none(slot)).filter(|_| asks_routes(subject, release))
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

/// Returns whether a GID's interface has a route to the GID's address, as far as addresses show: UCX uses the
/// interface with that name in this container.
fn has_route(subject: &LibraryContext, slot: &Slot, address: IpAddr) -> bool {
    let Some(name) = &slot.netdev else { return slot.is_own };
    let of_name = subject.facts.net.interface(name);
    let nets = of_name.into_iter().flat_map(|interface| &interface.addresses);
    slot.is_v1 || slot.is_own || nets.into_iter().any(|net| net.contains(&address))
}
