//! Whether the GPUs have all their rails without the ports that cannot be used, or that are for something else.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::port::{Candidate, SkipReason, Verdict};
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

/// The used ports, split into the rails and the others, which are for something else, such as storage.
pub(super) struct Split<K> {
    /// What the rails have in common.
    pub rails: K,
    /// The positions of the other ports.
    pub others: Vec<usize>,
    /// How the fastest rail compares with the fastest other port.
    pub speed: Ordering,
}

/// Groups the used ports by a property, and splits off the rails: exactly one group has as many HCAs as there are GPUs,
/// or a multiple, and all other groups together have fewer HCAs than there are GPUs. Ports that are down count with the
/// others, because they may belong to any group. Returns `None` if the property of a port is unknown.
pub(super) fn split<'a, K: Ord>(
    facts: &Facts,
    ports: &[Candidate<'a>],
    property: impl Fn(&Candidate<'a>) -> Option<K>,
) -> Option<Split<K>> {
    let gpus = facts.gpu.count.filter(|count| *count > 0)? as usize;
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (position, port) in ports.iter().enumerate().filter(|(_, port)| port.is_used()) {
        groups.entry(property(port)?).or_default().push(position);
    }
    let hcas = |group: &[usize]| {
        group.iter().map(|position| ports[*position].hca.name.as_str()).collect::<BTreeSet<&str>>().len()
    };
    let is_whole = |group: &[usize]| hcas(group) >= gpus && hcas(group).is_multiple_of(gpus);
    let (mut whole, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, group)| is_whole(group));
    let (rails, of_rails) = whole.pop().filter(|_| whole.is_empty())?;
    let others: Vec<usize> = others.into_iter().flat_map(|(_, group)| group).collect();
    let link_layer = &ports[*of_rails.first()?].port.link_layer;
    let is_down = |port: &&Candidate| {
        port.port.link_layer == *link_layer
            && matches!(&port.verdict, Verdict::LeftOut(SkipReason::PortState(_)))
    };
    let fastest =
        |group: &[usize]| group.iter().map(|position| ports[*position].port.gigabits()).fold(0.0, f64::max);
    let speed = fastest(&of_rails).total_cmp(&fastest(&others));
    let is_certain = !others.is_empty() && hcas(&others) + ports.iter().filter(is_down).count() < gpus;
    is_certain.then_some(Split { rails, others, speed })
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
