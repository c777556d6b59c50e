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
use super::own_verbs::{OwnVariable, WithoutVariable, fill, not_here, strangers, used_hcas, wrong_slot};
use super::{Fill, Library, LibraryContext, LibraryFinding, WrongGid, traffic_class};
use crate::fabric::Candidate;
use crate::fabric::interface::obstacle;
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
    filled: &[HCAS, CLASS, INTERFACE],
    gid: &[],
    read: &["ROCSHMEM_"],
    is_here,
    fills,
    findings,
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    let is_set = |name: &&str| subject.value(name).is_some();
    // rocSHMEM is linked statically into DeepEP.
    let has_deep_ep = || {
        let packages = subject.facts.image.iter().flat_map(|image| &image.packages);
        packages.into_iter().any(|package| package.name.starts_with("deep-ep"))
    };
    subject.facts.gpu.make == Make::Amd && has_deep_ep()
        || [HCAS, OWN_HCA, CLASS, INTERFACE].iter().any(is_set)
}

fn fills(subject: &LibraryContext) -> Vec<Fill> {
    let is_set = |name: &str| subject.value(name).is_some();
    let mut fills = Vec::new();
    let (hcas, strangers) = (used_hcas(subject), strangers(subject));
    if !is_set(HCAS) && !is_set(OWN_HCA) && !hcas.is_empty() && !strangers.is_empty() {
        fills.push(fill(TITLE, HCAS, hcas.join(","), WithoutVariable::Ports(strangers)));
    }
    fills.extend(traffic_class::of_job(subject, &traffic_class::ROCSHMEM));
    let get = |name: &str| (name == "NCCL_SOCKET_IFNAME").then_some(ITS_OWN);
    let meets = interfaces::first(&subject.facts.net, get, MEETS_AS).map(|endpoint| endpoint.interface);
    if let (Some(wanted), Ok(meets), false) = (subject.rails.interface, meets, is_set(INTERFACE))
        && meets != wanted
        && obstacle(subject.facts, wanted).is_none()
    {
        let value = format!("={wanted}");
        fills.push(fill(TITLE, INTERFACE, value, WithoutVariable::Interface(meets)));
    }
    fills
}

/// Returns the GID index that it takes on a port.
fn taken(port: &Candidate) -> Option<i64> {
    let slots = port.port.gids.slots.iter().filter(|gid| !gid.is_link_local());
    let first = slots.min_by_key(|gid| (gid.kind != GidType::RoceV2, gid.index));
    first.map(|gid| i64::from(gid.index))
}

fn findings(subject: &LibraryContext) -> Vec<LibraryFinding> {
    let value = |name: &str| subject.value(name).filter(|value| !value.is_empty());
    let of = |variable| OwnVariable { subject, library: TITLE, variable };
    let mut findings: Vec<LibraryFinding> = Vec::new();
    for variable in [HCAS, OWN_HCA] {
        let Some(list) = value(variable) else { continue };
        let (excluded, names) = match list.strip_prefix('^').filter(|_| variable == HCAS) {
            Some(names) => (true, names),
            None => (false, list),
        };
        let names = || names.split(',').filter(|name| !name.is_empty());
        let (lost, hcas) = (not_here(subject, names()), used_hcas(subject));
        let is_left = |hca: &&str| names().any(|name| name == *hca) != excluded;
        if !lost.is_empty() {
            findings.push(of(variable).names_no_hca(&lost).into());
        } else if !hcas.is_empty() && !hcas.iter().any(is_left) {
            findings.push(of(variable).leaves_no_hca_of_job(false).into());
        }
    }
    let of_interface = of(INTERFACE).of_interface(value(INTERFACE), MEETS_AS, NO_INTERFACE, false);
    findings.extend(of_interface.map(Into::into));
    findings.extend(wrong_slot(subject, taken).map(|(port, slot)| wrong_gid(&port, slot)));
    findings
}

/// Returns the finding that it takes a GID that is not this container's.
fn wrong_gid(port: &str, slot: i64) -> LibraryFinding {
    let message = format!(
        "rocSHMEM takes GID index {slot} of {port}, which is not a GID of this container, and reads no variable for another one."
    );
    let fix = "Give the container HCAs of its own, or the network namespace of the node.";
    // The job may not use the library at all.
    let finding = Finding::warning(Id::LibraryGid, message).about_ports([port]).with_fix(fix);
    LibraryFinding { finding, gid: Some(WrongGid::WithoutRemedy) }
}
