//! The partition key that NCCL uses on InfiniBand.

use std::collections::BTreeSet;

use crate::facts::Facts;
use crate::facts::pkey::{Pkey, PkeyTable};
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::number::integer;
use crate::libraries::nccl::predict::PortUse;
use crate::libraries::nccl::variables;
use crate::libraries::nccl::version::NEWEST;
use crate::plan::{Plan, User};
use crate::text::condensed;

/// The variable with an index into each port's table, 0 by default (`ncclIbInitQp` in
/// `src/transport/net_ib.cc`).
const INDEX: &str = "NCCL_IB_PKEY";
const VALUE: &str = "NCCL_IB_PKEY_VALUE";

/// Returns the finding, if the key reaches no other node. Does not judge a port without a readable table.
pub(super) fn finding(facts: &Facts, user: &User, plan: &Plan) -> Option<Finding> {
    let version = user.version().unwrap_or(NEWEST);
    let is_by_value = user.get(VALUE).is_some_and(|setting| !setting.value.is_empty())
        && variables::find(VALUE).is_some_and(|variable| variable.is_known_to(version));
    if is_by_value {
        return None;
    }
    let tables = tables(facts, plan);
    let setting = plan.settings.iter().find(|setting| setting.variable == INDEX && setting.value.is_some());
    let number = setting.and_then(|setting| integer(setting.value.as_deref()?, version)).unwrap_or(0);
    // The queue pair's field has 16 bits.
    let index = u32::from(number as u16);
    let library = plan.library;
    let who = match setting {
        Some(setting) => {
            let value = setting.value.as_deref().unwrap_or_default();
            format!("{INDEX}={value} ({}) picks", setting.source)
        }
        None => format!("{library} takes by default"),
    };

    let of = |is_so: &dyn Fn(&PkeyTable) -> bool| -> Vec<&PortUse> {
        tables.iter().filter(|(_, table)| is_so(table)).map(|(port, _)| *port).collect()
    };
    let names = |ports: &[&PortUse]| condensed(&ports.iter().map(|port| &port.hca).collect::<Vec<_>>());
    let empty = of(&|table| table.is_empty_at(index));
    let limited = |table: &PkeyTable| table.at(index).filter(|pkey| !pkey.is_full_member());
    let (ports, message) = if let Some((_, table)) = tables.iter().find(|(_, table)| index >= table.size) {
        let message = format!(
            "The partition key at index {index}, which {who}, is beyond the end of the table ({} entries) on {}: {library} cannot set up its queue pairs.",
            table.size,
            names(&empty)
        );
        (empty, message)
    } else if !empty.is_empty() {
        let message = format!(
            "The partition key at index {index}, which {who}, is empty on {}: {library} cannot set up its queue pairs.",
            names(&empty)
        );
        (empty, message)
    } else if let Some(pkey) = tables.iter().find_map(|(_, table)| limited(table)) {
        let ports = of(&|table| limited(table).is_some());
        let message = format!(
            "The partition key at index {index}, which {who}, is {pkey} on {}, the key of a limited member. Two limited members cannot communicate, so connections between nodes will time out.",
            names(&ports)
        );
        (ports, message)
    } else {
        return None;
    };
    let finding = Finding::error(Id::Pkey, message).about_variables(setting.map(|setting| &setting.variable));
    Some(
        finding
            .about_ports(ports.iter().map(|port| port.name()))
            .with_fix(fix(tables.iter().map(|(_, table)| *table))),
    )
}

/// Returns the tables of the InfiniBand ports that NCCL will use.
fn tables<'a>(facts: &'a Facts, plan: &'a Plan) -> Vec<(&'a PortUse, &'a PkeyTable)> {
    let Some(forecast) = plan.forecasts.last() else { return Vec::new() };
    let ports = forecast.prediction.transport.ports().unwrap_or_default().iter();
    let of_infiniband = ports.filter(|port| port.link_layer == LinkLayer::InfiniBand);
    let tables = of_infiniband.filter_map(|used| {
        let (_, port) = facts.port(&used.hca, used.port)?;
        Some((used, port.pkeys.as_ref()?))
    });
    tables.collect()
}

/// Returns the fix. NCCL uses the same index for all ports.
fn fix<'a>(tables: impl Iterator<Item = &'a PkeyTable>) -> String {
    let full = |table: &PkeyTable| -> BTreeSet<(u32, u16)> {
        let slots = table.slots.iter().filter(|slot| slot.pkey.is_full_member());
        slots.map(|slot| (slot.index, slot.pkey.0)).collect()
    };
    let common = tables.map(full).reduce(|a, b| &a & &b).unwrap_or_default();
    let mut choices: Vec<String> =
        common.iter().map(|(index, pkey)| format!("{INDEX}={index} ({})", Pkey(*pkey))).collect();
    match choices.pop() {
        None => "Ask the administrator of the subnet manager to make these ports full members of one partition, at the same index of each table.".to_owned(),
        Some(last) if choices.is_empty() => format!("Set {last}: every port in use is a full member of this partition."),
        Some(last) => format!(
            "Set {} or {last}, whichever is the partition of the job: every port in use is a full member of each.",
            choices.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::pkey::PkeySlot;

    fn table(pkeys: &[u16]) -> PkeyTable {
        let slots = pkeys.iter().enumerate().filter(|(_, pkey)| **pkey != 0);
        let slots = slots.map(|(index, pkey)| PkeySlot { index: index as u32, pkey: Pkey(*pkey) }).collect();
        PkeyTable { size: 128, scanned: 128, slots }
    }

    #[test]
    fn one_index_has_to_be_right_for_all() {
        let fix = |one: &[u16], other: &[u16]| fix([&table(one), &table(other)].into_iter());
        assert!(fix(&[0x7fff, 0x8005], &[0x7fff, 0x8005]).contains("NCCL_IB_PKEY=1 (0x8005)"));
        assert!(fix(&[0x7fff, 0x8005], &[0x8005, 0x7fff]).starts_with("Ask"));
        assert!(fix(&[0x7fff, 0x8005], &[0x7fff, 0x8006]).starts_with("Ask"));
        assert!(
            fix(&[0x7fff, 0, 0x8005, 0x8006], &[0x7fff, 0, 0x8005, 0x8006])
                .contains("NCCL_IB_PKEY=2 (0x8005) or NCCL_IB_PKEY=3 (0x8006)")
        );
    }
}
