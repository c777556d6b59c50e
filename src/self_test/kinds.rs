//! All checks that exist.

use clap::ValueEnum;

use super::check::{Check, Outcome};
use super::evidence::{
    Evidence, address, count, counters, findings_alone, gpu_nic, image, job, limits, memory, mtu, nvlink,
    pci, ports,
};
use crate::facts::Facts;
use crate::plan::Plan;
use crate::text::name_program;

/// A kind of check, before it runs.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub id: &'static str,
    pub title: &'static str,
    pub level: Level,
    /// What the check examines; [`evidence::findings_alone`] if only findings count.
    pub look: Look,
    /// The fix if the check fails and neither its findings nor its evidence have one.
    pub fix: &'static str,
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
    const fn with_fix(self, fix: &'static str) -> Kind {
        Kind { fix, ..self }
    }

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

const COMPARE: &str = "Compare `rdma-init plan --evidence` with a node that works.";
const CHECK_ADDRESSES: &str = "Check the addresses and routes of the HCAs' interfaces (ip addr, ip route) and the network plugin that sets them.";
const RAISE_MEMLOCK: &str =
    "Raise the limit of pinned memory (Docker: --ulimit memlock=-1:-1) or add the capability IPC_LOCK.";

const fn quick(id: &'static str, title: &'static str, look: Look) -> Kind {
    Kind { id, title, level: Level::Quick, look, fix: COMPARE }
}

const fn verbs(id: &'static str, title: &'static str) -> Kind {
    Kind { level: Level::Verbs, ..quick(id, title, findings_alone) }
}

const fn pair(id: &'static str, title: &'static str) -> Kind {
    let fix = "Give both nodes the same HCAs, configuration and image.";
    Kind { level: Level::Pair, fix, ..quick(id, title, findings_alone) }
}

/// All checks, in the order of the report.
pub const KINDS: &[Kind] = &[
    quick("memlock", "memory can be pinned", limits::memlock).with_fix(RAISE_MEMLOCK),
    quick("nofile", "files that may be open", limits::nofile),
    quick("stack", "size of the stack", limits::stack),
    quick("shared-memory", "room in /dev/shm", memory::room),
    quick("shared-memory-writable", "/dev/shm can be written", memory::writable),
    quick("state", "the state directory can be written", job::state),
    quick("libibverbs", "libibverbs in the image", image::libibverbs),
    quick("provider", "provider for each HCA", image::provider),
    quick("librdmacm", "librdmacm in the image", image::librdmacm),
    quick("nccl", "NCCL in the image", image::nccl),
    quick("cuda", "CUDA of the image", image::cuda),
    quick("plugin", "net plugin", image::plugin),
    quick("fabric", "a fabric for the job", job::fabric).with_fix(
        "Fix first what else fails or warns here. If the container has no RDMA device, give it the node's (Kubernetes: request the RDMA resource; Docker: --device /dev/infiniband).",
    ),
    quick("unused", "ports that the job leaves alone", ports::unused),
    quick("uverbs", "uverbs nodes can be opened", ports::uverbs),
    quick("port", "ports are ACTIVE", ports::state),
    quick("device", "devices that NCCL works on", ports::device),
    quick("rate", "rates are equal", ports::rate),
    quick("pci-link", "PCI links at full speed and width", pci::pci_links),
    quick("counters", "no errors on the links", counters::counters),
    quick("gpu-nic", "a near HCA for each GPU", gpu_nic::gpu_nic),
    quick("gid", "GID indexes", ports::gid).with_fix(CHECK_ADDRESSES),
    quick("pkey", "full members of a partition", ports::pkey),
    quick("traffic-class", "one traffic class", ports::traffic_class),
    quick("address", "rails have an address", address::addresses).with_fix(CHECK_ADDRESSES),
    quick("mtu", "MTU is equal on all rails", mtu::mtus).with_fix(CHECK_ADDRESSES),
    quick("route", "rails have a route", ports::route).with_fix(CHECK_ADDRESSES),
    quick("interface", "interface of the bootstrap", job::bootstrap).with_fix(
        "Set NCCL_SOCKET_IFNAME to an interface that the other nodes reach.",
    ),
    quick("count", "as many cards and NICs as published", count::count),
    quick("gpudirect", "NICs reach the memory of GPUs", job::gpudirect),
    quick("nvlink", "NVLink to the GPUs of other nodes", nvlink::nvlink),
    quick("variables", "variables mean what they seem to", job::variables),
    quick("libraries", "libraries beside NCCL", job::libraries),
    quick("signals", "a stop reaches the command", job::signals),
    quick("readable", "what describes this host can be read", findings_alone),
    quick("nccl-decides", "NCCL will use the fabric", job::nccl).with_fix(
        "Fix first what else fails or warns here. `rdma-init plan --evidence` shows why NCCL does not use the devices.",
    ),
    verbs("verbs-open", "the device opens through verbs").with_fix(
        "Check that /dev/infiniband is in the container, that its user may open it, and that `ibv_devinfo` works on the node; the kernel log names a device that fails.",
    ),
    verbs("verbs-memory", "memory can be registered").with_fix(RAISE_MEMLOCK),
    verbs("verbs-loopback", "data arrives over the port").with_fix(
        "Check the port on the node (ibv_devinfo, rdma link, dmesg): its state, its GID, and its firmware.",
    ),
    pair("pair-connect", "another node is there").with_fix(
        "Check that both nodes run the test at the same time with the same RDMA_INIT_TOKEN, and that firewalls allow its TCP port.",
    ),
    pair("pair-rails", "as many rails on both nodes"),
    pair("pair-link-layer", "one link layer on both ends of each rail"),
    pair("pair-gid", "one type and family of GIDs on both ends"),
    pair("pair-mtu", "one MTU on both ends"),
    pair("pair-nccl", "one release of NCCL on both nodes"),
    pair("pair-data", "data arrives over the rail, both ways").with_fix(
        "Check the cables, the switches, and the route of each rail to its counterpart (ip route get).",
    ),
];

/// Adds the general fix to each failed check that has none. All fixes then name this program so that a person can start
/// it.
pub(super) fn complete_fixes(checks: &mut [Check]) {
    for check in checks {
        if check.outcome == Outcome::Failed && check.fix.is_none() {
            check.fix = find(&check.id).map(|kind| kind.fix.to_owned());
        }
        check.fix = check.fix.take().map(|fix| name_program(&fix).into_owned());
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::finding::Id;

    #[test]
    fn ids_are_distinct_and_findings_belong_to_checks() {
        let ids: BTreeSet<&str> = KINDS.iter().map(|kind| kind.id).collect();
        assert_eq!(ids.len(), KINDS.len());
        for check in Id::ALL.iter().filter_map(|id| id.check()) {
            assert!(find(check).is_some_and(|kind| kind.level == Level::Quick), "{check}");
        }
    }

    #[test]
    fn every_check_that_fails_has_a_fix() {
        for kind in KINDS {
            let known = Check { fix: Some("Known.".to_owned()), ..check(kind.id, Outcome::Failed) };
            let mut checks = [check(kind.id, Outcome::Failed), known, check(kind.id, Outcome::Warning)];
            complete_fixes(&mut checks);
            let [failed, known, warning] = checks.map(|check| check.fix);
            assert!(failed.is_some_and(|fix| fix.ends_with('.')), "{}", kind.id);
            assert_eq!((known.as_deref(), warning), (Some("Known."), None));
        }
    }
}
