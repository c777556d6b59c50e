//! The address at which other nodes' processes reach this node's, for programs that announce it as a number:
//! vLLM and SGLang. Each has a variable for it. Otherwise it asks the kernel for the source address toward
//! 8.8.8.8, and toward 2001:4860:4860::8888 if there is no IPv4 route.
//!
//! * vLLM: `VLLM_HOST_IP`, else the route, else 0.0.0.0 (`get_ip` in `vllm/utils/network_utils.py`, earlier
//!   `vllm/utils/__init__.py`; it ignores `HOST_IP`). It treats an empty value as unset. On Ray, vLLM
//!   requests a placement on the node with this address and waits forever if Ray knows the node by another
//!   one (`initialize_ray_cluster` in `vllm/v1/executor/ray_utils.py`). vLLM does not copy the variable to
//!   other nodes (`WORKER_SPECIFIC_ENV_VARS` in `ray_executor.py`).
//! * SGLang: `SGLANG_HOST_IP`, else `HOST_IP`, else the interface in `SGLANG_LOCAL_IP_NIC`, else the route,
//!   else the host name, unless it resolves to loopback (`get_local_ip_auto` in
//!   `sglang/srt/utils/network.py`).
//! * Ray: see [`super::ray`].

mod route;

use std::net::{IpAddr, Ipv4Addr};

use super::{Fill, LibraryContext, may_fill};
use crate::fabric::interface::obstacle;
use crate::facts::hosts::is_localhost;
use crate::facts::net::{Interface, Net};
use crate::finding::{Finding, Id};
use route::is_global;

pub(crate) use route::{TARGET, Takes, by_route, toward};

/// A program that announces its own address.
pub(crate) struct AddressingProgram {
    /// Its name in texts.
    pub library: &'static str,
    pub variable: &'static str,
    /// A variable that it reads if [`AddressingProgram::variable`] is not set.
    pub also: Option<&'static str>,
    /// A variable that names an interface; the program reads it after the ones above.
    pub of_interface: Option<&'static str>,
    /// Whether the program uses the host name's address if there is no route.
    pub asks_for_name: bool,
}

impl AddressingProgram {
    /// Returns the address of the job's interface if the program would use another interface's address or
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
        (!is_right).then(|| Fill::new(self.variable, wanted.to_string(), self.why(&takes)))
    }

    /// Returns the address under which Ray knows this node if the program would use another one.
    pub(crate) fn fill_on_ray(&self, subject: &LibraryContext, known_by: IpAddr) -> Option<Fill> {
        if is_alone(subject) || subject.value(self.variable).is_some() {
            return None;
        }
        let takes = self.takes(subject)?;
        let library = self.library;
        let why = match takes {
            Takes::ByRoute { address, .. } if address == known_by => return None,
            Takes::ByRoute { address, .. } => format!(
                "the address of --node-ip-address, by which Ray knows this node; without it, {library} would request a placement on {address}, and wait forever"
            ),
            takes => self.why(&takes),
        };
        Some(Fill::new(self.variable, known_by.to_string(), why))
    }

    /// Returns the reason of the variable without which the program would use this.
    fn why(&self, takes: &Takes) -> String {
        let library = self.library;
        match takes {
            Takes::ByRoute { address, interface } => format!(
                "without it, {library} would take {address} on {interface}, the source of the route to {TARGET}"
            ),
            Takes::OfName(address) => format!(
                "without it, {library} would take {address}, the address of the host's name in /etc/hosts"
            ),
            Takes::Variable { variable, address } => format!(
                "without it, {library} would take {variable}={address}, at which other nodes do not reach this container"
            ),
            Takes::Nothing => format!(
                "no route leads to {TARGET}, so without it {library} would find no address of this node"
            ),
        }
    }

    /// Returns what the program uses without its variable; `None` if the user set a valid address, or if it
    /// is unknown.
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
        // rdma-init overrides a wrong value of this variable.
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

/// Returns what is wrong with a variable that contains this node's name or address.
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

/// Returns what is wrong with a variable for the address on which this node's processes bootstrap.
pub(crate) fn inside(subject: &LibraryContext, library: &str, variable: &str) -> Option<Finding> {
    let net = &subject.facts.net;
    let address: IpAddr = subject.value(variable)?.parse().ok()?;
    // The kernel treats all of 127.0.0.0/8 as loopback.
    let is_here = net.interfaces.is_empty() || address.is_loopback() || holder(net, address).is_some();
    let what = format!(
        "no interface of this container has {address}, so the processes of {library} on this node cannot connect there."
    );
    let fix = format!("Remove {variable}: {library} then takes the loopback.");
    (!is_here).then(|| subject.warning(Id::NodeAddress, variable, what).with_fix(fix))
}

/// Returns what is wrong with the address in a variable for this node.
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

/// Returns what is wrong with an address that the user set for this node; `set` shows the setting. `fix`
/// corrects a wrong address. If the address is on another interface than NCCL's bootstrap, the fix is to name
/// the right interface for NCCL, or else the action in `otherwise`.
pub(crate) fn wrong(
    subject: &LibraryContext,
    library: &str,
    address: IpAddr,
    set: &str,
    fix: &str,
    otherwise: &str,
) -> Option<Finding> {
    // A process that gets 0.0.0.0, on which a program listens everywhere, also connects to its own node.
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

/// Returns a finding about loopback. Loopback is correct for a job with one node, but the number of nodes is
/// usually unknown.
pub(crate) fn on_loopback(subject: &LibraryContext, message: String) -> Finding {
    match subject.facts.platform.nodes {
        Some(nodes) if nodes.count > 1 => Finding::warning(Id::NodeAddress, message),
        _ => Finding::info(Id::NodeAddress, format!("{message} On a single node, nothing is wrong.")),
    }
}

/// Returns the address of NCCL's bootstrap interface, for a fix.
pub(crate) fn right(subject: &LibraryContext) -> String {
    wanted(subject).map_or("ADDRESS".to_owned(), |(_, address)| address.to_string())
}

/// Returns whether the job is known to have only this node, for which any address works.
pub(crate) fn is_alone(subject: &LibraryContext) -> bool {
    subject.facts.platform.nodes.is_some_and(|nodes| nodes.count == 1)
}

/// Returns NCCL's bootstrap interface and its address: an IPv4 one if it has one.
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

/// Returns whether NCCL's bootstrap interface has the address.
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
