//! Findings about the ports.

use std::collections::BTreeMap;

use crate::fabric::{Candidate, SkipReason, Verdict};
use crate::facts::rdma::LinkLayer;
use crate::finding::{Finding, Id};
use crate::image::flavor::Flavor;
use crate::text::condensed;

pub(super) const RAIL_IS_DOWN: &str = "Check the cable, the switch port and `rdma link` on the node. Until the port is up, nodes with all ports up have more rails than this one.";

/// The fix for a port in the state INIT or ARMED.
pub(crate) const NOT_ACTIVATED: &str = "The link is up, but the subnet manager has not activated the port: check the subnet manager (`sminfo`, `ibstat`).";

/// Returns the findings about the ports; ports with the same trouble share one. `of_nvswitches` are the names
/// of ports with a finding of their own.
pub(super) fn findings(library: Flavor, ports: &[Candidate], of_nvswitches: &[String]) -> Vec<Finding> {
    let mut troubles: Vec<(Finding, Vec<String>)> = Vec::new();
    for port in ports {
        let Verdict::LeftOut(reason) = &port.verdict else { continue };
        let Some(finding) = trouble(reason) else { continue };
        match troubles.iter_mut().find(|(known, _)| *known == finding) {
            Some((_, names)) => names.push(port.name()),
            None => troubles.push((finding, vec![port.name()])),
        }
    }
    let named = troubles.into_iter().map(|(finding, names)| {
        let message = format!("{} skipped: {}.", condensed(&names), finding.message);
        Finding { message, ..finding }.about_ports(names)
    });
    named.chain(rates(ports, of_nvswitches)).chain(link_layers(library, ports)).collect()
}

/// Reports what is wrong with a port that this container should be able to use.
fn trouble(reason: &SkipReason) -> Option<Finding> {
    let (id, fix) = match reason {
        SkipReason::PortState(state) => (
            Id::PortDown,
            match state.as_str() {
                // The module `down` handles these ports: the job may not need them.
                "DOWN" => return None,
                "INIT" | "ARMED" => NOT_ACTIVATED,
                "" => "Check the device on the node with `rdma link`.",
                _ => RAIL_IS_DOWN,
            },
        ),
        SkipReason::CannotBeOpened(_) => (
            Id::UverbsDenied,
            "Request the device through the RDMA device plugin (or docker run --device /dev/infiniband), and check the file mode of /dev/infiniband/uverbs* if the container does not run as root.",
        ),
        SkipReason::Iwarp { erdma: true, .. } => (
            Id::ErdmaIwarp,
            "Load the driver on the node in its compat or ofed mode (modprobe erdma compat_mode=1).",
        ),
        SkipReason::Iwarp { erdma: false, .. } => {
            (Id::Iwarp, "If the NIC can do RoCE, switch its driver to RoCE.")
        }
        // For HCCL, nothing is wrong.
        SkipReason::OfGaudi => {
            let finding = Finding::info(Id::UnknownDevice, reason.to_string());
            return Some(finding.with_fix(
                "HCCL finds these ports without a variable. If the servers are connected by other NICs, give the image a libfabric with the provider of these (Intel Gaudi documentation, Scale-out via Host NIC).",
            ));
        }
        SkipReason::NodeType(_) | SkipReason::LinkLayer { .. } => {
            (Id::UnknownDevice, "If this is a new kind of fabric, install the net plugin that it needs.")
        }
        _ => return None,
    };
    Some(Finding::warning(id, reason.to_string()).with_fix(fix))
}

/// Reports different rates: a rail that is slower than its siblings slows down all of them. Leaves out a port whose rate
/// the kernel does not show.
fn rates(ports: &[Candidate], of_nvswitches: &[String]) -> Option<Finding> {
    let mut by_rate: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let is_known = |port: &&Candidate| port.is_used() && !port.port.rate.is_empty();
    for port in ports.iter().filter(is_known).filter(|port| !of_nvswitches.contains(&port.name())) {
        by_rate.entry(&port.port.rate).or_default().push(port.name());
    }
    if by_rate.len() < 2 {
        return None;
    }
    let list: Vec<String> =
        by_rate.iter().map(|(rate, names)| format!("{} at {rate}", condensed(names))).collect();
    Some(
        Finding::warning(Id::RatesDiffer, format!("The ports in use have different rates: {}.", list.join("; ")))
            .about_ports(by_rate.into_values().flatten())
            .with_fix("If the odd one is for storage or for TCP, name the others in NCCL_IB_HCA; otherwise check its cable and port."),
    )
}

/// Reports used ports with different link layers: the plan chooses only one, but a user's list can mix them.
fn link_layers(library: Flavor, ports: &[Candidate]) -> Option<Finding> {
    let of = |link_layer: LinkLayer| -> Vec<String> {
        let of_it = ports.iter().filter(|port| port.is_used() && port.port.link_layer == link_layer);
        of_it.map(Candidate::name).collect()
    };
    let (ib, roce) = (of(LinkLayer::InfiniBand), of(LinkLayer::Ethernet));
    if ib.is_empty() || roce.is_empty() {
        return None;
    }
    Some(
        Finding::warning(
            Id::MixedLinkLayers,
            format!(
                "{library} will use InfiniBand ({}) beside RoCE ({}), and one cannot connect to the other.",
                condensed(&ib),
                condensed(&roce)
            ),
        )
        .about_ports(ib.into_iter().chain(roce))
        .with_fix("Name the HCAs of one link layer in NCCL_IB_HCA."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::rdma::{Hca, Port};

    #[test]
    fn another_width_at_the_same_speed_is_another_rate() {
        let rates = |rates: &[&str]| {
            let hca = |name: usize| Hca { name: format!("mlx5_{name}"), ..Hca::default() };
            let hcas: Vec<Hca> = (0..rates.len()).map(hca).collect();
            let port = |rate: &&str| Port { number: 1, rate: (*rate).to_owned(), ..Port::default() };
            let ports: Vec<Port> = rates.iter().map(port).collect();
            let used = hcas.iter().zip(&ports);
            let used: Vec<Candidate> =
                used.map(|(hca, port)| Candidate { hca, port, verdict: Verdict::Used }).collect();
            super::rates(&used, &[]).map(|finding| finding.message)
        };
        assert_eq!(rates(&["100 Gb/sec (4X EDR)"; 2]), None);
        assert_eq!(
            rates(&["100 Gb/sec (4X EDR)", "100 Gb/sec (2X HDR)"]).unwrap(),
            "The ports in use have different rates: \
             mlx5_1:1 at 100 Gb/sec (2X HDR); mlx5_0:1 at 100 Gb/sec (4X EDR)."
        );
        assert!(rates(&["400 Gb/sec (4X NDR)", "100 Gb/sec (1X NDR)"]).is_some());
        assert_eq!(rates(&["400 Gb/sec (4X NDR)", ""]), None);
    }
}
