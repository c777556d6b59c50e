//! Findings about the devices that UCX may use.

use super::super::alone::{Lost, lost};
use super::super::list::{Devices, names};
use super::super::release::{EXCLUDES_DEVICES, Release, all};
use super::super::taken::taken;
use super::super::transports::transports;
use super::super::{DEVICES, TRANSPORTS};
use super::transports::{no_network, on_tcp};
use super::with_tcp;
use crate::finding::{Finding, Id};
use crate::libraries::LibraryContext;
use crate::text::condensed;

pub(super) fn findings(subject: &LibraryContext) -> Vec<Finding> {
    let warning = |what: String| subject.warning(Id::LibraryDevices, DEVICES, what);
    let Some(value) = subject.value(DEVICES) else { return Vec::new() };
    let releases = all(subject);
    let Some(oldest) = releases.first().copied() else { return Vec::new() };
    let Some(taken) = taken(subject, oldest) else { return Vec::new() };
    if let Some(sign) = value.chars().next().filter(|sign| "^=".contains(*sign))
        && (sign == '=' || oldest < EXCLUDES_DEVICES)
    {
        let what = format!(
            "UCX accepts exact names, and takes \"{sign}\" as part of the first one, so it finds no device of the list."
        );
        return vec![warning(what).with_fix(with_tcp(subject))];
    }
    let mut findings = Vec::new();
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
            let ports: Vec<String> = entries.iter().filter_map(|entry| meant(entry)).collect();
            let what = format!(
                "UCX knows no device named {}: before release 1.21, the number of the port belongs to the name.",
                entries.join(", ")
            );
            let fix = format!("Write {} for {}.", ports.join(","), entries.join(","));
            return vec![warning(what).about_ports(ports).with_fix(fix)];
        }
        let finds_any = !taken.ports.is_empty() || !taken.tcp.is_empty();
        if finds_any && !unknown.is_empty() {
            let what = format!("there is no device {} here.", unknown.join(", "));
            findings.push(warning(what).with_fix(with_tcp(subject)));
        }
    }
    let allowed = transports(subject.value(TRANSPORTS), oldest);
    match (taken.ports.is_empty(), taken.tcp.is_empty()) {
        (true, true) if !allowed.verbs && !allowed.tcp => {}
        (true, true) if is_any_there && subject.value(TRANSPORTS).is_some() => {
            findings.push(no_network(subject, &[DEVICES, TRANSPORTS]));
        }
        (true, true) => {
            let what = "no device of the list exists here, so UCX has no network at all.";
            findings.push(warning(what.to_owned()).with_fix(with_tcp(subject)));
        }
        (true, false) if allowed.verbs => findings.push(on_tcp(subject, DEVICES)),
        (false, _) if !taken.ports.iter().chain(&taken.passed_over).any(|port| port.is_rail) => {
            let names: Vec<String> = taken.ports.into_iter().map(|port| port.name).collect();
            let what = format!("UCX will use only {}, which the job skips.", condensed(&names));
            findings.push(warning(what).about_ports(names).with_fix(with_tcp(subject)));
        }
        (false, true) if allowed.tcp => {
            let lost = releases.iter().find_map(|release| without_tcp(subject, *release));
            // If the cause is missing datagrams or a GID, a finding about UCX_TLS or about the GID reports
            // it.
            if let Some(Lost::Driver(driver)) = lost {
                let what = format!(
                    "the list has no interface, so UCX has no TCP. A process then reaches itself over UD, which not every HCA has ({driver}); where it does not, NIXL fails with a backend error."
                );
                findings.push(warning(what).with_fix(with_tcp(subject)));
            }
        }
        _ => {}
    }
    findings
}

/// Returns why a process does not reach itself, if a release has HCAs but no TCP.
pub(super) fn without_tcp(subject: &LibraryContext, release: Release) -> Option<Lost> {
    let taken = taken(subject, release).filter(|taken| taken.tcp.is_empty())?;
    lost(subject, &taken, release)
}
