//! Whether the command can pin memory, and what to do if it cannot.
//!
//! The kernel lets a process pin memory up to RLIMIT_MEMLOCK, or without limit if it has CAP_IPC_LOCK in the
//! initial user namespace (`ib_umem_get`, `mm/mlock.c`).

use caps::Capability::{CAP_IPC_LOCK, CAP_SYS_RESOURCE};
use serde::Serialize;

use crate::facts::Facts;
use crate::facts::limits::{Amount, Limit};
use crate::facts::platform::{Engine, Platform, RunBy};
use crate::facts::process::Process;
use crate::finding::{Finding, Id, Severity};
use crate::plan::Plan;
use crate::text::amount;

/// How much memory the command can pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pinning {
    /// No limit is set.
    Unlimited,
    /// The capability overrides the limit.
    Capability,
    /// At most this many bytes.
    Limited(u64),
}

impl Pinning {
    /// Returns the word for a log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Pinning::Unlimited => "unlimited",
            Pinning::Capability => "capability",
            Pinning::Limited(_) => "limited",
        }
    }
}

/// The default of the kernel (since 5.16), Docker, and Kubernetes. With this limit or a lower one, RDMA fails
/// at once.
const NEXT_TO_NOTHING: u64 = 8 * 1024 * 1024;

/// Returns the limit after rdma-init has raised it as far as it can.
pub(crate) fn raised(limit: Limit, process: &Process) -> Limit {
    let may_raise_hard =
        process.capabilities.effective.has(CAP_SYS_RESOURCE) && process.initial_user_namespace;
    let hard = if may_raise_hard { Amount::UNLIMITED } else { limit.hard };
    Limit { soft: hard, hard }
}

/// Returns what the command will be able to pin with this limit.
pub(crate) fn pinning(limit: Limit, process: &Process) -> Pinning {
    // A root process keeps its capabilities through the exec. Another user's process keeps the capabilities
    // that rdma-init makes ambient.
    let capability = process.capabilities.permitted.has(CAP_IPC_LOCK) && process.initial_user_namespace;
    match limit.soft {
        Amount::Unlimited(_) => Pinning::Unlimited,
        Amount::Limited(_) if capability => Pinning::Capability,
        Amount::Limited(bytes) => Pinning::Limited(bytes),
    }
}

/// Returns the finding, if pinning is limited.
pub(crate) fn finding(pinning: Pinning, Facts { process, platform, .. }: &Facts) -> Option<Finding> {
    let Pinning::Limited(bytes) = pinning else { return None };
    let amount = amount(bytes);
    let (severity, consequence) = if bytes <= NEXT_TO_NOTHING {
        (
            Severity::Error,
            "RDMA will fail with \"Cannot allocate memory\" (ibv_reg_mr, ibv_create_cq, ibv_create_qp)",
        )
    } else {
        (Severity::Warning, "a larger job will fail with \"Cannot allocate memory\"")
    };
    let message = format!(
        "Only {amount} of memory can be pinned (RLIMIT_MEMLOCK{}); {consequence}.",
        why_no_capability(process)
    );
    Some(Finding { severity, ..Finding::info(Id::Memlock, message) }.with_fix(fix(process, platform)))
}

/// GPUs that use the machine's own memory, and fill it.
const SHARES_MEMORY: &str = "GB10";

/// Reports what keeps memory from being pinned even without a limit; [`finding`] judges the limit.
pub(super) fn findings(facts: &Facts, plan: &Plan) -> impl Iterator<Item = Finding> {
    handover(facts).filter(|_| plan.fabric.pins_memory()).into_iter()
}

/// Reports memory that cannot be pinned although no limit is set: the kernel has to move a page out of a CMA pageblock
/// before it is pinned (`__gup_longterm_locked`, mm/gup.c), which fails if the rest of the memory is full. Seen on DGX
/// Spark with Linux 7.0 (https://github.com/NVIDIA/NV-Kernels/pull/590).
fn handover(facts: &Facts) -> Option<Finding> {
    let bytes = facts.memory.cma_outside_areas?;
    facts.gpu.models.iter().any(|model| model.contains(SHARES_MEMORY)).then(|| {
        let message = format!(
            "The kernel keeps {} of memory for kexec handover (KHO; CmaFree above CmaTotal in /proc/meminfo), which cannot be pinned. If the GPU fills the rest, ibv_reg_mr fails with \"Cannot allocate memory\", whatever the limit.",
            amount(bytes)
        );
        Finding::info(Id::Memlock, message).with_fix(WITHOUT_HANDOVER)
    })
}

pub(crate) const WITHOUT_HANDOVER: &str =
    "Boot the node with the kernel parameter kho=off, unless it uses kexec handover.";

fn why_no_capability(process: &Process) -> String {
    let sets = &process.capabilities;
    if sets.effective.has(CAP_IPC_LOCK) || sets.permitted.has(CAP_IPC_LOCK) {
        // The process has the capability but still cannot pin memory, so its user namespace must be the
        // reason.
        "; this process has CAP_IPC_LOCK, but in its own user namespace, in which the kernel does not honor it"
            .to_owned()
    } else if process.uid != 0 && sets.bounding.has(CAP_IPC_LOCK) {
        format!(
            "; the CAP_IPC_LOCK granted to the container does not reach its user, uid {}: only root gets it",
            process.uid
        )
    } else {
        ", no CAP_IPC_LOCK".to_owned()
    }
}

/// Returns the fix for the platform that runs the container; for an unknown platform, the fix for each.
fn fix(process: &Process, platform: &Platform) -> String {
    if !process.initial_user_namespace {
        return "Raise the limit of the runtime that makes the user namespace (its LimitMEMLOCK or --ulimit memlock=-1:-1), or use the host's user namespace (Docker: --userns=host, Kubernetes: hostUsers: true)."
            .to_owned();
    }
    match platform.run_by() {
        Some(RunBy::Kubernetes) => format!("{}.", capitalized(&in_kubernetes(process))),
        Some(RunBy::Slurm) => {
            "Set LimitMEMLOCK=infinity in the systemd unit of slurmd on the node, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf."
                .to_owned()
        }
        Some(RunBy::Engine(Engine::Docker | Engine::Podman)) => {
            format!("Start the container with --ulimit memlock=-1:-1, or {}.", by_capability(process))
        }
        Some(RunBy::Engine(Engine::Other)) | None => format!(
            "Docker: --ulimit memlock=-1:-1, or as root --cap-add IPC_LOCK. containerd: LimitMEMLOCK=infinity in its systemd unit. CRI-O: default_ulimits = [\"memlock=-1:-1\"]. Kubernetes: {}.",
            in_kubernetes(process)
        ),
    }
}

fn in_kubernetes(process: &Process) -> String {
    let add = "securityContext.capabilities.add: [IPC_LOCK]";
    let node =
        "raise the limit of the container runtime on the node (LimitMEMLOCK=infinity in its systemd unit)";
    match process.uid {
        0 => format!("set {add}, or {node}"),
        _ if is_granted(process) => format!("{}, or {node}", to_other_user(process)),
        _ => format!("run as root with {add}, or {node}"),
    }
}

/// Returns how to grant the capability with a container engine.
fn by_capability(process: &Process) -> String {
    match process.uid {
        0 => "with --cap-add IPC_LOCK".to_owned(),
        _ if is_granted(process) => to_other_user(process),
        _ => "as root with --cap-add IPC_LOCK".to_owned(),
    }
}

/// Returns whether the container has the capability. Only its root user gets it.
fn is_granted(process: &Process) -> bool {
    process.capabilities.bounding.has(CAP_IPC_LOCK)
}

/// Returns how a user other than root can get a capability that the container has.
fn to_other_user(process: &Process) -> String {
    let escalate = if process.no_new_privs { "allow privilege escalation and " } else { "" };
    format!("run as root, or {escalate}run `setcap cap_ipc_lock+p` on rdma-init in the image")
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::process::{Capabilities, CapabilitySet};

    fn limit(soft: u64, hard: u64) -> Limit {
        Limit { soft: Amount::Limited(soft), hard: Amount::Limited(hard) }
    }

    fn process(uid: u32, permitted: &[caps::Capability], bounding: &[caps::Capability]) -> Process {
        let set = |list: &[caps::Capability]| list.iter().fold(CapabilitySet(0), |set, c| set.with(*c));
        Process {
            uid,
            capabilities: Capabilities {
                effective: set(permitted),
                permitted: set(permitted),
                bounding: set(bounding),
                ..Capabilities::default()
            },
            initial_user_namespace: true,
            ..Process::default()
        }
    }

    #[test]
    fn soft_is_raised_to_hard_and_hard_only_with_the_capability() {
        let low = limit(65536, 1 << 20);
        assert_eq!(raised(low, &process(1000, &[], &[])), limit(1 << 20, 1 << 20));
        let root = process(0, &[CAP_SYS_RESOURCE], &[]);
        assert_eq!(raised(low, &root), Limit { soft: Amount::UNLIMITED, hard: Amount::UNLIMITED });
        // The kernel checks for the capability in the initial user namespace.
        let nested = Process { initial_user_namespace: false, ..root };
        assert_eq!(raised(low, &nested), limit(1 << 20, 1 << 20));
    }

    #[test]
    fn the_capability_counts_where_the_kernel_honours_it() {
        let low = limit(65536, 65536);
        assert_eq!(pinning(low, &process(0, &[CAP_IPC_LOCK], &[])), Pinning::Capability);
        assert_eq!(pinning(low, &process(1000, &[], &[CAP_IPC_LOCK])), Pinning::Limited(65536));
        let nested = Process { initial_user_namespace: false, ..process(0, &[CAP_IPC_LOCK], &[]) };
        assert_eq!(pinning(low, &nested), Pinning::Limited(65536));
    }

    fn of(process: Process, platform: Platform) -> Facts {
        Facts { process, platform, ..Facts::default() }
    }

    #[test]
    fn the_message_knows_why() {
        let message = |bytes, process: Process| {
            let finding = finding(Pinning::Limited(bytes), &of(process, Platform::default())).unwrap();
            format!("{:?} {} {}", finding.severity, finding.message, finding.fix.unwrap())
        };
        let trap = message(65536, process(1000, &[], &[CAP_IPC_LOCK]));
        assert!(trap.starts_with("Error Only 64 KiB"), "{trap}");
        assert!(trap.contains("does not reach its user, uid 1000"), "{trap}");
        assert!(trap.contains("setcap cap_ipc_lock+p"), "{trap}");
        let root = message(64 << 20, process(0, &[], &[]));
        assert!(root.starts_with("Warning Only 64 MiB") && root.contains("add: [IPC_LOCK]"), "{root}");
        let nested = Process { initial_user_namespace: false, ..process(0, &[CAP_IPC_LOCK], &[]) };
        assert!(message(65536, nested).contains("in its own user namespace"));
        assert_eq!(finding(Pinning::Capability, &of(process(0, &[], &[]), Platform::default())), None);
    }

    #[test]
    fn the_fix_is_that_of_the_platform_in_one_line() {
        let fix = |uid, markers: &[&str], engine| {
            let markers = markers.iter().map(|marker| (*marker).to_owned()).collect();
            let platform = Platform { markers, engine, ..Platform::default() };
            finding(Pinning::Limited(65536), &of(process(uid, &[], &[]), platform)).unwrap().fix.unwrap()
        };
        let docker = Some(Engine::Docker);
        assert_eq!(
            fix(0, &[], docker),
            "Start the container with --ulimit memlock=-1:-1, or with --cap-add IPC_LOCK."
        );
        assert_eq!(
            fix(1000, &[], Some(Engine::Podman)),
            "Start the container with --ulimit memlock=-1:-1, or as root with --cap-add IPC_LOCK."
        );
        let kubernetes = fix(0, &["KUBERNETES_SERVICE_HOST"], docker);
        assert!(
            kubernetes.starts_with("Set securityContext.capabilities.add: [IPC_LOCK], or"),
            "{kubernetes}"
        );
        assert!(!kubernetes.contains("Docker"), "{kubernetes}");
        assert!(fix(0, &["SLURM_JOB_ID"], None).contains("slurmd"));
        let unknown = fix(0, &[], None);
        assert!(
            ["Docker: ", "containerd: ", "CRI-O: ", "Kubernetes: "].iter().all(|of| unknown.contains(of))
        );
    }
}
