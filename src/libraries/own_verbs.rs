//! What libraries share that open HCAs themselves, as NVSHMEM and Mooncake do: they take what they
//! can open, and a GID of their own choice.

use super::Subject;
use super::nccl::devices::visible;
use crate::fabric::{Candidate, own_slots};
use crate::facts::rdma::LinkLayer;

/// Why a variable is filled in for such a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    pub library: &'static str,
    pub without: Without,
}

/// What the library would do without the variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Without {
    /// It may take these ports, which the job leaves out.
    Ports(Vec<String>),
    /// It would take this slot of this port, which has no GID of this container.
    Slot { port: String, slot: i64 },
    /// Its traffic would be of another class than that of NCCL, whose variable this is.
    Class(&'static str),
    /// It would pass over this HCA for its name.
    Name(String),
    /// Its processes would meet on this interface.
    Interface(String),
}

/// What is wrong with a variable of such a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub library: &'static str,
    pub variable: &'static str,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Names in a list that no HCA here has.
    NotHere(Vec<String>),
    /// A slot that has no GID of this container on a port.
    Slot { port: String, slot: i64, right: Option<u32> },
    /// The library itself chooses such a slot, and no one index would be right for all ports.
    OwnSlot { port: String, slot: i64 },
    /// Every process of a node takes the same HCA.
    OneHca,
    /// Another variable makes the library ignore this one.
    Ignored { by: &'static str },
    /// None of the values that the library takes, at which it ends.
    Ends { values: &'static str },
    /// The library does without RDMA.
    Tcp,
    /// This release passes over an HCA for its name, and no variable helps.
    Renamed { hca: String, release: String },
    /// NVIDIA's driver does not let a GPU ring the doorbell of an HCA.
    Doorbell,
}

/// The ports that the job leaves out, and that whoever asks libibverbs alone could use.
pub fn others<'a, 'r>(subject: &'r Subject<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    subject.rails.ports.iter().filter(|port| !port.is_used() && visible(port.hca, port.port))
}

/// The used RoCE ports.
pub fn roce<'a, 'r>(subject: &'r Subject<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    let is_roce = |port: &&Candidate| port.is_used() && port.port.link_layer == LinkLayer::Ethernet;
    subject.rails.ports.iter().filter(is_roce)
}

/// The first used RoCE port on which the slot that a library takes has no GID of this container.
/// Ports without any such GID do not count: no slot would be right.
pub fn wrong_slot(subject: &Subject, taken: impl Fn(&Candidate) -> Option<i64>) -> Option<(String, i64)> {
    roce(subject).find_map(|port| {
        let right = own_slots(subject.facts, port.port);
        let slot = taken(port)?;
        let is_wrong = !right.is_empty() && !right.iter().any(|gid| i64::from(gid.index) == slot);
        is_wrong.then(|| (port.name(), slot))
    })
}

/// The names in a list, without their ports, that no HCA here has.
pub fn not_here<'v>(subject: &Subject, names: impl Iterator<Item = &'v str>) -> Vec<String> {
    let is_here = |name: &str| subject.facts.rdma.iter().any(|hca| hca.name == name);
    let name = |entry: &'v str| entry.split(':').next().unwrap_or_default();
    names.map(name).filter(|name| !name.is_empty() && !is_here(name)).map(str::to_owned).collect()
}

/// Whether a switch is on, as programs usually read one.
pub fn is_on(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off" | "n" | "f")
}
