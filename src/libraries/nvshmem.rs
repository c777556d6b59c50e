//! NVSHMEM, and DeepEP on top of it (NVSHMEM 3.1 to 3.4; names as in
//! `src/modules/transport/common/env_defs.h`).
//!
//! * It uses each port that is ACTIVE (`nvshmemt_init` in `ibrc.cpp` and `ibgda.cpp`), and of those the
//!   nearest to each GPU in the PCI tree (`nvshmemi_get_devices_by_distance`). `NVSHMEM_HCA_LIST` contains
//!   whole names, with or without a port; a leading `^` excludes them.
//! * It searches for the GID as NCCL 2.26 and later do (`ib_get_gid_index`), but reads no NCCL variable. A
//!   family and a range steer the search if they are sufficient ([`super::lead`]).
//! * IBGDA, the GPU-initiated transport, opens only HCAs with `mlx5` in their names, or with the text in
//!   `NVSHMEM_HCA_PREFIX` (3.4.5 reads it, 3.2.5 does not). A GPU rings an HCA's doorbell itself if NVIDIA's
//!   driver allows it, otherwise the CPU does (`NVSHMEM_IBGDA_NIC_HANDLER`).
//! * IBGDA creates its queue pairs through DEVX. That needs no capability: libmlx5 requests DEVX whenever it
//!   opens an HCA (`providers/mlx5/mlx5.c`, `mlx5_alloc_context`), and mlx5_ib grants it if the firmware
//!   supports it (`devx.c`, `mlx5_ib_devx_create`; CAP_NET_RAW adds only raw Ethernet). A process may use it
//!   if it may open the uverbs node and pin memory; other findings report if it may not.
//! * Processes bootstrap as NCCL's do (`bootstrap_uid`, `ncclFindInterfaces`).

use super::nccl::version::Version;
use super::nccl::{gid, interfaces};
use super::own_verbs::{
    GidVariables, Grammar, HcaList, InterfaceVariable, OwnVariable, SEARCHES_AS, VerbsLibrary, is_on,
    strangers,
};
use super::{Fill, Library, LibraryContext, LibraryFinding, traffic_class};
use crate::fabric::{Candidate, Rails};
use crate::facts::gpu::Make;
use crate::finding::{Finding, Id, Severity};
use crate::image::Image;

const TITLE: &str = "NVSHMEM";

const HCAS: &str = "NVSHMEM_HCA_LIST";
const HCA_MAP: &str = "NVSHMEM_HCA_PE_MAPPING";
const IN_TURN: &str = "NVSHMEM_ENABLE_NIC_PE_MAPPING";
const INDEX: &str = "NVSHMEM_IB_GID_INDEX";
const RANGE: &str = "NVSHMEM_IB_ADDR_RANGE";
const FAMILY: &str = "NVSHMEM_IB_ADDR_FAMILY";
const ROCE_VERSION: &str = "NVSHMEM_IB_ROCE_VERSION_NUM";
const CLASS: &str = traffic_class::NVSHMEM.name;
const PREFIX: &str = "NVSHMEM_HCA_PREFIX";
const HANDLER: &str = "NVSHMEM_IBGDA_NIC_HANDLER";
const REMOTE: &str = "NVSHMEM_REMOTE_TRANSPORT";
const INTERFACE: &str = "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME";

/// This variable selects an interface by the address that it contains, regardless of [`INTERFACE`].
const SESSION: &str = "NVSHMEM_BOOTSTRAP_UID_SESSION_ID";
/// The error if no interface matches (`bootstrap_net_init` in `src/modules/bootstrap/uid/bootstrap_uid.cpp`).
const NO_INTERFACE: &str = "No socket interface found";

/// The first release that is known to search for a GID itself.
const HAS_SEARCH: Version = Version::new(3, 1, 0);
/// The first release that is known to read [`PREFIX`].
const HAS_PREFIX: Version = Version::new(3, 4, 5);
/// The NCCL release whose interface search NVSHMEM copied.
const MEETS_AS: Version = Version::new(2, 19, 3);

pub(super) const LIBRARY: Library = Library {
    name: "nvshmem",
    title: TITLE,
    packages: &["deep-ep-", "nvidia-nvshmem-"],
    filled: &[HCAS, INDEX, RANGE, FAMILY, CLASS, PREFIX, INTERFACE],
    gid: &[INDEX, RANGE, FAMILY],
    read: &["NVSHMEM_"],
    is_here,
    fills: |subject| VERBS.fills(subject),
    findings: |subject| VERBS.findings(subject),
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    let image = subject.facts.image.as_ref();
    image.is_some_and(|image| !image.nvshmem.is_empty())
        || subject.has_package("nvidia-nvshmem-")
        // On AMD's GPUs, DeepEP uses rocSHMEM.
        || subject.has_package("deep-ep-") && subject.facts.gpu.make != Make::Amd
        || subject.sets_any(&[HCAS, HCA_MAP, IN_TURN, INDEX, CLASS, INTERFACE])
}

const VERBS: VerbsLibrary = VerbsLibrary {
    lists: &[
        HcaList {
            wanted: |subject| {
                let is_mapped = subject.value(HCA_MAP).is_some();
                (!is_mapped).then(|| (subject.rails.port_names(), strangers(subject)))
            },
            ..HcaList::new(HCAS, LIST)
        },
        HcaList { ignored_for: Some(HCAS), ..HcaList::new(HCA_MAP, LIST) },
    ],
    gids: &[GidVariables {
        lead: Some(([FAMILY, RANGE], |subject| release(subject) >= Some(HAS_SEARCH))),
        others: &[RANGE, FAMILY, ROCE_VERSION],
        ..GidVariables::index(INDEX, taken)
    }],
    classes: &[&traffic_class::NVSHMEM],
    interface: Some(InterfaceVariable {
        name: INTERFACE,
        // The grammar is NCCL's.
        meets: |subject, wanted| {
            let meets = interfaces::first(&subject.facts.net, |_| None, MEETS_AS).ok()?.interface;
            let of_nccl = subject.value("NCCL_SOCKET_IFNAME").filter(|value| value.len() > 1);
            Some((meets, of_nccl.unwrap_or(wanted).to_owned()))
        },
        wrong: |variable, value| {
            let wanted = Some(value).filter(|_| variable.subject.value(SESSION).is_none_or(str::is_empty));
            variable.check_interface(wanted, MEETS_AS, NO_INTERFACE, false)
        },
    }),
    also_fill: |subject, fills| {
        if let Some(renamed) = renamed(subject).filter(|_| release(subject) >= Some(HAS_PREFIX))
            && let Some(prefix) = common_start(subject)
        {
            let why = format!(
                "without it, IBGDA of {TITLE} would skip {renamed}, whose name does not contain mlx5"
            );
            fills.push(Fill::new(PREFIX, prefix, why));
        }
    },
    also_find,
    ..VerbsLibrary::new(TITLE)
};

/// A list contains `mlx5_0`, `mlx5_0:1` or `mlx5_0:1:2`.
const LIST: Grammar = Grammar { excludes: true, trims: false, ports: true };

fn release(subject: &LibraryContext) -> Option<Version> {
    release_in(subject.facts.image.as_ref()?)
}

/// Returns the release that the job uses, as far as the image shows.
pub(crate) fn release_in(image: &Image) -> Option<Version> {
    let package = image.packages("nvidia-nvshmem-").next();
    let of_file = || image.nvshmem.iter().find_map(|library| library.version.as_deref());
    Version::parse(package.map(|package| package.version.as_str()).or_else(of_file)?)
}

/// Returns an HCA of the job that IBGDA skips because of its name. DeepEP uses IBGDA.
fn renamed(subject: &LibraryContext) -> Option<String> {
    let wanted = subject.has_package("deep-ep-") && subject.value(PREFIX).is_none();
    let renamed = of_mlx5(subject).find(|port| !port.hca.name.contains("mlx5"));
    renamed.filter(|_| wanted).map(|port| port.hca.name.clone())
}

/// Returns the job's ports that IBGDA can use.
fn of_mlx5<'a, 'r>(subject: &'r LibraryContext<'a>) -> impl Iterator<Item = &'r Candidate<'a>> {
    let used = subject.rails.ports.iter().filter(|port| port.is_used());
    used.filter(|port| port.hca.driver.as_deref() == Some("mlx5_core"))
}

/// Returns the common prefix of the job's HCA names.
fn common_start(subject: &LibraryContext) -> Option<String> {
    let used = subject.rails.ports.iter().filter(|port| port.is_used()).map(|port| port.hca.name.as_str());
    let shared = |one: &str, other: &str| -> String {
        one.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    };
    let start = used.map(str::to_owned).reduce(|start, name| shared(&start, &name))?;
    Some(start).filter(|start| !start.is_empty())
}

/// Returns the GID index at which its search ends, with its own variables instead of NCCL's.
fn taken(subject: &LibraryContext, port: &Candidate) -> Option<i64> {
    let get = |name: &str| match name {
        gid::INDEX => subject.value(INDEX),
        gid::RANGE => subject.value(RANGE),
        gid::FAMILY => subject.value(FAMILY),
        gid::ROCE_VERSION => subject.value(ROCE_VERSION),
        _ => None,
    };
    gid::index(&port.port.gids, get, SEARCHES_AS).ok()
}

fn also_find(subject: &LibraryContext) -> Vec<LibraryFinding> {
    let mut findings = of_deepep(subject);
    let used = subject.rails.ports.iter().any(Candidate::is_used);
    // NVSHMEM compares the transport's name case-insensitively (`src/host/transport/transport.cpp`).
    let nodes = subject.facts.platform.nodes.map(|nodes| nodes.count);
    let is_none = subject.value(REMOTE).is_some_and(|value| value.eq_ignore_ascii_case("none"));
    if is_none && used && nodes != Some(1) {
        let what = "NVSHMEM has no transport between nodes, so a job of several nodes fails.";
        let finding = subject.warning(Id::LibraryOnTcp, REMOTE, what);
        let severity = if nodes.is_some() { Severity::Warning } else { Severity::Info };
        let fix = format!("Remove {REMOTE}: NVSHMEM then uses the HCAs.");
        findings.push(Finding { severity, ..finding }.with_fix(fix));
    }
    findings.extend(doorbell(subject).filter(|_| used));
    findings.into_iter().map(LibraryFinding::from).collect()
}

/// Returns what is wrong with the HCAs for DeepEP, which uses IBGDA.
fn of_deepep(subject: &LibraryContext) -> Vec<Finding> {
    let of = |variable| OwnVariable { subject, library: TITLE, variable };
    let mut findings = Vec::new();
    if !subject.has_package("deep-ep-") {
        return findings;
    }
    let used = subject.rails.ports.iter().filter(|port| port.is_used()).count();
    // DeepEP creates a team of one process per node, and that process's number on its node is always 0.
    if subject.value(IN_TURN).is_some_and(is_on) && used > 1 {
        let what = "with DeepEP, every process is the first of its node to NVSHMEM, and all of them take the first HCA.";
        let fix = format!("Remove {IN_TURN}: NVSHMEM finds the nearest HCA of each GPU itself.");
        findings.push(of(IN_TURN).warning(Id::LibraryDevices, what).with_fix(fix));
    }
    let release = release(subject);
    if let (Some(renamed), Some(release)) = (renamed(subject), release)
        && release < HAS_PREFIX
    {
        let message = format!(
            "IBGDA, which DeepEP uses, opens only HCAs with mlx5 in their names in NVSHMEM {release}, and skips {renamed}; 3.4.5 and later read {PREFIX}."
        );
        let fix =
            "Use NVSHMEM 3.4.5 or later, or give the HCAs their kernel's names (rdma-core's rename rules).";
        findings.push(Finding::warning(Id::LibraryDevices, message).about_variables([PREFIX]).with_fix(fix));
    }
    if let Some(prefix) = subject.value(PREFIX)
        && release >= Some(HAS_PREFIX)
        && of_mlx5(subject).next().is_some()
        && !of_mlx5(subject).any(|port| port.hca.name.contains(prefix))
    {
        findings.push(of(PREFIX).leaves_no_hca_of_job(false));
    }
    findings
}

/// Returns a finding if NVIDIA's driver does not let a GPU ring an HCA's doorbell.
fn doorbell(subject: &LibraryContext) -> Option<Finding> {
    let handler = subject.value(HANDLER).filter(|value| !value.is_empty());
    let by_gpu = handler.is_none_or(|handler| ["auto", "gpu"].contains(&handler));
    let is_off = subject.facts.gpu.peer_mapping == Some(false);
    (by_gpu && is_off && subject.has_package("deep-ep-")).then(|| {
        Finding::info(
            Id::LibraryDevices,
            format!(
                "The driver of the GPUs was loaded without PeerMappingOverride=1, so no GPU can ring the doorbell of an HCA: with DeepEP, NVSHMEM leaves that to the CPU, or fails if {HANDLER} requests gpu."
            ),
        )
        .about_variables([HANDLER])
        .with_fix(
            "On the host: options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in /etc/modprobe.d, and reload the driver.",
        )
    })
}

pub(super) fn value(variable: &str, rails: &Rails) -> Option<String> {
    match variable {
        HCAS => Some(rails.port_names().join(",")).filter(|list| !list.is_empty()),
        INDEX => rails.gid_index.map(|index| index.to_string()),
        _ => None,
    }
}
