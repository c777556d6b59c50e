//! Whether `/dev/shm` has room for what NCCL puts there for each pair of GPUs.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::text::amount;

/// Docker's default, with which NCCL ends in "No space left on device".
const TOO_SMALL: u64 = 64 * 1024 * 1024;

/// The finding, if several GPUs share too little.
pub(super) fn finding(facts: &Facts) -> Option<Finding> {
    let shm = facts.shm.filter(|shm| shm.size <= TOO_SMALL)?;
    let gpus = facts.gpu.count.filter(|count| *count > 1)?;
    let message = format!(
        "/dev/shm has {} for {gpus} GPUs; NCCL will fail with \"No space left on device\" (posix_fallocate).",
        amount(shm.size)
    );
    Some(Finding::warning(Id::SharedMemory, message).with_fix(
        "Make /dev/shm larger. Docker: --shm-size=16g or --ipc=host. Kubernetes: an emptyDir with medium: Memory on /dev/shm.",
    ))
}
