//! HCAs that are slower than the rails. A machine may have as many fast HCAs as GPUs, and slower ones for storage.

use super::default_route::{self, OnDefaultRoute};
use super::distance::{Distance, of_hca};
use super::enough;
use super::port::{Candidate, SkipReason};
use super::step::NarrowingStep;
use crate::facts::Facts;
use crate::facts::rdma::Hca;

/// Skips the ports that are slower than the rails: ports of one driver and one rate that are enough for the GPUs
/// ([`enough::split`]). Leaves a port on a default route to [`default_route`]. Skips none if a slower one may be a rail whose link
/// has come up at a lower rate: a GPU has no other HCA near it, or it is the only one, and of the rails' model.
pub(crate) fn leave_out_slower(facts: &Facts, ports: &mut [Candidate]) -> Option<NarrowingStep> {
    let of_kind = |port: &Candidate<'_>| {
        let rate = Some(port.port.rate.clone()).filter(|rate| !rate.is_empty())?;
        Some((rate, port.hca.driver.clone()))
    };
    let split = enough::split(facts, ports, of_kind).filter(|split| split.speed.is_gt())?;
    let is_other = |position: &usize| split.others.contains(position);
    let (others, rails): (Vec<usize>, Vec<usize>) =
        (0..ports.len()).filter(|position| ports[*position].is_used()).partition(is_other);
    let hca = |position: &usize| ports[*position].hca;
    let is_near = |gpu, hca: &Hca| of_hca(gpu, hca).is_some_and(Distance::is_near);
    let loses_its_rail = facts.gpu.devices.iter().any(|gpu| {
        others.iter().any(|other| is_near(gpu, hca(other)))
            && !rails.iter().any(|rail| is_near(gpu, hca(rail)))
    });
    let is_of_model = |other: &usize| {
        let model = hca(other).pci_id.as_ref();
        model.is_some() && rails.iter().any(|rail| hca(rail).pci_id.as_ref() == model)
    };
    if loses_its_rail || matches!(others.as_slice(), [only] if is_of_model(only)) {
        return None;
    }
    let (rails, _) = split.rails;
    let carries_default_route = default_route::wanted(facts, OnDefaultRoute::Used);
    let mut names = Vec::new();
    for port in others {
        let port = &mut ports[port];
        if !carries_default_route(port) {
            names.push(port.name());
            port.leave_out(SkipReason::Slower { own: port.port.rate.clone(), rails: rails.clone() });
        }
    }
    (!names.is_empty()).then_some(NarrowingStep::Slower { left_out: names, rails })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::candidates;
    use crate::fabric::fake::hca;

    const RAIL: (&str, u32, &str) = ("mlx5_core", 400, "15b3:1021");
    const STORAGE: (&str, u32, &str) = ("bnxt_en", 200, "14e4:1750");

    /// Each HCA is given as its driver, its rate in Gbit/s, and its PCI ID.
    fn host(gpus: Option<u32>, hcas: &[(&str, u32, &str)], down: usize) -> Facts {
        let mut facts = Facts::default();
        facts.gpu.count = gpus;
        for (n, (driver, rate, model)) in hcas.iter().enumerate() {
            let (driver, pci_id) = (Some((*driver).to_owned()), Some((*model).to_owned()));
            let mut hca = Hca { driver, pci_id, ..hca(n) };
            if *rate > 0 {
                hca.ports[0].rate = format!("{rate} Gb/sec");
            }
            facts.rdma.push(hca);
        }
        for hca in facts.rdma.iter_mut().rev().take(down) {
            hca.ports[0].state = "DOWN".to_owned();
        }
        facts
    }

    fn left_out(facts: &Facts) -> Vec<usize> {
        let mut ports = candidates(facts);
        let step = leave_out_slower(facts, &mut ports);
        let is_out = |port: &Candidate| {
            matches!(port.verdict, crate::fabric::Verdict::LeftOut(SkipReason::Slower { .. }))
        };
        let out: Vec<usize> = (0..ports.len()).filter(|n| is_out(&ports[*n])).collect();
        assert_eq!(step.is_some(), !out.is_empty());
        out
    }

    #[test]
    fn slower_hcas_beside_a_rail_for_each_gpu_are_skipped() {
        let slow = ("mlx5_core", 200, "15b3:1021");
        let as_fast = ("bnxt_en", 400, "14e4:1750");
        for (gpus, hcas, down, wanted) in [
            (Some(2), &[RAIL, RAIL, STORAGE][..], 0, &[2][..]),
            (Some(2), &[STORAGE, RAIL, RAIL, RAIL, RAIL], 0, &[0]),
            (Some(4), &[RAIL, RAIL, RAIL, RAIL, slow, STORAGE], 0, &[4, 5]),
            (Some(4), &[RAIL, RAIL, RAIL, RAIL, slow, slow], 0, &[4, 5]),
            // It may be a rail whose link has come up at a lower rate.
            (Some(2), &[RAIL, RAIL, slow], 0, &[]),
            (Some(2), &[RAIL, slow], 0, &[]),
            (Some(2), &[RAIL, RAIL, RAIL, slow], 0, &[]),
            (Some(1), &[RAIL, STORAGE], 0, &[]),
            (Some(2), &[RAIL, RAIL, STORAGE, STORAGE], 0, &[]),
            // A port that is down may be a rail.
            (Some(2), &[RAIL, RAIL, STORAGE, RAIL], 1, &[]),
            // As fast, faster, or of an unknown rate.
            (Some(2), &[RAIL, RAIL, as_fast], 0, &[]),
            (Some(2), &[STORAGE, STORAGE, RAIL], 0, &[]),
            (Some(2), &[RAIL, RAIL, ("bnxt_en", 0, "14e4:1750")], 0, &[]),
            (None, &[RAIL, RAIL, STORAGE], 0, &[]),
            (Some(2), &[RAIL, RAIL], 0, &[]),
        ] {
            assert_eq!(left_out(&host(gpus, hcas, down)), wanted, "{gpus:?} {hcas:?} {down}");
        }
    }

    #[test]
    fn the_only_hca_near_a_gpu_stays() {
        for (switches, wanted) in [(&[1, 2, 3][..], &[2][..]), (&[1, 1, 2], &[])] {
            let place: Vec<(i32, u32)> = switches.iter().map(|switch| (0, *switch)).collect();
            let places = crate::fabric::fake::host(&[(0, 1), (0, 2)], &place);
            let mut facts = host(Some(2), &[RAIL, RAIL, STORAGE], 0);
            facts.gpu = places.gpu;
            for (hca, place) in facts.rdma.iter_mut().zip(places.rdma) {
                hca.pci_path = place.pci_path;
            }
            assert_eq!(left_out(&facts), wanted, "{switches:?}");
        }
    }
}
