//! What is wrong with the variables of UCX on a host.

use std::net::IpAddr;

use super::alone::{Lost, lost};
use super::index::{self, GidIndex};
use super::list::{Devices, names};
use super::mend::{works, wrong_rail};
use super::release::{EXCLUDES_DEVICES, HAS_LOCAL_SUBNET, HAS_SUBNETS, Release, all, has_verbs};
use super::subnets::{Filter, read_bool};
use super::taken::{taken, without_gid};
use super::transports::{TlsError, respelt, transports, unknown_transports, unreadable};
use super::wheel::{self, Unserved};
use super::{DEVICES, GID_INDEX, LOCAL_SUBNET, SUBNETS, TRANSPORTS};
use crate::fabric::Candidate;
use crate::libraries::LibraryContext;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// UCX takes a slot that is not this container's. `variable` is the one that says so, if any.
    Gid { variable: Option<&'static str>, port: String, slot: u32, address: Option<IpAddr>, then: Then },
    /// The transports, together with the devices if both are named, leave UCX no network.
    NoNetwork(Vec<&'static str>),
    /// The variable keeps UCX from the rails, so it goes over TCP.
    OnTcp(&'static str),
    /// UCX has no TCP, and no datagrams that RC could connect with.
    WithoutDatagrams,
    /// The list has no interface, so UCX has no TCP, and it is unknown whether a process reaches itself
    /// over HCAs of this driver, or this HCA.
    WithoutTcp(String),
    /// No device of the list is here.
    NoDevice,
    /// Entries that are no devices here.
    NotThere(Vec<String>),
    /// Entries without the number of the port, which belongs to the name; and the ports that are
    /// meant.
    WithoutPort { entries: Vec<String>, ports: Vec<String> },
    /// A sign of NCCL's grammar, which this release takes for a part of a name.
    Sign(char),
    /// Words of `UCX_TLS` that UCX does not know. The probable intention, if it is clear.
    UnknownTransports { words: Vec<String>, meant: Option<String> },
    /// UCX fails on `UCX_TLS`. The probable intention, if it is clear.
    Transports { why: TlsError, meant: Option<String> },
    /// The variable has HCAs alone, and no UCX here has transports over them.
    WithoutVerbs(&'static str),
    /// No UCX here has transports over HCAs, so UCX has TCP alone.
    TcpAlone,
    /// These ports are all that the list selects, and the job uses none of them.
    NoneOfTheJob(Vec<String>),
    /// UCX ends with an error on what is no such value of the variable.
    NoSuchValue { variable: &'static str, takes: &'static str },
    /// UCX ends with an error on an entry that is no subnet.
    NoSubnet(String),
    /// UCX ends with an error because the subnets leave a port no GID.
    NoGidLeft(String),
    /// UCX ends with an error because an index and subnets are set.
    IndexAndSubnets,
    /// The UCX in a package has a libibverbs of its own.
    Unserved(Unserved),
}

/// What comes of a GID that is not this container's, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Then {
    /// UCX finds that no route leads there, and goes over TCP.
    GoesOverTcp,
    /// UCX passes over the port.
    PassesOver,
    /// Connections fail.
    Fails,
    /// UCX finds that no route leads there, and has no TCP.
    HasNothing,
}

pub(super) fn remarks(subject: &LibraryContext) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if !works(subject) {
        return remarks;
    }
    if !has_verbs(subject) {
        return without_verbs(subject);
    }
    remarks.extend(wheel::unserved(subject).into_iter().map(Remark::Unserved));
    remarks.extend(of_transports(subject));
    remarks.extend(of_devices(subject));
    remarks.extend(of_gid(subject));
    remarks.extend(local_subnet(subject));
    remarks
}

/// What is wrong if no UCX has transports over HCAs.
fn without_verbs(subject: &LibraryContext) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let releases = all(subject);
    if let Some(value) = subject.value(TRANSPORTS) {
        let allowed = |release: &Release| transports(Some(value), *release);
        let is_lost = |release| {
            let allowed = allowed(release);
            allowed.verbs && !allowed.tcp && !allowed.within
        };
        remarks.extend(of_words(subject, value));
        remarks.extend(releases.iter().all(is_lost).then_some(Remark::WithoutVerbs(TRANSPORTS)));
    }
    if let (Some(value), Some(oldest)) = (subject.value(DEVICES), releases.first())
        && let Devices::Only(list) = Devices::read(Some(value), *oldest)
    {
        let is_interface = |entry: &String| subject.facts.net.interface(entry).is_some();
        let hcas = || subject.rails.ports.iter().map(Candidate::name);
        let is_hca = |entry: &String| hcas().any(|port| names(entry, &port, *oldest));
        if !list.iter().any(is_interface) && list.iter().any(is_hca) {
            remarks.push(Remark::WithoutVerbs(DEVICES));
        }
    }
    if remarks.is_empty() { vec![Remark::TcpAlone] } else { remarks }
}

/// What is wrong with the words of `UCX_TLS`.
fn of_words(subject: &LibraryContext, value: &str) -> Option<Remark> {
    let meant = respelt(value);
    if let Some(why) = all(subject).into_iter().find_map(|release| unreadable(value, release)) {
        return Some(Remark::Transports { why, meant });
    }
    let words: Vec<String> = unknown_transports(value).into_iter().map(str::to_owned).collect();
    (!words.is_empty()).then_some(Remark::UnknownTransports { words, meant })
}

fn of_transports(subject: &LibraryContext) -> Vec<Remark> {
    let Some(value) = subject.value(TRANSPORTS) else { return Vec::new() };
    let mut remarks = Vec::from_iter(of_words(subject, value));
    // What the other words leave UCX is not what was meant.
    if let Some(Remark::Transports { .. } | Remark::UnknownTransports { meant: Some(_), .. }) =
        remarks.first()
    {
        return remarks;
    }
    let allowed = all(subject).into_iter().map(|release| transports(Some(value), release));
    if allowed.clone().all(|allowed| !allowed.verbs) {
        let has_tcp = |release| taken(subject, release).is_some_and(|taken| !taken.tcp.is_empty());
        if all(subject).into_iter().any(has_tcp) {
            remarks.push(Remark::OnTcp(TRANSPORTS));
        } else if allowed.clone().all(|allowed| !allowed.tcp) {
            return vec![Remark::NoNetwork(vec![TRANSPORTS])];
        }
    }
    let lost = all(subject).into_iter().filter_map(|release| without_tcp(subject, release));
    if lost.into_iter().any(|lost| lost == Lost::Transports) {
        remarks.push(Remark::WithoutDatagrams);
    }
    remarks
}

fn of_devices(subject: &LibraryContext) -> Vec<Remark> {
    let Some(value) = subject.value(DEVICES) else { return Vec::new() };
    let releases = all(subject);
    let Some(oldest) = releases.first().copied() else { return Vec::new() };
    let Some(taken) = taken(subject, oldest) else { return Vec::new() };
    if let Some(sign) = value.chars().next().filter(|sign| "^=".contains(*sign))
        && (sign == '=' || oldest < EXCLUDES_DEVICES)
    {
        return vec![Remark::Sign(sign)];
    }
    let mut remarks = Vec::new();
    let mut is_any_there = false;
    let there: Vec<String> = subject.rails.ports.iter().map(|port| port.name()).collect();
    if let Devices::Only(list) = Devices::read(Some(value), oldest) {
        let interfaces = &subject.facts.net.interfaces;
        let is_there = |entry: &str| {
            interfaces.iter().any(|interface| interface.name == entry)
                || there.iter().any(|device| names(entry, device, oldest))
        };
        is_any_there = list.iter().any(|entry| is_there(entry));
        let missing = list.into_iter().filter(|entry| !is_there(entry));
        let meant = |entry: &str| there.iter().find(|port| port.split(':').next() == Some(entry)).cloned();
        let (entries, unknown): (Vec<String>, Vec<String>) =
            missing.partition(|entry| meant(entry).is_some());
        if !entries.is_empty() {
            let ports = entries.iter().filter_map(|entry| meant(entry)).collect();
            return vec![Remark::WithoutPort { entries, ports }];
        }
        let finds_any = !taken.ports.is_empty() || !taken.tcp.is_empty();
        if finds_any && !unknown.is_empty() {
            remarks.push(Remark::NotThere(unknown));
        }
    }
    let allowed = transports(subject.value(TRANSPORTS), oldest);
    match (taken.ports.is_empty(), taken.tcp.is_empty()) {
        (true, true) if !allowed.verbs && !allowed.tcp => {}
        (true, true) if is_any_there && subject.value(TRANSPORTS).is_some() => {
            remarks.push(Remark::NoNetwork(vec![DEVICES, TRANSPORTS]));
        }
        (true, true) => remarks.push(Remark::NoDevice),
        (true, false) if allowed.verbs => remarks.push(Remark::OnTcp(DEVICES)),
        (false, _) if !taken.ports.iter().chain(&taken.passed_over).any(|port| port.is_rail) => {
            let names = taken.ports.into_iter().map(|port| port.name);
            remarks.push(Remark::NoneOfTheJob(names.collect()));
        }
        (false, true) if allowed.tcp => {
            let lost = releases.iter().find_map(|release| without_tcp(subject, *release));
            // Datagrams are about UCX_TLS, and what is wrong with a GID is told with the GID.
            remarks.extend(match lost {
                Some(Lost::Driver(driver)) => Some(Remark::WithoutTcp(driver)),
                _ => None,
            });
        }
        _ => {}
    }
    remarks
}

/// Why a process does not reach itself, if a release has HCAs and no TCP.
fn without_tcp(subject: &LibraryContext, release: Release) -> Option<Lost> {
    let taken = taken(subject, release).filter(|taken| taken.tcp.is_empty())?;
    lost(subject, &taken, release)
}

fn of_gid(subject: &LibraryContext) -> Option<Remark> {
    let index = subject.value(GID_INDEX).map(index::read);
    if index == Some(None) {
        return Some(Remark::NoSuchValue { variable: GID_INDEX, takes: "a number or auto" });
    }
    let releases = all(subject);
    let mut is_filtered = false;
    if let Some(value) = subject.value(SUBNETS)
        && let Some(newest) = releases.last().copied().filter(|release| *release >= HAS_SUBNETS)
    {
        match Filter::read(value) {
            Err(entry) => return Some(Remark::NoSubnet(entry)),
            Ok(Filter::All) => {}
            Ok(_) if matches!(index, Some(Some(GidIndex::Slot(_)))) => return Some(Remark::IndexAndSubnets),
            Ok(_) => {
                is_filtered = true;
                if let Some(port) = without_gid(subject, newest) {
                    return Some(Remark::NoGidLeft(port));
                }
            }
        }
    }
    let chooses = |name: &&str| match *name {
        GID_INDEX => matches!(index, Some(Some(GidIndex::Slot(_)))),
        _ => is_filtered,
    };
    let is_set = |name: &&str| subject.value(name).is_some();
    let names = [GID_INDEX, SUBNETS];
    let set = names.into_iter().find(chooses).or_else(|| names.into_iter().find(is_set));
    let wrong = releases.into_iter().filter_map(|release| {
        let taken = taken(subject, release)?;
        let wrong = wrong_rail(&taken)?.clone();
        let is_passed_over = taken.passed_over.contains(&wrong);
        let then = match lost(subject, &taken, release) {
            _ if is_passed_over => Then::PassesOver,
            Some(Lost::Gid { .. }) if taken.tcp.is_empty() => Then::HasNothing,
            Some(Lost::Gid { .. }) => Then::GoesOverTcp,
            _ => Then::Fails,
        };
        Some((then, wrong))
    });
    let (then, port) = wrong.max_by_key(|(then, _)| *then)?;
    let slot = port.slot?;
    Some(Remark::Gid { variable: set, port: port.name, slot: slot.index, address: slot.address, then })
}

fn local_subnet(subject: &LibraryContext) -> Option<Remark> {
    let is_read = all(subject).last().is_some_and(|newest| *newest >= HAS_LOCAL_SUBNET);
    let value = subject.value(LOCAL_SUBNET).filter(|_| is_read)?;
    read_bool(value).is_none().then_some(Remark::NoSuchValue { variable: LOCAL_SUBNET, takes: "y or n" })
}
