//! Which ports NCCL's InfiniBand and RoCE transport uses (`src/transport/net_ib.cc`, later `net_ib/init.cc`:
//! `ncclIbInit`).

use super::list::{Pattern, most_hcas};
use super::version::{REWROTE_PARSERS, Version};
use crate::facts::Facts;
use crate::facts::rdma::{Access, Hca, LinkLayer, Port};

/// The variable that names the HCAs to use.
pub(crate) const LIST: &str = "NCCL_IB_HCA";

/// Returns whether NCCL has a transport for the port's link layer; it has none for EFA.
fn has_transport(port: &Port) -> bool {
    matches!(port.link_layer, LinkLayer::InfiniBand | LinkLayer::Ethernet)
}

/// Returns whether NCCL would use the port if no variable restricts it. NCCL ignores the node type, so it
/// accepts an iWARP device as well.
pub(crate) fn visible(hca: &Hca, port: &Port) -> bool {
    hca.uverbs.as_ref().is_some_and(|uverbs| uverbs.access == Access::Opened)
        && has_transport(port)
        && port.is_active()
}

/// What NCCL does with the ports that libibverbs can show.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NcclDevices<'a> {
    pub ports: Vec<(&'a Hca, &'a Port)>,
    /// HCAs beyond the release's limit.
    pub no_room: Vec<&'a Hca>,
}

/// Returns the ports that a release uses; `loads` returns whether libibverbs has a provider for the HCA. The
/// ports have libibverbs' order, which is unknown beforehand and matters only if there are too many.
pub(crate) fn taken<'a>(
    facts: &'a Facts,
    list: &str,
    version: Version,
    loads: impl Fn(&Hca) -> bool,
) -> NcclDevices<'a> {
    let pattern = Pattern::of_hcas(list, version);
    let mut taken = NcclDevices::default();
    for hca in facts.rdma.iter().filter(|hca| loads(hca)) {
        let ports: Vec<_> = hca
            .ports
            .iter()
            .filter(|port| visible(hca, port) && pattern.selects(&hca.name, Some(port.number)))
            .map(|port| (hca, port))
            .collect();
        // NCCL checks the limit before each HCA, not before each port.
        if taken.ports.len() < most_hcas(version) {
            taken.ports.extend(ports);
        } else if !ports.is_empty() {
            taken.no_room.push(hca);
        }
    }
    taken
}

/// The first number of planes that is too many, without that of the ports that have none.
const TOO_MANY_PLANES: usize = 13;

/// NCCL reserves this bit of a plane for NICs of several ports (`NCCL_IB_PLANE_VIRT_BIT`).
const BIT_OF_MERGED: i64 = 1 << 14;

/// Returns why a release gives up on all HCAs because of the planes of these ports; `None` if it does not
/// (`ncclIbGetPlaneIndex`, `src/transport/net_ib/init.cc`).
pub(crate) fn bad_planes(ports: &[(&Hca, &Port)], list: &str, version: Version) -> Option<String> {
    if version < REWROTE_PARSERS || !list.contains(':') {
        return None;
    }
    let pattern = Pattern::of_hcas(list, version);
    let mut planes: Vec<i64> = Vec::new();
    for plane in ports.iter().filter_map(|(hca, port)| pattern.entry(&hca.name, port.number)?.plane) {
        if planes.contains(&plane) {
            continue;
        }
        if planes.len() + 1 == TOO_MANY_PLANES {
            return Some(format!("{LIST} has more than {} planes", planes.len()));
        }
        if plane & BIT_OF_MERGED != 0 {
            return Some(format!("{LIST} has the plane {plane}, a number that is reserved"));
        }
        planes.push(plane);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::rdma::Uverbs;

    fn facts(hcas: u32) -> Facts {
        let port = Port {
            number: 1,
            link_layer: LinkLayer::Ethernet,
            state: "ACTIVE".to_owned(),
            ..Port::default()
        };
        let hca = |number| Hca {
            name: format!("mlx5_{number}"),
            uverbs: Some(Uverbs::default()),
            ports: vec![port.clone()],
            ..Hca::default()
        };
        Facts { rdma: (0..hcas).map(hca).collect(), ..Facts::default() }
    }

    #[test]
    fn a_release_takes_so_many() {
        let facts = facts(40);
        let count = |list, version| {
            let taken = taken(&facts, list, version, |_| true);
            (taken.ports.len(), taken.no_room.len())
        };
        assert_eq!(count("", Version::new(2, 18, 3)), (16, 24));
        assert_eq!(count("", Version::new(2, 27, 7)), (32, 8));
        assert_eq!(count("=mlx5_1,mlx5_39", Version::new(2, 27, 7)), (2, 0));
    }

    #[test]
    fn a_reserved_plane_and_too_many_end_the_transport() {
        let facts = facts(16);
        let ports: Vec<(&Hca, &Port)> = facts.rdma.iter().map(|hca| (hca, &hca.ports[0])).collect();
        let ends = |planes: &[i64], version| {
            let entries = planes.iter().enumerate();
            let entries: Vec<String> =
                entries.map(|(number, plane)| format!("mlx5_{number}:1:0:{plane}")).collect();
            bad_planes(&ports, &format!("={}", entries.join(",")), version).is_some()
        };
        let of_2_30 = Version::new(2, 30, 7);
        for (planes, wanted) in [
            (vec![-1, 0, 16383, 32768, 32768], false),
            (vec![0, 16384], true),
            (vec![-2], true),
            ((0..12).collect(), false),
            ((0..13).collect(), true),
        ] {
            assert_eq!(ends(&planes, of_2_30), wanted, "{planes:?}");
        }
        assert!(!ends(&[16384], Version::new(2, 29, 7)), "it reads no planes");
    }

    #[test]
    fn what_cannot_be_used_is_not_taken() {
        let mut facts = facts(5);
        facts.rdma[0].uverbs = None;
        facts.rdma[1].ports[0].state = "DOWN".to_owned();
        facts.rdma[2].ports[0].link_layer = LinkLayer::Other("Unspecified".to_owned());
        let taken = taken(&facts, "", Version::new(2, 27, 7), |hca| hca.name != "mlx5_3");
        let names: Vec<&str> = taken.ports.iter().map(|(hca, _)| hca.name.as_str()).collect();
        assert_eq!(names, ["mlx5_4"]);
    }
}
