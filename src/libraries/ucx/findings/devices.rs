//! Findings about the devices that UCX may use.

use super::super::alone::{Lost, lost};
use super::super::gda;
use super::super::list::{Devices, names, names_gda};
use super::super::release::{EXCLUDES_DEVICES, HAS_GDA, Release, all};
use super::super::taken::{strangers, taken};
use super::super::transports::transports;
use super::super::{DEVICES, TRANSPORTS};
use super::transports::{no_network, on_tcp};
use super::{job_and_interface, with_tcp};
use crate::finding::{Finding, Id};
use crate::libraries::LibraryContext;
use crate::text::condensed;

/// Returns the finding that UCX fails on a port that only `rc_gda` opens.
pub(super) fn without_gid(subject: &LibraryContext) -> Option<Finding> {
    let ports = gda::unopenable(subject);
    let first = ports.first()?;
    let what = format!(
        "UCX may open {}, without a GID, for transfers that GPUs start. It then fails with \"uct_iface_open(rc_gda/cuda0-{first}) failed\", and NIXL with a backend error.",
        condensed(&ports)
    );
    let fix = format!(
        "Write {DEVICES}={}, or exclude rc_gda: {TRANSPORTS}=^rc_gda.",
        job_and_interface(subject).join(",")
    );
    // A program that the variable is left to sets it itself, if it is told to.
    let finding = match subject.value(DEVICES) {
        Some(_) => subject.warning(Id::LibraryDevices, DEVICES, what),
        None => Finding::info(Id::LibraryDevices, format!("{DEVICES} is not set: {what}"))
            .about_variables([DEVICES]),
    };
    Some(finding.about_ports(ports).with_fix(fix))
}

/// Returns the finding that the user's list lets UCX take ports that the job skips.
fn takes_all(subject: &LibraryContext, release: Release) -> Option<Finding> {
    let is_all = Devices::read(subject.value(DEVICES), release) == Devices::All;
    let ports = strangers(subject, release);
    if !is_all || ports.is_empty() || subject.is_filled(DEVICES) || !gda::unopenable(subject).is_empty() {
        return None;
    }
    let message =
        format!("{}: UCX also takes {}, which the job skips.", subject.shown(DEVICES), condensed(&ports));
    let fix = format!("Remove {DEVICES}, and rdma-init fills in one that leaves out these ports.");
    let finding = Finding::info(Id::LibraryDevices, message).about_variables([DEVICES]);
    Some(finding.about_ports(ports).with_fix(fix))
}

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
    let mut findings = Vec::from_iter(takes_all(subject, oldest));
    let mut is_any_there = false;
    let there: Vec<String> = subject.rails.ports.iter().map(|port| port.name()).collect();
    if let Devices::Only(list) = Devices::read(Some(value), oldest) {
        let interfaces = &subject.facts.net.interfaces;
        let is_there = |entry: &str| {
            interfaces.iter().any(|interface| interface.name == entry)
                || there.iter().any(|device| names(entry, device, oldest))
                || releases.iter().any(|release| {
                    *release >= HAS_GDA && there.iter().any(|device| names_gda(entry, device, *release))
                })
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
