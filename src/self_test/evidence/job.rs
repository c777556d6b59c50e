//! What the job will do, and what was set for it.

use super::Evidence;
use crate::facts::Facts;
use crate::libraries::nccl::predict::{Bootstrap, Transport};
use crate::plan::{self, Fabric, Plan};
use crate::state::FOLDER;
use crate::text::{condensed, counted};

pub(crate) fn fabric(_: &Facts, plan: &Plan) -> Evidence {
    match &plan.fabric {
        Fabric::Verbs => Evidence::of(["InfiniBand or RoCE through verbs".to_owned()]),
        Fabric::Interface(name) => Evidence::of([format!("behind the interface {name}")]),
        Fabric::Plugin(count) => Evidence::of([format!("{count} devices for a net plugin")]),
        Fabric::PluginOverInterfaces(names) => {
            Evidence::of([format!("{} for a net plugin", condensed(names))])
        }
        Fabric::None(_) => Evidence::default(),
    }
}

pub(crate) fn bootstrap(_: &Facts, plan: &Plan) -> Evidence {
    match plan.forecasts.last().map(|forecast| &forecast.prediction.bootstrap) {
        Some(Bootstrap::On(endpoint)) => {
            Evidence::of([format!("{} {}", endpoint.interface, endpoint.address)])
        }
        Some(Bootstrap::DependsOnName(name)) => Evidence::of([format!("in the subnet of {name}")]),
        Some(Bootstrap::Fails(_)) => Evidence::default(),
        None => Evidence::skip("there is no RDMA here"),
    }
}

/// Returns what the known version of NCCL does, or else the newest version.
pub(crate) fn nccl(_: &Facts, plan: &Plan) -> Evidence {
    let Some(forecast) = plan.forecasts.last() else { return Evidence::skip("there is no RDMA here") };
    if let Some(why) = plan.perhaps_loses_network() {
        let message = format!(
            "rdma-init cannot tell which {} the job will load, and this is true for some releases: {why}.",
            plan.library
        );
        return Evidence::default().warn(message, "Check what each release does: `rdma-init plan`.");
    }
    let library = plan.library;
    match &forecast.prediction.transport {
        Transport::Verbs(ports) => {
            Evidence::of([format!("{library} will use {}", counted(ports.len(), "port"))])
        }
        Transport::Plugin { file, found: true, .. } => Evidence::of([format!("{library} will load {file}")]),
        Transport::Plugin { file, found: false, .. } => {
            Evidence::of([format!("{library} will load {file}, if the image has it")])
        }
        Transport::Sockets { .. } if !plan.fabric.is_there() => Evidence::skip("there is no RDMA here"),
        Transport::Sockets { interfaces, .. } if !plan.fabric.pins_memory() => {
            Evidence::of([format!("{library} will use sockets on {}", condensed(interfaces))])
        }
        Transport::Sockets { .. } | Transport::Fails(_) => Evidence::default(),
    }
}

/// Returns how many variables the user has set for NCCL and the libraries around it.
pub(crate) fn variables(_: &Facts, plan: &Plan) -> Evidence {
    let set = plan.settings.iter().filter(|setting| setting.outcome == plan::SettingOutcome::User).count();
    match set {
        0 => Evidence::skip("you have set none, and rdma-init fills in the rest"),
        _ => Evidence::of([format!("{} set by you", counted(set, "variable"))]),
    }
}

/// Returns what the libraries other than NCCL will do.
pub(crate) fn libraries(_: &Facts, plan: &Plan) -> Evidence {
    let said = plan.libraries.iter().filter_map(|outlook| {
        let will = outlook.will.as_ref()?;
        Some(format!("{} will {will}", outlook.title))
    });
    let said: Vec<String> = said.collect();
    match said.is_empty() {
        true => Evidence::skip("there is none, or its behavior is unknown"),
        false => Evidence::of(said),
    }
}

/// Returns whether a signal to PID 1 reaches the command.
pub(crate) fn signals(facts: &Facts, _: &Plan) -> Evidence {
    match &facts.parent {
        None => Evidence::skip("PID 1 did not start rdma-init"),
        Some(parent) => Evidence::of([format!("PID 1 is {}", parent.program)]),
    }
}

/// Returns whether the state of the start can be saved for processes that enter the container.
pub(crate) fn state(facts: &Facts, _: &Plan) -> Evidence {
    match facts.state_writable {
        None => Evidence::skip("the facts do not say, or state-dir is empty"),
        Some(true) => Evidence::of(["this user may write to the state directory".to_owned()]),
        Some(false) => Evidence::default().warn(
            format!(
                "This user may not create files in the state directory: {FOLDER}, unless state-dir names another one. Without state-dir, rdma-init keeps its state in /dev/shm or /tmp, if it can."
            ),
            "Let the container write to its root file system, or mount at /run a file system that its user may write to and that no other container has (docker run --tmpfs /run; Kubernetes: an emptyDir).",
        ),
    }
}

/// Returns how the NICs access the memory of the GPUs.
pub(crate) fn gpudirect(facts: &Facts, _: &Plan) -> Evidence {
    match (facts.gpu.count, &facts.gpu.peer_memory) {
        (None, _) => Evidence::skip("no GPU"),
        (_, Some(path)) => Evidence::of([path.clone()]),
        (_, None) if !facts.gpu.make.is_nvidia() => {
            Evidence::skip("no module of the GPUs' driver shows it, and RCCL may use DMA-BUF")
        }
        (_, None) if facts.gpu.driver.is_none() => Evidence::skip("the facts do not name the NVIDIA driver"),
        (_, None) => Evidence::of(facts.gpu.driver.clone()),
    }
}
