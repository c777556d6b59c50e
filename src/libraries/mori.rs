//! MORI, AMD's counterpart of DeepEP and NIXL (amd_mori 1.0 to 1.2): kernels that exchange tokens between
//! GPUs (EP), and an engine for transfers (IO). The files are in ROCm/mori, `src/application`.
//!
//! * It takes the HCAs in `MORI_RDMA_DEVICES`, which contains whole names, or all others if the list begins
//!   with `^`, else every HCA (`RdmaContext::Initialize` in `transport/rdma/rdma.cpp`). A GPU gets one of
//!   them with an ACTIVE port: the fastest, then those of its NUMA node, then the nearest, if possible one
//!   that no other GPU has (`CollectAndSortCandidates`, `MatchAllGpusAndNics` in `topology/system.cpp`).
//! * It takes the GID of `MORI_IB_GID_INDEX`, else the first RoCE v2 entry with IPv4, even if the address is
//!   another host's (`AutoSelectGidIndex`, `ScoreGidCandidate` in `transport/rdma/rdma.cpp`).
//! * Its class is `MORI_RDMA_TC`, and for IO `MORI_IO_TC` before it. On mlx5, EP connects its queue pairs
//!   through DEVX (`transport/rdma/providers/mlx5/mlx5.cpp`).
//! * Processes bootstrap on the interface in `MORI_SOCKET_IFNAME`, one whole name, else on the first that is
//!   up and has an IPv4 address other than 127.0.0.1 (`FindNetworkInterface` in
//!   `bootstrap/socket_bootstrap.cpp`). Only IPv4 counts.

use std::net::{IpAddr, Ipv4Addr};

use super::nccl::number::atoi;
use super::own_verbs::{
    GidVariables, Grammar, HcaList, InterfaceVariable, OwnVariable, VerbsLibrary, names, others, used_hcas,
};
use super::{Library, LibraryContext, traffic_class};
use crate::fabric::Candidate;
use crate::facts::gid::{Gid, GidType};
use crate::facts::net::Interface;
use crate::finding::{Finding, Id};

const TITLE: &str = "MORI";

const HCAS: &str = "MORI_RDMA_DEVICES";
const INDEX: &str = "MORI_IB_GID_INDEX";
const CLASS: &str = traffic_class::MORI.name;
const INTERFACE: &str = "MORI_SOCKET_IFNAME";

pub(super) const LIBRARY: Library = Library {
    name: "mori",
    title: TITLE,
    packages: &["amd-mori-"],
    filled: &[HCAS, INDEX, CLASS, INTERFACE],
    gid: &[INDEX],
    read: &["MORI_"],
    is_here,
    fills: |subject| VERBS.fills(subject),
    findings: |subject| VERBS.findings(subject),
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    subject.has_package("amd-mori-") || subject.sets_any(&[HCAS, INDEX, CLASS, INTERFACE])
}

const VERBS: VerbsLibrary = VerbsLibrary {
    lists: &[HcaList {
        wanted: |subject| Some((names(subject), strangers(subject))),
        counts: |value| {
            let names = value.strip_prefix('^').unwrap_or(value);
            names.split(',').any(|name| !name.trim().is_empty())
        },
        ..HcaList::new(HCAS, Grammar { excludes: true, trims: true, ports: false })
    }],
    gids: &[GidVariables::index(INDEX, taken)],
    classes: &[&traffic_class::MORI],
    interface: Some(InterfaceVariable {
        name: INTERFACE,
        meets: |subject, wanted| {
            let net = &subject.facts.net;
            net.interface(wanted).filter(|found| can_meet(found))?;
            let first = net.interfaces.iter().find(|interface| can_meet(interface))?;
            Some((first.name.clone(), wanted.to_owned()))
        },
        wrong: wrong_interface,
    }),
    ..VerbsLibrary::new(TITLE)
};

/// Returns the ports that the job skips and that a GPU may get: those as fast as the slowest of the job, and
/// all if there are fewer HCAs than GPUs.
fn strangers(subject: &LibraryContext) -> Vec<String> {
    let used = || subject.rails.ports.iter().filter(|port| port.is_used());
    let slowest = used().map(|port| port.port.gigabits()).fold(f64::INFINITY, f64::min);
    let too_few = subject.facts.gpu.count.is_none_or(|gpus| used_hcas(subject).len() < gpus as usize);
    let may_be_taken = |port: &&Candidate| too_few || port.port.gigabits() >= slowest;
    others(subject).filter(may_be_taken).map(Candidate::name).collect()
}

/// Returns the GID index that it takes on a port.
fn taken(subject: &LibraryContext, port: &Candidate) -> Option<i64> {
    if let Some(index) = subject.value(INDEX).map(atoi).filter(|index| *index >= 0) {
        return Some(index);
    }
    let rank = |gid: &&Gid| {
        let kind = if gid.kind == GidType::RoceV2 { 1000 } else { 500 };
        let family = match gid.address() {
            IpAddr::V4(_) => 200,
            IpAddr::V6(_) if gid.is_link_local() => 0,
            IpAddr::V6(_) => 100,
        };
        (kind + family - i64::from(gid.index), std::cmp::Reverse(gid.index))
    };
    port.port.gids.slots.iter().max_by_key(rank).map(|gid| i64::from(gid.index))
}

/// Returns whether processes can bootstrap on an interface.
fn can_meet(interface: &Interface) -> bool {
    let is_it = |address: IpAddr| address.is_ipv4() && address != IpAddr::V4(Ipv4Addr::LOCALHOST);
    interface.is_up() && interface.addresses.iter().any(|net| is_it(net.addr()))
}

/// Returns what is wrong with the interface that the variable names.
fn wrong_interface(of: &OwnVariable, name: &str) -> Option<Finding> {
    let net = &of.subject.facts.net;
    let has_ipv4 = |interface: &Interface| {
        interface.is_up() && interface.addresses.iter().any(|net| net.addr().is_ipv4())
    };
    if net.interfaces.is_empty() || net.interface(name).is_some_and(has_ipv4) {
        return None;
    }
    let what = "MORI takes the whole name of one interface that is up and has IPv4, and finds none: it fails with \"Network interface not found\", or takes the first interface.";
    Some(of.warning(Id::LibraryInterface, what).with_fix(of.removal()))
}
