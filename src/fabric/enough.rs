//! Whether the GPUs have all their rails without the ports that cannot be used.

use super::port::Candidate;
use crate::facts::Facts;

/// Returns whether at least as many ports are used as there are GPUs, and no rail is missing. A rail is
/// missing if the number of used ports is not a multiple of the number of GPUs, but would be with the
/// `missing` ports: four GPUs with seven of eight rails are one rail short. Returns `None` if the number of
/// GPUs is unknown.
pub fn enough(facts: &Facts, ports: &[Candidate], missing: usize) -> Option<bool> {
    let gpus = facts.gpu.count.filter(|count| *count > 0)? as usize;
    let used = ports.iter().filter(|port| port.is_used()).count();
    let is_one_short = !used.is_multiple_of(gpus) && (used + missing).is_multiple_of(gpus);
    Some(used >= gpus && !is_one_short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Verdict;
    use crate::facts::rdma::{Hca, Port};

    #[test]
    fn each_gpu_needs_as_many_rails_as_the_others() {
        let enough = |gpus: Option<u32>, used: usize, missing| {
            let mut facts = Facts::default();
            facts.gpu.count = gpus;
            let (hca, port) = (Hca::default(), Port::default());
            let port = Candidate { hca: &hca, port: &port, verdict: Verdict::Used };
            enough(&facts, &vec![port; used], missing)
        };
        // DGX Spark, dual-port adapters with one cable, adapters for storage.
        for (gpus, used, missing) in [(1, 2, 2), (8, 8, 8), (8, 8, 2), (8, 10, 1), (4, 4, 4)] {
            assert_eq!(enough(Some(gpus), used, missing), Some(true), "{gpus} {used} {missing}");
        }
        for (gpus, used, missing) in [(8, 7, 1), (8, 0, 8), (4, 7, 1), (4, 6, 2), (4, 5, 3), (2, 1, 3)] {
            assert_eq!(enough(Some(gpus), used, missing), Some(false), "{gpus} {used} {missing}");
        }
        assert_eq!(enough(None, 7, 1), None);
        assert_eq!(enough(Some(0), 7, 1), None);
    }
}
