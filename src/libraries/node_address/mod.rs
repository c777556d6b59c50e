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

use super::{Fill, FillReason as OfFill, LibraryContext};
use crate::fabric::interface::obstacle;
use crate::facts::hosts::is_localhost;
use crate::facts::net::{Interface, Net};
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

/// What is wrong with an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// As people write it.
    pub library: &'static str,
    /// The one that is wrong, or would help; Ray has none.
    pub variable: Option<&'static str>,
    pub what: What,
    /// The address of the interface on which NCCL meets.
    pub right: Option<IpAddr>,
}

/// What is wrong with an address that is given for this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// The address is not one of this container.
    Foreign,
    /// A process that is given it looks for the program on its own node: the loopback, or 0.0.0.0, on which a
    /// program listens everywhere.
    Loopback,
    /// The address is that of another interface than the one on which NCCL meets.
    Elsewhere { interface: String, meets: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The value of the variable.
    Value(Wrong),
    /// The value of an option of the command line.
    Option { option: &'static str, value: IpAddr, wrong: Wrong },
    /// No interface of this name has an address.
    NoInterface(String),
    /// vLLM runs on Ray, and both would take another address than that of the interface on which NCCL
    /// meets. Only the user can tell both.
    RayElsewhere { takes: IpAddr, interface: String, meets: String },
    /// Ray's first node would take the loopback.
    RayOnLoopback(IpAddr),
    /// vLLM asks for a place on the node of this variable's address, but Ray knows this node by another one.
    /// Whether the command line names it.
    RayDiffers { known_by: IpAddr, is_named: bool },
    /// Ray does not read the variable. The address that it takes, if the command line tells.
    NotRead { takes: Option<IpAddr> },
    /// The processes of this node cannot meet on an address that no interface has.
    NotInside(IpAddr),
}

impl Remark {
    pub fn new(
        subject: &LibraryContext,
        library: &'static str,
        variable: Option<&'static str>,
        what: What,
    ) -> Remark {
        Remark { library, variable, what, right: wanted(subject).map(|(_, address)| address) }
    }
}

impl AddressingProgram {
    /// The address of the job's interface, if the program would take one of another interface, or none.
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

    /// The address by which Ray knows this node, if the program would take another one.
    pub(crate) fn fill_on_ray(&self, subject: &LibraryContext, known_by: IpAddr) -> Option<Fill> {
        if is_alone(subject) || subject.value(self.variable).is_some() {
            return None;
        }
        let takes = self.takes(subject)?;
        let is_it = matches!(takes, Takes::ByRoute { address, .. } if address == known_by);
        let why = OfFill::NodeAddress(AddressReason { library: self.library, takes, on_ray: true });
        (!is_it).then(|| Fill { variable: self.variable, value: Some(known_by.to_string()), why })
    }

    /// What it takes without its variable. `None` if that is the user's sound word, or is not known.
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

    /// What is wrong with the user's own values.
    pub(crate) fn remarks(&self, subject: &LibraryContext) -> Vec<Remark> {
        let remark = |variable, what| Remark::new(subject, self.library, Some(variable), what);
        let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
        let net = &subject.facts.net;
        if is_alone(subject) || net.interfaces.is_empty() {
            return Vec::new();
        }
        if let Some(value) = value(self.variable) {
            let what = value.parse().ok().and_then(|address| wrong(subject, address));
            return what.map(|wrong| remark(self.variable, What::Value(wrong))).into_iter().collect();
        }
        // A wrong value of this one is mended.
        if self.also.is_some_and(|name| value(name).is_some()) {
            return Vec::new();
        }
        let named = self.of_interface.and_then(|variable| Some((variable, value(variable)?)));
        let lost = named.filter(|(_, name)| net.interface(name).is_none_or(|one| one.addresses.is_empty()));
        lost.map(|(variable, name)| remark(variable, What::NoInterface(name.to_owned())))
            .into_iter()
            .collect()
    }
}

/// What is wrong with a variable for the name or the address of this node.
pub(crate) fn of_host(
    subject: &LibraryContext,
    library: &'static str,
    variable: &'static str,
) -> Option<Remark> {
    let value = subject.value(variable).filter(|value| !value.is_empty() && !is_alone(subject))?;
    let address = match is_localhost(value) {
        true => IpAddr::V4(Ipv4Addr::LOCALHOST),
        false => value.parse().ok()?,
    };
    let is_known = !subject.facts.net.interfaces.is_empty();
    let wrong = wrong(subject, address).filter(|_| is_known)?;
    Some(Remark::new(subject, library, Some(variable), What::Value(wrong)))
}

/// What is wrong with a variable for the address on which the processes of this node meet.
pub(crate) fn inside(
    subject: &LibraryContext,
    library: &'static str,
    variable: &'static str,
) -> Option<Remark> {
    let net = &subject.facts.net;
    let address: IpAddr = subject.value(variable)?.parse().ok()?;
    // The kernel takes all of 127.0.0.0/8 for the loopback's.
    let is_here = net.interfaces.is_empty() || address.is_loopback() || holder(net, address).is_some();
    (!is_here).then(|| Remark::new(subject, library, Some(variable), What::NotInside(address)))
}

/// What is wrong with an address that the user gives for this node.
pub(crate) fn wrong(subject: &LibraryContext, address: IpAddr) -> Option<Wrong> {
    if address.is_loopback() || address.is_unspecified() {
        return Some(Wrong::Loopback);
    }
    let Some(holder) = holder(&subject.facts.net, address) else { return Some(Wrong::Foreign) };
    let (meets, _) = wanted(subject)?;
    let (interface, meets) = (holder.name.clone(), meets.to_owned());
    (!is_on_interface(subject, address)).then_some(Wrong::Elsewhere { interface, meets })
}

/// Whether the image has a package of Python's.
pub(crate) fn has(subject: &LibraryContext, package: &str) -> bool {
    subject.facts.image.as_ref().is_some_and(|image| image.packages(package).next().is_some())
}

/// Whether it is known that the job has only this node, for which any address will do.
pub(crate) fn is_alone(subject: &LibraryContext) -> bool {
    subject.facts.platform.nodes.is_some_and(|nodes| nodes.count == 1)
}

/// The interface on which NCCL meets, and its address: of IPv4, if it has one.
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

/// Whether the interface on which NCCL meets has the address.
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
