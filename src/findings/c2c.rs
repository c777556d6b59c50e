//! GPUDirect RDMA where C2C links connect GPUs and CPUs: there, an HCA of the same CPU is near,
//! though the PCI bus says that it is far.

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::c2c::{GpuDirect, MODELS, SINCE, VARIABLE, gpudirect};
use crate::libraries::nccl::data_direct::{Ways, ways};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::{Fabric, Plan};

/// The finding, where NCCL copies through the memory of the CPU although it need not.
pub fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let model = facts.gpu.model_of(MODELS).filter(|_| plan.fabric == Fabric::Verbs)?;
    let version = plan.nccl.unwrap_or(NEWEST);
    let get = |name: &str| plan.value(name);
    // Data Direct functions are behind the switches of the GPUs.
    if !facts.data_direct.is_empty() && ways(get, version) != Ways::Own {
        return None;
    }
    let (why, variable, fix) = match gpudirect(get, version) {
        GpuDirect::Used => return None,
        GpuDirect::AskFor => (
            format!("NCCL {version} does so only if {VARIABLE} is 1"),
            Some(VARIABLE),
            format!("Set {VARIABLE}=1 on all nodes, or use NCCL 2.27 or later, which needs no variable."),
        ),
        GpuDirect::TooOld => (
            format!("NCCL {version} does not know C2C links"),
            None,
            format!("Use NCCL 2.27 or later; or NCCL {}.{} with {VARIABLE}=1.", SINCE.major, SINCE.minor),
        ),
        GpuDirect::Off(variable) => {
            let value = plan.value(variable).unwrap_or_default();
            let fix = match variable {
                VARIABLE => format!("Remove {VARIABLE}."),
                _ => format!("Remove {variable}, or set it to PHB."),
            };
            (format!("{variable}={value} keeps NCCL {version} from it"), Some(variable), fix)
        }
    };
    Some(
        Finding::warning(
            Id::C2cGpudirect,
            format!("HCAs reach the memory of the GPUs ({model}) through the CPU and C2C links, and {why}: all data is copied through the memory of the CPU."),
        )
        .about_variables(variable)
        .with_fix(fix),
    )
}
