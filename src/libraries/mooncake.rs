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
    OwnVariable, WithoutVariable, fill, not_here, others, right_index, roce, used_hcas, wrong_slot,
};
use super::{Fill, Library, LibraryContext, LibraryFinding, node_address, traffic_class};
use crate::fabric::Candidate;
use crate::facts::gid::{Gid, GidType};
use crate::finding::Id;

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
    filled: &[INDEX, STORE, ENGINE, CLASS, PORT],
    gid: &[INDEX],
    read: &["MC_", "MOONCAKE_"],
    is_here,
    fills,
    findings,
    will: |_| None,
};

fn release(subject: &LibraryContext) -> Option<Version> {
    let image = subject.facts.image.as_ref()?;
    let mut packages = image.packages.iter();
    let package = packages.find(|package| package.name.starts_with("mooncake-transfer-engine"))?;
    Version::parse(&package.version)
}

fn is_here(subject: &LibraryContext) -> bool {
    let is_set = |name: &&str| subject.value(name).is_some();
    release(subject).is_some() || [INDEX, STORE, FINDS, ENGINE, MTU, CLASS, TCP, PORT].iter().any(is_set)
}

fn fills(subject: &LibraryContext) -> Vec<Fill> {
    let is_set = |name: &str| subject.value(name).is_some();
    let release = release(subject);
    let mut fills = Vec::new();
    let hcas = used_hcas(subject);
    // The filter does not support ports.
    let port = port_of(subject, true);
    let strangers = others(subject).filter(|port| !hcas.contains(&port.hca.name.as_str()));
    let strangers: Vec<String> = strangers.map(Candidate::name).collect();
    if !strangers.is_empty() && !hcas.is_empty() {
        let reads_engine = release.is_some_and(|release| release >= FILTERS_ENGINE);
        for variable in [Some(STORE), reads_engine.then_some(ENGINE)].into_iter().flatten() {
            if !is_set(variable) {
                fills.push(fill(TITLE, variable, hcas.join(","), WithoutVariable::Ports(strangers.clone())));
            }
        }
    }
    // If the user set a wrong index for NCCL, it is wrong for Mooncake, too.
    let of_user = subject.in_environment(OF_NCCL).is_some() && subject.rails.gid_index.is_none();
    if !is_set(INDEX)
        && !of_user
        && let Some((port, slot)) = wrong_slot(subject, |candidate| taken(subject, port, candidate))
        && let Some(index) = right_index(subject)
    {
        fills.push(fill(TITLE, INDEX, index.to_string(), WithoutVariable::Slot { port, slot }));
    }
    // Mooncake follows the index that rdma-init gives NCCL, which may become wrong if the table changes.
    let follows =
        subject.is_filled(OF_NCCL) && !is_set(INDEX) && fills.iter().all(|fill| fill.variable != INDEX);
    let by_itself = |candidate: &Candidate| found(subject, port, candidate);
    if follows
        && wrong_slot(subject, by_itself).is_none()
        && roce(subject).any(|port| by_itself(port).is_some())
    {
        fills.push(fill(TITLE, INDEX, AUTO.to_owned(), WithoutVariable::Pin(OF_NCCL)));
    }
    if release.is_none_or(|release| release >= HAS_CLASS) {
        fills.extend(traffic_class::of_job(subject, &traffic_class::MOONCAKE));
    }
    if !is_set(PORT) && port != 1 {
        fills.push(fill(TITLE, PORT, port.to_string(), WithoutVariable::Port(1)));
    }
    fills
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
/// `None` on a port that it does not use.
fn taken(subject: &LibraryContext, number: u32, port: &Candidate) -> Option<i64> {
    if port.port.number != number {
        return None;
    }
    let set = subject.in_environment(INDEX).or_else(|| subject.in_environment(OF_NCCL)).map(atoi);
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

fn findings(subject: &LibraryContext) -> Vec<LibraryFinding> {
    let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
    let of = |variable| OwnVariable { subject, library: TITLE, variable };
    let mut findings: Vec<LibraryFinding> = Vec::new();
    let reads_engine = release(subject).is_none_or(|release| release >= FILTERS_ENGINE);
    for variable in [Some(STORE), reads_engine.then_some(ENGINE)].into_iter().flatten() {
        let Some(list) = subject.value(variable) else { continue };
        // A port after a name is not part of the name.
        let names = || list.split(',').map(str::trim);
        let lost = not_here(subject, names());
        let hcas = used_hcas(subject);
        if !lost.is_empty() {
            findings.push(of(variable).names_no_hca(&lost).into());
        } else if !hcas.is_empty() && !names().any(|name| hcas.contains(&name)) {
            findings.push(of(variable).leaves_no_hca_of_job(false).into());
        }
    }
    if value(STORE).is_some() && value(FINDS) == Some("0") {
        findings.push(of(STORE).ignored_because_of(FINDS).into());
    }
    // The findings on NCCL cover a wrong index of NCCL's.
    let of_nccl = subject.in_environment(INDEX).is_none() && subject.in_environment(OF_NCCL).is_some();
    let number = port_of(subject, false);
    let wrong = wrong_slot(subject, |port| taken(subject, number, port)).filter(|_| !of_nccl);
    // A variable that is set to an empty value also keeps rdma-init from filling in the right value.
    let set = subject.in_environment(INDEX).map(|_| INDEX);
    findings.extend(wrong.map(|wrong| of(INDEX).wrong_gid(set, wrong)));
    let not_taken = |other: &&Candidate| other.is_used() && other.port.number != number;
    let others: Vec<String> = subject.rails.ports.iter().filter(not_taken).map(Candidate::name).collect();
    if !others.is_empty() {
        findings.push(of(PORT).takes_one_port(number, others).into());
    }
    let is_mtu = |value: &str| ["512", "1024", "2048", "4096"].contains(&value.trim());
    if value(MTU).is_some_and(|value| !is_mtu(value)) {
        let what = "Mooncake accepts only 512, 1024, 2048 and 4096, and may fail on anything else.";
        let finding = of(MTU).warning(Id::LibraryValue, what);
        findings.push(finding.with_fix(format!("Write one of them, or remove {MTU}.")).into());
    }
    let used = subject.rails.ports.iter().any(Candidate::is_used);
    if used && subject.value(TCP).is_some() {
        findings.push(of(TCP).keeps_to_tcp(true).into());
    }
    findings.extend(node_address::of_host(subject, TITLE, HOST).map(Into::into));
    findings
}
