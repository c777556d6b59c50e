//! Says in one line what NCCL will do.

use crate::facts::gid::GidType;
use crate::facts::rdma::LinkLayer;
use crate::libraries::nccl::predict::{Bootstrap, Fused, GidUse, PortUse, Prediction, Transport};
use crate::libraries::nccl::version::Version;
use crate::plan::{Fabric, Forecast, Plan};
use crate::text::{condensed, grouped};

/// The label of a forecast that applies to all versions.
pub(super) const ANY: &str = "any release";

/// Returns what NCCL does with the env plugin of rdma-init.
pub(super) fn asks_ours(plan: &Plan) -> String {
    let asks = "ask rdma-init's in every process, so that copies of another node's values do not count";
    match plan.late.is_empty() {
        true => asks.to_owned(),
        false => {
            let late: Vec<&str> = plan.late.iter().map(|late| late.entry.as_str()).collect();
            format!("{asks}; it adds {} if the port is ACTIVE by then", condensed(&late))
        }
    }
}

/// Returns for each forecast the NCCL versions, and what they will do: `2.27.7`, `use ...`.
pub(super) fn lines(plan: &Plan) -> Vec<(String, String)> {
    let next = plan.forecasts.iter().skip(1).map(|forecast| forecast.since);
    let next = next.chain([None]);
    plan.forecasts
        .iter()
        .zip(next)
        .map(|(forecast, next)| (whom(plan.nccl, forecast, next), sentence(plan, &forecast.prediction)))
        .collect()
}

/// Returns what NCCL's own log will say about the HCAs, each line once.
pub(super) fn log_lines(plan: &Plan) -> impl Iterator<Item = &str> {
    let lines = plan.forecasts.iter().filter_map(|forecast| forecast.log.as_deref());
    let mut seen: Vec<&str> = Vec::new();
    lines.filter(move |line| {
        let is_new = !seen.contains(line);
        seen.push(line);
        is_new
    })
}

/// Returns the versions of a forecast: `2.27.7`; or if the version is unknown, `any release`, `before
/// 2.21`, `2.21 to 2.27`, or `since 2.28`.
fn whom(known: Option<Version>, forecast: &Forecast, next: Option<Version>) -> String {
    let minor = |version: Version| format!("{}.{}", version.major, version.minor);
    match (known, forecast.since, next) {
        (Some(version), _, _) => version.to_string(),
        (None, None, None) => ANY.to_owned(),
        (None, None, Some(next)) => format!("before {}", minor(next)),
        (None, Some(since), Some(next)) => {
            let last = next.minor.saturating_sub(1);
            match since.minor == last {
                true => minor(since),
                false => format!("{} to {}.{last}", minor(since), next.major),
            }
        }
        (None, Some(since), None) => format!("since {}", minor(since)),
    }
}

/// Returns a clause such as `, one NIC of rocep1s0f0+rocep1s0f1`; empty if no NIC has several ports.
fn nics(plan: &Plan, fused: &Fused) -> String {
    let Fused::Nics(nics) = fused else { return String::new() };
    let name = |port: &String| {
        let hca = port.split(':').next().unwrap_or_default();
        let of_several = plan.ports.iter().any(|known| known.hca == hca && known.of_several);
        if of_several { port.clone() } else { hca.to_owned() }
    };
    let one = |nic: &Vec<String>| nic.iter().map(name).collect::<Vec<_>>().join("+");
    match nics.as_slice() {
        [] => String::new(),
        [nic] => format!(", one NIC of {}", one(nic)),
        nics => format!(", one NIC each of {}", nics.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns a sentence such as `use mlx5_1..mlx5_8, RoCE v2, GID index 5, bootstrap on eth0 10.244.1.9`.
fn sentence(plan: &Plan, prediction: &Prediction) -> String {
    let without = without_plugin(plan, prediction);
    match &prediction.env_plugin {
        Some(file) => format!(
            "load the env plugin {file}, whose answers replace all variables: the forecast stops here; without it, {} would {without}",
            plan.library
        ),
        None => without,
    }
}

/// Returns what NCCL does if no plugin answers for its variables.
fn without_plugin(plan: &Plan, prediction: &Prediction) -> String {
    let transport = match &prediction.transport {
        Transport::Verbs(ports) => {
            let ports = format!("{}{}", ports_used(plan, ports), nics(plan, &prediction.fused));
            match plan.outcome().describe_tried_ports(plan) {
                Some(outcome) => format!("try {ports}, {outcome}"),
                None => format!("use {ports}"),
            }
        }
        Transport::Plugin { file, found: true, otherwise } => match otherwise.ports() {
            Some(ports) => format!(
                "load the net plugin {file}, which decides by itself; {} alone would use {}",
                plan.library,
                ports_used(plan, ports)
            ),
            None => format!("load the net plugin {file}, which decides by itself"),
        },
        Transport::Plugin { file, found: false, otherwise } => {
            let instead = match &**otherwise {
                Transport::Fails(message) => format!("fail with \"{message}\""),
                Transport::Verbs(ports) => format!("use {}", ports_used(plan, ports)),
                _ => "use TCP".to_owned(),
            };
            format!("load the net plugin {file}, if the image has it, else {instead}")
        }
        // On this fabric, sockets themselves use RDMA, without verbs.
        Transport::Sockets { interfaces, .. } if matches!(plan.fabric, Fabric::Interface(_)) => {
            format!("use sockets on {}", condensed(interfaces))
        }
        Transport::Sockets { why, interfaces } => match interfaces.as_slice() {
            [] => format!("use TCP ({why})"),
            some => format!("use TCP on {} ({why})", condensed(some)),
        },
        Transport::Fails(message) => return format!("fail with \"{message}\""),
    };
    if let Fused::Fails(message) = &prediction.fused {
        return format!("fail with \"{message}\"");
    }
    match &prediction.bootstrap {
        Bootstrap::On(endpoint) => {
            format!("{transport}, bootstrap on {} {}", endpoint.interface, endpoint.address)
        }
        Bootstrap::Fails(message) => format!("fail with \"{message}\""),
        Bootstrap::DependsOnName(name) => {
            format!("{transport}, bootstrap in the subnet of {name} (NCCL_COMM_ID)")
        }
    }
}

/// Lists the ports. Those that are used in the same way share a description.
fn ports_used(plan: &Plan, ports: &[PortUse]) -> String {
    let groups = grouped(ports.iter().map(|port| {
        let of_several = plan.ports.iter().any(|known| known.hca == port.hca && known.of_several);
        (how(port), if of_several { format!("{}:{}", port.hca, port.port) } else { port.hca.clone() })
    }));
    let is_only = groups.len() == 1;
    let shown: Vec<String> = groups
        .iter()
        .map(|(how, names)| {
            let names = condensed(names);
            if is_only { format!("{names}, {how}") } else { format!("{names} ({how})") }
        })
        .collect();
    shown.join(" and ")
}

fn how(port: &PortUse) -> String {
    match &port.gid {
        None if port.link_layer == LinkLayer::InfiniBand => "InfiniBand".to_owned(),
        None => String::from(port.link_layer.clone()),
        Some(GidUse::Fails(why)) => format!("RoCE, but the search for a GID {why}"),
        // A queue pair keeps only eight bits of the index (`ibv_global_route`).
        Some(GidUse::Slot { index, .. }) if *index > 255 => {
            format!("RoCE, GID index {index}, which a queue pair truncates to {}", index & 255)
        }
        Some(GidUse::Slot { index, gid: None }) => format!("RoCE, GID index {index}, which is empty"),
        Some(GidUse::Slot { index, gid: Some(gid) }) => {
            let kind = match &gid.kind {
                GidType::RoceV2 => "RoCE v2",
                GidType::IbOrRoceV1 => "RoCE v1",
                GidType::Other(kind) => kind,
                GidType::Unknown => "RoCE",
            };
            let local = if gid.is_link_local() { ", link-local" } else { "" };
            format!("{kind}{local}, GID index {index}")
        }
    }
}
