//! What libraries share that open HCAs themselves, as NVSHMEM, Mooncake and UCCL do: they take what
//! they can open, and a GID of their own choice.

use super::nccl::devices::visible;
use super::nccl::interfaces;
use super::nccl::number::strtoll;
use super::nccl::version::Version;
use super::{Fill, Subject, Why};
use crate::fabric::distance::of_hca;
use crate::fabric::gid::{Rail, common_index, of_one_family, rails};
use crate::fabric::{Candidate, own_slots};
use crate::facts::rdma::LinkLayer;

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
    /// It would take this port of an HCA, which the job does not use.
    Port(u32),
}

/// What is wrong with a variable of such a library.
pub type Remark = super::About<What>;

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
    /// This release passes over an HCA for its name, and no variable helps.
    Renamed { hca: String, release: String },
    /// NVIDIA's driver does not let a GPU ring the doorbell of an HCA.
    Doorbell,
}

pub fn fill(library: &'static str, variable: &'static str, value: String, without: Without) -> Fill {
    Fill { variable, value, why: Why::OwnVerbs { library, without } }
}

/// The traffic class of NCCL for a library's own variable, where nobody has set that.
pub fn class_of_nccl(subject: &Subject, library: &'static str, variable: &'static str) -> Option<Fill> {
    const OF_NCCL: &str = "NCCL_IB_TC";
    // NCCL reads 0x6a and 0152 as C does. Most others read decimal numbers alone.
    let class = strtoll(subject.value(OF_NCCL)?).filter(|class| (1..256).contains(class))?;
    let is_free = subject.value(variable).is_none() && roce(subject).next().is_some();
    is_free.then(|| fill(library, variable, class.to_string(), Without::Class(OF_NCCL)))
}

/// The slot that is right on all used RoCE ports, whatever the user has told NCCL.
pub fn right_index(subject: &Subject) -> Option<u32> {
    let with_slots = || -> Vec<Rail> {
        let rails = rails(subject.facts, subject.rails.ports);
        rails.into_iter().filter(|rail| !rail.slots.is_empty()).collect()
    };
    subject.rails.gid_index.or_else(|| common_index(&of_one_family(&with_slots())))
}

/// The HCAs of the job.
pub fn used_hcas<'r>(subject: &'r Subject) -> Vec<&'r str> {
    let used = subject.rails.ports.iter().filter(|port| port.is_used());
    let mut names: Vec<&str> = used.map(|port| port.hca.name.as_str()).collect();
    names.dedup();
    names
}

/// The ports that the job leaves out, and that whoever asks libibverbs alone could use.
pub fn others<'a, 'r>(subject: &'r Subject<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    subject.rails.ports.iter().filter(|port| !port.is_used() && visible(port.hca, port.port))
}

/// The ports that the job leaves out, and that would be taken for a GPU: those that are as near as
/// the nearest of the job. Where the places are not known, any.
pub fn strangers(subject: &Subject) -> Vec<String> {
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

/// The names that no HCA here has.
pub fn not_here<'v>(subject: &Subject, names: impl Iterator<Item = &'v str>) -> Vec<String> {
    let is_here = |name: &str| subject.facts.rdma.iter().any(|hca| hca.name == name);
    names.filter(|name| !name.is_empty() && !is_here(name)).map(str::to_owned).collect()
}

/// What is wrong with the variable for the interface on which processes meet, in the grammar of an NCCL;
/// the library ends with the message `says` where no interface fits.
pub fn of_interface(
    subject: &Subject,
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
pub fn is_on(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off" | "n" | "f")
}
