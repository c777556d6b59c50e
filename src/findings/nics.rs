//! Ports that NCCL tries to merge into one NIC but cannot, or merges but should not.

use std::collections::BTreeSet;

use crate::facts::Facts;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::fusion::{LEVEL, SWITCH};
use crate::libraries::nccl::predict::Fused;
use crate::plan::Plan;
use crate::text::condensed;

/// Returns the findings for the job's release, if it is known.
pub(super) fn finding(facts: &Facts, plan: &Plan) -> Option<Finding> {
    let nccl = plan.library.of_release(Some(plan.nccl?));
    match &plan.forecasts.last()?.prediction.fused {
        Fused::Fails(message) => Some(fails(plan, &nccl, message)),
        Fused::Nics(nics) => nics.iter().find_map(|nic| foreign(facts, plan, &nccl, nic)),
        Fused::Unknown => None,
    }
}

fn fails(plan: &Plan, nccl: &str, message: &str) -> Finding {
    let why = match plan.value(SWITCH) {
        Some(value) => format!("{SWITCH}={value} forbids it"),
        None => "they are of different link layers".to_owned(),
    };
    Finding::error(
        Id::NicFusion,
        format!(
            "{nccl} merges the ports of one PCI device into one NIC, but {why}: it fails with \"{message}\"."
        ),
    )
    .about_variables(plan.value(SWITCH).map(|_| SWITCH).into_iter().chain([LEVEL]))
    .with_fix(format!("Set {LEVEL}=LOC, or use {} 2.26 or later.", plan.library))
}

/// Reports different NICs that NCCL merges: on the flat bus of a virtual machine, they look like virtual
/// functions of one NIC.
fn foreign(facts: &Facts, plan: &Plan, nccl: &str, nic: &[String]) -> Option<Finding> {
    let cards = nic.iter().filter_map(|port| {
        let name = port.split(':').next()?;
        facts.rdma.iter().find(|hca| hca.name == name)?.system_guid.as_deref()
    });
    let cards: BTreeSet<&str> = cards.collect();
    (cards.len() > 1).then(|| {
        Finding::warning(
            Id::NicsOfSeveralCards,
            format!(
                "{nccl} merges {} into one NIC, because they are on one PCI bus. They belong to {} NICs, and a GPU can then no longer use only the nearest one.",
                condensed(nic),
                cards.len()
            ),
        )
        .about_ports(nic)
        .with_fix(format!(
            "Set NCCL_IB_MERGE_VFS=0 on all nodes: then {} merges only the functions of one PCI device.",
            plan.library
        ))
    })
}
