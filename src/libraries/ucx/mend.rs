//! What mends UCX on a host: a list of devices where it would take others than the job, and an index
//! or subnets where it would take GIDs that are not this container's.

use std::net::IpAddr;

use super::release::{HAS_SUBNETS, Release, all};
use super::taken::{Port, Taken, taken};
use super::transports::transports;
use super::{DEVICES, GID_INDEX, SUBNETS, TRANSPORTS, why};
use crate::fabric::gid::{common_index, is_right_everywhere, of_one_family, rails};
use crate::libraries::{Fill, Subject};

/// Why a variable of UCX is filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Without it, UCX would take these ports as well.
    OtherPorts(Vec<String>),
    /// Without it, UCX would take this slot of this port, with an address that is not this
    /// container's.
    OtherGid { port: String, slot: u32, address: Option<IpAddr> },
    /// Without it, UCX would pass over this port, because this slot is empty.
    EmptySlot { port: String, slot: u32 },
}

pub fn fills(subject: &Subject) -> Vec<Fill> {
    if !works(subject) {
        return Vec::new();
    }
    let devices = devices(subject);
    let with_it = |name: &str| match &devices {
        Some(fill) if fill.variable == name => Some(fill.value.as_str()),
        _ => subject.value(name),
    };
    let gid = gid(&Subject { values: &with_it, ..*subject });
    devices.iter().cloned().chain(gid).collect()
}

/// Whether UCX goes over the rails of the job: on EFA it has a transport of its own.
pub fn works(subject: &Subject) -> bool {
    let mut used = subject.rails.ports.iter().filter(|port| port.is_used()).peekable();
    used.peek().is_some() && used.all(|port| port.hca.driver.as_deref() != Some("efa"))
}

fn devices(subject: &Subject) -> Option<Fill> {
    if subject.value(DEVICES).is_some() {
        return None;
    }
    let releases = all(subject);
    let others = releases.iter().filter_map(|release| taken(subject, *release)).find_map(|taken| {
        let others = taken.ports.into_iter().filter(|port| !port.is_rail);
        let others: Vec<String> = others.map(|port| port.name).collect();
        (!others.is_empty()).then_some(others)
    })?;
    let allows_tcp = releases.iter().any(|release| transports(subject.value(TRANSPORTS), *release).tcp);
    let mut names = subject.rails.port_names();
    // Without an interface in the list, UCX would have no TCP.
    names.extend(if allows_tcp { Some(subject.rails.interface?.to_owned()) } else { None });
    Some(Fill { variable: DEVICES, value: names.join(","), why: why(Why::OtherPorts(others)) })
}

/// A rail on which UCX takes a GID that is not this container's, or which it passes over for an empty
/// slot, although the port has a GID that is this container's.
pub fn wrong_rail(taken: &Taken) -> Option<&Port> {
    let is_wrong = |port: &&Port| port.slot.as_ref().is_some_and(|slot| slot.has_right && !slot.is_right);
    taken.ports.iter().chain(&taken.passed_over).filter(|port| port.is_rail).find(is_wrong)
}

fn gid(subject: &Subject) -> Option<Fill> {
    if [GID_INDEX, SUBNETS].iter().any(|name| subject.value(name).is_some()) {
        return None;
    }
    let releases = all(subject);
    let of_release = |release: &Release| {
        let taken = taken(subject, *release)?;
        let port = wrong_rail(&taken).cloned()?;
        let is_passed_over = taken.passed_over.contains(&port);
        let slot = port.slot?;
        if is_passed_over {
            return Some(Why::EmptySlot { port: port.name, slot: slot.index });
        }
        Some(Why::OtherGid { port: port.name, slot: slot.index, address: slot.address })
    };
    let because = releases.iter().find_map(of_release)?;
    let fill = |variable, value| Some(Fill { variable, value, why: why(because.clone()) });
    let all_rails = rails(subject.facts, subject.rails.ports);
    let right = of_one_family(&all_rails);
    // On InfiniBand, the index would count as well.
    let is_roce = subject.rails.port_names().len() == all_rails.len();
    let common = subject.rails.gid_index.filter(|index| is_right_everywhere(&all_rails, *index));
    if let Some(index) = common.or_else(|| common_index(&right)).filter(|_| is_roce) {
        return fill(GID_INDEX, index.to_string());
    }
    if releases.iter().any(|release| *release < HAS_SUBNETS) {
        return None;
    }
    let addresses = right.iter().filter_map(|rail| rail.slots.first()).map(|gid| gid.address());
    let net_of = |address: IpAddr| {
        let nets = subject.facts.net.interfaces.iter().flat_map(|interface| &interface.addresses);
        nets.clone().find(|net| net.addr() == address).map(|net| net.trunc().to_string())
    };
    let mut subnets: Vec<String> = addresses.map(net_of).collect::<Option<_>>()?;
    subnets.dedup();
    let value = subnets.join(",");
    let with_it = |name: &str| if name == SUBNETS { Some(value.as_str()) } else { subject.value(name) };
    let mended = Subject { values: &with_it, ..*subject };
    let is_right =
        |release: &Release| taken(&mended, *release).is_some_and(|taken| wrong_rail(&taken).is_none());
    let is_mended = releases.iter().all(is_right);
    if is_mended { fill(SUBNETS, value.clone()) } else { None }
}
