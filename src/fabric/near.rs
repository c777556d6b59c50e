//! Which HCAs are near the GPUs. If every GPU has an HCA behind its own PCIe switch, the other HCAs are for
//! storage or for the host.

use super::distance::{Distance, of_hca};
use super::own_interface::Index;
use super::port::{Candidate, SkipReason, Verdict};
use super::step::NarrowingStep;
use crate::facts::Facts;
use crate::facts::rdma::{Hca, LinkLayer};

/// Skips the HCAs that are not near any GPU, if every GPU has a near HCA. Keeps the ports for which `kept` is
/// true.
pub(crate) fn leave_out_far(
    facts: &Facts,
    interfaces: &Index,
    ports: &mut [Candidate],
    kept: impl Fn(&Candidate) -> bool,
) -> Option<NarrowingStep> {
    if !every_gpu_has_one(facts, interfaces, ports) {
        return None;
    }
    let far = |port: &Candidate| {
        let nearest = nearest(facts, port.hca).filter(|nearest| !nearest.is_near())?;
        // An HCA without an interface here is skipped for another reason.
        (port.is_used() && interfaces.is_here(port) && !kept(port)).then_some(nearest)
    };
    let far: Vec<Option<Distance>> = ports.iter().map(far).collect();
    let others_remain =
        ports.iter().zip(&far).any(|(port, far)| far.is_none() && port.is_used() && interfaces.is_here(port));
    if !others_remain {
        return None;
    }
    let mut names = Vec::new();
    for (port, far) in ports.iter_mut().zip(far) {
        if let Some(nearest) = far {
            port.leave_out(SkipReason::NearNoGpu(nearest));
            names.push(port.name());
        }
    }
    (!names.is_empty()).then_some(NarrowingStep::FarLeftOut(names))
}

/// Returns whether the locations of all GPUs are known, and each GPU has an HCA of the job's link layer
/// behind its own switch. A rail whose port is down counts: no other HCA replaces it.
pub(crate) fn every_gpu_has_one(facts: &Facts, interfaces: &Index, ports: &[Candidate]) -> bool {
    let gpus = &facts.gpu.devices;
    let is_complete = !gpus.is_empty() && facts.gpu.count.is_none_or(|count| gpus.len() >= count as usize);
    let link_layers: Vec<&LinkLayer> =
        ports.iter().filter(|port| port.is_used()).map(|port| &port.port.link_layer).collect();
    let may_be_rail = |port: &&Candidate| match &port.verdict {
        Verdict::Used => interfaces.is_here(port),
        Verdict::LeftOut(SkipReason::PortState(_)) => link_layers.contains(&&port.port.link_layer),
        Verdict::LeftOut(_) => false,
    };
    let rails: Vec<&Hca> = ports.iter().filter(may_be_rail).map(|port| port.hca).collect();
    is_complete
        && gpus.iter().all(|gpu| rails.iter().any(|hca| of_hca(gpu, hca).is_some_and(Distance::is_near)))
}

/// Returns the distance to the nearest GPU; `None` if it is unknown.
fn nearest(facts: &Facts, hca: &Hca) -> Option<Distance> {
    facts.gpu.devices.iter().filter_map(|gpu| of_hca(gpu, hca)).min()
}

/// Returns the rails near each GPU, in the order of the GPUs' numbers. Returns an empty list if no HCA was
/// skipped for its distance.
#[must_use]
pub(crate) fn rails_of_gpus(facts: &Facts, ports: &[Candidate]) -> Vec<Vec<(String, Distance)>> {
    let left_out = |port: &Candidate| matches!(port.verdict, Verdict::LeftOut(SkipReason::NearNoGpu(_)));
    if !ports.iter().any(left_out) {
        return Vec::new();
    }
    let near = |gpu| {
        let rails = ports.iter().filter(|port| {
            matches!(port.verdict, Verdict::Used | Verdict::LeftOut(SkipReason::PortState(_)))
        });
        let near = rails.filter_map(|port| {
            let distance = of_hca(gpu, port.hca).filter(|distance| distance.is_near())?;
            Some((port.hca.name.clone(), distance))
        });
        let mut near: Vec<_> = near.collect();
        near.dedup();
        near
    };
    facts.gpu.devices.iter().map(near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{candidates, fake};
    use crate::facts::net::Interface;

    /// Returns a host with one NUMA node. Each GPU and HCA is given as the number of the switch in front of
    /// it.
    fn host(gpus: &[u32], hcas: &[u32]) -> Facts {
        let of_node_0 = |switches: &[u32]| switches.iter().map(|switch| (0, *switch)).collect::<Vec<_>>();
        fake::host(&of_node_0(gpus), &of_node_0(hcas))
    }

    fn used(facts: &Facts) -> Vec<usize> {
        let mut ports = candidates(facts);
        let _ = leave_out_far(facts, &Index::of(facts), &mut ports, |_| false);
        ports.iter().enumerate().filter(|(_, port)| port.is_used()).map(|(n, _)| n).collect()
    }

    #[test]
    fn far_hcas_are_skipped_if_every_gpu_has_a_near_one() {
        for (gpus, hcas, wanted) in [
            (&[1, 2][..], &[1, 2, 3][..], &[0, 1][..]),
            (&[1, 1, 2, 2], &[3, 1, 2], &[1, 2]),
            (&[1], &[1, 2, 3], &[0]),
            (&[1, 2], &[1, 1, 2, 2], &[0, 1, 2, 3]),
            // One GPU has no HCA near it, so distance decides nothing.
            (&[1, 2], &[1, 3], &[0, 1]),
            (&[1], &[2, 3], &[0, 1]),
            (&[], &[1, 2], &[0, 1]),
        ] {
            assert_eq!(used(&host(gpus, hcas)), wanted, "{gpus:?} {hcas:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_left_alone() {
        let three = || host(&[1, 2], &[1, 2, 3]);
        assert_eq!(used(&three()), [0, 1]);
        let mut facts = three();
        facts.gpu.devices.pop();
        assert_eq!(used(&facts), [0, 1, 2], "the place of one of the GPUs does not show");
        let mut facts = three();
        facts.rdma[2].pci_path = None;
        assert_eq!(used(&facts), [0, 1, 2], "a soft device");
        let mut facts = three();
        facts.rdma[1].pci_path = None;
        assert_eq!(used(&facts), [0, 1, 2], "a GPU without an HCA near it");
        let facts = three();
        let mut ports = candidates(&facts);
        assert_eq!(
            leave_out_far(&facts, &Index::of(&facts), &mut ports, |port| port.hca.name == "mlx5_2"),
            None
        );
        assert!(ports.iter().all(Candidate::is_used), "a port that is wanted stays");
    }

    #[test]
    fn a_rail_that_is_down_counts_as_near_but_an_hca_of_the_host_does_not() {
        let mut facts = host(&[1, 2], &[1, 2, 3]);
        facts.rdma[1].ports[0].state = "DOWN".to_owned();
        assert_eq!(used(&facts), [0]);
        facts.rdma[0].ports[0].state = "DOWN".to_owned();
        assert_eq!(used(&facts), [2], "the only one that works");
        // RoCE, where the second rail's interface is in another network namespace.
        let mut facts = host(&[1, 2], &[1, 2, 3]);
        for (n, hca) in facts.rdma.iter_mut().enumerate() {
            hca.ports[0].link_layer = LinkLayer::Ethernet;
            hca.pci_address = Some(format!("0000:{n:02x}:00.0"));
            if n != 1 {
                let pci_address = hca.pci_address.clone();
                facts.net.interfaces.push(Interface { pci_address, ..Interface::default() });
            }
        }
        assert_eq!(used(&facts), [0, 1, 2]);
    }
}
