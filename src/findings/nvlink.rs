//! NVLink between nodes: whether the container has what NCCL needs for it.
//!
//! Only NVML knows whether this node is in a domain with others, and in which clique. So the
//! findings assume neither: they say what happens if it is in one.

use crate::facts::Facts;
use crate::facts::imex::Imex;
use crate::facts::node::Access;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::mnnvl::{INSISTS, MODELS, Mnnvl, SINCE, VARIABLE, WithoutChannel, mnnvl};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::Plan;

pub fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let model = facts.gpu.model_of(MODELS);
    let has_channel = facts.imex.usable().next().is_some();
    let version = plan.nccl.unwrap_or(NEWEST);
    match mnnvl(|name| plan.value(name), version) {
        // Somebody has given this container channels, or the GPUs are made for it.
        Mnnvl::Wanted(without) if !has_channel && (model.is_some() || facts.imex.count > 0) => {
            Some(no_channel(facts, plan, without))
        }
        Mnnvl::Off(variable) if has_channel => Some(unused(plan, variable)),
        Mnnvl::Unknown if has_channel => Some(
            Finding::info(
                Id::NvlinkUnused,
                format!("The container has an IMEX channel, and NCCL {version} does not use NVLink between nodes: all traffic between them goes over the network."),
            )
            .with_fix(format!("Use NCCL {}.{} or later; GB200 needs 2.25.", SINCE.major, SINCE.minor)),
        ),
        Mnnvl::Wanted(_) | Mnnvl::Off(_) | Mnnvl::Unknown => None,
    }
}

fn no_channel(facts: &Facts, plan: &Plan, without: WithoutChannel) -> Finding {
    let nccl = match plan.nccl {
        Some(version) => format!("NCCL {version}"),
        // Then the newest release counts, which does what these do.
        None => format!("NCCL {}.{} or later", INSISTS.major, INSISTS.minor),
    };
    let ends = match without {
        WithoutChannel::CudaError => format!("{nccl} ends with an error of CUDA (800 or 801)"),
        WithoutChannel::Network => format!("{nccl} silently uses the network between them"),
        WithoutChannel::SystemError => {
            format!("{nccl} ends with \"unhandled system error\" (MNNVL is available but not working)")
        }
    };
    let (what, first) = missing(&facts.imex);
    let gpus = facts.gpu.models.first().map_or("the GPUs".to_owned(), |model| format!("the GPUs ({model})"));
    let message = format!(
        "{what}, so a job cannot reach {gpus} of other nodes over NVLink. If it has several nodes of one NVLink domain, {ends}. Only NVML knows whether this node has joined a domain: see Fabric in the output of nvidia-smi -q."
    );
    let fix = format!(
        "{first}In Kubernetes, make a ComputeDomain for the job, and give its pods the resource claim of the domain's channel. Elsewhere, let nvidia-imex run on the nodes, and give the container a channel (NVIDIA_IMEX_CHANNELS=0, or --device /dev/nvidia-caps-imex-channels/channel0). To do without NVLink between nodes, set {VARIABLE}=0 on all of them."
    );
    Finding::warning(Id::ImexChannel, message).with_fix(fix)
}

/// What is wrong with the channels, and the sentence for the fix that helps against this alone.
fn missing(imex: &Imex) -> (String, &'static str) {
    let Some(channel) = imex.channels.first() else {
        return (
            "The container has no IMEX channel (/dev/nvidia-caps-imex-channels/channel*)".to_owned(),
            "",
        );
    };
    let number = channel.number;
    // A device file that the driver no longer knows often cannot be opened either.
    if let (Some(major), Some(driver)) = (channel.major, imex.major)
        && major != driver
    {
        return (
            format!(
                "IMEX channel {number} is a device file with the major number {major}, but the driver's channels have {driver} now"
            ),
            "Start a new container: the driver was loaded again after the device files of this one were made. ",
        );
    }
    if let Access::Failed(error) = &channel.access {
        return (
            format!("IMEX channel {number} cannot be opened: {error}"),
            "Let the container's user open the device, and allow it in the device cgroup. ",
        );
    }
    (
        format!("IMEX channel {number} is no device file"),
        "Start a new container that is given the device of the channel. ",
    )
}

fn unused(plan: &Plan, variable: &str) -> Finding {
    let value = plan.value(variable).unwrap_or_default();
    Finding::warning(
        Id::NvlinkUnused,
        format!("{variable}={value} keeps NCCL from using NVLink between nodes, and the container has an IMEX channel for it: all traffic between nodes goes over the network."),
    )
    .about_variables([variable])
    .with_fix(match variable {
        // Whoever runs two jobs in one clique, each with a domain of its own, has a reason.
        VARIABLE => format!("Remove {variable}, on all nodes, unless it is on purpose."),
        _ => format!("Remove {variable}, on all nodes; to go without NVLink between nodes, set {VARIABLE}=0."),
    })
}
