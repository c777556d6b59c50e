//! The fixes for failed checks whose evidence does not suggest one.

use super::check::{Check, Outcome};
use super::kinds::{self, Level};

/// Adds a general fix to each failed check that has none.
pub(super) fn complete(checks: &mut [Check]) {
    for check in checks.iter_mut().filter(|check| check.outcome == Outcome::Failed && check.fix.is_none()) {
        check.fix = Some(general(&check.id).to_owned());
    }
}

/// Returns the general fix of a check, whatever it found.
fn general(id: &str) -> &'static str {
    match id {
        "memlock" | "verbs-memory" => {
            "Raise the limit of pinned memory (Docker: --ulimit memlock=-1:-1) or add the capability IPC_LOCK."
        }
        "fabric" => {
            "Fix first what else fails or warns here. If the container has no RDMA device, give it the node's (Kubernetes: request the RDMA resource; Docker: --device /dev/infiniband)."
        }
        "nccl-decides" => {
            "Fix first what else fails or warns here. `rdma-init plan --evidence` shows why NCCL does not use the devices."
        }
        "address" | "gid" | "route" | "mtu" => {
            "Check the addresses and routes of the HCAs' interfaces (ip addr, ip route) and the network plugin that sets them."
        }
        "interface" => "Set NCCL_SOCKET_IFNAME to an interface that the other nodes reach.",
        "verbs-open" => {
            "Check that /dev/infiniband is in the container, that its user may open it, and that `ibv_devinfo` works on the node; the kernel log names a device that fails."
        }
        "verbs-loopback" => {
            "Check the port on the node (ibv_devinfo, rdma link, dmesg): its state, its GID, and its firmware."
        }
        "pair-connect" => {
            "Check that both nodes run the test at the same time with the same RDMA_INIT_TOKEN, and that firewalls allow its TCP port."
        }
        "pair-data" => {
            "Check the cables, the switches, and the route of each rail to its counterpart (ip route get)."
        }
        id if kinds::is_of(Level::Pair, id) => "Give both nodes the same HCAs, configuration and image.",
        _ => "Compare `rdma-init plan --evidence` with a node that works.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_test::kinds::KINDS;

    #[test]
    fn every_check_that_fails_has_a_fix() {
        for kind in KINDS {
            let known = Check { fix: Some("Known.".to_owned()), ..kinds::check(kind.id, Outcome::Failed) };
            let mut checks =
                [kinds::check(kind.id, Outcome::Failed), known, kinds::check(kind.id, Outcome::Warning)];
            complete(&mut checks);
            let [failed, known, warning] = checks.map(|check| check.fix);
            assert!(failed.is_some_and(|fix| fix.ends_with('.')), "{}", kind.id);
            assert_eq!((known.as_deref(), warning), (Some("Known."), None));
        }
    }
}
