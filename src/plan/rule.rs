//! The reason for a variable's value, what was tried, and the evidence, all as data.
//! [`super::words`] has the texts.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use crate::fabric::SkipReason;
use crate::fabric::distance::Distance;
use crate::fabric::interface::{Because, InterfaceChoice, InterfaceSearch, Obstacle};
use crate::fabric::subnet::Prefix;
use crate::facts::gid::Gid;
use crate::facts::rdma::LinkLayer;
use crate::libraries::nccl::gid::{Failure, Range};
use crate::libraries::nccl::version::Version;
use crate::libraries::{FillReason, Will};

/// Why a variable has its value, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// The reason that the start of this container has written down, in its words.
    AsWritten(String),
    /// This one, on a host whose NCCL is RCCL: its words name RCCL.
    OfRccl(Box<Rule>),
    SetByUser,
    /// The configuration says not to fill it in.
    Keep,
    /// The profile publishes the value.
    Published,
    /// The profile says to leave it unset.
    PublishedAsUnset,
    /// The published list selects just the HCAs to use.
    PublishedHcas,
    /// The published index is right on every HCA.
    PublishedSlot(u32),
    /// The published name selects just the interface that was chosen.
    PublishedInterface(InterfaceChoice),
    /// The published name is that of an interface, and no route shows a better one.
    PublishedInterfaceIsThere,
    /// The usable ports: `used` of all `of`.
    UsableHcas {
        used: usize,
        of: usize,
    },
    /// NCCL would take these ports, which are left out.
    KeepsFromLeftOut(Vec<String>),
    /// NCCL would take these ports, and fail.
    KeepsFromFailing(Vec<String>),
    /// The index is right on every HCA.
    RightSlot(u32),
    /// The index is right for the most ports, which are this many of all.
    MostCommonSlot {
        agreeing: usize,
        of: usize,
    },
    /// No index is set, because these releases of NCCL find the right ones: `slot` on every HCA, or
    /// another one on each.
    SearchFinds {
        releases: Vec<Version>,
        slot: Option<u32>,
    },
    /// The variable leads NCCL's own search to the right indexes, on this many of all HCAs.
    SteersSearch {
        on: usize,
        of: usize,
    },
    /// No index is set, because any would be wrong on a used HCA.
    NoSlotForAll,
    Interface(Because),
    /// The class of the ports, which NCCL's own queue pairs (GIN) would not have without it.
    ClassOfPorts,
    /// RDMA is required, and with this name NCCL takes nothing else.
    FallbackIsAnError,
    /// RDMA is required, and with this a node with fewer NICs than the others is an error.
    MismatchIsAnError,
    /// A preflight has found that no rail reaches another one.
    RailsAreApart,
    /// Each NIC has a subnet of its own, of this length, and one GPU uses them all.
    SubnetOfItsOwn(u8),
    /// The profile of this name asks for another library to follow NCCL.
    Follows(String),
    /// It fixes what a library other than NCCL would do on this host. The name is that of the key
    /// `libraries`.
    Mends(&'static str, FillReason),
}

impl Rule {
    /// Returns the library other than NCCL that it is about.
    pub fn library(&self) -> Option<&'static str> {
        match self {
            Rule::OfRccl(rule) => rule.library(),
            Rule::Mends(library, _) => Some(library),
            _ => None,
        }
    }
}

/// What a value was decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleEvidence {
    Used {
        port: String,
        link_layer: LinkLayer,
        rate: String,
    },
    LeftOut {
        port: String,
        reason: SkipReason,
    },
    /// The HCAs that are near a GPU, which is known by its number.
    NearGpu {
        gpu: usize,
        hcas: Vec<(String, Distance)>,
    },
    Slot {
        port: String,
        gid: Gid,
    },
    /// The traffic class that the administrator has set on a port.
    TrafficClass {
        port: String,
        class: u8,
    },
}

/// A rule that was tried for a variable, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub variable: &'static str,
    pub trial: Trial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// The HCAs of the Pod's resource claims alone, which leaves out these ports.
    Claims(Vec<String>),
    /// The HCAs that a device plugin has given to the Pod alone, which leaves out these ports.
    Given(Vec<String>),
    /// The interface that was found.
    Interface(InterfaceSearch, Option<String>),
    /// The published name, which does not select just that interface.
    PublishedInterface(String),
    /// No name: without one, NCCL takes these NICs, and bootstraps on the first.
    SeveralNics(Vec<String>),
    /// The HCAs near the GPUs alone, which leaves out these ports.
    NearHcas(Vec<String>),
    /// The ports of one InfiniBand subnet alone, which leaves out these.
    OneSubnet {
        rails: Prefix,
        left_out: Vec<String>,
    },
    /// Without the ports on a default route, if the others are enough.
    DefaultRoute {
        left_out: Vec<String>,
        kept: Vec<String>,
    },
    /// The published list, and whether it selects just the HCAs to use.
    PublishedHcas {
        list: String,
        fits: bool,
    },
    /// The list that has the whole names.
    NamesOfHcas(String),
    /// The published index, as it is written, and whether it is right on every HCA.
    PublishedSlot {
        index: String,
        is_right: bool,
    },
    /// No index, although NCCL may find it, because it is not sure that it does.
    NotLeft(NotLeft),
    /// The lowest index that is right on every HCA.
    CommonSlot(Option<u32>),
    /// No index, but NCCL's own search.
    Search {
        version: Version,
        range: Option<Range>,
        end: SearchEnd,
    },
    MostCommonSlot {
        index: u32,
        agreeing: usize,
        of: usize,
    },
    /// Another index that is right, with what each HCA has in it.
    OtherSlot {
        index: u32,
        gids: Vec<Gid>,
        why: NotTaken,
    },
    /// Another index of a port that is right, but NCCL's search ends on `end`.
    OtherSlotOfPort {
        port: String,
        gid: Gid,
        end: Gid,
    },
}

/// Why NCCL is not left to find the index, although one is right on every HCA now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotLeft {
    /// The job's NCCL was not found.
    NotFound,
    /// The release of this copy in the image is not known.
    Unknown(PathBuf),
    /// The search of this release in the image may fail after a change of the table, or it has none.
    Older(Version),
    /// This net plugin carries the traffic, and may not search.
    Plugin(String),
    /// The search of RCCL is not known well enough.
    Rccl,
}

/// What NCCL's own search for a GID comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchEnd {
    /// A right index of every HCA.
    Right,
    WrongSlot {
        port: String,
        slot: u32,
    },
    Fails {
        port: String,
        failure: Failure,
    },
}

/// Why an index that is right is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// It is right on this many of all HCAs.
    RightOnSome { right: usize, of: usize },
    /// It has IPv4 on some HCAs, and IPv6 on others.
    OfTwoFamilies,
    /// It has IPv6, and another index IPv4.
    OfIpv6,
    /// This index is published.
    Published(u32),
    /// This index is lower.
    Higher(u32),
}

/// Why there is no RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRdmaReason {
    NoDevice,
    /// The device of this uverbs node is in another network namespace.
    OtherNamespace(String),
    /// What could not be read, and the error.
    Hidden {
        path: PathBuf,
        error: String,
    },
    /// The ports, by the reason for which they are left out.
    NoneUsed(Vec<(SkipReason, Vec<String>)>),
    NoDeviceForPlugin,
    /// A net plugin needs interfaces of these names, and none can be used.
    NoInterfaceForPlugin(Vec<String>),
    /// The interface that the fabric is behind.
    Interface(String, Obstacle),
}

impl NoRdmaReason {
    /// Returns the interface that is missing, or cannot be used.
    pub fn interface(&self) -> Option<&str> {
        match self {
            NoRdmaReason::Interface(name, _) => Some(name),
            NoRdmaReason::NoDevice
            | NoRdmaReason::OtherNamespace(_)
            | NoRdmaReason::Hidden { .. }
            | NoRdmaReason::NoneUsed(_)
            | NoRdmaReason::NoDeviceForPlugin
            | NoRdmaReason::NoInterfaceForPlugin(_) => None,
        }
    }
}

/// What a profile is recognized by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// The first HCA that fits, its driver if that shows it, and how many others fit.
    Hca {
        name: String,
        driver: Option<String>,
        more: usize,
    },
    NoHca,
    LinkLayer(String),
    Interface(String),
    InterfaceUp(String),
    InterfaceDriver {
        name: String,
        driver: String,
    },
    /// A text of the host, such as the maker's name, and what it says.
    Text {
        what: &'static str,
        found: String,
    },
    /// The name of a variable.
    Variable(String),
    /// The path of a file or directory.
    File(String),
    /// An attribute of a device that a resource claim of the Pod holds.
    ClaimedAttribute {
        name: String,
        value: String,
    },
}

/// What the configuration, or the profile, has to say about a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The configuration says never to fill it in.
    Keep,
    NoProfile,
    /// The profile of this name.
    Profile(String, OfProfile),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfProfile {
    Value(String),
    /// Under these conditions, and whether they hold on this host.
    Only {
        value: String,
        conditions: Vec<String>,
        counts: bool,
    },
    /// The value of this variable of the platform, if it is set.
    FromVariable(String),
    Unset,
    HandsOff,
    Companion,
    Nothing,
}

/// What NCCL knows of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NcclKnowledge {
    /// The first and the last release that read it, if not all do.
    Read { since: Option<Version>, until: Option<Version> },
    /// No release reads it. `similar` is a name that one does read.
    Never { similar: Option<String> },
}

macro_rules! written_in_words {
    ($($name:ident),+) => {
        $(
            /// A document has the words, and not the data.
            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
        )+
    };
}

written_in_words!(Rule, RuleEvidence, NoRdmaReason, Sign, Published, NcclKnowledge, Will);
