//! Mooncake's Transfer Engine and Store (v0.3.4 to v0.3.13).
//!
//! * It takes each HCA with an ACTIVE port (`mooncake-transfer-engine/src/topology.cpp`,
//!   `listInfiniBandDevices`). The Store takes those that `MC_MS_FILTERS` names, by whole names
//!   (`mooncake-store/src/client_service.cpp`); so does the engine with `MC_TE_FILTERS`, which
//!   v0.3.9 does not read and v0.3.13 does.
//! * The GID is that of `MC_GID_INDEX`, else of `NCCL_IB_GID_INDEX`
//!   (`src/config.cpp`), else the first with IPv4 and RoCE v2 that has an interface, else the first
//!   with IPv4 and RoCE v2 (`rdma_context.cpp`, `findBestGidIndex`).
//! * `MC_MTU` must be one of four numbers; v0.3.9 ends at any other.

use super::nccl::version::Version;
use super::own_verbs::{Remark, What, Why, Without, not_here, others, roce, wrong_slot};
use super::{Fill, Library, Remark as OfLibrary, Subject, Why as OfFill};
use crate::fabric::Candidate;
use crate::facts::gid::{Gid, GidType};

const TITLE: &str = "Mooncake";

const INDEX: &str = "MC_GID_INDEX";
const OF_NCCL: &str = "NCCL_IB_GID_INDEX";
const STORE: &str = "MC_MS_FILTERS";
const FINDS: &str = "MC_MS_AUTO_DISC";
const ENGINE: &str = "MC_TE_FILTERS";
const MTU: &str = "MC_MTU";
const CLASS: &str = "MC_IB_TC";
const TCP: &str = "MC_FORCE_TCP";

/// The first release that is known to read `MC_TE_FILTERS`.
const FILTERS_ENGINE: Version = Version::new(0, 3, 13);
/// The first that reads `MC_IB_TC`.
const HAS_CLASS: Version = Version::new(0, 3, 8);

pub const LIBRARY: Library = Library {
    name: "mooncake",
    title: TITLE,
    filled: &[INDEX, STORE, ENGINE, CLASS],
    read: &["MC_"],
    is_here,
    fills,
    remarks: |subject| remarks(subject).into_iter().map(OfLibrary::OwnVerbs).collect(),
    will: |_| None,
};

fn release(subject: &Subject) -> Option<Version> {
    let image = subject.facts.image.as_ref()?;
    let mut packages = image.packages.iter();
    let package = packages.find(|package| package.name.starts_with("mooncake-transfer-engine"))?;
    Version::parse(&package.version)
}

fn is_here(subject: &Subject) -> bool {
    let is_set = |name: &&str| subject.value(name).is_some();
    release(subject).is_some() || [INDEX, STORE, FINDS, ENGINE, MTU, CLASS, TCP].iter().any(is_set)
}

fn fill(variable: &'static str, value: String, without: Without) -> Fill {
    Fill { variable, value, why: OfFill::OwnVerbs(Why { library: TITLE, without }) }
}

fn fills(subject: &Subject) -> Vec<Fill> {
    let is_set = |name: &str| subject.value(name).is_some();
    let release = release(subject);
    let mut fills = Vec::new();
    let mut hcas: Vec<&str> =
        subject.rails.ports.iter().filter(|port| port.is_used()).map(|port| port.hca.name.as_str()).collect();
    hcas.dedup();
    // The filter knows no ports.
    let strangers = others(subject).filter(|port| !hcas.contains(&port.hca.name.as_str()));
    let strangers: Vec<String> = strangers.map(Candidate::name).collect();
    if !strangers.is_empty() && !hcas.is_empty() {
        let reads_engine = release.is_some_and(|release| release >= FILTERS_ENGINE);
        for variable in [Some(STORE), reads_engine.then_some(ENGINE)].into_iter().flatten() {
            if !is_set(variable) {
                fills.push(fill(variable, hcas.join(","), Without::Ports(strangers.clone())));
            }
        }
    }
    if !is_set(INDEX)
        && let Some((port, slot)) = wrong_slot(subject, |port| taken(subject, port))
        && let Some(index) = subject.rails.gid_index
    {
        fills.push(fill(INDEX, index.to_string(), Without::Slot { port, slot }));
    }
    let class = subject.value("NCCL_IB_TC").filter(|class| class.parse::<u8>().is_ok_and(|class| class > 0));
    let reads_class = release.is_none_or(|release| release >= HAS_CLASS);
    if let Some(class) = class.filter(|_| reads_class && !is_set(CLASS) && roce(subject).next().is_some()) {
        fills.push(fill(CLASS, class.to_owned(), Without::Class("NCCL_IB_TC")));
    }
    fills
}

/// The slot of `MC_GID_INDEX` or of NCCL's variable, else the one that it finds itself.
fn taken(subject: &Subject, port: &Candidate) -> Option<i64> {
    let number = |name: &str| subject.value(name)?.trim().parse::<i64>().ok();
    let set = if subject.value(INDEX).is_some() { number(INDEX) } else { number(OF_NCCL) };
    if let Some(index) = set.filter(|index| (0..256).contains(index)) {
        return Some(index);
    }
    let fits = |gid: &&Gid| gid.kind == GidType::RoceV2 && gid.address().is_ipv4();
    let mut slots: Vec<&Gid> = port.port.gids.slots.iter().filter(fits).collect();
    slots.sort_by_key(|gid| gid.index);
    let with_interface = slots.iter().find(|gid| gid.netdev.is_some());
    with_interface.or(slots.first()).map(|gid| i64::from(gid.index))
}

fn remarks(subject: &Subject) -> Vec<Remark> {
    let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
    let remark = |variable, what| Remark { library: TITLE, variable, what };
    let mut remarks = Vec::new();
    for variable in [STORE, ENGINE] {
        let lost = not_here(subject, value(variable).unwrap_or_default().split(',').map(str::trim));
        if !lost.is_empty() {
            remarks.push(remark(variable, What::NotHere(lost)));
        }
    }
    if value(STORE).is_some() && value(FINDS) == Some("0") {
        remarks.push(remark(STORE, What::Ignored { by: FINDS }));
    }
    // Of a wrong index of NCCL's, the findings on NCCL tell.
    let of_nccl = value(INDEX).is_none() && value(OF_NCCL).is_some();
    if let Some((port, slot)) = wrong_slot(subject, |port| taken(subject, port)).filter(|_| !of_nccl) {
        remarks.push(match value(INDEX) {
            Some(_) => remark(INDEX, What::Slot { port, slot, right: subject.rails.gid_index }),
            None => remark(INDEX, What::OwnSlot { port, slot }),
        });
    }
    let is_mtu = |value: &str| ["512", "1024", "2048", "4096"].contains(&value.trim());
    if value(MTU).is_some_and(|value| !is_mtu(value)) {
        remarks.push(remark(MTU, What::Ends { values: "512, 1024, 2048 and 4096" }));
    }
    let used = subject.rails.ports.iter().any(Candidate::is_used);
    if used && subject.value(TCP).is_some() {
        remarks.push(remark(TCP, What::Tcp));
    }
    remarks
}
