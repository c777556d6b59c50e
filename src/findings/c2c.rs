//! GPUDirect RDMA on machines where C2C links connect GPUs and CPUs. There, a GPU is near the HCAs of its
//! CPU, although they are far apart on the PCI bus.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::libraries::nccl::c2c::{GpuDirect, MODELS, SINCE, VARIABLE, gpudirect};
use crate::libraries::nccl::data_direct::{GpuPaths, ways};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::{Fabric, Plan};

/// Returns the finding, if NCCL copies data through CPU memory although it need not.
pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let model = facts.gpu.model_of(MODELS).filter(|_| plan.fabric == Fabric::Verbs)?;
    let version = plan.nccl.unwrap_or(NEWEST);
    let nccl = Flavor::Nccl.of_release(plan.nccl);
    let get = |name: &str| plan.value(name);
    // Through a Data Direct function, an HCA accesses the GPU without using the CPU and its C2C links.
    if !facts.data_direct.is_empty() && ways(get, version) != GpuPaths::Own {
        return None;
    }
    let (why, variable, fix) = match gpudirect(get, version) {
        GpuDirect::Used => return None,
        GpuDirect::AskFor => (
            format!("{nccl} uses that only if {VARIABLE} is 1"),
            Some(VARIABLE),
            format!("Set {VARIABLE}=1 on all nodes, or use NCCL 2.27 or later, which needs no variable."),
        ),
        GpuDirect::TooOld => (
            format!("{nccl} does not know C2C links"),
            None,
            format!("Use NCCL 2.27 or later; or NCCL {}.{} with {VARIABLE}=1.", SINCE.major, SINCE.minor),
        ),
        GpuDirect::Off(variable) => {
            let value = plan.value(variable).unwrap_or_default();
            let fix = match variable {
                VARIABLE => format!("Remove {VARIABLE}."),
                _ => format!("Remove {variable}, or set it to PHB."),
            };
            (format!("{variable}={value} keeps {nccl} from using that"), Some(variable), fix)
        }
    };
    Some(
        Finding::warning(
            Id::C2cGpudirect,
            format!("The HCAs can reach the memory of the GPUs ({model}) through the CPU and its C2C links, but {why}: NCCL copies all data through the CPU's memory."),
        )
        .about_variables(variable)
        .with_fix(fix),
    )
}
