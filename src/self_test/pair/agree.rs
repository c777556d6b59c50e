//! Whether two nodes agree. Pure.

use super::super::check::{Check, Outcome};
use super::super::kinds;
use super::super::report::Rail;
use super::message::Node;
use super::rails::Found;
use crate::text::counted;

/// Returns the checks of the properties that must be the same on both nodes, in the order of the
/// report.
pub(super) fn checks(mine: &Node, theirs: &Node, found: &[Found]) -> Vec<Check> {
    vec![
        count(mine, theirs),
        rails(
            "pair-link-layer",
            mine,
            theirs,
            |rail| Some(rail.link_layer.clone()),
            "A rail must be InfiniBand on both nodes, or RoCE on both: name the same HCAs in NCCL_IB_HCA on both.",
        ),
        rails(
            "pair-gid",
            mine,
            theirs,
            |rail| rail.gid_type.clone(),
            "RoCE v2 over IPv4 and over IPv6 cannot reach each other: give the rails of all nodes addresses of one family.",
        ),
        mtu(mine, theirs, found),
        nccl(mine, theirs),
    ]
}

/// Returns why data cannot move between these two rails.
pub(super) fn why_not(near: &Rail, far: &Rail) -> Option<String> {
    if near.link_layer != far.link_layer {
        Some(format!("one end is {}, the other {}", near.link_layer, far.link_layer))
    } else if near.gid_type != far.gid_type {
        Some("the ends have GIDs of different kinds".to_owned())
    } else {
        None
    }
}

fn count(mine: &Node, theirs: &Node) -> Check {
    let id = "pair-rails";
    let (near, far) = (mine.rails.len(), theirs.rails.len());
    match near == far {
        true if near == 0 => Check {
            message: Some("no port is in use on either node, so the job would run on TCP.".to_owned()),
            ..kinds::check(id, Outcome::Failed)
        },
        true => Check { evidence: vec![counted(near, "rail")], ..kinds::check(id, Outcome::Passed) },
        false => Check {
            message: Some(format!("{} in use here, {far} on {}.", counted(near, "port"), theirs.host)),
            fix: Some(
                "Check why each port is used or not, on both nodes: rdma-init plan --evidence.".to_owned(),
            ),
            ..kinds::check(id, Outcome::Failed)
        },
    }
}

/// Compares one property of each rail.
fn rails(id: &str, mine: &Node, theirs: &Node, value: fn(&Rail) -> Option<String>, fix: &str) -> Check {
    let shown = |rail: &Rail| value(rail).unwrap_or_else(|| "none".to_owned());
    let pairs = || mine.rails.iter().zip(&theirs.rails);
    let odd = pairs().filter(|(near, far)| value(near) != value(far));
    let odd = odd.map(|(near, far)| {
        format!("{}: {} here and {} on {}", near.hca, shown(near), shown(far), theirs.host)
    });
    let mut same: Vec<String> = pairs().filter_map(|(near, _)| value(near)).collect();
    same.dedup();
    verdict(id, odd.collect(), same, fix)
}

fn verdict(id: &str, odd: Vec<String>, same: Vec<String>, fix: &str) -> Check {
    match (odd.is_empty(), same.is_empty()) {
        (false, _) => Check {
            message: Some(format!("the nodes differ: {}.", odd.join("; "))),
            fix: Some(fix.to_owned()),
            ..kinds::check(id, Outcome::Failed)
        },
        (true, true) => Check {
            message: Some("there is nothing to compare".to_owned()),
            ..kinds::check(id, Outcome::Skipped)
        },
        (true, false) => Check { evidence: same, ..kinds::check(id, Outcome::Passed) },
    }
}

/// Compares the MTUs of the interfaces, and the MTUs that the ports use.
fn mtu(mine: &Node, theirs: &Node, found: &[Found]) -> Check {
    let (mut odd, mut same) = (Vec::new(), Vec::new());
    for (index, (near, far)) in mine.rails.iter().zip(&theirs.rails).enumerate() {
        let [here, there] = found.get(index).map(|found| found.mtu).unwrap_or_default();
        let of_ports = here.zip(there).map(|(here, there)| ("port", here, there));
        let of_interfaces = near.mtu.zip(far.mtu).map(|(here, there)| ("interface", here, there));
        let all = || of_interfaces.iter().chain(&of_ports);
        let differ = all().filter(|(_, here, there)| here != there);
        odd.extend(differ.map(|(what, here, there)| {
            format!("{} has {what} MTU {here} here, and {} has {there} on {}", near.hca, far.hca, theirs.host)
        }));
        let shown: Vec<String> = all().map(|(what, here, _)| format!("{what} {here}")).collect();
        same.extend((!shown.is_empty()).then(|| shown.join(", ")));
    }
    same.dedup();
    verdict(
        "pair-mtu",
        odd,
        same,
        "Set one MTU on the fabric's interfaces of all nodes and on the switches (4200 or more for RoCE with 4096).",
    )
}

fn nccl(mine: &Node, theirs: &Node) -> Check {
    let id = "pair-nccl";
    match (&mine.nccl, &theirs.nccl) {
        (Some(here), Some(there)) if here == there => {
            Check { evidence: vec![here.clone()], ..kinds::check(id, Outcome::Passed) }
        }
        (Some(here), Some(there)) => Check {
            message: Some(format!(
                "NCCL is {here} here and {there} on {}: ranks of one job must have one release.",
                theirs.host
            )),
            fix: Some("Use the same image on all nodes.".to_owned()),
            ..kinds::check(id, Outcome::Failed)
        },
        _ => Check {
            message: Some("on one node or both, the release of NCCL is unknown".to_owned()),
            ..kinds::check(id, Outcome::Skipped)
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, rails: usize) -> Node {
        let rail = |number: usize| Rail {
            hca: format!("mlx5_{number}"),
            port: 1,
            link_layer: "Ethernet".into(),
            gid_type: Some("RoCE v2, IPv4".into()),
            mtu: Some(4200),
            ..Rail::default()
        };
        Node { host: host.into(), nccl: Some("2.27.7".into()), rails: (0..rails).map(rail).collect() }
    }

    /// Returns the ids of the checks that failed, with their messages.
    fn failed(mine: &Node, theirs: &Node, found: &[Found]) -> Vec<(String, String)> {
        let checks = checks(mine, theirs, found).into_iter();
        let failed = checks.filter(|check| check.outcome == Outcome::Failed);
        failed.map(|check| (check.id, check.message.unwrap())).collect()
    }

    fn odd(change: impl FnOnce(&mut Node)) -> Vec<(String, String)> {
        let mut other = node("node2", 2);
        change(&mut other);
        failed(&node("node1", 2), &other, &[])
    }

    #[test]
    fn nodes_that_are_the_same_agree() {
        assert_eq!(odd(|_| {}), []);
        assert_eq!(odd(|node| node.nccl = None), []);
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        for (change, id, text) in [
            (
                (|node| drop(node.rails.pop())) as fn(&mut Node),
                "pair-rails",
                "2 ports in use here, 1 on node2",
            ),
            (
                |node| node.rails[1].mtu = Some(1500),
                "pair-mtu",
                "mlx5_1 has interface MTU 4200 here, and mlx5_1 has 1500 on node2",
            ),
            (
                |node| node.rails[0].gid_type = Some("RoCE v2, IPv6".into()),
                "pair-gid",
                "mlx5_0: RoCE v2, IPv4 here and RoCE v2, IPv6 on node2",
            ),
            (|node| node.nccl = Some("2.21.5".into()), "pair-nccl", "2.27.7 here and 2.21.5 on node2"),
        ] {
            let failed = odd(change);
            assert_eq!(failed.len(), 1, "{failed:?}");
            assert_eq!(failed[0].0, id);
            assert!(failed[0].1.contains(text), "{failed:?}");
        }
        let layers = odd(|node| {
            node.rails[0].link_layer = "InfiniBand".into();
            node.rails[0].gid_type = None;
        });
        let ids: Vec<&str> = layers.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["pair-link-layer", "pair-gid"]);
    }

    #[test]
    fn ports_that_work_with_another_mtu_differ() {
        let nothing = super::super::message::Moved::default;
        let found =
            Found { mtu: [Some(4096), Some(1024)], mine: nothing(), theirs: nothing(), left_out: None };
        let failed = failed(&node("node1", 1), &node("node2", 1), &[found]);
        assert_eq!(failed[0].0, "pair-mtu");
        assert!(failed[0].1.contains("port MTU 4096 here, and mlx5_0 has 1024 on node2"), "{failed:?}");
    }

    #[test]
    fn nodes_without_a_rail_fail() {
        assert_eq!(failed(&node("a", 0), &node("b", 0), &[])[0].0, "pair-rails");
    }
}
