//! Findings about the transports that UCX may use.

use super::super::alone::Lost;
use super::super::list::{Devices, names};
use super::super::release::{Release, all};
use super::super::taken::taken;
use super::super::transports::{TlsError, respelt, transports, unknown_transports, unreadable};
use super::super::{DEVICES, TRANSPORTS};
use super::devices::without_tcp;
use super::with_tcp;
use crate::fabric::Candidate;
use crate::finding::{Finding, Id};
use crate::libraries::LibraryContext;

/// Returns what is wrong if no UCX has transports over HCAs.
pub(super) fn without_verbs(subject: &LibraryContext) -> Vec<Finding> {
    let mut findings = Vec::new();
    let releases = all(subject);
    let without = "UCX lacks its module for HCAs here (libuct_ib.so in the directory ucx beside it), so";
    let of = |variable: &str, then: &str| {
        let fix = format!("Install a UCX with InfiniBand support, or remove {variable}: UCX then uses TCP.");
        subject.warning(Id::LibraryDevices, variable, format!("{without} it {then}.")).with_fix(fix)
    };
    if let Some(value) = subject.value(TRANSPORTS) {
        let allowed = |release: &Release| transports(Some(value), *release);
        let is_lost = |release| {
            let allowed = allowed(release);
            allowed.verbs && !allowed.tcp && !allowed.within
        };
        findings.extend(of_words(subject, value).map(|(finding, _)| finding));
        if releases.iter().all(is_lost) {
            findings.push(of(TRANSPORTS, "fails: \"no usable transports/devices\""));
        }
    }
    if let (Some(value), Some(oldest)) = (subject.value(DEVICES), releases.first())
        && let Devices::Only(list) = Devices::read(Some(value), *oldest)
    {
        let is_interface = |entry: &String| subject.facts.net.interface(entry).is_some();
        let hcas = || subject.rails.ports.iter().map(Candidate::name);
        let is_hca = |entry: &String| hcas().any(|port| names(entry, &port, *oldest));
        if !list.iter().any(is_interface) && list.iter().any(is_hca) {
            findings.push(of(DEVICES, "has no network at all"));
        }
    }
    if findings.is_empty() {
        let message = format!("{without} UCX, and NIXL and MPI on it, use only TCP.");
        let fix = "Install a UCX with InfiniBand support, if the job moves its data over UCX.";
        findings.push(Finding::info(Id::LibraryOnTcp, message).with_fix(fix));
    }
    findings
}

/// Returns what is wrong with the words of `UCX_TLS`, and whether the remaining words give UCX something else
/// than the user meant.
fn of_words(subject: &LibraryContext, value: &str) -> Option<(Finding, bool)> {
    let warning = |what: &str| subject.warning(Id::LibraryValue, TRANSPORTS, what);
    let write = respelt(value).map(|meant| format!("Write {TRANSPORTS}={meant}."));
    if let Some(why) = all(subject).into_iter().find_map(|release| unreadable(value, release)) {
        let what = match why {
            TlsError::Empty => "it names no transport, and UCX fails.",
            TlsError::AllWithOthers => {
                "UCX accepts \"all\" only as the single word of the list, and fails here."
            }
            TlsError::NoneKnown => {
                "UCX knows none of these transports, and fails: \"no usable transports/devices\". It takes names in lower case, with commas between them."
            }
        };
        let write = write.filter(|_| why == TlsError::NoneKnown);
        let fix = write
            .unwrap_or_else(|| format!("Remove {TRANSPORTS}, and UCX then chooses among all transports."));
        return Some((warning(what).with_fix(fix), true));
    }
    let words = unknown_transports(value);
    if words.is_empty() {
        return None;
    }
    let is_clear = write.is_some();
    let what = format!("UCX knows no transport {}, and continues without.", words.join(", "));
    let fix = write.unwrap_or_else(|| {
        "Write names that `ucx_info -d` lists, or aliases such as rc, ud, sm, tcp, cuda; in lower case."
            .to_owned()
    });
    Some((warning(&what).with_fix(fix), is_clear))
}

pub(super) fn findings(subject: &LibraryContext) -> Vec<Finding> {
    let Some(value) = subject.value(TRANSPORTS) else { return Vec::new() };
    let mut findings = Vec::new();
    if let Some((finding, is_all)) = of_words(subject, value) {
        findings.push(finding);
        if is_all {
            return findings;
        }
    }
    let allowed = all(subject).into_iter().map(|release| transports(Some(value), release));
    if allowed.clone().all(|allowed| !allowed.verbs) {
        let has_tcp = |release| taken(subject, release).is_some_and(|taken| !taken.tcp.is_empty());
        if all(subject).into_iter().any(has_tcp) {
            findings.push(on_tcp(subject, TRANSPORTS));
        } else if allowed.clone().all(|allowed| !allowed.tcp) {
            return vec![no_network(subject, &[TRANSPORTS])];
        }
    }
    let lost = all(subject).into_iter().filter_map(|release| without_tcp(subject, release));
    if lost.into_iter().any(|lost| lost == Lost::Transports) {
        let what = "UCX is left with RC, which makes no connection without UD or TCP; NIXL fails with a backend error.";
        let fix =
            "Write rc for rc_mlx5 and rc_verbs: it stands for both, and for the UD that they connect with.";
        findings.push(subject.warning(Id::LibraryValue, TRANSPORTS, what).with_fix(fix));
    }
    findings
}

/// Returns the finding that the variable keeps UCX from the rails, so UCX uses TCP.
pub(super) fn on_tcp(subject: &LibraryContext, variable: &str) -> Finding {
    let what = "UCX, and NIXL and MPI on it, use only TCP, although RDMA is usable here.";
    let fix = match variable {
        TRANSPORTS => {
            let excludes = subject.setting(TRANSPORTS).is_some_and(|set| set.value.starts_with('^'));
            let or_add = if excludes { "" } else { ", or add rc to it" };
            format!("Remove {TRANSPORTS}{or_add}. If it is meant only for MPI, set it only for MPI.")
        }
        _ => with_tcp(subject),
    };
    subject.warning(Id::LibraryOnTcp, variable, what).with_fix(fix)
}

/// Returns the finding that the transports, together with the devices if both are named, leave UCX no
/// network.
pub(super) fn no_network(subject: &LibraryContext, variables: &[&str]) -> Finding {
    let set: Vec<String> = variables.iter().map(|variable| subject.shown(variable)).collect();
    let leave = if set.len() == 1 { "it leaves" } else { "together they leave" };
    let message = format!(
        "{}: {leave} UCX no network, so a process reaches only processes on its own node.",
        set.join(" and ")
    );
    // A job with one node needs no network.
    let finding = if set.len() == 1 { Finding::info } else { Finding::warning };
    finding(Id::LibraryValue, message)
        .about_variables(variables.iter().copied())
        .with_fix(format!("Remove {}.", variables.join(" and ")))
}
