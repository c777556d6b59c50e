//! rocSHMEM, AMD's counterpart of NVSHMEM, and DeepEP on top of it on AMD's GPUs (as in ROCm 7). The
//! files are in ROCm/rocm-systems, `projects/rocshmem/src`; its backend GDA opens HCAs, in which a GPU starts
//! the transfers.
//!
//! * A GPU gets the HCA with an ACTIVE port that is nearest in the PCI tree, of those in `ROCSHMEM_HCA_LIST`:
//!   whole names, or with a leading `^` all others (`GetClosestNicToGpu` in `gda/topology.cpp`).
//!   `ROCSHMEM_USE_IB_HCA` names the HCA of a process instead.
//! * It takes the first RoCE v2 entry that is not link-local, even if the address is another host's, and no
//!   variable selects another (`select_gid_index` in `gda/backend_gda.cpp`, `envvar.cpp`).
//! * Its class is `ROCSHMEM_GDA_TRAFFIC_CLASS`, else 0 (`gda/backend_gda.cpp`). On mlx5, it connects its queue
//!   pairs through DEVX (`gda/mlx5/provider_gda_mlx5.cpp`).
//! * Without MPI, processes bootstrap on `ROCSHMEM_BOOTSTRAP_SOCKET_IFNAME`, in NCCL's grammar, else on the
//!   first interface whose name starts with neither docker nor lo (`FindInterfaces` in
//!   `bootstrap/socket.cpp`).

use super::nccl::interfaces;
use super::nccl::version::Version;
use super::own_verbs::{Grammar, HcaList, InterfaceVariable, VerbsLibrary, names, strangers, wrong_slot};
use super::{Library, LibraryContext, LibraryFinding, WrongGid, traffic_class};
use crate::fabric::Candidate;
use crate::facts::gid::GidType;
use crate::facts::gpu::Make;
use crate::finding::{Finding, Id};

const TITLE: &str = "rocSHMEM";

const HCAS: &str = "ROCSHMEM_HCA_LIST";
const OWN_HCA: &str = "ROCSHMEM_USE_IB_HCA";
const CLASS: &str = traffic_class::ROCSHMEM.name;
const INTERFACE: &str = "ROCSHMEM_BOOTSTRAP_SOCKET_IFNAME";
/// The error if no interface matches (`netInit` in `bootstrap/bootstrap.cpp`).
const NO_INTERFACE: &str = "no socket interface found";
/// What it takes without the variable, in NCCL's grammar.
const ITS_OWN: &str = "^docker,lo";

/// The NCCL release whose grammar for interfaces it shares.
const MEETS_AS: Version = Version::new(2, 19, 3);

pub(super) const LIBRARY: Library = Library {
    name: "rocshmem",
    title: TITLE,
    packages: &["deep-ep-"],
    filled: &[HCAS, CLASS, INTERFACE],
    gid: &[],
    read: &["ROCSHMEM_"],
    is_here,
    fills: |subject| VERBS.fills(subject),
    findings: |subject| VERBS.findings(subject),
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    // rocSHMEM is linked statically into DeepEP.
    subject.facts.gpu.make == Make::Amd && subject.has_package("deep-ep-")
        || subject.sets_any(&[HCAS, OWN_HCA, CLASS, INTERFACE])
}

const VERBS: VerbsLibrary = VerbsLibrary {
    lists: &[
        HcaList {
            wanted: |subject| {
                let is_free = subject.value(OWN_HCA).is_none();
                is_free.then(|| (names(subject), strangers(subject)))
            },
            ..HcaList::new(HCAS, Grammar { excludes: true, trims: false, ports: false })
        },
        HcaList::new(OWN_HCA, Grammar { excludes: false, trims: false, ports: false }),
    ],
    classes: &[&traffic_class::ROCSHMEM],
    interface: Some(InterfaceVariable {
        name: INTERFACE,
        meets: |subject, wanted| {
            let get = |name: &str| (name == "NCCL_SOCKET_IFNAME").then_some(ITS_OWN);
            let meets = interfaces::first(&subject.facts.net, get, MEETS_AS).ok()?.interface;
            Some((meets, format!("={wanted}")))
        },
        wrong: |variable, value| variable.check_interface(Some(value), MEETS_AS, NO_INTERFACE, false),
    }),
    also_find: |subject| wrong_slot(subject, taken).map(wrong_gid).into_iter().collect(),
    ..VerbsLibrary::new(TITLE)
};

/// Returns the GID index that it takes on a port.
fn taken(port: &Candidate) -> Option<i64> {
    let slots = port.port.gids.slots.iter().filter(|gid| !gid.is_link_local());
    let first = slots.min_by_key(|gid| (gid.kind != GidType::RoceV2, gid.index));
    first.map(|gid| i64::from(gid.index))
}

/// Returns the finding that it takes a GID that is not this container's.
fn wrong_gid((port, slot): (String, i64)) -> LibraryFinding {
    let message = format!(
        "rocSHMEM takes GID index {slot} of {port}, which is not a GID of this container, and reads no variable for another one."
    );
    let fix = "Give the container HCAs of its own, or the network namespace of the node.";
    // The job may not use the library at all.
    let finding = Finding::warning(Id::LibraryGid, message).about_ports([port]).with_fix(fix);
    LibraryFinding { finding, gid: Some(WrongGid::WithoutRemedy) }
}
