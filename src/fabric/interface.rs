//! The interface over which the processes of a job find each other: the interface of the bootstrap and of
//! TCP.

use std::fmt;
use std::net::IpAddr;

use super::step::WhichRoute;
use crate::facts::Facts;
use crate::facts::gid::Gid;
use crate::facts::net::Interface;
use crate::facts::route::Route;

#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceChoice {
    pub name: String,
    pub because: Because,
}

/// Why the interface was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Because {
    /// The interface has the address of the job's master.
    HasMaster(Master),
    /// The interface carries the route to the job's master.
    RouteToMaster(Master),
    DefaultRoute(WhichRoute),
    /// It is the only interface that is up and has an address.
    Only,
    /// The same beside the interfaces of HCAs.
    OnlyBesideHcas,
}

/// The address of the job's master, and the variable that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Master {
    pub variable: &'static str,
    pub address: IpAddr,
}

impl Because {
    /// Texts say what the interface is, and otherwise what it carries.
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Because::Only | Because::OnlyBesideHcas)
    }

    /// Returns the variable with the address of the job's master, if that address decided.
    pub(crate) fn variable(self) -> Option<&'static str> {
        match self {
            Because::HasMaster(master) | Because::RouteToMaster(master) => Some(master.variable),
            Because::DefaultRoute(_) | Because::Only | Because::OnlyBesideHcas => None,
        }
    }
}

/// Writes why the interface was chosen. The subject is the interface.
impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Because::HasMaster(Master { variable, address }) => {
                write!(f, "has the address of {variable}, {address}")
            }
            Because::RouteToMaster(Master { variable, address }) => {
                write!(f, "carries the route to {variable}, {address}")
            }
            Because::DefaultRoute(route) => write!(f, "carries {route}"),
            Because::Only => f.write_str("the only interface that is up and has an address"),
            Because::OnlyBesideHcas => {
                f.write_str("the only interface that is up, has an address, and belongs to no HCA")
            }
        }
    }
}

/// A way to find the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterfaceSearch {
    /// The interface that reaches the job's master.
    ToMaster,
    DefaultRoute,
    /// The only candidate.
    Only,
}

/// Tries each search in turn, up to the first that finds an interface.
#[must_use]
pub(crate) fn tries(facts: &Facts) -> Vec<(InterfaceSearch, Option<InterfaceChoice>)> {
    let mut tries = Vec::new();
    for way in [InterfaceSearch::ToMaster, InterfaceSearch::DefaultRoute, InterfaceSearch::Only] {
        let choice = match way {
            InterfaceSearch::ToMaster => to_master(facts),
            InterfaceSearch::DefaultRoute => of_default_route(facts),
            InterfaceSearch::Only => only(facts),
        };
        let is_found = choice.is_some();
        tries.push((way, choice));
        if is_found {
            break;
        }
    }
    tries
}

/// Returns the interface that reaches the job's master; else the interface of the default route; else the
/// only candidate.
pub(crate) fn choose(facts: &Facts) -> Option<InterfaceChoice> {
    tries(facts).pop()?.1
}

fn of_default_route(facts: &Facts) -> Option<InterfaceChoice> {
    // An interface without an address lends another one's, which libraries cannot find by its name. And a daemon for
    // link-local addresses may add a default route (avahi-autoipd does).
    let has_global = candidates(facts).next().is_some();
    let has_address = |name: &str| {
        let is_link = |interface: &&Interface| interface.name.split(':').next() == Some(name);
        let mut links = facts.net.interfaces.iter().filter(is_link);
        links.any(|link| if has_global { has_global_address(link) } else { !link.addresses.is_empty() })
    };
    let mut routes = default_routes(facts);
    routes.retain(|route| has_address(&route.interface));
    let first = routes.first()?;
    let others: Vec<&&Route> = routes.iter().filter(|route| route.interface != first.interface).collect();
    let route = match others.iter().all(|route| route.metric > first.metric) {
        _ if others.is_empty() => WhichRoute::Only,
        true => WhichRoute::Best,
        false => WhichRoute::OneOfSeveral,
    };
    Some(InterfaceChoice { name: first.interface.clone(), because: Because::DefaultRoute(route) })
}

fn only(facts: &Facts) -> Option<InterfaceChoice> {
    let all: Vec<&Interface> = candidates(facts).collect();
    let is_of_hca = |interface: &&&Interface| {
        let device = interface.pci_address.as_ref();
        let has = |gid: &Gid| interface.addresses.iter().any(|own| own.addr() == gid.address());
        facts.rdma.iter().any(|hca| {
            let is_its_device = device.is_some() && hca.pci_address.as_ref() == device;
            is_its_device || hca.ports.iter().any(|port| port.gids.slots.iter().any(has))
        })
    };
    let beside: Vec<&Interface> = all.iter().filter(|found| !is_of_hca(found)).copied().collect();
    let (only, because) = match (all.as_slice(), beside.as_slice()) {
        ([only], _) => (only, Because::Only),
        (_, [only]) => (only, Because::OnlyBesideHcas),
        _ => return None,
    };
    Some(InterfaceChoice { name: only.name.clone(), because })
}

/// Returns the interface that has, or has a route to, the address in `MASTER_ADDR`, or in the platform's own variable
/// for it, if that is an address and not a name.
fn to_master(facts: &Facts) -> Option<InterfaceChoice> {
    let platform = &facts.platform;
    let master = |variable: &'static str, value: &Option<String>| {
        let address: IpAddr = value.as_deref()?.trim_matches(['[', ']']).parse().ok()?;
        let is_elsewhere = !address.is_loopback() && !address.is_unspecified();
        is_elsewhere.then_some(Master { variable, address })
    };
    let master = master("MASTER_ADDR", &platform.master_addr)
        .or_else(|| master("PRIMARY_ADDR", &platform.primary_addr))?;
    let address = master.address;
    let own = facts
        .net
        .interfaces
        .iter()
        .filter(|interface| is_eligible(interface))
        .find(|interface| interface.addresses.iter().any(|own| own.addr() == address));
    if let Some(own) = own {
        return Some(InterfaceChoice { name: own.name.clone(), because: Because::HasMaster(master) });
    }
    let route = usable_routes(facts, |route| route.destination.contains(&address))
        .max_by_key(|route| (route.destination.prefix_len(), std::cmp::Reverse(route.metric)))?;
    Some(InterfaceChoice { name: route.interface.clone(), because: Because::RouteToMaster(master) })
}

/// Returns the default routes, sorted so that the one that the kernel prefers comes first: the IPv4 routes,
/// or the IPv6 routes if there is no IPv4 route. Routers announce IPv6 default routes on rails, too.
pub(crate) fn default_routes(facts: &Facts) -> Vec<&Route> {
    let is_ipv6 = |route: &&Route| route.destination.addr().is_ipv6();
    let all = usable_routes(facts, Route::is_default);
    let (ipv6, ipv4): (Vec<&Route>, Vec<&Route>) = all.partition(is_ipv6);
    let mut routes = if ipv4.is_empty() { ipv6 } else { ipv4 };
    routes.sort_by_key(|route| route.metric);
    routes
}

/// Returns the routes that meet the condition and that a job's traffic may take.
fn usable_routes(facts: &Facts, which: impl Fn(&Route) -> bool) -> impl Iterator<Item = &Route> {
    // A route in another table applies only to packets that match a rule.
    let routes = facts.net.routes.iter().filter(move |route| which(route) && route.is_for_all());
    let by_name = facts.net.by_name();
    routes.filter(move |route| by_name.get(route.interface.as_str()).is_some_and(|found| is_eligible(found)))
}

/// Returns the interfaces that may reach other nodes.
pub(crate) fn candidates(facts: &Facts) -> impl Iterator<Item = &Interface> {
    let usable =
        |interface: &&Interface| is_eligible(interface) && interface.is_up() && has_global_address(interface);
    facts.net.interfaces.iter().filter(usable)
}

/// Returns whether an interface may carry a job's traffic: loopback, dummy links, and bridges that exist only on
/// this host never do.
pub(crate) fn is_eligible(interface: &Interface) -> bool {
    // A name with a colon is a label: another name for an address of its link.
    !interface.name.contains(':')
        && !interface.has_flag("LOOPBACK")
        && !["lo", "docker", "virbr", "dummy"].iter().any(|prefix| interface.name.starts_with(prefix))
}

pub(crate) fn has_global_address(interface: &Interface) -> bool {
    interface.addresses.iter().any(|net| match net.addr() {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_loopback(),
    })
}

/// Why an interface cannot carry traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    NotThere,
    Down,
    NoCarrier,
    NoAddress,
    NoGlobalAddress,
}

/// Writes a predicate. The subject is the interface.
impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Obstacle::NotThere => "does not exist",
            Obstacle::Down => "is down",
            Obstacle::NoCarrier => "has no carrier (UP, but not RUNNING)",
            Obstacle::NoAddress => "has no address",
            Obstacle::NoGlobalAddress => "has no global address",
        })
    }
}

/// Returns what keeps traffic from an interface; `None` if it is up and has an address that other nodes can
/// reach.
pub(crate) fn obstacle(facts: &Facts, name: &str) -> Option<Obstacle> {
    let Some(interface) = facts.net.interface(name) else { return Some(Obstacle::NotThere) };
    match interface {
        down if !down.has_flag("UP") => Some(Obstacle::Down),
        down if !down.is_up() => Some(Obstacle::NoCarrier),
        bare if bare.addresses.is_empty() => Some(Obstacle::NoAddress),
        local if !has_global_address(local) => Some(Obstacle::NoGlobalAddress),
        _ => None,
    }
}
