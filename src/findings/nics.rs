//! Ports that NCCL wants to merge into one NIC but cannot, or merges but should not.

use std::collections::BTreeSet;

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::fusion::{LEVEL, SWITCH};
use crate::libraries::nccl::predict::Fused;
use crate::plan::Plan;
use crate::text::condensed;

/// Returns the findings for the job's release, if it is known.
pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let version = plan.nccl?;
    match &plan.forecasts.last()?.prediction.fused {
        Fused::Fails(message) => Some(fails(plan, &version.to_string(), message)),
        Fused::Nics(nics) => nics.iter().find_map(|nic| foreign(facts, &version.to_string(), nic)),
        Fused::Unknown => None,
    }
}

fn fails(plan: &Plan, version: &str, message: &str) -> Finding {
    let why = match plan.value(SWITCH) {
        Some(value) => format!("{SWITCH}={value} forbids it"),
        None => "they are of different link layers".to_owned(),
    };
    Finding::error(
        Id::NicFusion,
        format!("NCCL {version} merges the ports of one PCI device into one NIC, but {why}: it fails with \"{message}\"."),
    )
    .about_variables(plan.value(SWITCH).map(|_| SWITCH).into_iter().chain([LEVEL]))
    .with_fix(format!("Set {LEVEL}=LOC, or use NCCL 2.26 or later."))
}

/// On the flat bus of a virtual machine, different NICs look like virtual functions of one.
fn foreign(facts: &Facts, version: &str, nic: &[String]) -> Option<Finding> {
    let cards = nic.iter().filter_map(|port| {
        let name = port.split(':').next()?;
        facts.rdma.iter().find(|hca| hca.name == name)?.system_guid.as_deref()
    });
    let cards: BTreeSet<&str> = cards.collect();
    (cards.len() > 1).then(|| {
        Finding::warning(
            Id::NicsOfSeveralCards,
            format!(
                "NCCL {version} merges {} into one NIC, because they are on one PCI bus. They belong to {} NICs, and a GPU can then no longer use only the nearest one.",
                condensed(nic),
                cards.len()
            ),
        )
        .about_ports(nic)
        .with_fix("Set NCCL_IB_MERGE_VFS=0 on all nodes: then NCCL merges only the functions of one PCI device.")
    })
}
