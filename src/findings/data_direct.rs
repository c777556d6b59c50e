//! The Data Direct functions of ConnectX-8.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::data_direct::{GpuPaths, VARIABLE, ways};
use crate::libraries::nccl::version::HAS_DATA_DIRECT;
use crate::plan::{Fabric, Plan, PortVerdict};
use crate::text::counted;

/// Explains `mlx5_0_dma` in NCCL's log. Returns no finding if the user has set the variable.
pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let functions = facts.data_direct.len();
    let is_set = plan.value(VARIABLE).is_some();
    if functions == 0 || is_set || plan.fabric != Fabric::Verbs {
        return None;
    }
    let library = plan.library;
    let who = match plan.nccl {
        Some(version) if ways(|_| None, version) == GpuPaths::Own => return None,
        Some(version) => format!("{library} {version}"),
        None => format!("{library} {}.{} or later", HAS_DATA_DIRECT.major, HAS_DATA_DIRECT.minor),
    };
    let used = || plan.ports.iter().filter(|port| port.used);
    let example = used().next().map_or("mlx5_0", |port| &port.hca);
    Some(
        Finding::info(
            Id::DataDirect,
            format!(
                "There are {} of ConnectX-8. If the image has libmlx5 of rdma-core 54 or later, {who} reaches the GPUs through them, and its log then has {example}_dma for {example}. Ports and GIDs stay those of {example}. No file shows which HCA has such a function; the lines with NET/IB in {library}'s log do.",
                counted(functions, "Data Direct function"),
            ),
        )
        .about_ports(used().map(PortVerdict::full_name))
        .with_fix(format!("If {library} cannot register memory (mlx5dv_reg_dmabuf_mr in its log), or the job is slower than before, set {VARIABLE}=0 on all nodes.")),
    )
}
