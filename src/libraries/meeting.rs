//! Where the processes of a job meet that use a library which takes the name of an interface, or
//! else the address of the host's own name: Gloo and TensorPipe.
//!
//! Both ask getaddrinfo(3) for the host's name, take the first address that they can bind, and
//! else the loopback's: `createDefaultDevice` in `torch/csrc/distributed/c10d/ProcessGroupGloo.cpp`
//! (PyTorch 1.3 to 2.15), `guessAddress` in `torch/csrc/distributed/rpc/tensorpipe_agent.cpp`
//! (PyTorch 1.6 to 2.15).

use std::net::IpAddr;

use super::{Fill, FillReason, LibraryContext};
use crate::fabric::Rails;
use crate::fabric::interface::obstacle;
use crate::facts::names::Names;
use crate::facts::net::Net;

/// An interface, and the address of it that a library takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub interface: String,
    pub address: IpAddr,
}

/// Where the name of this host leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedHost {
    pub host: String,
    pub to: HostNameAddress,
}

/// The address of a host's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostNameAddress {
    Own(End),
    Loopback(IpAddr),
    /// `/etc/hosts` has only addresses that this container does not have.
    Foreign(Vec<IpAddr>),
    /// `/etc/hosts` does not have the name, so DNS decides.
    NotInFile,
    /// `/etc/nsswitch.conf` does not let getaddrinfo(3) look into `/etc/hosts`, so these services decide.
    FileNotAsked(Vec<String>),
}

/// Where the processes meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootstrapAddress {
    /// On the interfaces that a variable names.
    On(Vec<End>),
    OnName(NamedHost),
    /// The library ends with an error, or meets on the loopback, because of a name in a list.
    InVain(String),
}

/// What is wrong with the value of a variable.
pub(crate) type Remark = super::SharedRemark<MeetingFault>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeetingFault {
    /// The value is ignored, or is none, and the host's name leads elsewhere than the job.
    HostName(NamedHost),
    /// The sign is one of NCCL's grammar. The library takes it for a part of the name.
    Sign { entry: String, sign: char },
    /// The entry is only the beginning of these names.
    Prefix { entry: String, of: Vec<String> },
    /// The library takes one name, and this is a list.
    List,
    /// There is no interface of this name with an address.
    NotThere { entry: String, there: Vec<String> },
    /// The interface is the loopback.
    Loopback(String),
}

/// What a library makes of the value of its variable.
pub(crate) struct Grammar {
    pub library: &'static str,
    pub variable: &'static str,
    /// Whether the value may be a list with commas.
    pub list: bool,
    /// A value that is shorter than this, in bytes, is as good as none.
    pub shortest: usize,
}

impl Grammar {
    /// PyTorch has these libraries in itself.
    pub(crate) fn is_here(&self, subject: &LibraryContext) -> bool {
        let torch = subject.facts.image.as_ref().and_then(|image| image.torch.as_ref());
        torch.is_some() || subject.value(self.variable).is_some()
    }

    /// The interface of the job, for a profile that asks for the variable.
    pub(crate) fn value(&self, variable: &str, rails: &Rails) -> Option<String> {
        (variable == self.variable).then_some(rails.interface?.to_owned())
    }

    /// The names in the value; `None` if the library asks for the host's name.
    fn entries<'v>(&self, subject: &LibraryContext<'v>) -> Option<Vec<&'v str>> {
        let value = subject.value(self.variable).filter(|value| value.len() >= self.shortest)?;
        // A comma at the end makes no entry, and an empty entry elsewhere is one.
        let list = || value.strip_suffix(',').unwrap_or(value).split(',').collect();
        Some(if self.list { list() } else { vec![value] })
    }

    /// The interface of the job, if the host's name does not resolve to it.
    pub(crate) fn fill(&self, subject: &LibraryContext) -> Option<Fill> {
        let interface = subject.rails.interface.filter(|name| name.len() >= self.shortest.max(1))?;
        if subject.value(self.variable).is_some() || obstacle(subject.facts, interface).is_some() {
            return None;
        }
        let named = elsewhere(subject, interface)?;
        let why = FillReason::Meeting { library: self.library, named };
        Some(Fill { variable: self.variable, value: Some(interface.to_owned()), why })
    }

    pub(crate) fn meeting(&self, subject: &LibraryContext) -> Option<BootstrapAddress> {
        let net = &subject.facts.net;
        let Some(entries) = self.entries(subject) else {
            return Some(BootstrapAddress::OnName(named(subject.facts.names.as_ref()?, net)));
        };
        if net.interfaces.is_empty() {
            return None;
        }
        let ends: Result<Vec<End>, &str> =
            entries.into_iter().map(|entry| end(net, entry).ok_or(entry)).collect();
        Some(ends.map_or_else(|entry| BootstrapAddress::InVain(entry.to_owned()), BootstrapAddress::On))
    }

    pub(crate) fn remarks(&self, subject: &LibraryContext) -> Vec<Remark> {
        let remark = |what| Remark { library: self.library, variable: self.variable, what };
        let net = &subject.facts.net;
        if net.interfaces.is_empty() {
            return Vec::new();
        }
        // On the only node of a job, the loopback is as good as any.
        let is_alone = subject.facts.platform.nodes.is_some_and(|nodes| nodes.count == 1);
        let Some(entries) = self.entries(subject) else {
            // Another interface may be meant, and DNS may be right.
            let is_wrong = |named: &NamedHost| {
                !is_alone && matches!(named.to, HostNameAddress::Loopback(_) | HostNameAddress::Foreign(_))
            };
            let named = subject.facts.names.as_ref().map(|names| named(names, net)).filter(is_wrong);
            return named.map(|named| remark(MeetingFault::HostName(named))).into_iter().collect();
        };
        let is_list = !self.list && entries.iter().any(|entry| entry.contains(','));
        if is_list {
            return vec![remark(MeetingFault::List)];
        }
        let wrong = |entry: &&str| {
            wrong(net, entry).filter(|what| !is_alone || !matches!(what, MeetingFault::Loopback(_)))
        };
        entries.iter().find_map(wrong).map(remark).into_iter().collect()
    }
}

/// Where the host's name leads, if that is not this interface.
fn elsewhere(subject: &LibraryContext, interface: &str) -> Option<NamedHost> {
    let named = named(subject.facts.names.as_ref()?, &subject.facts.net);
    let is_there = matches!(&named.to, HostNameAddress::Own(end) if end.interface == interface);
    (!is_there).then_some(named)
}

/// Where the name of this host leads.
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

/// The order in which getaddrinfo(3) gives addresses that are all this host's own (RFC 6724,
/// section 6, with the precedences of glibc): the loopback of IPv6, other addresses of IPv6,
/// then those of IPv4 with the smaller scope first.
fn rank(address: IpAddr) -> u8 {
    match address {
        IpAddr::V6(address) if address.is_loopback() => 0,
        IpAddr::V6(_) => 1,
        IpAddr::V4(address) if address.is_loopback() || address.is_link_local() => 2,
        IpAddr::V4(_) => 3,
    }
}

/// The interface that has an address.
fn holder(net: &Net, address: IpAddr) -> Option<&str> {
    let has = |interface: &&crate::facts::net::Interface| {
        interface.addresses.iter().any(|known| known.addr() == address)
    };
    net.interfaces.iter().find(has).map(|interface| interface.name.as_str())
}

/// The first address of the interface of exactly this name.
fn end(net: &Net, name: &str) -> Option<End> {
    let address = net.interface(name)?.addresses.first()?.addr();
    Some(End { interface: name.to_owned(), address })
}

fn wrong(net: &Net, entry: &str) -> Option<MeetingFault> {
    let entry_owned = || entry.to_owned();
    if let Some(end) = end(net, entry) {
        return end.address.is_loopback().then(|| MeetingFault::Loopback(entry_owned()));
    }
    if let Some(sign) = entry.chars().next().filter(|sign| "^=".contains(*sign)) {
        return Some(MeetingFault::Sign { entry: entry_owned(), sign });
    }
    let with_address = net.interfaces.iter().filter(|interface| !interface.addresses.is_empty());
    let there: Vec<String> = with_address.map(|interface| interface.name.clone()).collect();
    let of: Vec<String> = there.iter().filter(|name| name.starts_with(entry)).cloned().collect();
    Some(match of.is_empty() || entry.is_empty() {
        true => MeetingFault::NotThere { entry: entry_owned(), there },
        false => MeetingFault::Prefix { entry: entry_owned(), of },
    })
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
    fn names_are_exact_and_a_list_is_one_where_the_library_takes_lists() {
        let facts = Facts { net: net(), names: Some(names(&["10.0.0.5"])), ..Facts::default() };
        let rails = Rails { ports: &[], gid_index: None, interface: Some("eth0") };
        let ask = |list, shortest, value: Option<&'static str>| {
            let subject = LibraryContext {
                facts: &facts,
                rails: &rails,
                values: &|_| value,
                is_kept: &|_| false,
                is_in_conf: &|_| false,
                is_filled: &|_| false,
                is_allowed: &|_| true,
            };
            let grammar = Grammar { library: "L", variable: "V", list, shortest };
            let first = grammar.remarks(&subject).pop().map(|remark| remark.what);
            (first, grammar.meeting(&subject), grammar.fill(&subject))
        };
        let (gloo, tensorpipe) = (|value| ask(true, 2, value), |value| ask(false, 0, value));
        let there = || ["lo", "eth0", "eth0.100"].map(str::to_owned).to_vec();
        for (value, what) in [
            ("eth0", None),
            ("eth0.100,eth0", None),
            ("e", None),
            ("lo", Some(MeetingFault::Loopback("lo".to_owned()))),
            ("^lo", Some(MeetingFault::Sign { entry: "^lo".to_owned(), sign: '^' })),
            ("=eth0", Some(MeetingFault::Sign { entry: "=eth0".to_owned(), sign: '=' })),
            ("et", Some(MeetingFault::Prefix { entry: "et".to_owned(), of: there()[1..].to_vec() })),
            (
                "eth0, eth0.100",
                Some(MeetingFault::NotThere { entry: " eth0.100".to_owned(), there: there() }),
            ),
            ("eth1", Some(MeetingFault::NotThere { entry: "eth1".to_owned(), there: there() })),
        ] {
            assert_eq!(gloo(Some(value)).0, what, "{value}");
        }
        assert_eq!(tensorpipe(Some("eth0,lo")).0, Some(MeetingFault::List));
        assert_eq!(
            tensorpipe(Some("")).0,
            Some(MeetingFault::NotThere { entry: String::new(), there: there() })
        );
        let by_name = BootstrapAddress::OnName(named(&names(&["10.0.0.5"]), &net()));
        assert_eq!(gloo(Some("")).1, Some(by_name.clone()));
        assert_eq!(gloo(None), (None, Some(by_name), None), "it is right by itself");
        assert_eq!(tensorpipe(Some("e")).1, Some(BootstrapAddress::InVain("e".to_owned())));
    }
}
