//! Ray, which starts the processes of vLLM and others (2.9 to 2.60).
//!
//! `ray start --node-ip-address` sets this node's address. Without it, the first node uses the source address
//! toward 8.8.8.8, or without a route the host name's address, or else 127.0.0.1; another node uses its
//! source address toward the first one (`get_node_ip_address` in `ray/_private/services.py`). Ray treats
//! loopback as the option's value like no value (`resolve_ip_for_localhost`). It reads no variable: none of
//! Ray's files contains `RAY_NODE_IP_ADDRESS` or `RAY_OVERRIDE_NODE_IP_ADDRESS`, which scripts set. So
//! rdma-init fills in nothing for Ray: see [`super::node_address`].

use std::net::{IpAddr, SocketAddr};

use super::node_address::{
    TARGET, Takes, by_route, is_alone, is_on_interface, on_loopback, right, toward, wanted, wrong,
};
use super::{Library, LibraryContext, LibraryFinding, vllm};
use crate::facts::hosts::is_localhost;
use crate::facts::ray_start::RayStart;
use crate::finding::{Finding, Id, Severity};

const TITLE: &str = "Ray";
const OPTION: &str = "--node-ip-address";
/// Variables that scripts set but Ray does not read.
const NOT_READ: [&str; 2] = ["RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS"];

pub(super) const LIBRARY: Library = Library {
    name: "ray",
    title: TITLE,
    packages: &["ray"],
    filled: &[],
    gid: &[],
    read: &NOT_READ,
    is_here: |subject| subject.has_package("ray"),
    fills: |_| Vec::new(),
    findings,
    will: |_| None,
};

/// How Ray determines this node's address.
enum RayAddress {
    /// The command line contains it.
    Named(IpAddr),
    /// Ray uses the route to [`super::node_address::TARGET`], because the command line does not set an
    /// address.
    ByRoute(IpAddr),
    /// Ray uses the route to the first node, which the command line names.
    TowardFirst(IpAddr),
    /// The command line refers to a value that the facts do not contain: a shell variable or a name.
    NotInFacts,
    /// Another program or a script starts Ray, or no address can be determined.
    No,
}

impl RayAddress {
    fn address(&self) -> Option<IpAddr> {
        match self {
            RayAddress::Named(address) | RayAddress::ByRoute(address) | RayAddress::TowardFirst(address) => {
                Some(*address)
            }
            RayAddress::NotInFacts | RayAddress::No => None,
        }
    }
}

fn known(subject: &LibraryContext) -> RayAddress {
    let Some(start) = &subject.facts.ray_start else { return RayAddress::No };
    if let Some(written) = start.node_ip_address.as_deref().filter(|written| !is_localhost(written)) {
        match written.parse::<IpAddr>() {
            Ok(address) if !address.is_loopback() => return RayAddress::Named(address),
            Ok(_) => {}
            Err(_) => return RayAddress::NotInFacts,
        }
    }
    match first_node(start) {
        First::Here => match by_route(subject.facts) {
            Some(Takes::ByRoute { address, .. }) => RayAddress::ByRoute(address),
            _ => RayAddress::No,
        },
        First::At(first) => {
            toward(subject.facts, first).map_or(RayAddress::NotInFacts, RayAddress::TowardFirst)
        }
        First::NotInFacts => RayAddress::NotInFacts,
    }
}

/// Where the first node is.
enum First {
    Here,
    At(IpAddr),
    NotInFacts,
}

fn first_node(start: &RayStart) -> First {
    let Some(written) = &start.address else { return First::Here };
    let of_socket = || written.parse::<SocketAddr>().map(|socket| socket.ip());
    written.parse().or_else(|_| of_socket()).map_or(First::NotInFacts, First::At)
}

/// Returns the address under which Ray knows this node, if the command line contains it and it belongs to
/// this container.
pub(super) fn named(subject: &LibraryContext) -> Option<IpAddr> {
    let RayAddress::Named(address) = known(subject) else { return None };
    let is_own = subject.facts.net.own_addresses().any(|own| own == address);
    is_own.then_some(address).filter(|_| subject.has_package("ray"))
}

fn findings(subject: &LibraryContext) -> Vec<LibraryFinding> {
    if is_alone(subject) || subject.facts.net.interfaces.is_empty() {
        return Vec::new();
    }
    let known = known(subject);
    let own = match known {
        RayAddress::Named(address) => of_option(subject, address),
        RayAddress::ByRoute(_) | RayAddress::No => of_route(subject),
        RayAddress::TowardFirst(_) | RayAddress::NotInFacts => None,
    };
    let all = own.into_iter().chain(beside_vllm(subject, &known)).chain(not_read(subject, &known));
    all.map(LibraryFinding::from).collect()
}

/// Returns how to set the address on the command line.
fn start_with(address: &str) -> String {
    format!("Start Ray with {OPTION}={address}, on each node with its own address")
}

/// Returns what is wrong with the command line's address.
fn of_option(subject: &LibraryContext, address: IpAddr) -> Option<Finding> {
    let right = right(subject);
    let (set, fix) = (format!("{OPTION}={address}"), format!("{}.", start_with(&right)));
    wrong(subject, TITLE, address, &set, &fix, &format!("start Ray with {OPTION}={right}."))
}

/// Returns what is wrong with the address that Ray selects itself.
fn of_route(subject: &LibraryContext) -> Option<Finding> {
    let right = right(subject);
    let name = vllm::HOST_IP;
    match by_route(subject.facts) {
        Some(Takes::ByRoute { address, interface }) => {
            let of_user = subject.value(name).is_some_and(|value| !value.is_empty());
            let is_right = of_user || is_on_interface(subject, address);
            let (meets, _) = wanted(subject).filter(|_| subject.has_package("vllm") && !is_right)?;
            let message = format!(
                "vLLM and Ray (without {OPTION}) take {address} on {interface}, the source of the route to {TARGET}, but {} bootstraps on {meets}. rdma-init does not fill in {name}: it must be the address by which Ray knows this node, and Ray reads no variable for that.",
                subject.nccl()
            );
            let fix = format!(
                "If {interface} reaches all nodes, do nothing. Otherwise start Ray with {OPTION}={right} and set {name}={right}, on each node with its own address."
            );
            let finding = Finding::info(Id::NodeAddress, message).about_variables([name]);
            Some(finding.about_interfaces([interface.as_str(), meets]).with_fix(fix))
        }
        _ => {
            let takes = subject.facts.names.as_ref()?.host_addresses.iter().find(|own| own.is_ipv4())?;
            let message = format!(
                "No route leads to {TARGET}, so Ray, if it is started without {OPTION}, takes {takes}, the address of the host's name in /etc/hosts as the address of this node: no other node can reach it there."
            );
            let fix = format!("{}.", start_with(&right));
            takes.is_loopback().then(|| on_loopback(subject, message).with_fix(fix))
        }
    }
}

/// Returns a finding if vLLM requests a placement on a node that Ray knows by another address.
fn beside_vllm(subject: &LibraryContext, known: &RayAddress) -> Option<Finding> {
    let name = vllm::HOST_IP;
    let of_user = subject.value(name).filter(|_| subject.has_package("vllm"))?.parse::<IpAddr>().ok()?;
    let known_by = known.address().filter(|known| *known != of_user)?;
    // Another finding reports what is wrong with the user's address itself.
    let is_own = subject.facts.net.own_addresses().any(|own| own == of_user) && !of_user.is_loopback();
    let by = match known {
        RayAddress::Named(_) => OPTION.to_owned(),
        _ => format!("by the route, as {OPTION} is not set"),
    };
    let what = format!(
        "Ray knows this node as {known_by} ({by}), so vLLM requests a placement on a node that Ray does not have, and waits forever."
    );
    let fix = format!("Set {name} and {OPTION} of ray start to the same address, on each node to its own.");
    is_own.then(|| subject.warning(Id::NodeAddress, name, what).with_fix(fix))
}

/// Returns a finding about the first variable that should give Ray another address than the one it uses.
fn not_read(subject: &LibraryContext, known: &RayAddress) -> Option<Finding> {
    if !subject.has_package("ray") {
        return None;
    }
    let takes = match known {
        RayAddress::NotInFacts => return None,
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
    let finding = match known.address() {
        Some(takes) => {
            let what = format!("Ray does not read this variable. It takes {takes} for this node.");
            subject.warning(Id::NodeAddress, variable, what)
        }
        None => Finding {
            severity: Severity::Info,
            ..subject.warning(
                Id::NodeAddress,
                variable,
                format!("Ray does not read this variable. Ray takes the address of this node only from {OPTION} of ray start."),
            )
        },
    };
    // If the value is one of this node's addresses, it is the one that the user wants.
    let value = subject.value(variable).and_then(|value| value.parse::<IpAddr>().ok());
    let wanted = value.filter(|value| subject.facts.net.own_addresses().any(|own| own == *value));
    let right = wanted.map_or_else(|| right(subject), |address| address.to_string());
    Some(finding.with_fix(format!("{}, and remove {variable}.", start_with(&right))))
}
