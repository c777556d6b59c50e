//! Mooncake's Transfer Engine and Store (v0.3.4 to v0.3.13).
//!
//! * It uses each HCA with an ACTIVE port (`mooncake-transfer-engine/src/topology.cpp`,
//!   `listInfiniBandDevices`). The Store uses only the HCAs that `MC_MS_FILTERS` names, by whole names
//!   (`mooncake-store/src/client_service.cpp`); the engine does the same with `MC_TE_FILTERS`, which v0.3.9
//!   does not read and v0.3.13 does.
//! * The GID is the entry of `MC_GID_INDEX`, else of `NCCL_IB_GID_INDEX` (`src/config.cpp`), else the first
//!   IPv4 RoCE v2 entry with an interface, else the first IPv4 RoCE v2 entry (`rdma_context.cpp`,
//!   `findBestGidIndex`). Since v0.3.12, Mooncake ranks the GIDs (`rdma_gid_probe.h`). It reads only the
//!   environment, not NCCL's conf files.
//! * It uses one port of each HCA: the one that `MC_IB_PORT` names, else the first (`src/config.cpp`).
//! * `MC_MTU` must be one of four numbers; v0.3.9 exits on any other.

use std::net::IpAddr;

use super::nccl::number::atoi;
use super::nccl::version::Version;
use super::own_verbs::{
    GidVariables, Grammar, HcaList, OwnVariable, VerbsLibrary, names, others, roce, wrong_slot,
};
use super::{Fill, Library, LibraryContext, LibraryFinding, node_address, traffic_class};
use crate::fabric::Candidate;
use crate::facts::gid::{Gid, GidType};
use crate::finding::{Finding, Id};

const TITLE: &str = "Mooncake";

const INDEX: &str = "MC_GID_INDEX";
const OF_NCCL: &str = "NCCL_IB_GID_INDEX";
/// A number that is not an index: Mooncake then searches for a GID itself and does not read NCCL's variable
/// (`src/config.cpp`).
const AUTO: &str = "-1";
const STORE: &str = "MC_MS_FILTERS";
const FINDS: &str = "MC_MS_AUTO_DISC";
const ENGINE: &str = "MC_TE_FILTERS";
const MTU: &str = "MC_MTU";
const CLASS: &str = traffic_class::MOONCAKE.name;
const TCP: &str = "MC_FORCE_TCP";
const PORT: &str = "MC_IB_PORT";
/// This node's name or address, which SGLang and LMCache pass to the Store.
const HOST: &str = "MOONCAKE_LOCAL_HOSTNAME";

/// The first release that is known to read `MC_TE_FILTERS`.
const FILTERS_ENGINE: Version = Version::new(0, 3, 13);
/// The first release that ranks GIDs by their interfaces and addresses.
const RANKS_GIDS: Version = Version::new(0, 3, 12);
/// The first release that reads `MC_IB_TC`.
const HAS_CLASS: Version = Version::new(0, 3, 8);

pub(super) const LIBRARY: Library = Library {
    name: "mooncake",
    title: TITLE,
    packages: &["mooncake-transfer-engine-"],
    filled: &[INDEX, STORE, ENGINE, CLASS, PORT],
    gid: &[INDEX],
    read: &["MC_", "MOONCAKE_"],
    is_here,
    fills: |subject| VERBS.fills(subject),
    findings: |subject| VERBS.findings(subject),
    will: |_| None,
};

fn release(subject: &LibraryContext) -> Option<Version> {
    Version::parse(&subject.packages("mooncake-transfer-engine-").next()?.version)
}

fn is_here(subject: &LibraryContext) -> bool {
    release(subject).is_some() || subject.sets_any(&[INDEX, STORE, FINDS, ENGINE, MTU, CLASS, TCP, PORT])
}

const VERBS: VerbsLibrary = VerbsLibrary {
    lists: &[
        HcaList { wanted: |subject| Some(wanted(subject)), counts: |_| true, ..HcaList::new(STORE, LIST) },
        HcaList {
            wanted: |subject| (release(subject)? >= FILTERS_ENGINE).then(|| wanted(subject)),
            counts: |_| true,
            is_read: |subject| release(subject).is_none_or(|release| release >= FILTERS_ENGINE),
            ..HcaList::new(ENGINE, LIST)
        },
    ],
    gids: &[GidVariables::index(INDEX, taken)],
    also_fill,
    also_find,
    ..VerbsLibrary::new(TITLE)
};

/// `mlx5_0:1` is a name, which no HCA has; an empty list names no HCA.
const LIST: Grammar = Grammar { excludes: false, trims: true, ports: false };

/// Returns the job's HCAs and the ports of others: the lists do not support ports.
fn wanted(subject: &LibraryContext) -> (Vec<String>, Vec<String>) {
    let hcas = names(subject);
    let strangers =
        others(subject).filter(|port| !hcas.contains(&port.hca.name)).map(Candidate::name).collect();
    (hcas, strangers)
}

fn also_fill(subject: &LibraryContext, fills: &mut Vec<Fill>) {
    let is_set = |name: &str| subject.value(name).is_some();
    let (release, port) = (release(subject), port_of(subject, true));
    // Mooncake follows the index that rdma-init gives NCCL, which may become wrong if the table changes.
    let follows =
        subject.is_filled(OF_NCCL) && !is_set(INDEX) && fills.iter().all(|fill| fill.variable != INDEX);
    let by_itself = |candidate: &Candidate| found(subject, port, candidate);
    if follows
        && wrong_slot(subject, by_itself).is_none()
        && roce(subject).any(|port| by_itself(port).is_some())
    {
        let why = format!(
            "{TITLE} then finds the right indexes itself, even after the HCAs' GID tables change; without it, it would follow {OF_NCCL}"
        );
        fills.push(Fill::new(INDEX, AUTO, why));
    }
    if release.is_none_or(|release| release >= HAS_CLASS) {
        fills.extend(traffic_class::of_job(subject, &traffic_class::MOONCAKE));
    }
    if !is_set(PORT) && port != 1 {
        let why = format!("without it, {TITLE} would take port 1 of each HCA, which the job does not use");
        fills.push(Fill::new(PORT, port.to_string(), why));
    }
}

/// Returns the port of each HCA that Mooncake uses or should use: if no variable names another one, the port
/// that all of the job's HCAs use.
fn port_of(subject: &LibraryContext, may_fill: bool) -> u32 {
    let set = subject.in_environment(PORT).map(atoi).filter(|port| (0..256).contains(port));
    if let Some(port) = set.and_then(|port| u32::try_from(port).ok()) {
        return port;
    }
    let mut used = subject.rails.ports.iter().filter(|port| port.is_used()).map(|port| port.port.number);
    let wanted = used.next().filter(|first| used.all(|other| other == *first));
    let is_free = may_fill && subject.value(PORT).is_none() && !(subject.is_kept)(PORT);
    wanted.filter(|_| is_free).unwrap_or(1)
}

/// Returns the GID index from `MC_GID_INDEX` or NCCL's variable, else the one that Mooncake finds itself;
/// `None` on a port that it does not use. The findings on NCCL cover a wrong index that the user sets for NCCL.
fn taken(subject: &LibraryContext, port: &Candidate) -> Option<i64> {
    let (number, of_nccl) = (port_of(subject, true), subject.in_environment(OF_NCCL));
    let is_of_user = of_nccl.is_some() && !subject.is_filled(OF_NCCL);
    if port.port.number != number || subject.in_environment(INDEX).is_none() && is_of_user {
        return None;
    }
    let set = subject.in_environment(INDEX).or(of_nccl).map(atoi);
    match set.filter(|index| (0..256).contains(index)) {
        Some(index) => Some(index),
        None => found(subject, number, port),
    }
}

/// Returns the GID index that Mooncake finds itself; `None` on a port that it does not use.
fn found(subject: &LibraryContext, number: u32, port: &Candidate) -> Option<i64> {
    if port.port.number != number {
        return None;
    }
    if release(subject).is_none_or(|release| release >= RANKS_GIDS) {
        let ranked = port.port.gids.slots.iter().filter_map(|gid| Some((rank(gid)?, gid.index)));
        return ranked.min().map(|(_, index)| i64::from(index));
    }
    let fits = |gid: &&Gid| gid.kind == GidType::RoceV2 && gid.address().is_ipv4();
    let mut slots: Vec<&Gid> = port.port.gids.slots.iter().filter(fits).collect();
    slots.sort_by_key(|gid| gid.index);
    let with_interface = slots.iter().find(|gid| gid.netdev.is_some());
    with_interface.or(slots.first()).map(|gid| i64::from(gid.index))
}

/// Returns a GID's rank since v0.3.12; Mooncake selects the lowest (`rdma_gid_probe.h`,
/// `autoGidCandidateClassPriority`). It prefers a host address without an interface in this container to a
/// private address.
fn rank(gid: &Gid) -> Option<u8> {
    if gid.kind != GidType::RoceV2 {
        return None;
    }
    let named = gid.netdev.as_deref();
    let is_overlay = named.is_some_and(|name| {
        ["flannel", "cni", "calico", "vxlan", "docker"].iter().any(|start| name.starts_with(start))
            || name == "tunl0"
    });
    let is_private = match gid.address() {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            first == 10
                || first == 172 && (16..32).contains(&second)
                || first == 100 && (64..128).contains(&second)
        }
        IpAddr::V6(_) => false,
    };
    Some(match (named.is_some(), is_overlay || gid.is_link_local(), is_private) {
        (true, false, false) => 0,
        (false, false, false) => 1,
        (true, false, true) => 2,
        (true, true, _) => 3,
        (false, false, true) => 4,
        (false, true, _) => 5,
    })
}

fn also_find(subject: &LibraryContext) -> Vec<LibraryFinding> {
    let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
    let of = |variable| OwnVariable { subject, library: TITLE, variable };
    let mut findings: Vec<Finding> = Vec::new();
    if value(STORE).is_some() && value(FINDS) == Some("0") {
        findings.push(of(STORE).ignored_because_of(FINDS));
    }
    let number = port_of(subject, false);
    let not_taken = |other: &&Candidate| other.is_used() && other.port.number != number;
    let others: Vec<String> = subject.rails.ports.iter().filter(not_taken).map(Candidate::name).collect();
    if !others.is_empty() {
        findings.push(of(PORT).takes_one_port(number, others));
    }
    let is_mtu = |value: &str| ["512", "1024", "2048", "4096"].contains(&value.trim());
    if value(MTU).is_some_and(|value| !is_mtu(value)) {
        let what = "Mooncake accepts only 512, 1024, 2048 and 4096, and may fail on anything else.";
        let finding = of(MTU).warning(Id::LibraryValue, what);
        findings.push(finding.with_fix(format!("Write one of them, or remove {MTU}.")));
    }
    let used = subject.rails.ports.iter().any(Candidate::is_used);
    if used && subject.value(TCP).is_some() {
        findings.push(of(TCP).keeps_to_tcp(true));
    }
    findings.extend(node_address::of_host(subject, TITLE, HOST));
    findings.into_iter().map(Into::into).collect()
}
