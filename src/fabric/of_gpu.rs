//! Which of the job's HCAs serves each GPU best, for libraries that use one HCA per GPU.

use super::distance::{Distance, of_hca};
use super::port::Candidate;
use crate::facts::Facts;
use crate::facts::pci::PciDevice;
use crate::facts::rdma::Hca;

/// A GPU and its HCA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GpuHca<'a> {
    pub gpu: &'a PciDevice,
    pub hca: &'a Hca,
    pub distance: Distance,
}

/// Returns a nearest HCA of the job for each GPU, in the order of the GPUs' numbers. GPUs with the same
/// nearest HCAs share them evenly. Returns `None` if the locations do not decide: a GPU or HCA has no known
/// location, all HCAs are equally near, or a GPU has several near HCAs to itself, so that it would lose one.
#[must_use]
pub(crate) fn pairs<'a>(facts: &'a Facts, ports: &[Candidate<'a>]) -> Option<Vec<GpuHca<'a>>> {
    let gpus = &facts.gpu.devices;
    if gpus.is_empty() || facts.gpu.count.is_some_and(|count| gpus.len() < count as usize) {
        return None;
    }
    let mut hcas: Vec<&Hca> = ports.iter().filter(|port| port.is_used()).map(|port| port.hca).collect();
    hcas.dedup_by_key(|hca| &hca.name);
    let nearest = |gpu: &PciDevice| -> Option<(Distance, Vec<&'a Hca>)> {
        let distances: Option<Vec<Distance>> = hcas.iter().map(|hca| of_hca(gpu, hca)).collect();
        let distances = distances?;
        let least = *distances.iter().min()?;
        let at_it = hcas.iter().zip(distances).filter(|(_, distance)| *distance == least);
        Some((least, at_it.map(|(hca, _)| *hca).collect()))
    };
    let nearest: Vec<(Distance, Vec<&Hca>)> = gpus.iter().map(nearest).collect::<Option<_>>()?;
    let alike = |one: &[&Hca]| nearest.iter().filter(|(_, other)| names(other) == names(one)).count();
    let tells = nearest.iter().all(|(_, at_it)| at_it.len() < hcas.len() && at_it.len() <= alike(at_it));
    if !tells {
        return None;
    }
    let pair = |(index, gpu): (usize, &'a PciDevice)| {
        let (distance, at_it) = nearest.get(index)?;
        let before = nearest.iter().take(index).filter(|(_, other)| names(other) == names(at_it)).count();
        Some(GpuHca { gpu, hca: at_it.get(before % at_it.len())?, distance: *distance })
    };
    gpus.iter().enumerate().map(pair).collect()
}

fn names<'a>(hcas: &[&'a Hca]) -> Vec<&'a str> {
    hcas.iter().map(|hca| hca.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::candidates;
    use crate::fabric::fake::host;

    #[test]
    fn each_gpu_gets_the_nearest_and_those_alike_share() {
        for (gpus, hcas, wanted) in [
            // Each GPU and its HCA are behind one switch.
            (&[(0, 1), (0, 2)][..], &[(0, 2), (0, 1)][..], Some(vec!["mlx5_1", "mlx5_0"])),
            // Two GPUs and one HCA behind each switch.
            (
                &[(0, 1), (0, 1), (1, 2), (1, 2)],
                &[(0, 1), (1, 2)],
                Some(vec!["mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1"]),
            ),
            // As on GB200: only the NUMA node decides.
            (
                &[(0, 1), (0, 2), (1, 3), (1, 4)],
                &[(0, 5), (0, 6), (1, 7), (1, 8)],
                Some(vec!["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]),
            ),
            // Two HCAs for each GPU: one of them would be idle.
            (&[(0, 1), (1, 2)], &[(0, 1), (0, 1), (1, 2), (1, 2)], None),
            // All HCAs are equally far.
            (&[(0, 1), (0, 2)], &[(0, 3), (0, 4)], None),
            (&[(0, 1)], &[(0, 1)], None),
            (&[], &[(0, 1)], None),
        ] {
            let facts = host(gpus, hcas);
            let pairs = pairs(&facts, &candidates(&facts));
            let found = pairs.map(|pairs| pairs.iter().map(|pair| pair.hca.name.as_str()).collect());
            assert_eq!(found, wanted, "{gpus:?} {hcas:?}");
        }
        let mut facts = host(&[(0, 1), (0, 2)], &[(0, 1), (0, 2)]);
        facts.rdma[1].pci_path = None;
        assert_eq!(pairs(&facts, &candidates(&facts)), None, "a soft device");
    }
}
