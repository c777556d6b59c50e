//! A job in which NCCL will use verbs on some nodes and sockets on others. Its ranks do not connect, whatever the
//! fabric carries, so no pair is tested.

use super::{Fault, Place, What};
use crate::preflight::judge::evidence::Evidence;
use crate::preflight::who::own::Network;

/// Returns the fault if the connected nodes do not all use the same. A node whose network is unknown says nothing.
pub(super) fn fault(evidence: &Evidence) -> Option<Fault> {
    let (mut verbs, mut sockets, mut unknown) = (Vec::new(), Vec::new(), 0);
    for (member, node) in evidence.members().iter().zip(0..) {
        match member.network {
            _ if evidence.gone().contains_key(&node) => {}
            Network::Verbs(_) => verbs.push(node),
            Network::Sockets(_) => sockets.push(node),
            Network::Unknown => unknown += 1,
        }
    }
    let is_mixed = !verbs.is_empty() && !sockets.is_empty();
    let what = What::Mixed { verbs, sockets, unknown };
    is_mixed.then(|| Fault { what, place: Place::Whole, why: String::new() })
}

pub fn is_mixed(evidence: &Evidence) -> bool {
    fault(evidence).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::faults;
    use super::*;
    use crate::preflight::judge::evidence::{Gone, Member};
    use crate::preflight::judge::words;

    fn verbs(ports: &str) -> Network {
        Network::Verbs(ports.to_owned())
    }

    fn sockets(why: &str) -> Network {
        Network::Sockets(why.to_owned())
    }

    /// The nodes with verbs have one rail more.
    fn evidence(networks: &[Network]) -> Evidence {
        let member = |network: &Network| Member {
            rails: vec!["x".to_owned(); 1 + usize::from(matches!(network, Network::Verbs(_)))],
            network: network.clone(),
            ..Member::default()
        };
        Evidence::new(networks.iter().map(member).collect(), 0)
    }

    /// Returns the nodes that are blamed, and the sentences about the faults.
    fn judged(networks: &[Network]) -> (Vec<u32>, Vec<String>) {
        let evidence = evidence(networks);
        let all = faults(&evidence, &[]);
        let said = all.iter().map(|fault| words::fault(&evidence, fault)).collect();
        (all.iter().flat_map(Fault::accused).collect(), said)
    }

    #[test]
    fn a_job_of_two_networks_is_one_fault_that_blames_only_the_few_without_rdma() {
        let none = || sockets("there is no RDMA device in this container");
        let said = "NCCL will use verbs on 1 of 3 nodes (node 0: mlx5_0:1) and sockets on 2 (node 1, node 2: there is no RDMA device in this container), so its ranks do not connect";
        assert_eq!(judged(&[verbs("mlx5_0:1"), none(), none()]), (vec![], vec![said.to_owned()]));
        let said = "NCCL will use verbs on 3 of 5 nodes (node 0, node 3: a:1; node 1: b:1) and sockets on 2 (node 2: NCCL_IB_DISABLE is 1; node 4: there is no RDMA device in this container), so its ranks do not connect";
        let of_five = [verbs("a:1"), verbs("b:1"), sockets("NCCL_IB_DISABLE is 1"), verbs("a:1"), none()];
        assert_eq!(judged(&of_five), (vec![2, 4], vec![said.to_owned()]));
    }

    #[test]
    fn a_network_that_is_not_known_and_a_node_that_has_gone_say_nothing() {
        assert!(!is_mixed(&evidence(&[sockets("a"), sockets("b"), Network::Unknown])));
        assert!(!is_mixed(&evidence(&[verbs("a:1"), verbs("b:1"), Network::Unknown])));
        let mut evidence = evidence(&[verbs("a:1"), sockets("x")]);
        assert!(is_mixed(&evidence));
        evidence.lose(1, Gone::Left("it was killed".to_owned()));
        assert!(!is_mixed(&evidence));
    }
}
