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
    OwnVariable, WithoutVariable, fill, not_here, right_index, strangers, used_hcas, wrong_slot,
};
use super::{Fill, Library, LibraryContext, LibraryFinding, lead, traffic_class};
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
/// The variables that steer EP's search.
const OF_EP: [&str; 4] = [EP_INDEX, EP_RANGE, EP_FAMILY, EP_ROCE_VERSION];
const EP_CLASS: &str = traffic_class::UCCL_EP.name;

/// The error if no interface matches (`include/util/net.h`).
const NO_INTERFACE: &str = "No IP interface found";

/// The NCCL release whose search for a GID UCCL shares.
const SEARCHES_AS: Version = Version::new(2, 27, 7);
const MEETS_AS: Version = Version::new(2, 19, 3);

pub(super) const LIBRARY: Library = Library {
    name: "uccl",
    title: TITLE,
    filled: &[P2P_HCAS, P2P_INDEX, P2P_CLASS, EP_INDEX, EP_FAMILY, EP_RANGE, EP_CLASS],
    gid: &[P2P_INDEX, EP_INDEX, EP_FAMILY, EP_RANGE],
    read: &["UCCL_"],
    is_here,
    fills,
    findings,
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    let is_set = |name: &&str| subject.value(name).is_some();
    subject.facts.image.as_ref().is_some_and(|image| image.packages("uccl").next().is_some())
        || [HCAS, INTERFACE, P2P_HCAS, P2P_INDEX, P2P_OVER, EP_INDEX].iter().any(is_set)
}

fn fills(subject: &LibraryContext) -> Vec<Fill> {
    let is_set = |name: &str| subject.value(name).is_some();
    let mut fills = Vec::new();
    let strangers = strangers(subject);
    if let (false, [alone], false) = (strangers.is_empty(), used_hcas(subject).as_slice(), is_set(P2P_HCAS)) {
        fills.push(fill(TITLE, P2P_HCAS, (*alone).to_owned(), WithoutVariable::Ports(strangers)));
    }
    let index = |variable| Some((variable, right_index(subject)?.to_string()));
    // P2P has only an index.
    if !is_set(P2P_INDEX)
        && let Some((port, slot)) = wrong_slot(subject, |port| p2p_slot(subject, port))
        && let Some((variable, value)) = index(P2P_INDEX)
    {
        fills.push(fill(TITLE, variable, value, WithoutVariable::Slot { port, slot }));
    }
    if !OF_EP.iter().any(|name| is_set(name))
        && let Some((port, slot)) = wrong_slot(subject, |port| ep_slot(subject, port))
    {
        let without = || WithoutVariable::Slot { port: port.clone(), slot };
        let is_taken = |number| number == 1;
        let values =
            lead::by_lead_or(subject, true, SEARCHES_AS, is_taken, [EP_FAMILY, EP_RANGE], || index(EP_INDEX));
        fills.extend(values.into_iter().map(|(variable, value)| fill(TITLE, variable, value, without())));
    }
    let classes = [&traffic_class::UCCL_P2P, &traffic_class::UCCL_EP].into_iter();
    fills.extend(classes.filter_map(|variable| traffic_class::of_job(subject, variable)));
    fills
}

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

fn findings(subject: &LibraryContext) -> Vec<LibraryFinding> {
    let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
    let of = |variable| OwnVariable { subject, library: TITLE, variable };
    let used: Vec<&Candidate> = subject.rails.ports.iter().filter(|port| port.is_used()).collect();
    let mut findings: Vec<LibraryFinding> = Vec::new();
    if let Some(list) = value(HCAS) {
        let pattern = Pattern::of_hcas(list, SEARCHES_AS);
        if !used.is_empty()
            && !used.iter().any(|port| pattern.selects(&port.hca.name, Some(port.port.number)))
        {
            findings.push(of(HCAS).leaves_no_hca_of_job(true).into());
        }
    }
    findings.extend(of_p2p(subject).into_iter().map(Into::into));
    for (index, slot, steers) in [
        (P2P_INDEX, wrong_slot(subject, |port| p2p_slot(subject, port)), &[P2P_INDEX][..]),
        (EP_INDEX, wrong_slot(subject, |port| ep_slot(subject, port)), &OF_EP),
    ] {
        // A variable that is set to an empty value also keeps rdma-init from filling in the right value.
        let set = steers.iter().find(|name| subject.value(name).is_some()).copied();
        findings.extend(slot.map(|wrong| of(index).wrong_gid(set, wrong)));
    }
    let others: Vec<String> =
        used.iter().filter(|port| port.port.number != 1).map(|port| port.name()).collect();
    if !others.is_empty() {
        findings.push(of(P2P_HCAS).takes_one_port(1, others).into());
    }
    let of_interface = of(INTERFACE).of_interface(value(INTERFACE), MEETS_AS, NO_INTERFACE, true);
    findings.extend(of_interface.map(Into::into));
    if !used.is_empty() && value(P2P_OVER) == Some("tcp") {
        findings.push(of(P2P_OVER).keeps_to_tcp(false).into());
    }
    findings
}
