//! vLLM's map of GPUs to NICs, and its list of the variables that stay each node's own.

use super::shown;
use crate::facts::node_list::Holds;
use crate::finding::{Finding, Id};
use crate::libraries::vllm::{MAPPING, Remark, SELECTION};
use crate::plan::Decided;
use crate::text::condensed;

pub(super) fn finding(decided: &Decided, remark: &Remark) -> Finding {
    let mapping = shown(decided, MAPPING);
    let right = "Remove both variables, and rdma-init fills them in if they are needed.";
    // It is unknown whether the job runs vLLM.
    let warning = |message: String| Finding::warning(Id::VllmMapping, message).about_variables([MAPPING]);
    match remark {
        Remark::Alone { set, unset } => Finding::warning(
            Id::VllmMapping,
            format!(
                "{}, and {unset} is not set: vLLM fails with \"both must be set together\".",
                shown(decided, set)
            ),
        )
        .about_variables([*set, *unset])
        .with_fix(format!("Also set {unset}, or remove {set}.")),
        Remark::NotRead(release) => warning(format!(
            "{mapping}: vLLM {release} does not read it; vLLM 0.23 and later do. Each worker may take any HCA."
        ))
        .with_fix("Use vLLM 0.23 or later."),
        Remark::OtherMake => warning(format!(
            "{mapping}: vLLM maps only NVIDIA's GPUs, and fails with NotImplementedError on others."
        ))
        .with_fix("Remove both variables."),
        Remark::NoPair(segment) => warning(format!(
            "{mapping}: \"{segment}\" is not a pair of PCI addresses, so vLLM fails with ValueError."
        ))
        .with_fix("Write pairs GPU=NIC with commas between them, such as 0000:18:00.0=0000:1a:00.0. Or remove both variables, and rdma-init fills them in if they are needed."),
        Remark::GpusWithout(gpus) => warning(format!(
            "{mapping}: it does not name {}, which this container has, and the worker of such a GPU fails with \"No VLLM_GPU_NIC_PCIE_MAPPING entry\".",
            gpus.join(", ")
        ))
        .with_fix(right),
        Remark::NoHca(nics) => warning(format!(
            "{mapping}: no RDMA device here has the address {}, so a worker fails with \"No /sys/class/infiniband device\".",
            nics.join(", ")
        ))
        .with_fix(right),
        Remark::Idle(hcas) => warning(format!(
            "{mapping}: it assigns {} to workers, which the job does not use.",
            condensed(hcas)
        ))
        .about_ports(hcas.clone())
        .with_fix(right),
        Remark::Far { gpu, hca, distance, nearer, nearer_at } => warning(format!(
            "{mapping}: the GPU {gpu} gets {hca} ({}), and {nearer} is nearer ({}).",
            distance.word(),
            nearer_at.word()
        ))
        .with_fix(right),
        Remark::InFront { variable, value } => Finding::warning(
            Id::VllmMapping,
            format!(
                "{}: each worker of vLLM writes an HCA in front of {variable}={value}, where the sign no longer applies to the list.",
                shown(decided, SELECTION)
            ),
        )
        .about_variables([SELECTION, *variable])
        .with_fix(format!("Remove {variable}, or take it out of {SELECTION}.")),
    }
}

/// The list is no list: vLLM then copies the driver's variables to the workers of all nodes, or
/// ends.
pub(super) fn node_list(decided: &Decided) -> Option<Finding> {
    let list = decided.facts.node_list.as_ref().filter(|list| list.holds == Holds::NoList)?;
    Some(
        Finding::warning(
            Id::VllmNodeList,
            format!(
                "{} is not a JSON list. vLLM ignores it or fails on it; if vLLM continues, the workers on other nodes get this node's variables. rdma-init does not change the file.",
                list.path
            ),
        )
        .with_fix(format!(
            "Make it a list of names, as [\"MY_VARIABLE\"], or remove it: at the next start, rdma-init writes {} itself.",
            list.path
        )),
    )
}
