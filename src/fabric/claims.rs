//! The HCAs that the Pod's resource claims hold. A container that may use all devices of its node, such as
//! a privileged one, sees more of them than the scheduler gave to its Pod.

use super::default_route::{self, OnDefaultRoute};
use super::port::{Candidate, SkipReason};
use super::step::NarrowingStep;
use crate::facts::Facts;
use crate::facts::dra::ClaimedDevice;
use crate::facts::rdma::{Hca, LinkLayer};

/// Returns whether a device of a claim is this HCA: by the PCI function, as the HCA may have another name in
/// the container; by its name if the driver reports no function.
fn is_it(device: &ClaimedDevice, hca: &Hca) -> bool {
    match (device.pci_address(), &hca.pci_address) {
        (Some(claimed), Some(own)) => claimed.eq_ignore_ascii_case(own),
        _ => device.rdma_device() == Some(&hca.name),
    }
}

/// Skips the ports in use that no claim holds, if claims hold others. A claim for the front-end NIC alone
/// says nothing about the rails, which the Pod may have from a device plugin.
pub(crate) fn leave_out_unclaimed(facts: &Facts, ports: &mut [Candidate]) -> Option<NarrowingStep> {
    if facts.dra.is_empty() {
        return None;
    }
    let is_claimed = |port: &Candidate| facts.dra.iter().any(|device| is_it(device, port.hca));
    let carries_default_route = default_route::wanted(facts, OnDefaultRoute::Used);
    let is_front_end =
        |port: &&Candidate| port.port.link_layer == LinkLayer::Ethernet && carries_default_route(port);
    let (claimed, others): (Vec<&Candidate>, Vec<&Candidate>) =
        ports.iter().filter(|port| port.is_used()).partition(|port| is_claimed(port));
    if claimed.is_empty() || (claimed.iter().all(is_front_end) && !others.iter().all(is_front_end)) {
        return None;
    }
    let mut names = Vec::new();
    for port in ports.iter_mut().filter(|port| port.is_used()) {
        if !is_claimed(port) {
            names.push(port.name());
            port.leave_out(SkipReason::NotClaimed);
        }
    }
    (!names.is_empty()).then_some(NarrowingStep::Unclaimed(names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Verdict, candidates, fake};

    fn facts(claims: &[(&str, &str)]) -> Facts {
        let hca = |n| Hca { pci_address: (n != 3).then(|| format!("0000:{n}d:00.0")), ..fake::hca(n) };
        let device = |(name, value): &(&str, &str)| ClaimedDevice {
            driver: "dra.net".to_owned(),
            attributes: [((*name).to_owned(), (*value).to_owned())].into(),
            ..ClaimedDevice::default()
        };
        Facts {
            rdma: (0..4).map(hca).collect(),
            dra: claims.iter().map(device).collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn claims_of_some_hcas_leave_out_the_others() {
        const PCI: &str = "resource.kubernetes.io/pciBusID";
        for (claims, left_out) in [
            (&[][..], &[][..]),
            (&[(PCI, "0000:1D:00.0"), ("dra.net/pciAddress", "0000:2d:00.0")], &["mlx5_0:1", "mlx5_3:1"]),
            // Without the address of one side, the name decides.
            (&[("rdmaDevice", "mlx5_3")], &["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"]),
            // A GPU, and a NIC of another machine.
            (&[(PCI, "0000:99:00.0"), ("dra.net/rdmaDevice", "mlx5_9")], &[]),
            (
                &[
                    (PCI, "0000:0d:00.0"),
                    (PCI, "0000:1d:00.0"),
                    (PCI, "0000:2d:00.0"),
                    ("rdmaDevice", "mlx5_3"),
                ],
                &[],
            ),
        ] {
            let facts = facts(claims);
            let mut ports = candidates(&facts);
            let step = leave_out_unclaimed(&facts, &mut ports);
            let unclaimed: Vec<String> = ports
                .iter()
                .filter(|port| port.verdict == Verdict::LeftOut(SkipReason::NotClaimed))
                .map(Candidate::name)
                .collect();
            assert_eq!(unclaimed, left_out, "{claims:?}");
            let names = left_out.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(step, (!left_out.is_empty()).then_some(NarrowingStep::Unclaimed(names)));
        }
    }
}
