//! Jobs with GPUs on a host without RDMA and without a profile. There, NCCL uses TCP for its bootstrap and
//! for the data.

use super::interface::{self, VARIABLE};
use super::{Context, Notes, Setting};
use crate::fabric::interface::{InterfaceChoice, has_global_address};
use crate::facts::Facts;
use crate::libraries::nccl::interfaces;
use crate::libraries::nccl::version::NEWEST;
use crate::text::condensed;

/// How many nodes a job with GPUs has, as far as that affects the decision about its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    Several,
    /// No launcher has reported the number.
    PerhapsSeveral,
}

/// Returns the nodes of the job; `None` without GPUs, and for a job with one node, where no interface
/// matters.
pub(crate) fn nodes(facts: &Facts) -> Option<Nodes> {
    facts.gpu.count.filter(|count| *count > 0)?;
    match facts.platform.nodes {
        Some(nodes) => (nodes.count > 1).then_some(Nodes::Several),
        None => Some(Nodes::PerhapsSeveral),
    }
}

/// Proposes `NCCL_SOCKET_IFNAME`, unless NCCL chooses the right interface by itself.
pub(crate) fn propose(
    context: &Context,
    nodes: Nodes,
    choice: Option<&InterfaceChoice>,
    notes: &mut Notes,
) -> Vec<Setting> {
    if let Some(nics) = choice.and_then(|choice| several_nics(context.facts, choice)) {
        let rule = format!(
            "leave it unset, if {} by itself takes several NICs, and the right one first",
            context.library()
        );
        notes.tried(VARIABLE, rule, format!("it takes {}", condensed(&nics)));
        return Vec::new();
    }
    match (nodes, choice) {
        // A job with one node needs no network, so a host without one does not deserve a finding.
        (Nodes::PerhapsSeveral, None) => Vec::new(),
        (Nodes::Several | Nodes::PerhapsSeveral, _) => interface::propose(context, choice, notes),
    }
}

/// Returns the NICs that NCCL uses for the data without `NCCL_SOCKET_IFNAME`, if it is better left unset:
/// there are several, each of them is a device with an address that other nodes can reach, and the first one,
/// on which NCCL's processes bootstrap, is the chosen interface. With one name, NCCL would use only one NIC
/// (`ncclFindInterfaces` in `src/misc/socket.cc`).
fn several_nics(facts: &Facts, choice: &InterfaceChoice) -> Option<Vec<String>> {
    let found = interfaces::all(&facts.net, |_| None, NEWEST).ok()?;
    let names: Vec<String> = found.into_iter().map(|endpoint| endpoint.interface).collect();
    let is_nic = |name: &String| {
        let interface = facts.net.interface(name);
        interface.is_some_and(|interface| interface.pci_address.is_some() && has_global_address(interface))
    };
    let is_right = names.len() > 1 && names.first() == Some(&choice.name) && names.iter().all(is_nic);
    is_right.then_some(names)
}
