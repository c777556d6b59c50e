//! Whether memory can be pinned, and what to do where it cannot.
//!
//! The kernel lets a process pin memory up to RLIMIT_MEMLOCK, or without limit
//! when it has CAP_IPC_LOCK in the initial user namespace (`ib_umem_get`,
//! `mm/mlock.c`).

use caps::Capability::{CAP_IPC_LOCK, CAP_SYS_RESOURCE};
use serde::Serialize;

use crate::facts::limits::{Amount, Limit};
use crate::facts::process::Process;
use crate::finding::{Finding, Id, Severity};

/// What the command can pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pinning {
    /// By the limit.
    Unlimited,
    /// By the capability, whatever the limit.
    Capability,
    /// Bytes.
    Limited(u64),
}

/// The default of the kernel (since 5.16), Docker and Kubernetes: with this or
/// less, RDMA fails at once.
const NEXT_TO_NOTHING: u64 = 8 * 1024 * 1024;

/// The limit that the program can raise this one to.
pub fn raised(limit: Limit, process: &Process) -> Limit {
    let may_raise_hard =
        process.capabilities.effective.has(CAP_SYS_RESOURCE) && process.initial_user_namespace;
    let hard = if may_raise_hard { Amount::UNLIMITED } else { limit.hard };
    Limit { soft: hard, hard }
}

/// What the command will be able to pin with this limit.
pub fn pinning(limit: Limit, process: &Process) -> Pinning {
    // A root process keeps its capabilities through the exec; another one keeps
    // what the program raises to ambient.
    let capability = process.capabilities.permitted.has(CAP_IPC_LOCK) && process.initial_user_namespace;
    match limit.soft {
        Amount::Unlimited(_) => Pinning::Unlimited,
        Amount::Limited(_) if capability => Pinning::Capability,
        Amount::Limited(bytes) => Pinning::Limited(bytes),
    }
}

/// The finding, where pinning is limited.
pub fn finding(pinning: Pinning, process: &Process) -> Option<Finding> {
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
    Some(Finding { severity, ..Finding::info(Id::Memlock, message) }.with_fix(fix(process)))
}

fn why_no_capability(process: &Process) -> String {
    let sets = &process.capabilities;
    if sets.effective.has(CAP_IPC_LOCK) || sets.permitted.has(CAP_IPC_LOCK) {
        // The process has the capability and still cannot pin: only the namespace can be the
        // reason.
        "; this process has CAP_IPC_LOCK, but in a user namespace of its own, where the kernel does not honour it".to_owned()
    } else if process.uid != 0 && sets.bounding.has(CAP_IPC_LOCK) {
        format!(
            "; the CAP_IPC_LOCK granted to the container does not reach its user, uid {}: only root gets it",
            process.uid
        )
    } else {
        ", no CAP_IPC_LOCK".to_owned()
    }
}

fn fix(process: &Process) -> String {
    if !process.initial_user_namespace {
        return "Raise the limit of the runtime that makes the user namespace (its LimitMEMLOCK or --ulimit memlock=-1:-1), or use the host's user namespace (Docker: --userns=host, Kubernetes: hostUsers: true)."
            .to_owned();
    }
    let limit = "Docker: --ulimit memlock=-1:-1, or as root --cap-add IPC_LOCK. containerd: LimitMEMLOCK=infinity in its systemd unit. CRI-O: default_ulimits = [\"memlock=-1:-1\"].";
    let sets = &process.capabilities;
    let kubernetes = if process.uid != 0 && sets.bounding.has(CAP_IPC_LOCK) {
        let file = if process.no_new_privs {
            "allow privilege escalation and run `setcap cap_ipc_lock+p` on rdma-init in the image"
        } else {
            "run `setcap cap_ipc_lock+p` on rdma-init in the image"
        };
        format!("Kubernetes: run as root, or {file}, or raise the limit on the node.")
    } else if process.uid != 0 {
        "Kubernetes: run as root with securityContext.capabilities.add: [IPC_LOCK], or raise the limit on the node.".to_owned()
    } else {
        "Kubernetes: securityContext.capabilities.add: [IPC_LOCK], or raise the limit on the node.".to_owned()
    };
    format!("{limit} {kubernetes}")
}

/// `64 KiB`, `8 MiB`, `1.5 GiB`.
pub fn amount(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in units {
        if bytes >= size {
            let tenths = u128::from(bytes) * 10 / u128::from(size);
            return if bytes.is_multiple_of(size) {
                format!("{} {unit}", bytes / size)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bytes} bytes")
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
        // The kernel asks for the capability in the initial user namespace.
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

    #[test]
    fn the_message_knows_why_and_what_to_do() {
        let message = |bytes, process: &Process| {
            let finding = finding(Pinning::Limited(bytes), process).unwrap();
            format!("{:?} {} {}", finding.severity, finding.message, finding.fix.unwrap())
        };
        let trap = message(65536, &process(1000, &[], &[CAP_IPC_LOCK]));
        assert!(trap.starts_with("Error Only 64 KiB"), "{trap}");
        assert!(trap.contains("does not reach its user, uid 1000"), "{trap}");
        assert!(trap.contains("setcap cap_ipc_lock+p"), "{trap}");
        let root = message(64 << 20, &process(0, &[], &[]));
        assert!(root.starts_with("Warning Only 64 MiB") && root.contains("add: [IPC_LOCK]"), "{root}");
        let nested = Process { initial_user_namespace: false, ..process(0, &[CAP_IPC_LOCK], &[]) };
        assert!(message(65536, &nested).contains("in a user namespace of its own"));
        assert_eq!(finding(Pinning::Capability, &process(0, &[], &[])), None);
    }

    #[test]
    fn amounts_are_shown_in_the_largest_unit() {
        assert_eq!(amount(65536), "64 KiB");
        assert_eq!(amount(8 << 20), "8 MiB");
        assert_eq!(amount(3 << 29), "1.5 GiB");
        assert_eq!(amount(100), "100 bytes");
        assert_eq!(amount(1_048_575), "1023.9 KiB");
    }
}
