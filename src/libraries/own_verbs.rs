//! Code shared by libraries that open HCAs themselves, such as NVSHMEM, Mooncake and UCCL: they use every HCA
//! that they can open, and select a GID themselves.

use std::fmt::Display;

use super::nccl::devices::visible;
use super::nccl::interfaces;
use super::nccl::number::atoi;
use super::nccl::version::Version;
use super::traffic_class::{self, ClassVariable};
use super::{Fill, LibraryContext, LibraryFinding, WrongGid, lead};
use crate::fabric::Candidate;
use crate::fabric::distance::of_hca;
use crate::fabric::gid::{OwnAddresses, common_index, of_one_family, rails};
use crate::fabric::interface::obstacle;
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};
use crate::text::condensed;

/// A library that opens HCAs itself, as data. The functions at the end have what only this library does.
pub(super) struct VerbsLibrary {
    /// Its name in texts.
    pub title: &'static str,
    pub lists: &'static [HcaList],
    pub gids: &'static [GidVariables],
    pub classes: &'static [&'static ClassVariable],
    pub interface: Option<InterfaceVariable>,
    pub also_fill: fn(&LibraryContext, &mut Vec<Fill>),
    pub also_find: fn(&LibraryContext) -> Vec<LibraryFinding>,
}

type HcasAndStrangers = (Vec<String>, Vec<String>);
type Asks = fn(&LibraryContext) -> bool;

/// A variable that lists the HCAs to use.
pub(super) struct HcaList {
    pub name: &'static str,
    pub grammar: Grammar,
    /// Returns the HCAs of the job in this grammar, and the ports that the library may use without the list; `None` if
    /// rdma-init does not fill it in.
    pub wanted: fn(&LibraryContext) -> Option<HcasAndStrangers>,
    /// Returns whether the library heeds such a value.
    pub counts: fn(&str) -> bool,
    /// Returns whether the release reads the list.
    pub is_read: Asks,
    /// If this variable is set, the library ignores the list.
    pub ignored_for: Option<&'static str>,
}

impl HcaList {
    /// A list that rdma-init does not fill in.
    pub(super) const fn new(name: &'static str, grammar: Grammar) -> HcaList {
        let counts = |value: &str| !value.is_empty();
        HcaList { name, grammar, wanted: |_| None, counts, is_read: |_| true, ignored_for: None }
    }
}

/// How a library reads a list of whole names of HCAs.
#[derive(Clone, Copy)]
pub(super) struct Grammar {
    /// With a leading `^`, the list names the HCAs to leave out.
    pub excludes: bool,
    /// Spaces around a name do not count.
    pub trims: bool,
    /// A port may follow a name.
    pub ports: bool,
}

/// The variables that select a GID, or steer the search for one.
pub(super) struct GidVariables {
    pub index: &'static str,
    pub others: &'static [&'static str],
    /// If the library searches as NCCL does: its variables for a family and a range, and whether the release searches.
    pub lead: Option<([&'static str; 2], Asks)>,
    /// Returns the index at which the library ends on a port with the context's variables, the user's own index included;
    /// `None` if it does not use the port, or if other findings cover that.
    pub taken: fn(&LibraryContext, &Candidate) -> Option<i64>,
}

/// The variable for the interface on which the library's processes bootstrap.
pub(super) struct InterfaceVariable {
    pub name: &'static str,
    /// Given the name of the job's interface, returns the one that the library takes without the variable, and the value
    /// that selects the job's; `None` if the library cannot use that one.
    pub meets: fn(&LibraryContext, &str) -> Option<(String, String)>,
    /// Returns what is wrong with a value that is not empty.
    pub wrong: fn(&OwnVariable, &str) -> Option<Finding>,
}

impl GidVariables {
    /// A variable for an index alone.
    pub(super) const fn index(
        index: &'static str,
        taken: fn(&LibraryContext, &Candidate) -> Option<i64>,
    ) -> GidVariables {
        GidVariables { index, others: &[], lead: None, taken }
    }

    /// Returns the first of the variables that is set. One that is set to an empty value also keeps rdma-init from
    /// filling in the right value.
    fn set(&self, subject: &LibraryContext) -> Option<&'static str> {
        let mut all = std::iter::once(&self.index).chain(self.others);
        all.find(|name| subject.value(name).is_some()).copied()
    }
}

/// The NCCL release that searches for a GID as NVSHMEM and UCCL do.
pub(super) const SEARCHES_AS: Version = Version::new(2, 27, 7);

impl VerbsLibrary {
    pub(super) const fn new(title: &'static str) -> VerbsLibrary {
        VerbsLibrary {
            title,
            lists: &[],
            gids: &[],
            classes: &[],
            interface: None,
            also_fill: |_, _| (),
            also_find: |_| Vec::new(),
        }
    }

    /// Returns what the library would get wrong on this host.
    pub(super) fn fills(&self, subject: &LibraryContext) -> Vec<Fill> {
        let (library, mut fills) = (self.title, Vec::new());
        for list in self.lists.iter().filter(|list| subject.value(list.name).is_none()) {
            let Some((hcas, strangers)) = (list.wanted)(subject) else { continue };
            if !hcas.is_empty() && !strangers.is_empty() {
                let strangers = condensed(&strangers);
                let why = format!("without it, {library} may take {strangers}, which the job skips");
                fills.push(Fill::new(list.name, hcas.join(","), why));
            }
        }
        for gid in self.gids.iter().filter(|gid| gid.set(subject).is_none()) {
            let wrong = wrong_slot(subject, |port| (gid.taken)(subject, port));
            let Some((port, slot)) = wrong else { continue };
            let why = format!(
                "without it, {library} would take GID index {slot} of {port}, which is not a GID of this container"
            );
            let index = || Some((gid.index, right_index(subject)?.to_string()));
            let values = match gid.lead {
                Some((variables, searches)) => {
                    let searches = searches(subject);
                    lead::by_lead_or(subject, searches, gid.taken, variables, index)
                }
                None => Vec::from_iter(index()),
            };
            fills.extend(values.into_iter().map(|(variable, value)| Fill::new(variable, value, &why)));
        }
        (self.also_fill)(subject, &mut fills);
        fills.extend(self.classes.iter().filter_map(|class| traffic_class::of_job(subject, class)));
        fills.extend(self.interface.as_ref().and_then(|interface| self.fill_interface(subject, interface)));
        fills
    }

    fn fill_interface(&self, subject: &LibraryContext, interface: &InterfaceVariable) -> Option<Fill> {
        let wanted = subject.rails.interface?;
        let (meets, value) = (interface.meets)(subject, wanted)?;
        let why = format!("without it, {} would bootstrap on {meets}", self.title);
        // The user may have set NCCL to use loopback.
        let is_needed = meets != wanted && obstacle(subject.facts, wanted).is_none();
        (is_needed && subject.value(interface.name).is_none()).then(|| Fill::new(interface.name, value, why))
    }

    /// Returns what is wrong with the variables.
    pub(super) fn findings(&self, subject: &LibraryContext) -> Vec<LibraryFinding> {
        let of = |variable| OwnVariable { subject, library: self.title, variable };
        let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
        let lists = self.lists.iter().filter_map(|list| of(list.name).check_list(list));
        let interface = self
            .interface
            .iter()
            .filter_map(|InterfaceVariable { name, wrong, .. }| wrong(&of(name), value(name)?));
        let gids = self.gids.iter().filter_map(|gid| {
            let wrong = wrong_slot(subject, |port| (gid.taken)(subject, port))?;
            Some(of(gid.index).wrong_gid(gid.set(subject), wrong))
        });
        let also = (self.also_find)(subject);
        lists.map(Into::into).chain(also).chain(interface.map(Into::into)).chain(gids).collect()
    }
}

/// Returns the names of the job's HCAs.
pub(super) fn names(subject: &LibraryContext) -> Vec<String> {
    used_hcas(subject).into_iter().map(str::to_owned).collect()
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
    /// Returns what is wrong with a list of HCAs.
    fn check_list(&self, list: &HcaList) -> Option<Finding> {
        let Grammar { excludes, trims, ports } = list.grammar;
        let set = |name| self.subject.value(name).filter(|value| !value.is_empty());
        let value = self.subject.value(list.name).filter(|value| (list.counts)(value))?;
        if !(list.is_read)(self.subject) {
            return None;
        }
        if let Some(other) = list.ignored_for.filter(|other| set(other).is_some()) {
            return Some(self.ignored_because_of(other));
        }
        let (is_excluded, names) = match value.strip_prefix('^').filter(|_| excludes) {
            Some(names) => (true, names),
            None => (false, value),
        };
        let names = names.split(',').map(|entry| if trims { entry.trim() } else { entry });
        // Each name, and the port behind it.
        let split = |entry: &'_ str| match entry.split_once(':').filter(|_| ports) {
            Some((name, port)) => (name.to_owned(), port.split(':').next().map(atoi)),
            None => (entry.to_owned(), None),
        };
        let entries: Vec<(String, Option<i64>)> =
            names.filter(|entry| !entry.is_empty()).map(split).collect();
        let lost = not_here(self.subject, entries.iter().map(|(name, _)| name.as_str()));
        if !lost.is_empty() {
            let lost = lost.join(", ");
            let what = format!(
                "{} accepts only whole names of HCAs, and no HCA here is named {lost}.",
                self.library
            );
            return Some(self.warning(Id::LibraryDevices, what).with_fix(self.removal()));
        }
        let is_named = |port: &Candidate| {
            let is_it =
                |number: Option<i64>| number.is_none_or(|number| number == i64::from(port.port.number));
            entries.iter().any(|(name, number)| *name == port.hca.name && is_it(*number))
        };
        let mut used = self.subject.rails.ports.iter().filter(|port| port.is_used()).peekable();
        let leaves_none = used.peek().is_some() && used.all(|port| is_named(port) == is_excluded);
        leaves_none.then(|| self.leaves_no_hca_of_job(false))
    }

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
    pub(crate) fn check_interface(
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
