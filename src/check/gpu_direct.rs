//! GPUDirect RDMA: whether NICs reach the memory of the GPUs by themselves.

use crate::facts::Facts;
use crate::facts::gpu::Gpus;
use crate::finding::{Finding, Id};
use crate::nccl::version::Version;
use crate::plan::{Fabric, Plan};

/// NCCL's other way, DMA-BUF (`ncclIbDmaBufSupport`).
const USES_DMABUF: Version = Version::new(2, 13, 0);

/// Without a module for it there is DMA-BUF, which only NVIDIA's open kernel module
/// has.
pub fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let Gpus { count: Some(_), driver: Some(driver), peer_memory: None, .. } = &facts.gpu else {
        return None;
    };
    let has_dmabuf = driver.contains("Open Kernel Module");
    let uses_dmabuf = plan.nccl.is_none_or(|version| version >= USES_DMABUF);
    if plan.fabric != Fabric::Verbs || (has_dmabuf && uses_dmabuf) {
        return None;
    }
    let why = match has_dmabuf {
        true => "this NCCL does not know DMA-BUF".to_owned(),
        false => "the driver's kernel module is not the open one, which DMA-BUF needs".to_owned(),
    };
    Some(
        Finding::warning(
            Id::NoGpudirect,
            format!("GPUDirect RDMA is not there: nvidia_peermem is not loaded, and {why}. NCCL says \"GPU Direct RDMA Disabled\" and copies through the memory of the host."),
        )
        .with_fix("Load nvidia_peermem on the node (modprobe nvidia-peermem), or use NVIDIA's open kernel module."),
    )
}
