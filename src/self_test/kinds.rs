//! All checks that exist.

use clap::ValueEnum;

use super::check::{Check, Outcome};
use super::evidence::{
    Evidence, address, count, counters, findings_alone, gpu_nic, image, job, limits, memory, mtu, nvlink,
    pci, ports,
};
use super::obstacle::About;
use crate::facts::Facts;
use crate::finding::Id;
use crate::plan::Plan;

/// A kind of check, before it runs.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub id: &'static str,
    pub title: &'static str,
    pub level: Level,
    /// The findings, of the plan and of its checks, that belong to this check.
    pub findings: &'static [Id],
    /// What the check examines; [`evidence::findings_alone`] if only findings count.
    pub look: Look,
}

/// Examines what is known about a host, and what was decided for it.
pub type Look = fn(&Facts, &Plan) -> Evidence;

/// How far a self-test goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    /// Read files and limits only
    Quick,
    /// Open and use every device through verbs as well, each in a process of its own
    Verbs,
    /// Every rail to another node.
    #[value(skip)]
    Pair,
}

impl Kind {
    /// Returns this check as skipped, with the reason.
    pub fn skipped(&self, why: &str) -> Check {
        Check { message: Some(why.to_owned()), ..check(self.id, Outcome::Skipped) }
    }
}

/// Returns a check with this outcome, and nothing else.
pub fn check(id: &str, outcome: Outcome) -> Check {
    Check {
        id: id.to_owned(),
        title: find(id).map_or("", |kind| kind.title).to_owned(),
        outcome,
        subject: None,
        evidence: Vec::new(),
        message: None,
        fix: None,
        took_us: 0,
        is_in_plan: false,
    }
}

const fn quick(id: &'static str, title: &'static str, look: Look, findings: &'static [Id]) -> Kind {
    Kind { id, title, level: Level::Quick, findings, look }
}

const fn verbs(id: &'static str, title: &'static str) -> Kind {
    Kind { id, title, level: Level::Verbs, findings: &[], look: findings_alone }
}

const fn pair(id: &'static str, title: &'static str) -> Kind {
    Kind { id, title, level: Level::Pair, findings: &[], look: findings_alone }
}

/// All checks, in the order of the report.
pub const KINDS: &[Kind] = &[
    quick("memlock", "memory can be pinned", limits::memlock, &[Id::Memlock]),
    quick("nofile", "files that may be open", limits::nofile, &[]),
    quick("stack", "size of the stack", limits::stack, &[]),
    quick("shared-memory", "room in /dev/shm", memory::room, &[Id::SharedMemory]),
    quick("shared-memory-writable", "/dev/shm can be written", memory::writable, &[]),
    quick("state", "the state directory can be written", job::state, &[]),
    quick("libibverbs", "libibverbs in the image", image::libibverbs, &[Id::NoLibibverbs]),
    quick("provider", "provider for each HCA", image::provider, &[Id::NoProvider, Id::ProviderKernelAbi]),
    quick("librdmacm", "librdmacm in the image", image::librdmacm, &[]),
    quick(
        "nccl",
        "NCCL in the image",
        image::nccl,
        &[
            Id::OtherArchitecture,
            Id::NcclVersionsDiffer,
            Id::NcclVersion,
            Id::NcclTooOld,
            Id::NoHangDiagnosis,
        ],
    ),
    quick("cuda", "CUDA of the image", image::cuda, &[Id::CudaTooOld]),
    quick(
        "plugin",
        "net plugin",
        image::plugin,
        &[Id::PluginNotFound, Id::NoPlugin, Id::EnvPlugin, Id::TunerNotNamed],
    ),
    quick(
        "fabric",
        "a fabric for the job",
        job::fabric,
        &[
            Id::NoFabric,
            Id::NoUsableHca,
            Id::NoRdma,
            Id::RdmaNamespace,
            Id::NotAllotted,
            Id::NoHcaSelected,
            Id::DefaultRouteHcaSkipped,
            Id::IbDisabled,
            Id::UnexpectedHcas,
            Id::SeveralIbSubnets,
        ],
    ),
    quick("unused", "ports that the job leaves alone", ports::unused, &[Id::IdleHcas]),
    quick("uverbs", "uverbs nodes can be opened", ports::uverbs, &[Id::UverbsDenied]),
    quick("port", "ports are ACTIVE", ports::state, &[Id::PortDown]),
    quick(
        "device",
        "devices that NCCL works on",
        ports::device,
        &[
            Id::Iwarp,
            Id::ErdmaIwarp,
            Id::UnknownDevice,
            Id::MixedLinkLayers,
            Id::NvswitchHca,
            Id::TooManyHcas,
            Id::PublishedHcasDiffer,
        ],
    ),
    quick("rate", "rates are equal", ports::rate, &[Id::RatesDiffer]),
    quick("pci-link", "PCI links at full speed and width", pci::pci_links, &[]),
    quick("counters", "no errors on the links", counters::counters, &[]),
    quick("gpu-nic", "a near HCA for each GPU", gpu_nic::gpu_nic, &[]),
    quick(
        "gid",
        "GID indexes",
        ports::gid,
        &[
            Id::NoOwnGid,
            Id::GidIndex,
            Id::GidChanged,
            Id::GidSearch,
            Id::GidSlotsDiffer,
            Id::AddrRange,
            Id::AddressFamily,
            Id::PublishedGidDiffers,
        ],
    ),
    quick("pkey", "full members of a partition", ports::pkey, &[Id::Pkey]),
    quick(
        "traffic-class",
        "one traffic class",
        ports::traffic_class,
        &[Id::TrafficClass, Id::TrafficClassesDiffer],
    ),
    quick("address", "rails have an address", address::addresses, &[Id::NoAddress]),
    quick("mtu", "MTU is equal on all rails", mtu::mtus, &[Id::MtuDiffers, Id::ErdmaMtu]),
    quick("route", "rails have a route", ports::route, &[Id::NoRoute, Id::OverlappingSubnets, Id::RailOrder]),
    quick(
        "interface",
        "interface of the bootstrap",
        job::bootstrap,
        &[
            Id::StaleInterface,
            Id::NoInterface,
            Id::LocalInterface,
            Id::WirelessBootstrap,
            Id::InterfaceDown,
            Id::InterfaceMissing,
            Id::BootstrapOnRail,
            Id::DefaultRouteRail,
            Id::MasterLoopback,
            Id::MasterUnknown,
            Id::CommId,
            Id::PublishedInterfaceDiffers,
        ],
    ),
    quick(
        "count",
        "as many cards and NICs as published",
        count::count,
        &[
            Id::CardCount,
            Id::NicCount,
            Id::GivenHcasIdle,
            Id::GivenDeviceMissing,
            Id::OneHcaClaimed,
            Id::ForeignHcas,
            Id::MoreHcasThanGpus,
        ],
    ),
    quick(
        "gpudirect",
        "NICs reach the memory of GPUs",
        job::gpudirect,
        &[Id::NoGpudirect, Id::C2cGpudirect, Id::DataDirect],
    ),
    quick(
        "nvlink",
        "NVLink to the GPUs of other nodes",
        nvlink::nvlink,
        &[Id::ImexChannel, Id::NvlinkUnused],
    ),
    quick(
        "variables",
        "variables mean what they seem to",
        job::variables,
        &[
            Id::ConfFile,
            Id::ConfLine,
            Id::DebugLevel,
            Id::EqualProfiles,
            Id::ForeignTrafficClass,
            Id::IbTimeout,
            Id::IdleInProfile,
            Id::IgnoredMismatch,
            Id::KeptBack,
            Id::Level,
            Id::ListSeparator,
            Id::ListTooLong,
            Id::MissingFile,
            Id::MisspeltVariable,
            Id::NcclConfValue,
            Id::NotANumber,
            Id::NotAsPublished,
            Id::OneCharacter,
            Id::OutOfRange,
            Id::PlatformValue,
            Id::PrefixMatch,
            Id::RepeatedSign,
            Id::RetiredName,
            Id::ScriptNotSourced,
            Id::SlowValue,
            Id::StaleHca,
            Id::SubnetPrefix,
            Id::SwitchValue,
            Id::TuningList,
            Id::UnknownInstanceType,
            Id::UnknownPolicy,
            Id::UnknownVariable,
            Id::VariableName,
            Id::VariableOfOtherRelease,
        ],
    ),
    quick(
        "libraries",
        "libraries beside NCCL",
        job::libraries,
        &[
            Id::FaultyRelease,
            Id::LibraryBroken,
            Id::LibraryDevices,
            Id::LibraryGid,
            Id::LibraryInterface,
            Id::LibraryLoopback,
            Id::LibraryOnTcp,
            Id::LibraryValue,
            Id::LibraryVersionsDiffer,
            Id::NodeAddress,
            Id::VllmMapping,
            Id::VllmNodeList,
        ],
    ),
    quick("signals", "a stop reaches the command", job::signals, &[Id::ShellIsPid1]),
    quick("readable", "what describes this host can be read", findings_alone, &[Id::Unreadable]),
    quick(
        "nccl-decides",
        "NCCL will use the fabric",
        job::nccl,
        &[
            Id::NoNetwork,
            Id::RunsOnTcp,
            Id::EmptyValue,
            Id::NicFusion,
            Id::NicsOfSeveralCards,
            Id::PortFailover,
        ],
    ),
    verbs("verbs-open", "the device opens through verbs"),
    verbs("verbs-memory", "memory can be registered"),
    verbs("verbs-loopback", "data arrives over the port"),
    pair("pair-connect", "another node is there"),
    pair("pair-rails", "as many rails on both nodes"),
    pair("pair-link-layer", "one link layer on both ends of each rail"),
    pair("pair-gid", "one type and family of GIDs on both ends"),
    pair("pair-mtu", "one MTU on both ends"),
    pair("pair-nccl", "one release of NCCL on both nodes"),
    pair("pair-data", "data arrives over the rail, both ways"),
];

/// Returns the check that a finding belongs to.
pub fn of_finding(id: Id) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.findings.contains(&id))
}

/// Returns the check that an obstacle belongs to.
pub fn of_obstacle(about: About) -> Option<&'static Kind> {
    match about {
        About::Fabric => find("fabric"),
        About::Bootstrap => find("interface"),
        About::Network => find("nccl-decides"),
        About::Finding(id) => of_finding(id),
    }
}

/// Returns whether the check with this ID is on this level.
pub fn is_of(level: Level, id: &str) -> bool {
    find(id).is_some_and(|kind| kind.level == level)
}

pub fn find(id: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_distinct_and_no_finding_has_two_checks() {
        let ids: BTreeSet<&str> = KINDS.iter().map(|kind| kind.id).collect();
        assert_eq!(ids.len(), KINDS.len());
        let findings: Vec<Id> = KINDS.iter().flat_map(|kind| kind.findings).copied().collect();
        let distinct: BTreeSet<Id> = findings.iter().copied().collect();
        assert_eq!(findings.len(), distinct.len());
    }
}
