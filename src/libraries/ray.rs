//! Ray, which starts the processes of vLLM and of others (2.9 to 2.60).
//!
//! `ray start --node-ip-address` gives it the address of this node. Else the first node takes the address of
//! the route to 8.8.8.8, and without one that of the host's name, or 127.0.0.1; another node takes that of its
//! route to the first one (`get_node_ip_address` in `ray/_private/services.py`). The loopback as the value of
//! the option means the same as no value (`resolve_ip_for_localhost`). No variable counts: neither
//! `RAY_NODE_IP_ADDRESS` nor `RAY_OVERRIDE_NODE_IP_ADDRESS`, which scripts set, is in any file of Ray's. So
//! nothing is filled in: see [`super::node_address`].

use std::net::{IpAddr, SocketAddr};

use super::node_address::{
    Remark, Takes, What, by_route, has, is_alone, is_on_interface, toward, wanted, wrong,
};
use super::{Library, LibraryContext, LibraryRemark as OfLibrary, vllm};
use crate::facts::hosts::is_localhost;
use crate::facts::ray_start::RayStart;

const TITLE: &str = "Ray";
const OPTION: &str = "--node-ip-address";
/// Variables that scripts set, and Ray does not read.
const NOT_READ: [&str; 2] = ["RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS"];

pub(super) const LIBRARY: Library = Library {
    name: "ray",
    title: TITLE,
    filled: &[],
    gid: &[],
    read: &NOT_READ,
    is_here: |subject| has(subject, "ray"),
    fills: |_| Vec::new(),
    remarks: |subject| remarks(subject).into_iter().map(OfLibrary::NodeAddress).collect(),
    will: |_| None,
};

/// How Ray comes to the address of this node.
enum RayAddress {
    /// The command line names it.
    Named(IpAddr),
    /// By the route to [`super::node_address::TARGET`], which the command line leaves it to.
    ByRoute(IpAddr),
    /// By the route to the first node, which the command line names.
    TowardFirst(IpAddr),
    /// The command line leaves it to what no fact tells: a variable of a shell, or a name.
    Untold,
    /// Another program or a script starts Ray, or nothing leads to an address.
    No,
}

impl RayAddress {
    fn address(&self) -> Option<IpAddr> {
        match self {
            RayAddress::Named(address) | RayAddress::ByRoute(address) | RayAddress::TowardFirst(address) => {
                Some(*address)
            }
            RayAddress::Untold | RayAddress::No => None,
        }
    }
}

fn known(subject: &LibraryContext) -> RayAddress {
    let Some(start) = &subject.facts.ray_start else { return RayAddress::No };
    if let Some(written) = start.node_ip_address.as_deref().filter(|written| !is_localhost(written)) {
        match written.parse::<IpAddr>() {
            Ok(address) if !address.is_loopback() => return RayAddress::Named(address),
            Ok(_) => {}
            Err(_) => return RayAddress::Untold,
        }
    }
    match first_node(start) {
        First::Here => match by_route(subject.facts) {
            Some(Takes::ByRoute { address, .. }) => RayAddress::ByRoute(address),
            _ => RayAddress::No,
        },
        First::At(first) => toward(subject.facts, first).map_or(RayAddress::Untold, RayAddress::TowardFirst),
        First::Untold => RayAddress::Untold,
    }
}

/// Where the first node is.
enum First {
    Here,
    At(IpAddr),
    Untold,
}

fn first_node(start: &RayStart) -> First {
    let Some(written) = &start.address else { return First::Here };
    let of_socket = || written.parse::<SocketAddr>().map(|socket| socket.ip());
    written.parse().or_else(|_| of_socket()).map_or(First::Untold, First::At)
}

/// The address by which Ray knows this node, if that is told by the command line and is one of this container.
pub(super) fn named(subject: &LibraryContext) -> Option<IpAddr> {
    let RayAddress::Named(address) = known(subject) else { return None };
    let is_own = subject.facts.net.own_addresses().any(|own| own == address);
    is_own.then_some(address).filter(|_| has(subject, "ray"))
}

fn remarks(subject: &LibraryContext) -> Vec<Remark> {
    if is_alone(subject) || subject.facts.net.interfaces.is_empty() {
        return Vec::new();
    }
    let known = known(subject);
    let own = match known {
        RayAddress::Named(address) => of_option(subject, address),
        RayAddress::ByRoute(_) | RayAddress::No => of_route(subject),
        RayAddress::TowardFirst(_) | RayAddress::Untold => None,
    };
    own.into_iter().chain(beside_vllm(subject, &known)).chain(not_read(subject, &known)).collect()
}

/// What is wrong with the address of the command line.
fn of_option(subject: &LibraryContext, address: IpAddr) -> Option<Remark> {
    let what = What::Option { option: OPTION, value: address, wrong: wrong(subject, address)? };
    Some(Remark::new(subject, TITLE, None, what))
}

/// What is wrong with the address that Ray takes by itself.
fn of_route(subject: &LibraryContext) -> Option<Remark> {
    let remark = |variable, what| Some(Remark::new(subject, TITLE, variable, what));
    match by_route(subject.facts) {
        Some(Takes::ByRoute { address, interface }) => {
            let of_user = subject.value(vllm::HOST_IP).is_some_and(|value| !value.is_empty());
            let is_right = of_user || is_on_interface(subject, address);
            let (meets, _) = wanted(subject).filter(|_| has(subject, "vllm") && !is_right)?;
            let meets = meets.to_owned();
            remark(Some(vllm::HOST_IP), What::RayElsewhere { takes: address, interface, meets })
        }
        _ => {
            let takes = subject.facts.names.as_ref()?.host_addresses.iter().find(|own| own.is_ipv4())?;
            if takes.is_loopback() { remark(None, What::RayOnLoopback(*takes)) } else { None }
        }
    }
}

/// Whether vLLM asks for a place on a node that Ray knows by another address.
fn beside_vllm(subject: &LibraryContext, known: &RayAddress) -> Option<Remark> {
    let of_user = subject.value(vllm::HOST_IP).filter(|_| has(subject, "vllm"))?.parse::<IpAddr>().ok()?;
    let known_by = known.address().filter(|known| *known != of_user)?;
    // What is wrong with the user's address by itself has a finding.
    let is_own = subject.facts.net.own_addresses().any(|own| own == of_user) && !of_user.is_loopback();
    let what = What::RayDiffers { known_by, is_named: matches!(known, RayAddress::Named(_)) };
    is_own.then(|| Remark::new(subject, TITLE, Some(vllm::HOST_IP), what))
}

/// The first variable that is to lead Ray to another address than it takes.
fn not_read(subject: &LibraryContext, known: &RayAddress) -> Option<Remark> {
    if !has(subject, "ray") {
        return None;
    }
    let takes = match known {
        RayAddress::Untold => return None,
        RayAddress::No => match by_route(subject.facts) {
            Some(Takes::ByRoute { address, .. }) => Some(address),
            _ => None,
        },
        _ => known.address(),
    };
    let differs = |name: &&str| {
        let value = subject.value(name).filter(|value| !value.is_empty());
        value.is_some_and(|value| value.parse::<IpAddr>().ok().is_none_or(|value| Some(value) != takes))
    };
    let variable = NOT_READ.into_iter().find(differs)?;
    let remark = Remark::new(subject, TITLE, Some(variable), What::NotRead { takes: known.address() });
    // An address of this node is what the user wants.
    let value = subject.value(variable).and_then(|value| value.parse::<IpAddr>().ok());
    let wanted = value.filter(|value| subject.facts.net.own_addresses().any(|own| own == *value));
    Some(Remark { right: wanted.or(remark.right), ..remark })
}
