//! What is wrong with the variables of UCX on a host.

use std::net::IpAddr;

use super::list::{Devices, names, transports, unknown_transports};
use super::mend::{works, wrong_rail};
use super::release::{EXCLUDES_DEVICES, all};
use super::taken::taken;
use super::{DEVICES, GID_INDEX, SUBNETS, TRANSPORTS};
use crate::libraries::Subject;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// UCX takes a slot that is not this container's. `variable` is the one that says so, if any.
    Gid { variable: Option<&'static str>, port: String, slot: u32, address: Option<IpAddr> },
    /// The variable keeps UCX from the rails, so it goes over TCP.
    OnTcp(&'static str),
    /// The list has no interface, so UCX has no TCP.
    WithoutTcp,
    /// No device of the list is here.
    NoDevice,
    /// Entries that are no devices here.
    NotThere(Vec<String>),
    /// Entries without the number of the port, which belongs to the name; and the ports that are
    /// meant.
    WithoutPort { entries: Vec<String>, ports: Vec<String> },
    /// A sign of NCCL's grammar, which this release takes for a part of a name.
    Sign(char),
    /// Words of `UCX_TLS` that UCX does not know.
    UnknownTransports(Vec<String>),
    /// The value is neither `auto` nor a number.
    NotAnIndex,
}

pub fn remarks(subject: &Subject) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if !works(subject) {
        return remarks;
    }
    remarks.extend(of_transports(subject));
    remarks.extend(of_devices(subject));
    remarks.extend(of_gid(subject));
    remarks
}

fn of_transports(subject: &Subject) -> Vec<Remark> {
    let Some(value) = subject.value(TRANSPORTS) else { return Vec::new() };
    let mut remarks = Vec::new();
    let unknown: Vec<String> = unknown_transports(value).into_iter().map(str::to_owned).collect();
    if !unknown.is_empty() {
        remarks.push(Remark::UnknownTransports(unknown));
    }
    let allowed = all(subject).into_iter().map(|release| transports(Some(value), release));
    if allowed.clone().all(|allowed| !allowed.verbs) && allowed.clone().any(|allowed| allowed.tcp) {
        remarks.push(Remark::OnTcp(TRANSPORTS));
    }
    remarks
}

fn of_devices(subject: &Subject) -> Vec<Remark> {
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
    let there: Vec<String> = subject.rails.ports.iter().map(|port| port.name()).collect();
    if let Devices::Only(list) = Devices::read(Some(value), oldest) {
        let interfaces = &subject.facts.net.interfaces;
        let is_there = |entry: &str| {
            interfaces.iter().any(|interface| interface.name == entry)
                || there.iter().any(|device| names(entry, device, oldest))
        };
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
        (true, true) => remarks.push(Remark::NoDevice),
        (true, false) if allowed.verbs => remarks.push(Remark::OnTcp(DEVICES)),
        (false, true) if allowed.tcp => remarks.push(Remark::WithoutTcp),
        _ => {}
    }
    remarks
}

fn of_gid(subject: &Subject) -> Option<Remark> {
    let set = [GID_INDEX, SUBNETS].into_iter().find(|name| subject.value(name).is_some());
    let index = subject.value(GID_INDEX).filter(|value| *value != "auto");
    if index.is_some_and(|value| value.parse::<u32>().is_err()) {
        return Some(Remark::NotAnIndex);
    }
    let wrong =
        all(subject).into_iter().find_map(|release| wrong_rail(&taken(subject, release)?).cloned())?;
    let slot = wrong.slot?;
    Some(Remark::Gid { variable: set, port: wrong.name, slot: slot.index, address: slot.address })
}
