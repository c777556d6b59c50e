//! `NCCL_SOCKET_IFNAME`: the interface of the bootstrap, and of TCP.

use std::net::IpAddr;

use super::remark::Remark;
use super::setting::Proposal;
use super::{Context, Notes};
use crate::facts::Facts;
use crate::facts::net::Interface;
use crate::facts::route::Route;
use crate::libraries::nccl::list::Pattern;
use crate::libraries::nccl::version::NEWEST;

pub const VARIABLE: &str = "NCCL_SOCKET_IFNAME";

/// The interface that the processes of the job reach each other through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceChoice {
    pub name: String,
    pub rule: String,
}

type Rule = fn(&Facts) -> Option<InterfaceChoice>;

/// From the routes: where the job's master is reached, else the default route,
/// else the only interface that there is.
pub fn choose(facts: &Facts, notes: &mut Notes) -> Option<InterfaceChoice> {
    let rules: [(&str, Rule); 3] = [
        ("the interface of the route to MASTER_ADDR", to_master),
        ("the interface of the default route", of_default_route),
        ("the only interface that is up and has an address", only),
    ];
    rules.iter().find_map(|(rule, choose)| {
        let choice = choose(facts);
        let result = choice.as_ref().map_or("there is none", |choice| choice.name.as_str());
        notes.tried(VARIABLE, *rule, result);
        choice
    })
}

/// The same, without notes for `plan --why`.
pub fn chosen(facts: &Facts) -> Option<InterfaceChoice> {
    choose(facts, &mut Notes::default())
}

/// What a message calls the one of several default routes that the kernel prefers.
pub const BEST_ROUTE: &str = "the default route of the lowest metric";

fn of_default_route(facts: &Facts) -> Option<InterfaceChoice> {
    let routes = default_routes(facts);
    let first = routes.first()?;
    let others: Vec<&&Route> = routes.iter().filter(|route| route.interface != first.interface).collect();
    let route = match others.iter().all(|route| route.metric > first.metric) {
        _ if others.is_empty() => "the default route",
        true => BEST_ROUTE,
        false => "a default route",
    };
    Some(InterfaceChoice { name: first.interface.clone(), rule: format!("carries {route}") })
}

fn only(facts: &Facts) -> Option<InterfaceChoice> {
    let mut eligible = facts
        .net
        .interfaces
        .iter()
        .filter(|interface| is_eligible(interface) && interface.is_up() && has_global_address(interface));
    match (eligible.next(), eligible.next()) {
        (Some(only), None) => Some(InterfaceChoice {
            name: only.name.clone(),
            rule: "the only interface that is up and has an address".to_owned(),
        }),
        _ => None,
    }
}

/// By the route to `MASTER_ADDR`, where that is an address and not a name.
fn to_master(facts: &Facts) -> Option<InterfaceChoice> {
    let master: IpAddr = facts.platform.master_addr.as_deref()?.trim_matches(['[', ']']).parse().ok()?;
    if master.is_loopback() || master.is_unspecified() {
        return None;
    }
    let own = facts
        .net
        .interfaces
        .iter()
        .filter(|interface| is_eligible(interface))
        .find(|interface| interface.addresses.iter().any(|address| address.addr() == master));
    if let Some(own) = own {
        let rule = format!("has the address of MASTER_ADDR, {master}");
        return Some(InterfaceChoice { name: own.name.clone(), rule });
    }
    let route = usable_routes(facts)
        .filter(|route| route.destination.contains(&master))
        .max_by_key(|route| (route.destination.prefix_len(), std::cmp::Reverse(route.metric)))?;
    let rule = format!("carries the route to MASTER_ADDR, {master}");
    Some(InterfaceChoice { name: route.interface.clone(), rule })
}

/// The default routes, the one that the kernel prefers first: those of IPv4, or those of IPv6
/// where IPv4 has none. Routers announce default routes of IPv6 on rails, too.
pub fn default_routes(facts: &Facts) -> Vec<&Route> {
    let is_ipv6 = |route: &&Route| route.destination.addr().is_ipv6();
    let all = usable_routes(facts).filter(|route| route.is_default());
    let (ipv6, ipv4): (Vec<&Route>, Vec<&Route>) = all.partition(is_ipv6);
    let mut routes = if ipv4.is_empty() { ipv6 } else { ipv4 };
    routes.sort_by_key(|route| route.metric);
    routes
}

fn usable_routes(facts: &Facts) -> impl Iterator<Item = &Route> {
    facts.routes_of(is_eligible)
}

impl Facts {
    fn routes_of(&self, eligible: fn(&Interface) -> bool) -> impl Iterator<Item = &Route> {
        // A route of another table is only for the packets that a rule describes.
        let routes = self.net.routes.iter().filter(|route| route.is_for_all());
        routes.filter(move |route| self.net.interface(&route.interface).is_some_and(eligible))
    }
}

/// The interfaces over which other nodes may be reached.
pub fn candidates(facts: &Facts) -> impl Iterator<Item = &Interface> {
    let usable =
        |interface: &&Interface| is_eligible(interface) && interface.is_up() && has_global_address(interface);
    facts.net.interfaces.iter().filter(usable)
}

/// Never the loopback, nor a bridge that only this host knows.
fn is_eligible(interface: &Interface) -> bool {
    // A label is another name for an address of its link.
    !interface.name.contains(':')
        && !interface.has_flag("LOOPBACK")
        && !["lo", "docker", "virbr"].iter().any(|prefix| interface.name.starts_with(prefix))
}

pub fn has_global_address(interface: &Interface) -> bool {
    interface.addresses.iter().any(|net| match net.addr() {
        IpAddr::V4(address) => !address.is_link_local() && !address.is_loopback(),
        IpAddr::V6(address) => !address.is_unicast_link_local() && !address.is_loopback(),
    })
}

/// What keeps traffic from an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    NotThere,
    Down,
    NoCarrier,
    NoAddress,
    NoGlobalAddress,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Obstacle::NotThere => "is not there",
            Obstacle::Down => "is down",
            Obstacle::NoCarrier => "has no carrier (UP, but not RUNNING)",
            Obstacle::NoAddress => "has no address",
            Obstacle::NoGlobalAddress => "has no global address",
        })
    }
}

/// `None` for an interface that is up and has an address that other nodes can reach.
pub fn obstacle(facts: &Facts, name: &str) -> Option<Obstacle> {
    let Some(interface) = facts.net.interface(name) else { return Some(Obstacle::NotThere) };
    match interface {
        down if !down.has_flag("UP") => Some(Obstacle::Down),
        down if !down.is_up() => Some(Obstacle::NoCarrier),
        bare if bare.addresses.is_empty() => Some(Obstacle::NoAddress),
        local if !has_global_address(local) => Some(Obstacle::NoGlobalAddress),
        _ => None,
    }
}

pub fn propose(context: &Context, choice: Option<&InterfaceChoice>, notes: &mut Notes) -> Vec<Proposal> {
    if context.leaves_alone(VARIABLE) {
        return Vec::new();
    }
    let Context { facts, profile, .. } = context;
    let constant = profile.variables.get(VARIABLE);
    let published =
        |rule: &str, constant: &str| vec![Proposal::from_profile(&profile.name, VARIABLE, constant, rule)];
    match (choice, constant) {
        (Some(choice), Some(constant)) if selected(facts, constant) == [choice.name.as_str()] => {
            published(&format!("published, and {} {}", choice.name, choice.rule), constant)
        }
        (None, Some(constant)) if !selected(facts, constant).is_empty() => {
            published("published, and an interface here has this name; no route shows a better one", constant)
        }
        (Some(choice), constant) => {
            if let Some(constant) = constant {
                notes.tried(
                    VARIABLE,
                    format!("the published {constant}, if it selects just that interface"),
                    "it does not",
                );
                notes.remark(Remark::PublishedInterfaceDiffers {
                    published: constant.clone(),
                    chosen: choice.name.clone(),
                    rule: choice.rule.clone(),
                });
            }
            vec![Proposal::from_facts(VARIABLE, pattern_for(facts, &choice.name), &choice.rule)]
        }
        (None, constant) => {
            notes.remark(Remark::NoInterface { published: constant.cloned() });
            Vec::new()
        }
    }
}

fn selected<'a>(facts: &'a Facts, pattern: &str) -> Vec<&'a str> {
    let pattern = Pattern::of_interfaces(pattern, NEWEST);
    facts
        .net
        .interfaces
        .iter()
        .filter(|interface| pattern.selects(&interface.name, None) && !interface.addresses.is_empty())
        .map(|interface| interface.name.as_str())
        .collect()
}

/// The name as platforms publish it; exact (`=eth0`) where it would otherwise
/// also select an `eth0.100`.
fn pattern_for(facts: &Facts, name: &str) -> String {
    let ambiguous =
        facts.net.interfaces.iter().any(|other| other.name != name && other.name.starts_with(name));
    if ambiguous || name.len() == 1 { format!("={name}") } else { name.to_owned() }
}
