//! What libraries share that open HCAs themselves, as NVSHMEM, Mooncake and UCCL do: they take what
//! they can open, and a GID of their own choice.

use super::nccl::devices::visible;
use super::nccl::interfaces;
use super::nccl::version::Version;
use super::{Fill, FillReason, LibraryContext};
use crate::fabric::Candidate;
use crate::fabric::distance::of_hca;
use crate::fabric::gid::{OwnAddresses, common_index, of_one_family, rails};
use crate::facts::rdma::LinkLayer;

/// What the library would do without the variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithoutVariable {
    /// It may take these ports, which the job leaves out.
    Ports(Vec<String>),
    /// It would take this slot of this port, which has no GID of this container.
    Slot { port: String, slot: i64 },
    /// Its traffic would be of another class than that of NCCL, whose variable this is.
    Class(&'static str),
    /// Its queue pairs would be of this class, and not of the one that the administrator has set on the
    /// ports.
    ClassOfPorts { takes: u8 },
    /// It would pass over this HCA for its name.
    Name(String),
    /// Its processes would meet on this interface.
    Interface(String),
    /// It would take this port of an HCA, which the job does not use.
    Port(u32),
    /// It would follow the index of this variable, which may be wrong once the table changes, and finds the
    /// right slots itself.
    Pin(&'static str),
}

/// What is wrong with a variable of such a library.
pub(crate) type Remark = super::SharedRemark<What>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Names in a list that no HCA here has. Whether the list may have numbers in their place.
    NotHere { names: Vec<String>, or_numbers: bool },
    /// A slot that has no GID of this container on a port; the variable for an index, and the one that is
    /// right on all ports.
    Slot { port: String, slot: i64, index: &'static str, right: Option<u32> },
    /// The library itself chooses such a slot. Unless there is an index that is right on all ports,
    /// nothing can be done about it.
    OwnSlot { port: String, slot: i64, right: Option<u32> },
    /// It may take these ports, which the job leaves out, and its variable would take from each GPU
    /// its nearest HCA.
    Strangers(Vec<String>),
    /// It may take these ports, because the variable is set to nothing.
    StrangersOfEmpty(Vec<String>),
    /// Its processes meet on this interface, which is the loopback.
    Loopback(String),
    /// It takes this port of each HCA alone, and the job uses others.
    Ports { taken: u32, others: Vec<String> },
    /// The variable leaves the library none of the HCAs that the job uses. Whether it would read NCCL's
    /// variable without this one.
    NoneOfTheJob { follows_nccl: bool },
    /// No interface is called like this, and the library ends with this message. Whether it would read
    /// NCCL's variable without this one.
    NoInterface { says: &'static str, follows_nccl: bool },
    /// Every process of a node takes the same HCA.
    OneHca,
    /// Another variable makes the library ignore this one.
    Ignored { by: &'static str },
    /// None of the values that the library takes, at which it ends.
    Ends { values: &'static str },
    /// The library does without RDMA, for any value or for this one.
    Tcp { whatever: bool },
    /// The value turns off every transport between nodes. Whether the job is known to have several.
    NoRemote { of_several: bool },
    /// This release passes over an HCA for its name, and no variable helps.
    Renamed { hca: String, release: String },
    /// NVIDIA's driver does not let a GPU ring the doorbell of an HCA.
    Doorbell,
}

pub(crate) fn fill(
    library: &'static str,
    variable: &'static str,
    value: String,
    without: WithoutVariable,
) -> Fill {
    Fill { variable, value: Some(value), why: FillReason::OwnVerbs { library, without } }
}

/// The slot that is right on all used RoCE ports, whatever the user has told NCCL. There is none if a port
/// has no GID of this container.
pub(crate) fn right_index(subject: &LibraryContext) -> Option<u32> {
    let rails = || rails(subject.facts, subject.rails.ports);
    subject.rails.gid_index.or_else(|| common_index(&of_one_family(&rails())))
}

/// The HCAs of the job.
pub(crate) fn used_hcas<'r>(subject: &'r LibraryContext) -> Vec<&'r str> {
    let used = subject.rails.ports.iter().filter(|port| port.is_used());
    let mut names: Vec<&str> = used.map(|port| port.hca.name.as_str()).collect();
    names.dedup();
    names
}

/// The ports that the job skips, and that a library which asks only libibverbs could use.
pub(crate) fn others<'a, 'r>(subject: &'r LibraryContext<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    subject.rails.ports.iter().filter(|port| !port.is_used() && visible(port.hca, port.port))
}

/// The ports that the job leaves out, and that would be taken for a GPU: those that are as near as
/// the nearest of the job. If the positions are unknown, any.
pub(crate) fn strangers(subject: &LibraryContext) -> Vec<String> {
    let gpus = &subject.facts.gpu.devices;
    let used = || subject.rails.ports.iter().filter(|port| port.is_used());
    let may_be_taken = |other: &&Candidate| {
        gpus.is_empty()
            || gpus.iter().any(|gpu| {
                let least = used().filter_map(|port| of_hca(gpu, port.hca)).min();
                let distance = of_hca(gpu, other.hca);
                least.is_none() || distance.is_none() || distance <= least
            })
    };
    match used().next() {
        Some(_) => others(subject).filter(may_be_taken).map(Candidate::name).collect(),
        None => Vec::new(),
    }
}

/// The used RoCE ports.
pub(crate) fn roce<'a, 'r>(subject: &'r LibraryContext<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    let is_roce = |port: &&Candidate| port.is_used() && port.port.link_layer == LinkLayer::Ethernet;
    subject.rails.ports.iter().filter(is_roce)
}

/// The first used RoCE port on which the slot that a library takes has no GID of this container.
/// Ports without any such GID do not count: no slot would be right.
pub(crate) fn wrong_slot(
    subject: &LibraryContext,
    taken: impl Fn(&Candidate) -> Option<i64>,
) -> Option<(String, i64)> {
    let own = OwnAddresses::of(subject.facts);
    roce(subject).find_map(|port| {
        let right = own.slots(port.port);
        let slot = taken(port)?;
        let is_wrong = !right.is_empty() && !right.iter().any(|gid| i64::from(gid.index) == slot);
        is_wrong.then(|| (port.name(), slot))
    })
}

/// The names that no HCA here has.
pub(crate) fn not_here<'v>(subject: &LibraryContext, names: impl Iterator<Item = &'v str>) -> Vec<String> {
    let is_here = |name: &str| subject.facts.rdma.iter().any(|hca| hca.name == name);
    names.filter(|name| !name.is_empty() && !is_here(name)).map(str::to_owned).collect()
}

/// What is wrong with the variable for the interface on which processes meet, in the grammar of an NCCL;
/// the library fails with the message `says` if no interface fits.
pub(crate) fn of_interface(
    subject: &LibraryContext,
    wanted: Option<&str>,
    grammar: Version,
    says: &'static str,
    follows_nccl: bool,
) -> Option<What> {
    // NCCL takes a single character for none.
    let wanted = wanted.filter(|wanted| wanted.len() > 1)?;
    let net = &subject.facts.net;
    let get = |name: &str| (name == "NCCL_SOCKET_IFNAME").then_some(wanted);
    match interfaces::first(net, get, grammar) {
        Err(_) => (!net.interfaces.is_empty()).then_some(What::NoInterface { says, follows_nccl }),
        Ok(found) => found.address.is_loopback().then_some(What::Loopback(found.interface)),
    }
}

/// Whether a switch is on, as programs usually read one.
pub(crate) fn is_on(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off" | "n" | "f")
}
