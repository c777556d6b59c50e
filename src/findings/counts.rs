//! HCAs that may be for storage, if the facts do not show it.

use std::collections::{BTreeMap, BTreeSet};

use super::nvlink;
use crate::fabric::own_interface::Index;
use crate::fabric::subnet::{self, Prefix};
use crate::fabric::{Candidate, default_route, near};
use crate::facts::Facts;
use crate::facts::gpu::Make;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST as VARIABLE;

use crate::plan::{Context, on_default_route};
use crate::text::condensed;

/// Returns findings about the HCAs that the plan chose. `of_nvswitches` are the names of ports with a finding
/// of their own.
pub(super) fn findings(
    context: &Context,
    interfaces: &Index,
    ports: &[Candidate],
    of_nvswitches: &[String],
) -> Vec<Finding> {
    if !context.uses_verbs() || context.leaves_alone(VARIABLE) {
        return Vec::new();
    }
    let every_gpu_has_one = near::every_gpu_has_one(context.facts, interfaces, ports);
    let is_left = |port: &&Candidate| !of_nvswitches.contains(&port.name());
    let rails: Vec<Candidate> = ports.iter().filter(is_left).cloned().collect();
    let subnets = if every_gpu_has_one { None } else { subnets(&rails) };
    more_than_gpus(context, &rails, every_gpu_has_one).into_iter().chain(subnets).collect()
}

/// Reports that there are more HCAs than GPUs. Two or three HCAs for each GPU are normal if all of them are
/// near.
fn more_than_gpus(context: &Context, ports: &[Candidate], every_gpu_has_one: bool) -> Option<Finding> {
    let facts = context.facts;
    if facts.gpu.model_of(OF_SPARK).is_some() {
        return None;
    }
    let on_default_route = on_default_route(context);
    let is_wanted = default_route::wanted(facts, on_default_route);
    let rails: Vec<&Candidate> = ports.iter().filter(|port| port.is_used() && !is_wanted(port)).collect();
    let names: Vec<String> = rails.iter().map(|port| port.name()).collect();
    let hcas: BTreeMap<&str, &str> = rails
        .iter()
        .map(|port| (port.hca.name.as_str(), port.hca.system_guid.as_deref().unwrap_or(&port.hca.name)))
        .collect();
    // The functions of one NIC have the same purpose, so they count as one.
    let nics = hcas.values().collect::<BTreeSet<_>>().len();
    let hcas = hcas.len();
    let gpus = usize::try_from(facts.gpu.count?).ok().filter(|gpus| *gpus > 0)?;
    if nics <= gpus || (hcas.is_multiple_of(gpus) && (every_gpu_has_one || is_by_design(facts, &rails, gpus)))
    {
        return None;
    }
    let plural = if gpus == 1 { "" } else { "s" };
    let why = match (every_gpu_has_one, facts.gpu.devices.is_empty()) {
        (true, _) => "each HCA is near a GPU (PIX or PXB)",
        (false, true) => "the PCI positions of the GPUs are unknown",
        (false, false) => "not every GPU has a near HCA (PIX or PXB)",
    };
    let tool = match facts.gpu.make {
        Make::Amd => "rocm-smi --showtopo",
        Make::Nvidia | Make::Other => "nvidia-smi topo -m",
    };
    let message = format!(
        "{VARIABLE} takes {hcas} HCAs for {gpus} GPU{plural}, and {why}: some of the HCAs may be for storage, or near the GPUs of other containers."
    );
    Some(Finding::info(Id::MoreHcasThanGpus, message).about_variables([VARIABLE]).about_ports(names).with_fix(format!(
        "Check where the HCAs are (`{tool}` on the node) and which networks they are in; if some are not rails, name only the rails in {VARIABLE}."
    )))
}

/// The GPU of DGX Spark and its kin. The machine has one NIC, whose two ports have a PCI function for each half of
/// their cables, and no slot for another.
const OF_SPARK: &[&str] = &["GB10"];

/// GPUs of machines with one or two GPUs and several HCAs for each: Grace Hopper.
const OF_SMALL_MACHINES: &[&str] = &["GH200"];

/// The smallest number of GPUs at which a container counts as having the whole machine: for a tray of GB200
/// or GB300 ...
const OF_TRAY: usize = 4;
const TRAYS: &[&str] = &["GB200", "GB300"];

/// ... and for any other machine, such as one with 16 rails.
const OF_MACHINE: usize = 8;

/// Returns whether the machine has the same number of equal HCAs for each GPU, so that none of them is for
/// storage: they have the same rate, and the container has all GPUs, as far as that can be known.
fn is_by_design(facts: &Facts, rails: &[&Candidate], gpus: usize) -> bool {
    let has_all_gpus = match facts.gpu.models.is_empty() {
        false if facts.gpu.model_of(OF_SMALL_MACHINES).is_some() => true,
        false if facts.gpu.model_of(TRAYS).is_some() => gpus >= OF_TRAY || nvlink::is_workstation(facts),
        _ => gpus >= OF_MACHINE,
    };
    let rates: BTreeSet<&str> = rails.iter().map(|port| port.port.rate.as_str()).collect();
    let drivers: BTreeSet<Option<&str>> = rails.iter().map(|port| port.hca.driver.as_deref()).collect();
    has_all_gpus && rates.len() == 1 && drivers.len() == 1
}

/// Reports ports of different InfiniBand subnets, which cannot reach each other without a router.
fn subnets(ports: &[Candidate]) -> Option<Finding> {
    let mut by_prefix: BTreeMap<Prefix, Vec<String>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.is_used()) {
        if let Some(prefix) = subnet::of(port.port) {
            by_prefix.entry(prefix).or_default().push(port.name());
        }
    }
    if by_prefix.len() < 2 {
        return None;
    }
    let list = by_prefix.iter().map(|(prefix, names)| format!("{} in {prefix}", condensed(names)));
    let list: Vec<String> = list.collect();
    let message = format!(
        "{VARIABLE} takes ports of {} InfiniBand subnets, and one subnet may be for storage: {}.",
        by_prefix.len(),
        list.join("; ")
    );
    Some(Finding::info(Id::SeveralIbSubnets, message).about_variables([VARIABLE]).about_ports(by_prefix.into_values().flatten()).with_fix(format!(
        "Find out which subnets the job's nodes share; if one is for storage, name the HCAs of the others in {VARIABLE}. If each rail has its own subnet, no action is needed."
    )))
}
