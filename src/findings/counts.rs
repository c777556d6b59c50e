//! HCAs that may be for storage, if the facts do not show it, and a rail that is not there.

use std::collections::{BTreeMap, BTreeSet};

use super::nvlink;
use crate::fabric::distance::{Distance, of_hca};
use crate::fabric::own_interface::Index;
use crate::fabric::subnet::{self, Prefix};
use crate::fabric::{Candidate, SkipReason, Verdict, claims, default_route, near};
use crate::facts::Facts;
use crate::facts::gpu::Make;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::devices::LIST as VARIABLE;
use crate::plan::{Context, on_default_route};
use crate::text::{condensed, counted};

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
    has_all_gpus && are_equal(rails)
}

/// Returns whether these ports have one rate, and their HCAs one driver.
fn are_equal(rails: &[&Candidate]) -> bool {
    let rates: BTreeSet<&str> = rails.iter().map(|port| port.port.rate.as_str()).collect();
    let drivers: BTreeSet<Option<&str>> = rails.iter().map(|port| port.hca.driver.as_deref()).collect();
    rates.len() == 1 && drivers.len() == 1
}

/// Reports that one rail is not there at all: its HCA has no driver, or is gone from the bus. The others show it if they
/// are equal and one short of the same number for each GPU, with the missing one near a GPU. If the positions show
/// nothing, this holds only for a whole machine: no machine has seven HCAs for eight GPUs, but small ones may have any
/// number.
pub(super) fn one_is_missing(context: &Context, ports: &[Candidate]) -> Option<Finding> {
    let facts = context.facts;
    let gpus = usize::try_from(facts.gpu.count?).ok()?;
    let used: Vec<&Candidate> = ports.iter().filter(|port| port.is_used()).collect();
    let hcas: BTreeSet<&str> = used.iter().map(|port| port.hca.name.as_str()).collect();
    let is_one_short = gpus >= OF_TRAY && (hcas.len() + 1).is_multiple_of(gpus) && hcas.len() == used.len();
    if !is_one_short
        || !context.uses_verbs()
        || context.leaves_alone(VARIABLE)
        || !are_equal(&used)
        || ports.iter().any(may_be_the_missing)
        || claims::nics(facts, ports).is_some()
    {
        return None;
    }
    let where_to_look = match near_one_short(facts, &used, (hcas.len() + 1) / gpus) {
        Near::Short(gpus) => {
            let names: Vec<String> = gpus.iter().map(|gpu| format!("GPU {gpu}")).collect();
            let have = if gpus.len() == 1 { "has" } else { "have" };
            format!("{} {have} one HCA fewer near by (PIX or PXB) than the others", condensed(&names))
        }
        Near::Nothing if gpus >= OF_MACHINE => "one HCA seems to be missing".to_owned(),
        Near::Nothing | Near::Otherwise => return None,
    };
    let message = format!(
        "This container has {} of one kind for {gpus} GPUs, and {where_to_look}: nodes that have it have more rails than this one.",
        counted(hcas.len(), "HCA")
    );
    let finding = Finding::warning(Id::NicCount, message).about_ports(used.iter().map(|port| port.name()));
    Some(finding.with_fix(
        "Check on the node that the PCI bus has every RDMA NIC (lspci) and that each has its driver (`rdma link`, dmesg), and that the container has all of them.",
    ))
}

/// Returns whether a port that is not used may be the rail that the others lack. Another finding then reports it, or
/// the configuration leaves it out.
fn may_be_the_missing(port: &Candidate) -> bool {
    match &port.verdict {
        Verdict::Used => false,
        Verdict::LeftOut(reason) => !matches!(
            reason,
            SkipReason::NearNoGpu(_)
                | SkipReason::OtherSubnet { .. }
                | SkipReason::Slower { .. }
                | SkipReason::OtherLinkLayer(..)
                | SkipReason::NvSwitch(_)
                | SkipReason::OfGaudi
                | SkipReason::CarriesDefaultRoute { by: None, .. }
        ),
    }
}

/// What the positions of GPUs and HCAs show about a missing HCA.
enum Near {
    /// No GPU has a known near HCA.
    Nothing,
    /// These GPUs have one HCA fewer near them than the others.
    Short(Vec<usize>),
    Otherwise,
}

/// Groups the GPUs by the HCAs near them. Each group has `each` HCAs for each of its GPUs, but for one that has one fewer.
fn near_one_short(facts: &Facts, used: &[&Candidate], each: usize) -> Near {
    let mut groups: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
    for (number, gpu) in facts.gpu.devices.iter().enumerate() {
        let near = used.iter().filter(|port| of_hca(gpu, port.hca).is_some_and(Distance::is_near));
        groups.entry(near.map(|port| port.hca.name.as_str()).collect()).or_default().push(number);
    }
    if groups.keys().all(Vec::is_empty) {
        return Near::Nothing;
    }
    let is_complete = facts.gpu.count.is_some_and(|count| facts.gpu.devices.len() == count as usize);
    let distinct: BTreeSet<&str> = groups.keys().flatten().copied().collect();
    let are_apart =
        distinct.len() == groups.keys().map(Vec::len).sum::<usize>() && distinct.len() == used.len();
    let short: Vec<_> = groups.into_iter().filter(|(hcas, gpus)| hcas.len() != gpus.len() * each).collect();
    match short.as_slice() {
        [(hcas, gpus)] if is_complete && are_apart && hcas.len() + 1 == gpus.len() * each => {
            Near::Short(gpus.clone())
        }
        _ => Near::Otherwise,
    }
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
