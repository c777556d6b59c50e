//! Code shared by libraries that open HCAs themselves, such as NVSHMEM, Mooncake and UCCL: they use every HCA
//! that they can open, and select a GID themselves.

use std::fmt::Display;

use super::nccl::devices::visible;
use super::nccl::interfaces;
use super::nccl::version::Version;
use super::{Fill, FillReason, LibraryContext, LibraryFinding, WrongGid};
use crate::fabric::Candidate;
use crate::fabric::distance::of_hca;
use crate::fabric::gid::{OwnAddresses, common_index, of_one_family, rails};
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};

/// What the library would do without the variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WithoutVariable {
    /// It may use these ports, which the job does not use.
    Ports(Vec<String>),
    /// It would select this GID entry of this port, which is not one of this container's GIDs.
    Slot { port: String, slot: i64 },
    /// Its traffic would have another class than NCCL's; this is NCCL's variable.
    Class(&'static str),
    /// Its queue pairs would have this class instead of the one that the administrator set on the ports.
    ClassOfPorts { takes: u8 },
    /// It would skip this HCA because of its name.
    Name(String),
    /// Its processes would bootstrap on this interface.
    Interface(String),
    /// It would use this port of an HCA, which the job does not use.
    Port(u32),
    /// It would follow this variable's index, which may become wrong if the table changes, although it finds
    /// the right entries itself.
    Pin(&'static str),
}

/// A variable of such a library, for the findings about it.
#[derive(Clone, Copy)]
pub(crate) struct OwnVariable<'s, 'a> {
    pub subject: &'s LibraryContext<'a>,
    /// The library's name in texts.
    pub library: &'static str,
    pub variable: &'static str,
}

impl OwnVariable<'_, '_> {
    pub(crate) fn warning(&self, id: Id, what: impl Display) -> Finding {
        self.subject.warning(id, self.variable, what)
    }

    pub(crate) fn removal(&self) -> String {
        format!("Remove {}, and rdma-init fills in what is needed.", self.variable)
    }

    /// Returns the fix that removes the variable; `follows_nccl` tells whether the library then reads NCCL's
    /// variable.
    fn removal_for(&self, follows_nccl: bool) -> String {
        match follows_nccl {
            true => format!(
                "Remove {}: {} then reads {}'s variable.",
                self.variable,
                self.library,
                self.subject.nccl()
            ),
            false => self.removal(),
        }
    }

    /// Returns the finding that no HCA has these names from a list.
    pub(crate) fn names_no_hca(&self, names: &[String]) -> Finding {
        let names = names.join(", ");
        let what =
            format!("{} accepts only whole names of HCAs, and no HCA here is named {names}.", self.library);
        self.warning(Id::LibraryDevices, what).with_fix(self.removal())
    }

    pub(crate) fn leaves_no_hca_of_job(&self, follows_nccl: bool) -> Finding {
        let what = format!("{} takes none of the HCAs that the job uses.", self.library);
        self.warning(Id::LibraryDevices, what).with_fix(self.removal_for(follows_nccl))
    }

    /// Returns the finding that the library uses only this port of each HCA, but the job uses others.
    pub(crate) fn takes_one_port(&self, taken: u32, others: Vec<String>) -> Finding {
        let OwnVariable { subject, library, variable } = self;
        let what = format!(
            "{library} takes only port {taken} of each HCA, and cannot use {}, which the job uses.",
            others.join(", ")
        );
        let finding = match subject.setting(variable) {
            Some(_) => self.warning(Id::LibraryDevices, what).with_fix(self.removal()),
            None => Finding::warning(Id::LibraryDevices, what)
                .about_variables([*variable])
                .with_fix(format!("Let the job use only port {taken} of its HCAs (NCCL_IB_HCA).")),
        };
        finding.about_ports(others)
    }

    /// Returns the finding that the library ignores this variable because another one is set.
    pub(crate) fn ignored_because_of(&self, other: &str) -> Finding {
        let what = format!("{} ignores it, because {other} is set.", self.library);
        let finding = self.warning(Id::LibraryDevices, what).about_variables([other]);
        finding.with_fix(format!("Remove {} or {other}.", self.variable))
    }

    /// Returns the finding that the library does not use RDMA, either for any value or for this one.
    pub(crate) fn keeps_to_tcp(&self, whatever: bool) -> Finding {
        let whatever = if whatever { ", whatever the value is" } else { "" };
        let what =
            format!("the RDMA devices are usable, but {} will still run on TCP{whatever}.", self.library);
        let fix = format!("Remove {}, unless this is intended.", self.variable);
        self.warning(Id::LibraryOnTcp, what).with_fix(fix)
    }

    /// Returns what is wrong with the variable for the bootstrap interface, in the grammar of an NCCL
    /// release. The library fails with the message `says` if no interface matches.
    pub(crate) fn of_interface(
        &self,
        wanted: Option<&str>,
        grammar: Version,
        says: &str,
        follows_nccl: bool,
    ) -> Option<Finding> {
        // NCCL treats a single character as unset.
        let wanted = wanted.filter(|wanted| wanted.len() > 1)?;
        let (net, library) = (&self.subject.facts.net, self.library);
        let get = |name: &str| (name == "NCCL_SOCKET_IFNAME").then_some(wanted);
        match interfaces::first(net, get, grammar) {
            Err(_) if net.interfaces.is_empty() => None,
            Err(_) => {
                let what =
                    format!("there is no such interface with an address, so {library} fails with {says:?}.");
                let finding = self.warning(Id::LibraryInterface, what);
                Some(finding.with_fix(self.removal_for(follows_nccl)))
            }
            Ok(found) if found.address.is_loopback() => {
                let name = found.interface;
                let what = format!(
                    "the processes of {library} will bootstrap on {name}, where no other node can reach this one."
                );
                let finding = self.warning(Id::LibraryLoopback, what).about_interfaces([name]);
                Some(finding.with_fix(self.removal()))
            }
            Ok(_) => None,
        }
    }

    /// Returns the finding that the library selects a GID entry that is not one of this container's GIDs:
    /// because of the variable `set`, or on its own if that is `None`. `self` is the variable for an index.
    pub(crate) fn wrong_gid(&self, set: Option<&'static str>, (port, slot): (String, i64)) -> LibraryFinding {
        let OwnVariable { subject, library, variable: index } = *self;
        let right = right_index(subject);
        let what =
            format!("{library} takes GID index {slot} of {port}, which is not a GID of this container");
        let Some(variable) = set else {
            let mut message = format!("{index} is not set, so {what}.");
            if right.is_none() {
                message += " One index applies to all ports, and none is right for all of them.";
            }
            let fix = match right {
                Some(right) => format!("Set {index}={right}."),
                None => {
                    format!("Use HCAs whose GIDs have the same index, or let {library} use only one HCA.")
                }
            };
            let finding = Finding::warning(Id::LibraryGid, message).about_variables([index]);
            let gid = right.is_none().then_some(WrongGid::WithoutRemedy);
            return LibraryFinding { finding: finding.about_ports([port]).with_fix(fix), gid };
        };
        let of = OwnVariable { variable, ..*self };
        let fix = match right {
            Some(right) if index == variable => format!("Remove {variable}, or set it to {right}."),
            Some(right) => format!("Remove {variable}, or set {index}={right} instead."),
            None => of.removal(),
        };
        let finding = of.warning(Id::LibraryGid, format!("{what}.")).about_ports([&port]).with_fix(fix);
        let instead = right.map(|right| (index, right));
        LibraryFinding { finding, gid: Some(WrongGid::OfVariable { variable, what, port, instead }) }
    }
}

pub(crate) fn fill(
    library: &'static str,
    variable: &'static str,
    value: String,
    without: WithoutVariable,
) -> Fill {
    Fill { variable, value: Some(value), why: FillReason::OwnVerbs { library, without } }
}

/// Returns the index that is right on all used RoCE ports, regardless of the user's NCCL settings; `None` if
/// a port has none of this container's GIDs.
pub(crate) fn right_index(subject: &LibraryContext) -> Option<u32> {
    let rails = || rails(subject.facts, subject.rails.ports);
    subject.rails.gid_index.or_else(|| common_index(&of_one_family(&rails())))
}

/// Returns the job's HCAs.
pub(crate) fn used_hcas<'r>(subject: &'r LibraryContext) -> Vec<&'r str> {
    let used = subject.rails.ports.iter().filter(|port| port.is_used());
    let mut names: Vec<&str> = used.map(|port| port.hca.name.as_str()).collect();
    names.dedup();
    names
}

/// Returns the ports that the job skips but that a library could use if it asks only libibverbs.
pub(crate) fn others<'a, 'r>(subject: &'r LibraryContext<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    subject.rails.ports.iter().filter(|port| !port.is_used() && visible(port.hca, port.port))
}

/// Returns the ports that the job skips but that the library would select for a GPU: those at least as near
/// as the job's nearest. Returns all of them if the positions are unknown.
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

/// Returns the used RoCE ports.
pub(crate) fn roce<'a, 'r>(subject: &'r LibraryContext<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    let is_roce = |port: &&Candidate| port.is_used() && port.port.link_layer == LinkLayer::Ethernet;
    subject.rails.ports.iter().filter(is_roce)
}

/// Returns the first used RoCE port on which the GID entry that a library selects is not one of this
/// container's. Ignores ports without any such GID, because no entry would be right.
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

/// Returns the names that match no HCA.
pub(crate) fn not_here<'v>(subject: &LibraryContext, names: impl Iterator<Item = &'v str>) -> Vec<String> {
    let is_here = |name: &str| subject.facts.rdma.iter().any(|hca| hca.name == name);
    names.filter(|name| !name.is_empty() && !is_here(name)).map(str::to_owned).collect()
}

/// Returns whether a switch is on, by the usual rules of programs.
pub(crate) fn is_on(value: &str) -> bool {
    !matches!(value.trim().to_ascii_lowercase().as_str(), "" | "0" | "false" | "no" | "off" | "n" | "f")
}
