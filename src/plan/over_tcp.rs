//! Jobs with GPUs on a host without RDMA and without a profile. NCCL goes over TCP there, for its
//! bootstrap and for the data.

use super::interface::{self, VARIABLE};
use super::rule::Trial;
use super::setting::Proposal;
use super::{Context, Notes};
use crate::fabric::interface::{InterfaceChoice, has_global_address};
use crate::facts::Facts;
use crate::libraries::nccl::interfaces;
use crate::libraries::nccl::version::NEWEST;

/// How many nodes a job with GPUs has, as far as that decides about its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    Several,
    /// No launcher has said it.
    PerhapsSeveral,
}

/// `None` without GPUs and for a job of one node: no interface matters then.
pub(crate) fn nodes(facts: &Facts) -> Option<Nodes> {
    facts.gpu.count.filter(|count| *count > 0)?;
    match facts.platform.nodes {
        Some(nodes) => (nodes.count > 1).then_some(Nodes::Several),
        None => Some(Nodes::PerhapsSeveral),
    }
}

/// `NCCL_SOCKET_IFNAME`, unless NCCL is right by itself.
pub(crate) fn propose(
    context: &Context,
    nodes: Nodes,
    choice: Option<&InterfaceChoice>,
    notes: &mut Notes,
) -> Vec<Proposal> {
    if let Some(nics) = choice.and_then(|choice| several_nics(context.facts, choice)) {
        notes.tried(VARIABLE, Trial::SeveralNics(nics));
        return Vec::new();
    }
    match (nodes, choice) {
        // A job of one node needs no network, so a host without one is nothing to speak of.
        (Nodes::PerhapsSeveral, None) => Vec::new(),
        (Nodes::Several | Nodes::PerhapsSeveral, _) => interface::propose(context, choice, notes),
    }
}

/// Returns the NICs that NCCL uses for the data without `NCCL_SOCKET_IFNAME`, if it is better left unset:
/// there are several, each of them is a device with an address that other nodes can reach, and
/// the first, on which NCCL's processes meet, is the chosen one. With one name, NCCL would use
/// one NIC (`ncclFindInterfaces` in `src/misc/socket.cc`).
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
