//! A wireless interface for the bootstrap on a host with wired interfaces.

use crate::fabric::interface;
use crate::fabric::own_interface::Index;
use crate::facts::net::Interface;
use crate::finding::{Finding, Id};
use crate::libraries::nccl::predict::Bootstrap;
use crate::plan::Decided;
use crate::plan::interface::VARIABLE;

/// Reports that NCCL's processes bootstrap on a wireless interface, although the interfaces of the job's HCAs
/// have addresses. If rdma-init has filled in the interface, it followed the routes, so the finding is only a
/// note.
pub(super) fn finding(decided: &Decided, interfaces: &Index) -> Option<Finding> {
    let Decided { plan, ports, .. } = decided;
    let facts = decided.facts;
    let Bootstrap::On(endpoint) = &plan.forecasts.last()?.prediction.bootstrap else { return None };
    facts.net.interface(&endpoint.interface).filter(|found| found.is_wireless())?;
    let used = ports.iter().filter(|port| port.is_used());
    let found = used.filter_map(|port| interfaces.find(port.hca, port.port));
    let is_cable = |found: &&Interface| !found.is_wireless() && interface::has_global_address(found);
    let mut cables: Vec<&str> = found.filter(is_cable).map(|found| found.name.as_str()).collect();
    cables.dedup();
    let first = cables.first()?;
    let message = format!(
        "{} will bootstrap on {}, which is wireless, and {} of the job's HCAs {}: the start of the job and all TCP traffic depend on the radio link.",
        plan.library,
        endpoint.interface,
        cables.join(", "),
        if cables.len() == 1 { "has an address" } else { "have addresses" }
    );
    let is_filled = plan.filled().any(|(name, _)| name == VARIABLE);
    let finding = match is_filled {
        true => Finding::info(Id::WirelessBootstrap, message),
        false => Finding::warning(Id::WirelessBootstrap, message),
    };
    let finding =
        finding.about_interfaces(std::iter::once(endpoint.interface.as_str()).chain(cables.iter().copied()));
    Some(finding.with_fix(format!(
        "If all nodes reach each other over the cables, set {VARIABLE}={first} on this node, and on the others the interface of the same network."
    )))
}
