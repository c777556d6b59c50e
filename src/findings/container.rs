//! The container itself: whether `/dev/shm` has room for the segments that NCCL creates for each pair of
//! GPUs, and whether signals to the container reach the command.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::text::amount;

/// Docker's default, with which NCCL fails with "No space left on device".
const TOO_SMALL: u64 = 64 * 1024 * 1024;

/// Returns the finding, if several GPUs share too little memory.
pub(super) fn shared_memory(facts: &Facts) -> Option<Finding> {
    let shm = facts.shm.filter(|shm| shm.size <= TOO_SMALL)?;
    let gpus = facts.gpu.count.filter(|count| *count > 1)?;
    let (size, library) = (amount(shm.size), Flavor::of(facts));
    let message = format!(
        "/dev/shm has {size} for {gpus} GPUs; {library} will fail with \"No space left on device\" (posix_fallocate)."
    );
    Some(Finding::warning(Id::SharedMemory, message).with_fix(
        "Make /dev/shm larger. Docker: --shm-size=16g or --ipc=host. Kubernetes: an emptyDir with medium: Memory on /dev/shm.",
    ))
}

const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// Returns the finding, if PID 1 is a shell that runs rdma-init. The kernel delivers a signal to PID 1 only
/// if PID 1 has a handler for it, and a shell has one only if a script sets a trap.
pub(super) fn parent(facts: &Facts) -> Option<Finding> {
    let shell = facts.parent.as_ref().filter(|parent| {
        SHELLS.contains(&parent.program.as_str()) && parent.has_operand && !parent.catches_term
    })?;
    let message = format!(
        "PID 1 of this container is a shell ({}), and rdma-init is its child. The shell does not forward signals: the command does not notice when the container is stopped, and is killed at the end of the grace period.",
        shell.program
    );
    Some(Finding::info(Id::ShellIsPid1, message).with_fix(
        "Start rdma-init in place of the shell, with exec: sh -c \"exec /rdma-init -- ...\". Or without a shell, in JSON form: ENTRYPOINT [\"/rdma-init\", \"--\"].",
    ))
}
