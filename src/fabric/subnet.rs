//! InfiniBand subnets, which cannot reach each other without a router. A machine may have one for
//! its GPUs, and one for storage.

use std::net::Ipv6Addr;

use super::enough;
use super::port::{Candidate, SkipReason};
use super::step::NarrowingStep;
use crate::facts::Facts;
use crate::facts::rdma::{LinkLayer, Port};

/// The upper half of GID 0 (InfiniBand Architecture Specification, volume 1, 4.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix(pub u64);

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}/64", Ipv6Addr::from(u128::from(self.0) << 64))
    }
}

/// Returns the port's subnet prefix; `None` on RoCE, and for a port without a GID.
#[must_use]
pub(crate) fn of(port: &Port) -> Option<Prefix> {
    let gid = port.gids.slots.iter().find(|gid| gid.index == 0)?;
    let prefix = u64::try_from(u128::from(gid.gid) >> 64).ok()?;
    (port.link_layer == LinkLayer::InfiniBand).then_some(Prefix(prefix))
}

/// Skips the ports of other subnets if one subnet has the rails ([`enough::split`]), and no port of another subnet is
/// faster.
pub(crate) fn leave_out_others(facts: &Facts, ports: &mut [Candidate]) -> Option<NarrowingStep> {
    let split = enough::split(facts, ports, |port| of(port.port)).filter(|split| split.speed.is_ge())?;
    let rails = split.rails;
    let mut names = Vec::new();
    for port in split.others {
        let port = &mut ports[port];
        if let Some(own) = of(port.port) {
            names.push(port.name());
            port.leave_out(SkipReason::OtherSubnet { own, rails });
        }
    }
    Some(NarrowingStep::OtherSubnets { left_out: names, rails })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Verdict, candidates};
    use crate::facts::gid::{Gid, GidTable};
    use crate::facts::rdma::{Hca, Uverbs};

    fn port(link_layer: LinkLayer, slots: &[(u32, &str)]) -> Port {
        let slot = |(index, gid): &(u32, &str)| Gid {
            index: *index,
            gid: gid.parse().unwrap(),
            kind: Default::default(),
            netdev: None,
        };
        let gids = GidTable { slots: slots.iter().map(slot).collect(), ..GidTable::default() };
        Port { number: 1, link_layer, state: "ACTIVE".to_owned(), gids, ..Port::default() }
    }

    #[test]
    fn the_subnet_is_the_upper_half_of_gid_0_on_infiniband() {
        let ib = |slots| of(&port(LinkLayer::InfiniBand, slots)).map(|prefix| prefix.0);
        assert_eq!(ib(&[(0, "fe80::1:2:3:4")]), Some(0xfe80 << 48));
        assert_eq!(ib(&[(0, "fec0:0:0:7:1:2:3:4"), (1, "fe80::1")]), Some(0xfec0_0000_0000_0007));
        assert_eq!(ib(&[(1, "fe80::1")]), None);
        assert_eq!(of(&port(LinkLayer::Ethernet, &[(0, "fe80::1")])), None);
        assert_eq!(Prefix(0xfec0_0000_0000_0007).to_string(), "fec0:0:0:7::/64");
    }

    /// Returns the numbers of the skipped ports. Each port is given as its subnet and rate.
    fn left_out(gpus: Option<u32>, ports: &[(u32, u32)], down: usize) -> Vec<usize> {
        let mut facts = Facts::default();
        facts.gpu.count = gpus;
        for (n, (subnet, rate)) in ports.iter().enumerate() {
            let port = port(LinkLayer::InfiniBand, &[(0, &format!("fec0:0:0:{subnet}::{n}"))]);
            let ports = vec![Port { rate: format!("{rate} Gb/sec"), ..port }];
            let uverbs = Some(Uverbs::default());
            facts.rdma.push(Hca { name: format!("mlx5_{n}"), uverbs, ports, ..Hca::default() });
        }
        for hca in facts.rdma.iter_mut().rev().take(down) {
            hca.ports[0].state = "DOWN".to_owned();
        }
        let mut ports = candidates(&facts);
        let step = leave_out_others(&facts, &mut ports);
        let is_out =
            |port: &Candidate| matches!(port.verdict, Verdict::LeftOut(SkipReason::OtherSubnet { .. }));
        let out: Vec<usize> = (0..ports.len()).filter(|n| is_out(&ports[*n])).collect();
        assert_eq!(step.is_some(), !out.is_empty());
        out
    }

    #[test]
    fn the_subnet_with_a_port_for_each_gpu_is_that_of_the_rails() {
        let (rail, storage) = ((1, 400), (2, 400));
        for (gpus, ports, down, wanted) in [
            (Some(2), &[rail, rail, storage][..], 0, &[2][..]),
            (Some(2), &[storage, rail, rail], 0, &[0]),
            (Some(1), &[rail, rail, (2, 200)], 0, &[]),
            (Some(2), &[rail, rail, rail, rail, storage], 0, &[4]),
            (Some(4), &[rail, rail, rail, rail, storage, (3, 100)], 0, &[4, 5]),
            // Undecidable: two planes, a missing rail, a subnet for each rail.
            (Some(2), &[rail, rail, storage, storage], 0, &[]),
            (Some(2), &[rail, storage], 0, &[]),
            (Some(2), &[rail, rail, rail, storage], 0, &[]),
            (Some(2), &[rail, rail, storage, storage], 1, &[]),
            (Some(2), &[(1, 1), (2, 1), (3, 1), (4, 1)], 0, &[]),
            (None, &[rail, rail, storage], 0, &[]),
            // The subnet with fewer ports is faster.
            (Some(2), &[(1, 200), (1, 200), storage], 0, &[]),
            (Some(2), &[rail, rail], 0, &[]),
        ] {
            assert_eq!(left_out(gpus, ports, down), wanted, "{gpus:?} {ports:?} {down}");
        }
    }
}
