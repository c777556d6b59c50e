//! Which interface NCCL's processes bootstrap on (`src/misc/socket.cc`: `ncclFindInterfaces`,
//! `ncclFindInterfaceMatchSubnet`; `src/bootstrap.cc`: `bootstrapNetInit`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::Serialize;

use super::list::{MOST_INTERFACES, Pattern};
use super::version::{INVERTS_SUBNET, NEEDS_RUNNING, REWROTE_PARSERS, Version};
use crate::facts::net::{Interface, Net};

/// An interface and its address that NCCL uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    pub interface: String,
    pub address: IpAddr,
}

/// Why NCCL finds no interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// `NCCL_SOCKET_IFNAME` and `NCCL_SOCKET_FAMILY` match no interface.
    NoInterface,
    /// No interface's subnet contains the address of `NCCL_COMM_ID`.
    NoSubnet,
    /// `NCCL_COMM_ID` is not an address with a port.
    BadCommId,
    /// `NCCL_COMM_ID` contains a host name, and only the resolver knows its address.
    HostName(String),
}

impl Failure {
    /// Returns NCCL's message; `None` if that is unknown beforehand.
    pub(crate) fn message(&self) -> Option<&'static str> {
        match self {
            Failure::NoInterface => Some("Bootstrap : no socket interface found"),
            Failure::NoSubnet => Some("NET/Socket : No usable listening interface found"),
            Failure::BadCommId => Some(
                "Invalid NCCL_COMM_ID, please use format: <ipv4>:<port> or [<ipv6>]:<port> or <hostname>:<port>",
            ),
            Failure::HostName(_) => None,
        }
    }
}

/// Returns the interface and address on which the job's processes bootstrap.
///
/// # Errors
/// Fails if NCCL fails or the result is unknown.
pub(crate) fn bootstrap<'a>(
    net: &Net,
    get: impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<Endpoint, Failure> {
    match get("NCCL_COMM_ID") {
        Some(id) => in_subnet(net, comm_id(net, id)?, version).ok_or(Failure::NoSubnet),
        None => first(net, get, version),
    }
}

/// Returns the first interface that NCCL finds, for its bootstrap and for its connections over InfiniBand.
///
/// # Errors
/// Fails if there is none.
pub(crate) fn first<'a>(
    net: &Net,
    get: impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<Endpoint, Failure> {
    at_most(1, net, get, version)?.into_iter().next().ok_or(Failure::NoInterface)
}

/// Returns the interfaces that NCCL finds, in its order, as its socket transport uses them.
///
/// # Errors
/// Fails if NCCL needs `NCCL_COMM_ID` and it is not an address.
pub(crate) fn all<'a>(
    net: &Net,
    get: impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<Vec<Endpoint>, Failure> {
    at_most(MOST_INTERFACES, net, get, version)
}

/// Returns the first of these interfaces.
fn at_most<'a>(
    most: usize,
    net: &Net,
    get: impl Fn(&str) -> Option<&'a str>,
    version: Version,
) -> Result<Vec<Endpoint>, Failure> {
    let find = |list: &str| matching(most, net, list, family(get("NCCL_SOCKET_FAMILY")), version);
    // NCCL treats a value of one character as unset.
    if let Some(list) = get("NCCL_SOCKET_IFNAME").filter(|list| list.len() > 1) {
        return Ok(find(list));
    }
    let found = find("ib");
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(id) = get("NCCL_COMM_ID").filter(|id| id.len() > 1)
        && let Some(endpoint) = in_subnet(net, comm_id(net, id)?, version)
    {
        return Ok(vec![endpoint]);
    }
    let lists: &[&str] = match version >= NEEDS_RUNNING {
        true => &["^docker,lo,virbr", "docker", "lo", "virbr"],
        false => &["^docker,lo", "docker", "lo"],
    };
    Ok(lists.iter().map(|list| find(list)).find(|found| !found.is_empty()).unwrap_or_default())
}

/// Returns the check of whether an address has the requested family (`envSocketFamily`).
fn family(text: Option<&str>) -> fn(IpAddr) -> bool {
    match text {
        Some("AF_INET") => |address| address.is_ipv4(),
        Some("AF_INET6") => |address| address.is_ipv6(),
        _ => |_| true,
    }
}

/// Returns every address, in the order of getifaddrs(3): IPv4 before IPv6.
fn addresses(net: &Net) -> impl Iterator<Item = (&Interface, IpNet)> {
    [true, false].into_iter().flat_map(|ipv4| {
        net.interfaces.iter().flat_map(move |interface| {
            let of_family = interface.addresses.iter().filter(move |net| net.addr().is_ipv4() == ipv4);
            of_family.map(move |net| (interface, *net))
        })
    })
}

/// Replays `findInterfaces`: returns each interface once, with the first of its usable addresses.
fn matching(
    most: usize,
    net: &Net,
    list: &str,
    family: fn(IpAddr) -> bool,
    version: Version,
) -> Vec<Endpoint> {
    let pattern = Pattern::of_interfaces(list, version);
    let mut found: Vec<Endpoint> = Vec::new();
    for (interface, net) in addresses(net) {
        if found.len() == most {
            break;
        }
        let address = net.addr();
        let usable = family(address)
            && address != IpAddr::V6(Ipv6Addr::LOCALHOST)
            && (version < NEEDS_RUNNING || interface.has_flag("RUNNING"))
            && pattern.selects(&interface.name, None)
            && found.iter().all(|endpoint| endpoint.interface != interface.name);
        if usable {
            found.push(Endpoint { interface: interface.name.clone(), address });
        }
    }
    found
}

/// An address, with the index of its interface if it is link-local.
#[derive(Debug, Clone, Copy)]
struct Remote {
    address: IpAddr,
    scope: u32,
}

/// `ncclFindInterfaceMatchSubnet`.
fn in_subnet(net: &Net, remote: Remote, version: Version) -> Option<Endpoint> {
    let inverted = (INVERTS_SUBNET..REWROTE_PARSERS).contains(&version);
    let (interface, net) = addresses(net).find(|(interface, net)| match (net, remote.address) {
        (IpNet::V4(net), IpAddr::V4(address)) => net.contains(&address) != inverted,
        (IpNet::V6(net), IpAddr::V6(address)) => {
            let scope = if net.addr().is_unicast_link_local() { interface.index.unwrap_or(0) } else { 0 };
            net.contains(&address) && scope == remote.scope
        }
        _ => false,
    })?;
    Some(Endpoint { interface: interface.name.clone(), address: net.addr() })
}

/// `ncclSocketGetAddrFromString`: `ADDRESS:PORT`, `[ADDRESS]:PORT`.
fn comm_id(net: &Net, text: &str) -> Result<Remote, Failure> {
    if text.len() <= 1 {
        return Err(Failure::BadCommId);
    }
    let Some(text) = text.strip_prefix('[') else {
        // NCCL uses the first entry of the list that has a name.
        let hosts = text.split(',').filter_map(|entry| entry.split(':').next());
        let host = hosts.into_iter().find(|host| !host.is_empty()).ok_or(Failure::BadCommId)?;
        return match host.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Remote { address: address.into(), scope: 0 }),
            Err(_) => Err(Failure::HostName(host.to_owned())),
        };
    };
    let (inside, _) = text.split_once(']').ok_or(Failure::BadCommId)?;
    let (address, interface) = inside.split_once('%').map_or((inside, None), |(a, i)| (a, Some(i)));
    let index = |name: &str| net.interface(name).and_then(|interface| interface.index);
    Ok(Remote {
        // If the text is not an address, NCCL keeps the zeros of the initialized field.
        address: address.parse::<Ipv6Addr>().unwrap_or(Ipv6Addr::UNSPECIFIED).into(),
        scope: interface.and_then(index).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::nccl::version::NEWEST;

    fn net() -> Net {
        let interface = |name: &str, index, flags: &[&str], addresses: &[&str]| Interface {
            name: name.to_owned(),
            index: Some(index),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..Interface::default()
        };
        let up = ["UP", "RUNNING"];
        Net {
            interfaces: vec![
                interface("lo", 1, &up, &["127.0.0.1/8", "::1/128"]),
                interface("docker0", 2, &["UP"], &["172.17.0.1/16"]),
                interface("eth0", 3, &up, &["fd00::5/64", "fe80::5/64"]),
                interface("eth1", 4, &up, &["10.1.0.5/24"]),
                interface("eth2", 5, &["UP"], &["10.2.0.5/24"]),
            ],
            ..Net::default()
        }
    }

    fn at(environment: &[(&str, &str)], version: Version) -> Result<String, Failure> {
        let get = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        bootstrap(&net(), get, version).map(|e| format!("{} {}", e.interface, e.address))
    }

    #[test]
    fn ipv4_comes_before_ipv6_and_docker_and_lo_come_last() {
        let named = |list| at(&[("NCCL_SOCKET_IFNAME", list)], NEWEST);
        assert_eq!(at(&[], NEWEST).unwrap(), "eth1 10.1.0.5");
        assert_eq!(named("e").unwrap(), "eth1 10.1.0.5", "one character is automatic");
        assert_eq!(named("eth0").unwrap(), "eth0 fd00::5");
        assert_eq!(named("^eth").unwrap(), "lo 127.0.0.1");
        assert_eq!(named("ens").unwrap_err(), Failure::NoInterface);
        assert_eq!(at(&[("NCCL_SOCKET_FAMILY", "AF_INET6")], NEWEST).unwrap(), "eth0 fd00::5");
        let both = [("NCCL_SOCKET_IFNAME", "=eth1"), ("NCCL_SOCKET_FAMILY", "AF_INET6")];
        assert_eq!(at(&both, NEWEST).unwrap_err(), Failure::NoInterface);
    }

    #[test]
    fn since_2_28_an_interface_has_to_run() {
        let eth2 = [("NCCL_SOCKET_IFNAME", "eth2")];
        assert_eq!(at(&eth2, Version::new(2, 27, 7)).unwrap(), "eth2 10.2.0.5");
        assert_eq!(at(&eth2, Version::new(2, 28, 3)).unwrap_err(), Failure::NoInterface);
    }

    #[test]
    fn the_meeting_point_decides_by_its_subnet() {
        let id = |text, version| at(&[("NCCL_COMM_ID", text)], version);
        assert_eq!(id("10.2.0.9:4000", NEWEST).unwrap(), "eth2 10.2.0.5");
        assert_eq!(id("10.2.0.9:4000", Version::new(2, 29, 7)).unwrap(), "lo 127.0.0.1");
        assert_eq!(id("[fd00::9]:4000", NEWEST).unwrap(), "eth0 fd00::5");
        assert_eq!(id("[fe80::9%eth0]:4000", NEWEST).unwrap(), "eth0 fe80::5");
        assert_eq!(id("[fe80::9]:4000", NEWEST).unwrap_err(), Failure::NoSubnet);
        assert_eq!(id("192.0.2.1:4000", NEWEST).unwrap_err(), Failure::NoSubnet);
        assert_eq!(id("master-0:4000", NEWEST).unwrap_err(), Failure::HostName("master-0".into()));
        assert_eq!(id("", NEWEST).unwrap_err(), Failure::BadCommId);
        assert_eq!(id(":4000", NEWEST).unwrap_err(), Failure::BadCommId);
    }
}
