//! The reason for a variable's value, the rules that were tried, and the evidence, all as data. The texts are
//! in [`super::words`].

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

/// Why a variable has its value, or no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A sentence that no code matches on.
    AsWritten(String),
    /// The same rule on a host whose NCCL is RCCL: its text names RCCL.
    OfRccl(Box<Rule>),
    /// The value is that of this variable of the platform, and the rule is the one for a published value.
    OfVariable(String, Box<Rule>),
    SetByUser,
    /// The configuration says never to fill in the variable.
    Keep,
    /// The profile publishes the value.
    Published,
    /// The profile says to leave the variable unset.
    PublishedAsUnset,
    /// The published list selects exactly the HCAs to use.
    PublishedHcas,
    /// The published name selects exactly the chosen interface.
    PublishedInterface(InterfaceChoice),
    /// The published name is an interface's name, and no route shows a better one.
    PublishedInterfaceIsThere,
    /// The usable ports: `used` of `of` ports.
    UsableHcas {
        used: usize,
        of: usize,
    },
    /// The value keeps NCCL from using these ports, which the plan skips.
    AvoidsSkippedPorts(Vec<String>),
    /// The HCAs that Kubernetes has given to the Pod, none of which has a link now. Without the list, NCCL would use
    /// these other ports.
    HeldHcas(Vec<String>),
    /// The value keeps NCCL from using these ports, on which it would fail.
    AvoidsFailingPorts(Vec<String>),
    /// The index is right on the most ports: `agreeing` of `of` ports.
    MostCommonSlot {
        agreeing: usize,
        of: usize,
    },
    /// No index is set, because these releases of NCCL find the right ones: `slot` on every HCA, or a
    /// different one on each.
    SearchFinds {
        releases: Vec<Version>,
        slot: Option<u32>,
    },
    /// No index is set, because any index would be wrong on a used HCA.
    NoCommonIndex,
    Interface(Because),
    /// The class of the ports. Without this variable, NCCL's own queue pairs (GIN) would not have this class.
    ClassOfPorts,
    /// RDMA is required, and with this name NCCL uses no other network.
    FallbackIsAnError,
    /// RDMA is required, and with this value a node with fewer NICs than the others is an error.
    MismatchIsAnError,
    /// Each NIC has a subnet of its own, of this length, and one GPU uses them all.
    SubnetPerNic(u8),
    /// The profile with this name makes another library follow NCCL.
    Follows(String),
    /// The value fixes what a library other than NCCL would do on this host. The name is the one in the key
    /// `libraries`.
    FillsForLibrary(&'static str, FillReason),
}

impl Rule {
    /// Returns the library other than NCCL that the rule is about.
    pub fn library(&self) -> Option<&'static str> {
        match self {
            Rule::OfRccl(rule) | Rule::OfVariable(_, rule) => rule.library(),
            Rule::FillsForLibrary(library, _) => Some(library),
            _ => None,
        }
    }
}

/// The evidence for a value.
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
    /// The HCAs near a GPU, which is identified by its number.
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

/// A rule that was tried for a variable, and the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub variable: &'static str,
    pub trial: Trial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// Use only the HCAs in the Pod's resource claims, and skip these ports.
    Claims(Vec<String>),
    /// Use only the HCAs that a device plugin or a DRA driver has given to the Pod, and skip these ports.
    Given(Vec<String>),
    /// The search for the interface, and the interface that it found.
    Interface(InterfaceSearch, Option<String>),
    /// The published name, which does not select exactly that interface.
    PublishedInterface(String),
    /// No name: without one, NCCL uses these NICs, and bootstraps on the first.
    SeveralNics(Vec<String>),
    /// Use only the HCAs near the GPUs, and skip these ports.
    NearHcas(Vec<String>),
    /// Use only the ports of one InfiniBand subnet, and skip the others.
    OneSubnet {
        rails: Prefix,
        left_out: Vec<String>,
    },
    /// Use only the ports of one rate, and skip the slower ones.
    OneRate {
        rails: String,
        left_out: Vec<String>,
    },
    /// Skip the ports on a default route, if the others are enough.
    DefaultRoute {
        left_out: Vec<String>,
        kept: Vec<String>,
    },
    /// Use only the HCAs that the user's own profile names, and skip these ports.
    OwnProfile {
        profile: String,
        left_out: Vec<String>,
    },
    /// The published list, and whether it selects exactly the HCAs to use.
    PublishedHcas {
        list: String,
        fits: bool,
    },
    /// The list with exact names.
    NamesOfHcas(String),
    /// The published index, as written, and whether it is right on every HCA.
    PublishedSlot {
        index: String,
        is_right: bool,
    },
    /// Leave the index to NCCL. This is ruled out, because it is not certain that NCCL would find it.
    NotLeftToNccl(NotLeftToNccl),
    /// The lowest index that is right on every HCA.
    CommonSlot(Option<u32>),
    /// Leave the index to NCCL's own search.
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
    /// Another index that is right, with each HCA's entry at that index.
    OtherSlot {
        index: u32,
        gids: Vec<Gid>,
        why: NotTaken,
    },
    /// Another index of a port that is also right, but NCCL's search finds `end`.
    OtherSlotOfPort {
        port: String,
        gid: Gid,
        end: Gid,
    },
}

/// Why the plan does not leave the index to NCCL, although an index is right on every HCA now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotLeftToNccl {
    /// The job's NCCL was not found.
    NotFound,
    /// The release of this copy in the image is unknown.
    Unknown(PathBuf),
    /// The search of this release in the image may fail after the table has changed, or the release has no
    /// search.
    Older(Version),
    /// This net plugin carries the traffic, and may not search for a GID.
    Plugin(String),
    /// RCCL's search is not known well enough.
    Rccl,
}

/// The result of NCCL's own search for a GID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchEnd {
    /// The search finds a right index on every HCA.
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

/// Why the plan does not use an index that is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// The index is right on this many of all HCAs.
    RightOnSome { right: usize, of: usize },
    /// The index holds an IPv4 address on some HCAs, and an IPv6 address on others.
    OfTwoFamilies,
    /// The index holds IPv6 addresses, and another index holds IPv4 addresses.
    OfIpv6,
    /// The platform publishes this other index.
    Published(u32),
    /// This other index is lower.
    Higher(u32),
}

/// Why there is no RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRdmaReason {
    NoDevice,
    /// The devices of these uverbs nodes are in another network namespace.
    OtherNamespace(Vec<String>),
    /// The path that could not be read, and the error.
    Hidden {
        path: PathBuf,
        error: String,
    },
    /// The ports, grouped by the reason why they are skipped.
    NoneUsed(Vec<(SkipReason, Vec<String>)>),
    NoDeviceForPlugin,
    /// The net plugin needs interfaces with these names, but none of them can be used.
    NoInterfaceForPlugin(Vec<String>),
    /// The interface that provides the fabric, and why it cannot be used.
    Interface(String, Obstacle),
}

impl NoRdmaReason {
    /// Returns the interface that is missing or cannot be used.
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

/// The evidence by which a profile is recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// The first HCA that fits, its driver if the driver is the evidence, and the number of other HCAs that
    /// fit.
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
    /// A text about the host, such as its vendor's name: what it describes, and the text itself.
    Text {
        what: &'static str,
        found: String,
    },
    /// The name of a variable.
    Variable(String),
    /// The path of a file or directory.
    File(String),
    /// An attribute of a device in one of the Pod's resource claims.
    ClaimedAttribute {
        name: String,
        value: String,
    },
}

/// What the configuration or the profile says about a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The configuration says never to fill it in.
    Keep,
    NoProfile,
    /// The profile with this name.
    Profile(String, OfProfile),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfProfile {
    Value(String),
    /// The value applies under these conditions; `counts` is true if they hold on this host.
    Only {
        value: String,
        conditions: Vec<String>,
        counts: bool,
    },
    /// The value comes from this variable of the platform, if it is set.
    FromVariable(String),
    Unset,
    HandsOff,
    Companion,
    Nothing,
}

/// What NCCL knows about a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NcclKnowledge {
    /// The first and the last release that read it, if not all releases do.
    Read { since: Option<Version>, until: Option<Version> },
    /// No release reads it. `similar` is a similar name that some release reads.
    Never { similar: Option<String> },
}

macro_rules! written_in_words {
    ($($name:ident),+) => {
        $(
            /// Serializes the text, not the data.
            impl Serialize for $name {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
        )+
    };
}

written_in_words!(Rule, RuleEvidence, NoRdmaReason, Sign, Published, NcclKnowledge, Will);
