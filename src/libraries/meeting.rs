//! Finds the bootstrap address of a job's processes for libraries that use a named interface, or else the
//! address of the host name: Gloo and TensorPipe.
//!
//! Both ask getaddrinfo(3) for the host name and use the first address that they can bind, or else loopback:
//! `createDefaultDevice` in `torch/csrc/distributed/c10d/ProcessGroupGloo.cpp` (PyTorch 1.3 to 2.15),
//! `guessAddress` in `torch/csrc/distributed/rpc/tensorpipe_agent.cpp` (PyTorch 1.6 to 2.15).

use std::fmt;
use std::net::IpAddr;

use super::node_address::is_alone;
use super::{Fill, LibraryContext};
use crate::fabric::Rails;
use crate::fabric::interface::obstacle;
use crate::facts::names::Names;
use crate::facts::net::Net;
use crate::finding::{Finding, Id};
use crate::text::condensed;

/// An interface and its address that a library uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub interface: String,
    pub address: IpAddr,
}

/// This host's name and what it resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedHost {
    pub host: String,
    pub to: HostNameAddress,
}

/// What a host name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostNameAddress {
    Own(End),
    Loopback(IpAddr),
    /// `/etc/hosts` maps the name only to addresses that this container does not have.
    Foreign(Vec<IpAddr>),
    /// `/etc/hosts` does not contain the name, so DNS decides.
    NotInFile,
    /// `/etc/nsswitch.conf` keeps getaddrinfo(3) from reading `/etc/hosts`, so these services decide.
    FileNotAsked(Vec<String>),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.interface, self.address)
    }
}

/// Says what the host name resolves to, and why.
impl fmt::Display for NamedHost {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let NamedHost { host, to } = self;
        match to {
            HostNameAddress::Own(own) => {
                write!(f, "{own}, the address of the host's name {host} in /etc/hosts")
            }
            HostNameAddress::Loopback(address) => {
                write!(f, "{address}, the address of the host's name {host} in /etc/hosts")
            }
            HostNameAddress::Foreign(addresses) => {
                let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
                write!(
                    f,
                    "127.0.0.1, because this container does not have the address that /etc/hosts gives the host's name {host} ({})",
                    addresses.join(", ")
                )
            }
            HostNameAddress::NotInFile => write!(f, "the DNS entry of the host's name {host}"),
            HostNameAddress::FileNotAsked(services) => write!(
                f,
                "the entry of {} for the host's name {host}, because nsswitch.conf does not use /etc/hosts",
                services.join(", ")
            ),
        }
    }
}

/// How a library interprets its variable's value.
pub(crate) struct Grammar {
    pub library: &'static str,
    pub variable: &'static str,
    /// A clause: the consequence if no interface has the name.
    pub lost: &'static str,
    /// Whether the value may be a comma-separated list.
    pub list: bool,
    /// The library treats a value of fewer bytes as unset.
    pub shortest: usize,
}

impl Grammar {
    /// Returns whether the library is present: PyTorch contains these libraries.
    pub(crate) fn is_here(&self, subject: &LibraryContext) -> bool {
        let torch = subject.facts.image.as_ref().and_then(|image| image.torch.as_ref());
        torch.is_some() || subject.value(self.variable).is_some()
    }

    /// Returns the job's interface, for a profile that requests the variable.
    pub(crate) fn value(&self, variable: &str, rails: &Rails) -> Option<String> {
        (variable == self.variable).then_some(rails.interface?.to_owned())
    }

    /// Returns the names in the value; `None` if the library uses the host name instead.
    fn entries<'v>(&self, subject: &LibraryContext<'v>) -> Option<Vec<&'v str>> {
        let value = subject.value(self.variable).filter(|value| value.len() >= self.shortest)?;
        // A trailing comma adds no entry, but an empty entry elsewhere counts.
        let list = || value.strip_suffix(',').unwrap_or(value).split(',').collect();
        Some(if self.list { list() } else { vec![value] })
    }

    /// Returns the job's interface if the host name does not resolve to it.
    pub(crate) fn fill(&self, subject: &LibraryContext) -> Option<Fill> {
        let interface = subject.rails.interface.filter(|name| name.len() >= self.shortest.max(1))?;
        if subject.value(self.variable).is_some() || obstacle(subject.facts, interface).is_some() {
            return None;
        }
        let named = elsewhere(subject, interface)?;
        let (library, host) = (self.library, &named.host);
        let why = match &named.to {
            HostNameAddress::NotInFile => format!(
                "without it, {library} would take the DNS entry of the host's name, which /etc/hosts does not contain ({host})"
            ),
            HostNameAddress::FileNotAsked(services) => format!(
                "without it, {library} would take the entry of {} for the host's name {host}: nsswitch.conf does not use /etc/hosts",
                services.join(", ")
            ),
            _ => format!("without it, {library} would bootstrap on {named}"),
        };
        Some(Fill::new(self.variable, interface, why))
    }

    /// Returns where the library's processes will bootstrap.
    pub(crate) fn will(&self, subject: &LibraryContext) -> Option<String> {
        let net = &subject.facts.net;
        let Some(entries) = self.entries(subject) else {
            let named = named(subject.facts.names.as_ref()?, net);
            return Some(match named.to {
                HostNameAddress::NotInFile => {
                    format!("bootstrap on the DNS address of the host's name {}", named.host)
                }
                _ => format!("bootstrap on {named}"),
            });
        };
        if net.interfaces.is_empty() {
            return None;
        }
        let mut ends = Vec::new();
        for entry in entries {
            // The library fails, or bootstraps on loopback.
            let Some(end) = end(net, entry) else { return Some(format!("find no interface \"{entry}\"")) };
            ends.push(end.to_string());
        }
        Some(format!("bootstrap on {}", ends.join(" and ")))
    }

    /// Returns what is wrong with the value, or with the host name if there is no value.
    pub(crate) fn finding(&self, subject: &LibraryContext) -> Option<Finding> {
        let Grammar { library, variable, .. } = self;
        let net = &subject.facts.net;
        if net.interfaces.is_empty() {
            return None;
        }
        let Some(entries) = self.entries(subject) else {
            // The user may intend another interface, and DNS may be right.
            let is_wrong = |named: &NamedHost| {
                matches!(named.to, HostNameAddress::Loopback(_) | HostNameAddress::Foreign(_))
            };
            let named = named(subject.facts.names.as_ref()?, net);
            let without = match subject.setting(variable) {
                Some(set) => format!("{library} gets nothing from {set}"),
                None => format!("{variable} is not set"),
            };
            let message = format!(
                "{without}, so {library} will bootstrap on {named}: no other node can reach this one there."
            );
            let finding = Finding::warning(Id::LibraryLoopback, message).about_variables([*variable]);
            return (is_wrong(&named) && !is_alone(subject)).then(|| finding.with_fix(self.fix(subject)));
        };
        if !self.list && entries.iter().any(|entry| entry.contains(',')) {
            let what = format!("{library} accepts one name, not a list, so {}.", self.lost);
            let finding = subject.warning(Id::LibraryInterface, variable, what);
            return Some(finding.with_fix(self.fix(subject)));
        }
        entries.into_iter().find_map(|entry| self.wrong(subject, entry))
    }

    /// Returns what is wrong with one name.
    fn wrong(&self, subject: &LibraryContext, entry: &str) -> Option<Finding> {
        let Grammar { library, variable, lost, .. } = self;
        let net = &subject.facts.net;
        if let Some(end) = end(net, entry) {
            let what = format!(
                "{library} will bootstrap on {entry}, where no other node can reach this one: a job of several nodes fails with \"Connection refused\" or a timeout."
            );
            let finding = subject.warning(Id::LibraryLoopback, variable, what).about_interfaces([entry]);
            // For a job with a single node, loopback is sufficient.
            let is_wrong = end.address.is_loopback() && !is_alone(subject);
            return is_wrong.then(|| finding.with_fix(self.fix(subject)));
        }
        let warning = |what: String| subject.warning(Id::LibraryInterface, variable, what);
        if let Some(sign) = entry.chars().next().filter(|sign| "^=".contains(*sign)) {
            let what = format!(
                "{library} accepts only exact names, and takes \"{sign}\" as part of the name \"{entry}\". No interface has that name, so {lost}."
            );
            return Some(warning(what).with_fix(self.fix(subject)));
        }
        if entry.is_empty() {
            let what = format!("{library} looks for an interface with an empty name, so {lost}.");
            return Some(warning(what).with_fix(self.fix(subject)));
        }
        let with_address = net.interfaces.iter().filter(|interface| !interface.addresses.is_empty());
        let there: Vec<&str> = with_address.map(|interface| interface.name.as_str()).collect();
        let of: Vec<&str> = there.iter().copied().filter(|name| name.starts_with(entry)).collect();
        Some(match of.first() {
            None => {
                let what = format!(
                    "there is no interface \"{entry}\" with an address ({} have one), so {lost}.",
                    condensed(&there)
                );
                warning(what).about_interfaces(there).with_fix(self.fix(subject))
            }
            Some(first) => {
                let what = format!(
                    "{library} accepts only exact names, and no interface is named \"{entry}\" ({} only begin with it), so {lost}.",
                    condensed(&of)
                );
                let fix = format!("Write the whole name: {variable}={first}.");
                warning(what).about_interfaces(of).with_fix(fix)
            }
        })
    }

    fn fix(&self, subject: &LibraryContext) -> String {
        let variable = self.variable;
        match subject.rails.interface {
            Some(name) if subject.setting(variable).is_none() => format!("Set {variable}={name}."),
            Some(name) => format!("Set {variable}={name}, or remove {variable}."),
            None => format!("Set {variable} to the interface through which the nodes reach each other."),
        }
    }
}

/// Returns what the host name resolves to, unless that is this interface.
fn elsewhere(subject: &LibraryContext, interface: &str) -> Option<NamedHost> {
    let named = named(subject.facts.names.as_ref()?, &subject.facts.net);
    let is_there = matches!(&named.to, HostNameAddress::Own(end) if end.interface == interface);
    (!is_there).then_some(named)
}

/// Returns what this host's name resolves to.
pub(crate) fn named(names: &Names, net: &Net) -> NamedHost {
    let mut addresses = names.host_addresses.clone();
    addresses.sort_by_key(|address| rank(*address));
    let own = |address: &IpAddr| {
        let end = |interface: &str| End { interface: interface.to_owned(), address: *address };
        holder(net, *address).map(end)
    };
    let first = addresses.iter().find_map(|address| match address.is_loopback() {
        true => Some(HostNameAddress::Loopback(*address)),
        false => own(address).map(HostNameAddress::Own),
    });
    let to = match first {
        _ if !names.asks_file() => HostNameAddress::FileNotAsked(names.services.clone()),
        Some(address) => address,
        None if addresses.is_empty() => HostNameAddress::NotInFile,
        None => HostNameAddress::Foreign(addresses),
    };
    NamedHost { host: names.host.clone(), to }
}

/// Returns the rank by which getaddrinfo(3) sorts addresses that all belong to this host (RFC 6724, section
/// 6, with glibc's precedences): IPv6 loopback, other IPv6 addresses, then IPv4 addresses with the smaller
/// scope first.
fn rank(address: IpAddr) -> u8 {
    match address {
        IpAddr::V6(address) if address.is_loopback() => 0,
        IpAddr::V6(_) => 1,
        IpAddr::V4(address) if address.is_loopback() || address.is_link_local() => 2,
        IpAddr::V4(_) => 3,
    }
}

/// Returns the interface that has an address.
fn holder(net: &Net, address: IpAddr) -> Option<&str> {
    let has = |interface: &&crate::facts::net::Interface| {
        interface.addresses.iter().any(|known| known.addr() == address)
    };
    net.interfaces.iter().find(has).map(|interface| interface.name.as_str())
}

/// Returns the first address of the interface with exactly this name.
fn end(net: &Net, name: &str) -> Option<End> {
    let address = net.interface(name)?.addresses.first()?.addr();
    Some(End { interface: name.to_owned(), address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::facts::net::Interface;

    fn net() -> Net {
        let interface = |name: &str, addresses: &[&str]| Interface {
            name: name.to_owned(),
            flags: vec!["UP".to_owned(), "RUNNING".to_owned()],
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..Interface::default()
        };
        let interfaces = vec![
            interface("lo", &["127.0.0.1/8", "::1/128"]),
            interface("eth0", &["10.0.0.5/24", "fd00::5/64"]),
            interface("eth0.100", &["10.1.0.5/24"]),
            interface("eth1", &[]),
        ];
        Net { interfaces, ..Net::default() }
    }

    fn names(addresses: &[&str]) -> Names {
        let host_addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Names { host: "node".to_owned(), host_addresses, ..Names::default() }
    }

    fn leads(addresses: &[&str]) -> String {
        match named(&names(addresses), &net()).to {
            HostNameAddress::Own(end) => format!("{} {}", end.interface, end.address),
            HostNameAddress::Loopback(address) => address.to_string(),
            HostNameAddress::Foreign(addresses) => format!("{} foreign", addresses.len()),
            HostNameAddress::NotInFile => "DNS".to_owned(),
            HostNameAddress::FileNotAsked(services) => services.join(","),
        }
    }

    #[test]
    fn the_first_address_that_can_be_bound_counts_in_the_order_of_getaddrinfo() {
        for (addresses, to) in [
            (&["10.0.0.5"][..], "eth0 10.0.0.5"),
            (&["127.0.1.1"], "127.0.1.1"),
            (&["10.0.0.5", "127.0.1.1"], "127.0.1.1"),
            (&["127.0.1.1", "fd00::5"], "eth0 fd00::5"),
            (&["10.0.0.5", "::1"], "::1"),
            (&["10.9.9.9", "10.1.0.5"], "eth0.100 10.1.0.5"),
            (&["10.9.9.9", "10.8.8.8"], "2 foreign"),
            (&[], "DNS"),
        ] {
            assert_eq!(leads(addresses), to, "{addresses:?}");
        }
    }

    #[test]
    fn a_file_that_nsswitch_leaves_out_does_not_count() {
        let of = |services: &[&str]| {
            let services = services.iter().map(|service| (*service).to_owned()).collect();
            named(&Names { services, ..names(&["10.0.0.5"]) }, &net()).to
        };
        assert_eq!(of(&["dns"]), HostNameAddress::FileNotAsked(vec!["dns".to_owned()]));
        assert!(
            matches!(of(&["dns", "files"]), HostNameAddress::Own(_))
                && matches!(of(&[]), HostNameAddress::Own(_))
        );
    }

    #[test]
    fn names_are_exact_and_lists_count_if_the_library_takes_lists() {
        let facts = Facts { net: net(), names: Some(names(&["10.0.0.5"])), ..Facts::default() };
        let rails = Rails { ports: &[], gid_index: None, interface: Some("eth0") };
        let ask = |list, shortest, value: Option<&'static str>| {
            let values = |_: &str| value;
            let subject = LibraryContext::of(&facts, &rails, &values);
            let grammar = Grammar { library: "L", variable: "V", lost: "it fails", list, shortest };
            let said = grammar.finding(&subject).map(|finding| finding.message);
            (said.unwrap_or_default(), grammar.will(&subject), grammar.fill(&subject))
        };
        let (gloo, tensorpipe) = (|value| ask(true, 2, value), |value| ask(false, 0, value));
        let there = "(lo, eth0, eth0.100 have one)";
        for (value, said) in [
            ("eth0", ""),
            ("eth0.100,eth0", ""),
            ("e", ""),
            ("lo", "L will bootstrap on lo"),
            ("^lo", "takes \"^\" as part of the name \"^lo\""),
            ("=eth0", "takes \"=\" as part of the name \"=eth0\""),
            ("et", "no interface is named \"et\" (eth0, eth0.100 only begin with it), so it fails."),
            ("eth0, eth0.100", &format!("no interface \" eth0.100\" with an address {there}")),
            ("eth1", &format!("no interface \"eth1\" with an address {there}")),
        ] {
            let message = gloo(Some(value)).0;
            assert!(message.contains(said) && message.is_empty() == said.is_empty(), "{value}: {message}");
        }
        assert_eq!(tensorpipe(Some("eth0,lo")).0, "V=eth0,lo: L accepts one name, not a list, so it fails.");
        assert_eq!(tensorpipe(Some("")).0, "V=: L looks for an interface with an empty name, so it fails.");
        let by_name = format!("bootstrap on {}", named(&names(&["10.0.0.5"]), &net()));
        assert_eq!(gloo(Some("")).1, Some(by_name.clone()));
        assert_eq!(gloo(None), (String::new(), Some(by_name), None), "it is right by itself");
        assert_eq!(tensorpipe(Some("e")).1, Some("find no interface \"e\"".to_owned()));
    }
}
