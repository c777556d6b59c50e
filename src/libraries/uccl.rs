//! UCCL (0.0.1.post6 to 0.1.1): its plugin for NCCL and RCCL, its engine for transfers between two processes
//! (P2P), and its counterpart of DeepEP (EP).
//!
//! * The plugin and EP use the HCAs in `UCCL_IB_HCA`, else in NCCL's variable, in NCCL's grammar
//!   (`collective/rdma/rdma_io.cc`, `ep/src/rdma.cpp`). P2P uses for each GPU all of the nearest HCAs that
//!   have a link; `UCCL_P2P_RDMA_DEV` contains whole names or numbers, and all of its HCAs then serve each
//!   GPU (`p2p/rdma/rdma_device.cc`, `get_best_dev_idx`).
//! * The plugin finds its GID as NCCL 2.21 does, with NCCL's variables (`collective/rdma/util_rdma.h`). EP
//!   searches the same way, with `UCCL_IB_...` instead of `NCCL_IB_...` (`ep/include/rdma_util.hpp`). P2P
//!   uses `UCCL_P2P_RDMA_GID_INDEX`, else the first RoCE v2 entry with IPv4, else the first RoCE v2 entry,
//!   even if the address is another host's (`p2p/rdma/rdma_context.cc`, `detect_gid`).
//! * P2P and EP use only port 1 (`p2p/util/common.h`, `kPortNum`).
//! * Processes bootstrap where NCCL's do; `UCCL_SOCKET_IFNAME` takes precedence over NCCL's variable
//!   (`include/util/net.h`, `find_interfaces`).

use super::nccl::gid;
use super::nccl::list::Pattern;
use super::nccl::number::atoi;
use super::nccl::version::Version;
use super::own_verbs::{
    GidVariables, OwnVariable, SEARCHES_AS, VerbsLibrary, not_here, strangers, used_hcas,
};
use super::{Fill, Library, LibraryContext, traffic_class};
use crate::fabric::Candidate;
use crate::facts::gid::{Gid, GidType};
use crate::finding::{Finding, Id};
use crate::text::condensed;

const TITLE: &str = "UCCL";

const HCAS: &str = "UCCL_IB_HCA";
const INTERFACE: &str = "UCCL_SOCKET_IFNAME";
const P2P_HCAS: &str = "UCCL_P2P_RDMA_DEV";
const P2P_INDEX: &str = "UCCL_P2P_RDMA_GID_INDEX";
const P2P_CLASS: &str = traffic_class::UCCL_P2P.name;
const P2P_OVER: &str = "UCCL_P2P_TRANSPORT";
const EP_INDEX: &str = "UCCL_IB_GID_INDEX";
const EP_RANGE: &str = "UCCL_IB_ADDR_RANGE";
const EP_FAMILY: &str = "UCCL_IB_ADDR_FAMILY";
const EP_ROCE_VERSION: &str = "UCCL_IB_ROCE_VERSION_NUM";
const EP_CLASS: &str = traffic_class::UCCL_EP.name;

/// The error if no interface matches (`include/util/net.h`).
const NO_INTERFACE: &str = "No IP interface found";

const MEETS_AS: Version = Version::new(2, 19, 3);

pub(super) const LIBRARY: Library = Library {
    name: "uccl",
    title: TITLE,
    packages: &["uccl-"],
    filled: &[P2P_HCAS, P2P_INDEX, P2P_CLASS, EP_INDEX, EP_FAMILY, EP_RANGE, EP_CLASS],
    gid: &[P2P_INDEX, EP_INDEX, EP_FAMILY, EP_RANGE],
    read: &["UCCL_"],
    is_here,
    fills: |subject| VERBS.fills(subject),
    findings: |subject| VERBS.findings(subject),
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    subject.has_package("uccl-")
        || subject.sets_any(&[HCAS, INTERFACE, P2P_HCAS, P2P_INDEX, P2P_OVER, EP_INDEX])
}

const VERBS: VerbsLibrary = VerbsLibrary {
    gids: &[
        GidVariables::index(P2P_INDEX, p2p_slot),
        GidVariables {
            lead: Some(([EP_FAMILY, EP_RANGE], |_| true)),
            others: &[EP_RANGE, EP_FAMILY, EP_ROCE_VERSION],
            ..GidVariables::index(EP_INDEX, ep_slot)
        },
    ],
    classes: &[&traffic_class::UCCL_P2P, &traffic_class::UCCL_EP],
    also_fill: |subject, fills| {
        let (hcas, strangers) = (used_hcas(subject), strangers(subject));
        // With several HCAs, the list would take the nearest HCA from each GPU.
        if let (false, [alone], None) = (strangers.is_empty(), &*hcas, subject.value(P2P_HCAS)) {
            let why = format!("without it, {TITLE} may take {}, which the job skips", condensed(&strangers));
            fills.push(Fill::new(P2P_HCAS, *alone, why));
        }
    },
    also_find: |subject| {
        let of = |variable| OwnVariable { subject, library: TITLE, variable };
        let mut findings = Vec::from_iter(check_list(subject));
        findings.extend(of_p2p(subject));
        let used = || subject.rails.ports.iter().filter(|port| port.is_used());
        let others: Vec<String> = used().filter(|port| port.port.number != 1).map(Candidate::name).collect();
        if !others.is_empty() {
            findings.push(of(P2P_HCAS).takes_one_port(1, others));
        }
        // It bootstraps where NCCL does.
        let wanted = subject.value(INTERFACE);
        findings.extend(of(INTERFACE).check_interface(wanted, MEETS_AS, NO_INTERFACE, true));
        if used().next().is_some() && subject.value(P2P_OVER) == Some("tcp") {
            findings.push(of(P2P_OVER).keeps_to_tcp(false));
        }
        findings.into_iter().map(Into::into).collect()
    },
    ..VerbsLibrary::new(TITLE)
};

/// Returns the GID index that P2P selects; `None` on a port that it does not use.
fn p2p_slot(subject: &LibraryContext, port: &Candidate) -> Option<i64> {
    if port.port.number != 1 {
        return None;
    }
    if let Some(value) = subject.in_environment(P2P_INDEX) {
        return Some(atoi(value));
    }
    let mut slots: Vec<&Gid> =
        port.port.gids.slots.iter().filter(|gid| gid.kind == GidType::RoceV2).collect();
    slots.sort_by_key(|gid| (!gid.address().is_ipv4(), gid.index));
    slots.first().map(|gid| i64::from(gid.index))
}

/// Returns the GID index at which EP's search ends.
fn ep_slot(subject: &LibraryContext, port: &Candidate) -> Option<i64> {
    let own = |name: &str| match name {
        gid::INDEX => subject.in_environment(EP_INDEX),
        gid::RANGE => subject.in_environment(EP_RANGE),
        gid::FAMILY => subject.in_environment(EP_FAMILY),
        gid::ROCE_VERSION => subject.in_environment(EP_ROCE_VERSION),
        _ => None,
    };
    (port.port.number == 1).then(|| gid::index(&port.port.gids, own, SEARCHES_AS).ok())?
}

/// Returns what is wrong with the plugin's and EP's list, which has NCCL's grammar.
fn check_list(subject: &LibraryContext) -> Option<Finding> {
    let list = subject.value(HCAS).filter(|value| !value.is_empty())?;
    let pattern = Pattern::of_hcas(list, SEARCHES_AS);
    let mut used = subject.rails.ports.iter().filter(|port| port.is_used()).peekable();
    used.peek()?;
    let of = OwnVariable { subject, library: TITLE, variable: HCAS };
    let is_left = |port: &Candidate| pattern.selects(&port.hca.name, Some(port.port.number));
    (!used.any(is_left)).then(|| of.leaves_no_hca_of_job(true))
}

/// Returns what is wrong with P2P's HCAs. If no entry of the list matches, P2P uses the HCAs that it would
/// use without the list (`p2p/rdma/rdma_device.cc`).
fn of_p2p(subject: &LibraryContext) -> Vec<Finding> {
    let of = OwnVariable { subject, library: TITLE, variable: P2P_HCAS };
    let value = subject.value(P2P_HCAS);
    let entries = || value.unwrap_or_default().split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let is_number = |entry: &&str| entry.bytes().all(|byte| byte.is_ascii_digit());
    // The numbers are positions in libibverbs' list, whose order is unknown here.
    let is_number_here = |entry: &str| entry.parse::<usize>().is_ok_and(|at| at < subject.facts.rdma.len());
    let mut names = not_here(subject, entries().filter(|entry| !is_number(entry)));
    names.extend(entries().filter(is_number).filter(|entry| !is_number_here(entry)).map(str::to_owned));
    let (fits, strangers, hcas) = (entries().count() > names.len(), strangers(subject), used_hcas(subject));
    let is_of_job = |entry: &str| is_number(&entry) && is_number_here(entry) || hcas.contains(&entry);
    let mut found = Vec::new();
    if !fits && !strangers.is_empty() {
        let may_take = format!("UCCL may take {}, which the job skips.", condensed(&strangers));
        let finding = match value {
            Some("") if hcas.len() == 1 => of.warning(Id::LibraryDevices, may_take).with_fix(of.removal()),
            _ => Finding::warning(
                Id::LibraryDevices,
                format!(
                    "{may_take} rdma-init does not fill in {P2P_HCAS}: with it, each GPU would use all HCAs of the list instead of its nearest."
                ),
            )
            .about_variables([P2P_HCAS])
            .with_fix(format!(
                "Give the container only the job's HCAs, or set {P2P_HCAS} for each process to the HCA of its own GPU."
            )),
        };
        found.push(finding.about_ports(strangers));
    }
    if fits && !hcas.is_empty() && !entries().any(is_of_job) {
        found.push(of.leaves_no_hca_of_job(false));
    }
    if !names.is_empty() {
        let what =
            format!("UCCL accepts whole names and numbers of HCAs, and no HCA here is {}.", names.join(", "));
        let fix = format!("Remove {P2P_HCAS}: UCCL then takes the nearest HCAs of each GPU.");
        found.push(of.warning(Id::LibraryDevices, what).with_fix(fix));
    }
    found
}
