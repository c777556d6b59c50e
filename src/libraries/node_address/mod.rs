//! The address at which the processes of other nodes find those of this one, for programs that give it
//! out as a number: vLLM and SGLang. Each has a variable for it, and else asks the kernel which address
//! it would send from to 8.8.8.8, and to 2001:4860:4860::8888 if IPv4 does not lead there.
//!
//! * vLLM: `VLLM_HOST_IP`, else the route, else 0.0.0.0 (`get_ip` in `vllm/utils/network_utils.py`,
//!   earlier `vllm/utils/__init__.py`; `HOST_IP` is ignored). An empty value is none. On Ray, vLLM asks for
//!   a place on the node of this address, and waits for it in vain if Ray knows the node by another one
//!   (`initialize_ray_cluster` in `vllm/v1/executor/ray_utils.py`). The variable is not copied to other
//!   nodes (`WORKER_SPECIFIC_ENV_VARS` in `ray_executor.py`).
//! * SGLang: `SGLANG_HOST_IP`, else `HOST_IP`, else the interface of `SGLANG_LOCAL_IP_NIC`, else the
//!   route, else the host's name, unless that is the loopback (`get_local_ip_auto` in
//!   `sglang/srt/utils/network.py`).
//! * Ray: see [`super::ray`].

mod route;

use std::net::{IpAddr, Ipv4Addr};

use super::{Fill, FillReason as OfFill, LibraryContext, may_fill};
use crate::fabric::interface::obstacle;
use crate::facts::hosts::is_localhost;
use crate::facts::net::{Interface, Net};
use crate::finding::{Finding, Id};
use route::is_global;

pub(crate) use route::{TARGET, Takes, by_route, toward};

/// A program that gives out its address.
pub(crate) struct AddressingProgram {
    /// As people write it.
    pub library: &'static str,
    pub variable: &'static str,
    /// A variable that it reads if [`AddressingProgram::variable`] is not set.
    pub also: Option<&'static str>,
    /// A variable that names an interface, which it reads after these.
    pub of_interface: Option<&'static str>,
    /// Whether it takes the address of the host's name if no route leads anywhere.
    pub asks_for_name: bool,
}

/// Why an address is filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressReason {
    pub library: &'static str,
    pub takes: Takes,
    /// Whether the value is the address by which Ray knows this node.
    pub on_ray: bool,
}

impl AddressingProgram {
    /// Returns the address of the job's interface, if the program would take one of another interface, or
    /// none.
    pub(crate) fn fill(&self, subject: &LibraryContext) -> Option<Fill> {
        let (_, wanted) = wanted(subject)?;
        if is_alone(subject) || subject.value(self.variable).is_some() {
            return None;
        }
        let takes = self.takes(subject)?;
        let is_right = match &takes {
            Takes::ByRoute { address, .. } | Takes::OfName(address) => is_on_interface(subject, *address),
            Takes::Variable { .. } | Takes::Nothing => false,
        };
        let why = OfFill::NodeAddress(AddressReason { library: self.library, takes, on_ray: false });
        (!is_right).then(|| Fill { variable: self.variable, value: Some(wanted.to_string()), why })
    }

    /// Returns the address by which Ray knows this node, if the program would take another one.
    pub(crate) fn fill_on_ray(&self, subject: &LibraryContext, known_by: IpAddr) -> Option<Fill> {
        if is_alone(subject) || subject.value(self.variable).is_some() {
            return None;
        }
        let takes = self.takes(subject)?;
        let is_it = matches!(takes, Takes::ByRoute { address, .. } if address == known_by);
        let why = OfFill::NodeAddress(AddressReason { library: self.library, takes, on_ray: true });
        (!is_it).then(|| Fill { variable: self.variable, value: Some(known_by.to_string()), why })
    }

    /// Returns what it takes without its variable. `None` if that is the user's sound word, or is not known.
    fn takes(&self, subject: &LibraryContext) -> Option<Takes> {
        let set = |name: Option<&'static str>| {
            let name = name?;
            Some((name, subject.value(name).filter(|value| !value.is_empty())?))
        };
        if let Some((variable, value)) = set(self.also) {
            let address = value.parse().ok()?;
            let is_sound = holder(&subject.facts.net, address).is_some() && !address.is_loopback();
            return (!is_sound).then_some(Takes::Variable { variable, address });
        }
        if set(self.of_interface).is_some() {
            return None;
        }
        by_route(subject.facts).or_else(|| match subject.facts.names.as_ref() {
            Some(names) if self.asks_for_name => {
                let own = names.host_addresses.first()?;
                Some(if own.is_loopback() { Takes::Nothing } else { Takes::OfName(*own) })
            }
            _ if self.asks_for_name => None,
            _ => Some(Takes::Nothing),
        })
    }

    /// Returns what is wrong with the user's own values.
    pub(crate) fn finding(&self, subject: &LibraryContext) -> Option<Finding> {
        let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
        let net = &subject.facts.net;
        if is_alone(subject) || net.interfaces.is_empty() {
            return None;
        }
        if let Some(value) = value(self.variable) {
            return of_value(subject, self.library, self.variable, value.parse().ok()?);
        }
        // rdma-init fixes a wrong value of this one.
        if self.also.is_some_and(|name| value(name).is_some()) {
            return None;
        }
        let variable = self.of_interface?;
        let name = value(variable)?;
        let is_there = net.interface(name).is_some_and(|one| !one.addresses.is_empty());
        let what = format!("no interface here has this name and an address, so {} ignores it.", self.library);
        (!is_there).then(|| {
            subject.warning(Id::LibraryInterface, variable, what).with_fix(fix(
                subject,
                self.library,
                variable,
            ))
        })
    }
}

/// Returns what is wrong with a variable for the name or the address of this node.
pub(crate) fn of_host(
    subject: &LibraryContext,
    library: &'static str,
    variable: &'static str,
) -> Option<Finding> {
    let value = subject.value(variable).filter(|value| !value.is_empty() && !is_alone(subject))?;
    let address = match is_localhost(value) {
        true => IpAddr::V4(Ipv4Addr::LOCALHOST),
        false => value.parse().ok()?,
    };
    of_value(subject, library, variable, address).filter(|_| !subject.facts.net.interfaces.is_empty())
}

/// Returns what is wrong with a variable for the address on which the processes of this node meet.
pub(crate) fn inside(subject: &LibraryContext, library: &str, variable: &str) -> Option<Finding> {
    let net = &subject.facts.net;
    let address: IpAddr = subject.value(variable)?.parse().ok()?;
    // The kernel takes all of 127.0.0.0/8 for the loopback's.
    let is_here = net.interfaces.is_empty() || address.is_loopback() || holder(net, address).is_some();
    let what = format!(
        "no interface of this container has {address}, so the processes of {library} on this node cannot connect there."
    );
    let fix = format!("Remove {variable}: {library} then takes the loopback.");
    (!is_here).then(|| subject.warning(Id::NodeAddress, variable, what).with_fix(fix))
}

/// Returns what is wrong with the address that a variable gives for this node.
fn of_value(subject: &LibraryContext, library: &str, variable: &str, address: IpAddr) -> Option<Finding> {
    let set = subject.shown(variable);
    let fix = fix(subject, library, variable);
    let otherwise = format!("remove {variable}.");
    Some(wrong(subject, library, address, &set, &fix, &otherwise)?.about_variables([variable]))
}

fn fix(subject: &LibraryContext, library: &str, variable: &str) -> String {
    match may_fill(variable) {
        true => format!("Remove {variable}: rdma-init fills in the right address if {library} needs it."),
        false => format!("Set {variable}={}, on each node with its own address.", right(subject)),
    }
}

/// Returns what is wrong with an address that the user gives for this node, as it is `set`. The `fix` mends
/// it, and if it does not lead to all nodes, so does the name of NCCL's interface, or what is `otherwise` to
/// be done.
pub(crate) fn wrong(
    subject: &LibraryContext,
    library: &str,
    address: IpAddr,
    set: &str,
    fix: &str,
    otherwise: &str,
) -> Option<Finding> {
    // A process that is given 0.0.0.0, on which a program listens everywhere, looks on its own node, too.
    if address.is_loopback() || address.is_unspecified() {
        let message = format!(
            "{set}: {library} gives this address to the other nodes, and they look for it on themselves."
        );
        return Some(on_loopback(subject, message).with_fix(fix));
    }
    let Some(holder) = holder(&subject.facts.net, address) else {
        let message = format!(
            "{set}: no interface of this container has this address. {library} cannot listen on it, and gives it to the other nodes."
        );
        return Some(Finding::warning(Id::NodeAddress, message).with_fix(fix));
    };
    let (meets, _) = wanted(subject).filter(|_| !is_on_interface(subject, address))?;
    let interface = holder.name.as_str();
    let message = format!(
        "{set} is an address of {interface}, but {} bootstraps on {meets}: both must reach all nodes.",
        subject.nccl()
    );
    let fix = format!(
        "If both reach all nodes, do nothing. Otherwise name the right interface in NCCL_SOCKET_IFNAME, or {otherwise}"
    );
    Some(Finding::info(Id::NodeAddress, message).about_interfaces([interface, meets]).with_fix(fix))
}

/// On the loopback nothing is wrong if the job has one node, which is mostly not known.
pub(crate) fn on_loopback(subject: &LibraryContext, message: String) -> Finding {
    match subject.facts.platform.nodes {
        Some(nodes) if nodes.count > 1 => Finding::warning(Id::NodeAddress, message),
        _ => Finding::info(Id::NodeAddress, format!("{message} On a single node, nothing is wrong.")),
    }
}

/// Returns the address of the interface on which NCCL meets, for a fix.
pub(crate) fn right(subject: &LibraryContext) -> String {
    wanted(subject).map_or("ADDRESS".to_owned(), |(_, address)| address.to_string())
}

/// Returns whether the image has a package of Python's.
pub(crate) fn has(subject: &LibraryContext, package: &str) -> bool {
    subject.facts.image.as_ref().is_some_and(|image| image.packages(package).next().is_some())
}

/// Returns whether it is known that the job has only this node, for which any address will do.
pub(crate) fn is_alone(subject: &LibraryContext) -> bool {
    subject.facts.platform.nodes.is_some_and(|nodes| nodes.count == 1)
}

/// Returns the interface on which NCCL meets, and its address: of IPv4, if it has one.
pub(crate) fn wanted<'s>(subject: &'s LibraryContext) -> Option<(&'s str, IpAddr)> {
    let name = subject.rails.interface?;
    if obstacle(subject.facts, name).is_some() {
        return None;
    }
    let interface = subject.facts.net.interface(name)?;
    let mut global: Vec<IpAddr> =
        interface.addresses.iter().map(ipnet::IpNet::addr).filter(is_global).collect();
    global.sort_by_key(IpAddr::is_ipv6);
    Some((name, *global.first()?))
}

/// Returns whether the interface on which NCCL meets has the address.
pub(crate) fn is_on_interface(subject: &LibraryContext, address: IpAddr) -> bool {
    let interface = subject.rails.interface.and_then(|name| subject.facts.net.interface(name));
    interface.is_some_and(|interface| holds(interface, address))
}

fn holds(interface: &Interface, address: IpAddr) -> bool {
    interface.addresses.iter().any(|net| net.addr() == address)
}

pub(crate) fn holder(net: &Net, address: IpAddr) -> Option<&Interface> {
    net.interfaces.iter().find(|interface| holds(interface, address))
}

#[cfg(test)]
mod tests;
