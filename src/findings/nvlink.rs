//! NVLink between nodes: whether the container has what NCCL needs for it.
//!
//! Only NVML knows whether this node is in a domain with others, and in which clique. So the findings do not
//! assume it: they state what happens if the node is in one.

use crate::facts::Facts;
use crate::facts::imex::{Imex, ImexChannel};
use crate::facts::node::Access;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::mnnvl::{INSISTS, MODELS, Mnnvl, SINCE, VARIABLE, WithoutChannel, mnnvl};
use crate::libraries::nccl::version::NEWEST;
use crate::plan::Plan;
use crate::text::{condensed, grouped};

pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let model = facts.gpu.model_of(MODELS);
    let has_channel = facts.imex.usable().next().is_some();
    let version = plan.nccl.unwrap_or(NEWEST);
    match mnnvl(|name| plan.value(name), version) {
        // This container was given channels, or its GPUs are made for NVLink between nodes.
        Mnnvl::Wanted(without)
            if !has_channel && (model.is_some() && !is_workstation(facts) || facts.imex.count > 0) =>
        {
            Some(no_channel(facts, plan, without))
        }
        Mnnvl::Off(variable) if has_channel => Some(unused(plan, variable)),
        Mnnvl::Unknown if has_channel => Some(
            Finding::info(
                Id::NvlinkUnused,
                format!("The container has an IMEX channel, but NCCL {version} does not use NVLink between nodes: all traffic between them goes over the network."),
            )
            .with_fix(format!("Use NCCL {}.{} or later; GB200 needs 2.25.", SINCE.major, SINCE.minor)),
        ),
        Mnnvl::Wanted(_) | Mnnvl::Off(_) | Mnnvl::Unknown => None,
    }
}

/// Returns whether the machine has a single GPU of these models, as a DGX Station does, which has no NVLink to other
/// nodes (<https://build.nvidia.com/playbooks/connect-two-stations>). A container may have one GPU of a tray, but its
/// kernel shows the memory of all of the tray's GPUs as NUMA nodes without a CPU.
pub(super) fn is_workstation(facts: &Facts) -> bool {
    let has_name = facts.dmi.product.as_ref().is_some_and(|product| product.contains("Station"));
    let is_one_node = |list: &String| list.parse::<u32>().is_ok();
    facts.gpu.count == Some(1) && (has_name || facts.memory.without_cpu.as_ref().is_some_and(is_one_node))
}

fn no_channel(facts: &Facts, plan: &Plan, without: WithoutChannel) -> Finding {
    // If the release is unknown, the forecast is for the newest one, which behaves like the releases named
    // here.
    let nccl = plan.nccl.map_or_else(insisting, |version| format!("NCCL {version}"));
    let ends = match without {
        WithoutChannel::CudaError => format!("{nccl} fails with CUDA error 800 or 801"),
        WithoutChannel::Network => format!("{nccl} silently uses the network between them"),
        WithoutChannel::SystemError => {
            format!("{nccl} fails with \"unhandled system error\" (MNNVL is available but not working)")
        }
    };
    let (what, first) = missing(&facts.imex);
    let gpus = facts.gpu.models.first().map_or("the GPUs".to_owned(), |model| format!("the GPUs ({model})"));
    let message = format!(
        "{what}, so a job cannot reach {gpus} of other nodes over NVLink. If it has several nodes of one NVLink domain, {ends}. Only NVML knows whether this node has joined a domain: see Fabric in the output of nvidia-smi -q."
    );
    let fix = format!(
        "{first}In Kubernetes, create a ComputeDomain for the job, and give its pods the domain's resource claim. Elsewhere, run nvidia-imex on the nodes, and give the container a channel (NVIDIA_IMEX_CHANNELS=0, or --device /dev/nvidia-caps-imex-channels/channel0). To disable NVLink between nodes, set {VARIABLE}=0 on all of them."
    );
    Finding::warning(Id::ImexChannel, message).with_fix(fix)
}

fn insisting() -> String {
    format!("NCCL {}.{} or later", INSISTS.major, INSISTS.minor)
}

/// Returns what is wrong with the channels, and the sentences that only the fix for this fault needs.
fn missing(imex: &Imex) -> (String, String) {
    if imex.channels.is_empty() {
        let none = "The container has no IMEX channel (/dev/nvidia-caps-imex-channels/channel*)";
        return (none.to_owned(), String::new());
    }
    let faults = imex.channels.iter().map(|channel| (fault(imex, channel), channel.number.to_string()));
    let faults = grouped(faults);
    let what: Vec<String> = faults.iter().map(|(fault, numbers)| fault.of(numbers)).collect();
    let fixes = faults.iter().map(|(fault, _)| fault.fix());
    (what.join("; "), fixes.collect())
}

/// Why a channel is not usable.
#[derive(PartialEq)]
enum ChannelFault<'a> {
    /// The major number of the channel's file is not the driver's.
    Stale(u32, u32),
    Closed(&'a str),
    NoDevice,
}

fn fault<'a>(imex: &Imex, channel: &'a ImexChannel) -> ChannelFault<'a> {
    // If the driver no longer knows a device file, opening the file often fails, too.
    match (channel.major, imex.major, &channel.access) {
        (Some(major), Some(driver), _) if major != driver => ChannelFault::Stale(major, driver),
        (_, _, Access::Failed(error)) => ChannelFault::Closed(error),
        _ => ChannelFault::NoDevice,
    }
}

impl ChannelFault<'_> {
    /// Returns the sentence about the channels with this fault.
    fn of(&self, numbers: &[String]) -> String {
        let (channels, is, is_no) = match numbers.len() {
            1 => ("IMEX channel", "is a device file", "is not a device file"),
            _ => ("IMEX channels", "are device files", "are not device files"),
        };
        let channels = format!("{channels} {}", condensed(numbers));
        match self {
            ChannelFault::Stale(major, driver) => {
                format!(
                    "{channels} {is} with the major number {major}, but the driver's channels have {driver} now"
                )
            }
            ChannelFault::Closed(error) => format!("{channels} cannot be opened: {error}"),
            ChannelFault::NoDevice => format!("{channels} {is_no}"),
        }
    }

    fn fix(&self) -> &'static str {
        match self {
            ChannelFault::Stale(..) => {
                "Start a new container: the driver was reloaded after this container's device files were created. "
            }
            ChannelFault::Closed(_) => {
                "Let the container's user open the device, and allow it in the device cgroup. "
            }
            ChannelFault::NoDevice => "Start a new container with the channel's device. ",
        }
    }
}

fn unused(plan: &Plan, variable: &'static str) -> Finding {
    let value = plan.value(variable).unwrap_or_default();
    // If the release is unknown, the job may use an earlier one, which may ignore the variable.
    let is_of_all = plan.nccl.is_some() || mnnvl(|name| plan.value(name), SINCE) == Mnnvl::Off(variable);
    let nccl = if is_of_all { "NCCL".to_owned() } else { insisting() };
    Finding::warning(
        Id::NvlinkUnused,
        format!("{variable}={value} keeps {nccl} from using NVLink between nodes, although the container has an IMEX channel for it: all traffic between nodes goes over the network."),
    )
    .about_variables([variable])
    .with_fix(match variable {
        // A user who runs two jobs in one clique, each in its own domain, has a reason to set it.
        VARIABLE => format!("Remove {variable} on all nodes, unless this is intended."),
        _ => format!("Remove {variable}, on all nodes; to disable NVLink between nodes, set {VARIABLE}=0."),
    })
}
