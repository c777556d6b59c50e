//! GPUDirect RDMA: whether NICs can access GPU memory directly.

use crate::facts::Facts;
use crate::facts::gpu::{Gpus, Make};
use crate::finding::{Finding, Id};
use crate::libraries::nccl::version::Version;
use crate::plan::{Fabric, Plan};

/// The first release that uses NCCL's alternative, DMA-BUF (`ncclIbDmaBufSupport`).
const USES_DMABUF: Version = Version::new(2, 13, 0);

/// Returns the finding if neither nvidia_peermem nor DMA-BUF is available. Of NVIDIA's kernel modules, only
/// the open one supports DMA-BUF. For AMD's GPUs, no file shows what RCCL will detect: it looks for a kernel
/// symbol, and queries the NIC's driver.
pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let Gpus { make: Make::Nvidia, count: Some(_), driver: Some(driver), peer_memory: None, .. } = &facts.gpu
    else {
        return None;
    };
    let has_dmabuf = driver.contains("Open Kernel Module");
    let uses_dmabuf = plan.nccl.is_none_or(|version| version >= USES_DMABUF);
    if plan.fabric != Fabric::Verbs || (has_dmabuf && uses_dmabuf) {
        return None;
    }
    let (why, instead) = match has_dmabuf {
        true => ("this NCCL cannot use DMA-BUF", "use NCCL 2.13 or later"),
        false => (
            "the NVIDIA driver is not the open kernel module, which DMA-BUF needs",
            "use NVIDIA's open kernel module",
        ),
    };
    Some(
        Finding::warning(
            Id::NoGpudirect,
            format!("GPUDirect RDMA is not available: nvidia_peermem is not loaded, and {why}. NCCL says \"GPU Direct RDMA Disabled\" and copies through host memory."),
        )
        .with_fix(format!("Load nvidia_peermem on the node (modprobe nvidia-peermem), or {instead}.")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Options};
    use crate::profiles::Profiles;

    #[test]
    fn the_fix_is_for_what_stands_in_the_way() {
        let plan = plan::decide(&Facts::default(), &Profiles::load(None).unwrap(), &Options::default()).plan;
        let found = |module: &str, nccl: Option<Version>| {
            let mut facts = Facts::default();
            facts.gpu.count = Some(8);
            facts.gpu.driver = Some(format!("NVRM version: NVIDIA UNIX {module} for x86_64  570.86.15"));
            let found = finding(&facts, &Plan { nccl, fabric: Fabric::Verbs, ..plan.clone() });
            found.and_then(|finding| finding.fix)
        };
        let old = Some(Version::new(2, 12, 12));
        assert!(
            found("x86_64 Kernel Module", None).unwrap().ends_with("or use NVIDIA's open kernel module.")
        );
        assert!(found("Open Kernel Module", old).unwrap().ends_with("or use NCCL 2.13 or later."));
        assert_eq!(found("Open Kernel Module", Some(USES_DMABUF)), None);
    }
}
