//! The MTU of the rails.

use super::Evidence;
use super::ports::{each_used, rails};
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::finding::Id;
use crate::findings::mtu::FIX;
use crate::plan::Plan;

/// In bytes: the headers that the kernel reserves space for in a packet, with the largest of each kind
/// (`iboe_get_mtu` in `include/rdma/ib_addr.h`): GRH, UDP, BTH, XRC, atomics, ICRC.
const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// Returns the InfiniBand MTU for the MTU of a netdev, both in bytes. The kernel uses the port's own
/// netdev; a VLAN or macvlan on it may have a smaller MTU.
pub(crate) fn of_roce(mtu: u32) -> Option<u32> {
    [4096, 2048, 1024, 512, 256].into_iter().find(|size| size + HEADERS <= mtu)
}

pub(crate) fn mtus(facts: &Facts, plan: &Plan) -> Evidence {
    let found: Vec<(&Hca, &str, Option<u32>)> = rails(facts, plan).collect();
    if found.is_empty() {
        return Evidence::skip("no RoCE port with an interface of this container is in use");
    }
    let evidence = each_used(facts, plan, &|hca, _| {
        let (_, _, mtu) = found.iter().find(|(rail, _, _)| rail.name == hca.name)?;
        mtu.map(|mtu| match of_roce(mtu) {
            Some(roce) => format!("{mtu}, which gives RoCE an MTU of {roce}"),
            None => format!("{mtu}, which is too small for RoCE"),
        })
    });
    let first = found[0].2;
    let is_told = plan.findings.iter().any(|finding| finding.id == Id::MtuDiffers);
    match is_told || found.iter().all(|(_, _, mtu)| *mtu == first) {
        true => evidence,
        false => evidence.warn(
            "The interfaces of the rails have different MTUs. Between two rails, the smallest MTU on the path applies.".to_owned(),
            FIX,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_take_their_part() {
        for (netdev, roce) in [
            (9000, Some(4096)),
            (4192, Some(4096)),
            (4191, Some(2048)),
            (4096, Some(2048)),
            (1500, Some(1024)),
            (352, Some(256)),
            (351, None),
        ] {
            assert_eq!(of_roce(netdev), roce, "{netdev}");
        }
    }
}
