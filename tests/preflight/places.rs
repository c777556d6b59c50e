//! Tests nodes, links, and parts of the fabric that pass no packets, each in its own job.

use serde_json::{Value, json};

use super::faults::{Case, SOUND, come_out, document, of_kind, run};
use super::job::Job;
use crate::support::namespace::{can_be_made, has_nft};
use crate::support::nodes::{Nodes, address};

/// Blocks all packets from these nodes to those on an interface.
pub fn separate(nodes: &Nodes, from: &[usize], to: &[usize], interface: usize) {
    let to: Vec<String> = to.iter().map(|node| address(*node, interface)).collect();
    for node in from {
        nodes.drop_from(*node, interface, &format!("ip daddr {{ {} }}", to.join(", ")));
    }
}

#[test]
fn each_fault_location_is_named_and_no_other() {
    if !can_be_made() || !has_nft() {
        return;
    }
    // The longest cases come first.
    come_out(&[
        Case {
            name: "a node that meets node 0 alone",
            nodes: 8,
            rails: 1,
            break_it: |nodes, _| separate(nodes, &[3], &[1, 2, 4, 5, 6, 7], 0),
            faults: &[("node", &[3])],
            excluded: &[3],
            reason: "node3",
            ..SOUND
        },
        Case {
            name: "equal halves",
            nodes: 6,
            rails: 1,
            break_it: |nodes, _| separate(nodes, &[0, 1, 2], &[3, 4, 5], 1),
            faults: &[("apart", &[0, 1, 2, 3, 4, 5])],
            excluded: &[],
            reason: "rail 0 (eth1)",
            ..SOUND
        },
        Case {
            name: "two nodes that do not meet",
            nodes: 5,
            rails: 1,
            break_it: |nodes, _| separate(nodes, &[3], &[2], 0),
            faults: &[("link", &[2, 3])],
            excluded: &[],
            reason: "between node2 and node3",
            ..SOUND
        },
        Case {
            name: "one node of three",
            nodes: 3,
            rails: 1,
            break_it: |nodes, _| nodes.cut_off(1, 1),
            faults: &[("node", &[1])],
            excluded: &[1],
            reason: "node1 eth1",
            ..SOUND
        },
        Case {
            name: "two nodes of six",
            nodes: 6,
            rails: 1,
            break_it: |nodes, _| [0, 3].into_iter().for_each(|node| nodes.cut_off(node, 1)),
            faults: &[("node", &[0]), ("node", &[3])],
            excluded: &[0, 3],
            reason: "node3 eth1",
            ..SOUND
        },
        Case {
            name: "both rails of a node",
            nodes: 4,
            rails: 2,
            break_it: |nodes, _| [1, 2].into_iter().for_each(|rail| nodes.cut_off(2, rail)),
            faults: &[("node", &[2])],
            excluded: &[2],
            reason: "node2",
            ..SOUND
        },
        Case {
            name: "an interface that is down",
            nodes: 4,
            rails: 2,
            break_it: |nodes, _| nodes.ip(1, "link set eth2 down"),
            faults: &[("uneven", &[1])],
            excluded: &[1],
            reason: "node1",
            ..SOUND
        },
        Case {
            name: "a link",
            nodes: 5,
            rails: 1,
            break_it: |nodes, _| separate(nodes, &[2], &[3], 1),
            faults: &[("link", &[2, 3])],
            excluded: &[],
            reason: "between node2 and node3 on rail 0 (eth1)",
            ..SOUND
        },
        Case {
            name: "two links",
            nodes: 6,
            rails: 1,
            break_it: |nodes, _| {
                separate(nodes, &[0], &[1], 1);
                separate(nodes, &[4], &[3], 1);
            },
            faults: &[("link", &[0, 1]), ("link", &[3, 4])],
            excluded: &[],
            reason: "between node3 and node4 on rail 0 (eth1)",
            ..SOUND
        },
        Case {
            name: "the only link",
            nodes: 2,
            rails: 1,
            break_it: |nodes, _| nodes.cut_off(1, 1),
            faults: &[("link", &[0, 1])],
            excluded: &[],
            reason: "between node0 and node1 on rail 0 (eth1)",
            ..SOUND
        },
        Case {
            name: "a quarter behind a switch that is cut off",
            nodes: 8,
            rails: 1,
            break_it: |nodes, _| separate(nodes, &[6, 7], &[0, 1, 2, 3, 4, 5], 1),
            faults: &[("cut", &[6, 7])],
            excluded: &[6, 7],
            reason: "node6, node7",
            ..SOUND
        },
        Case {
            name: "a fabric that lets nothing through",
            nodes: 4,
            rails: 1,
            break_it: |nodes, _| (0..4).for_each(|node| nodes.cut_off(node, 1)),
            faults: &[("apart", &[])],
            excluded: &[],
            reason: "on rail 0 (eth1)",
            ..SOUND
        },
        Case {
            name: "a node whose connections do not get out",
            nodes: 4,
            rails: 1,
            break_it: |nodes, _| nodes.drop_from(2, 1, "tcp flags & (syn | ack) == syn"),
            faults: &[("node", &[2])],
            excluded: &[2],
            reason: "node2 eth1",
            ..SOUND
        },
    ]);
}

/// The rail is tested with two healthy nodes, and once more in the second tries, however many nodes there
/// are, because each of these tries waits for an answer.
#[test]
fn a_rail_that_is_dead_at_one_node_is_tried_three_times_at_the_most() {
    if !can_be_made() || !has_nft() {
        return;
    }
    for count in [3, 8] {
        let nodes = Nodes::new(count, 3);
        nodes.drop_from(1, 2, "ip version 4");
        let job = Job::of(count as u32);
        let document = document(&run(&nodes, &job, 2, &[])[0]).unwrap();
        let of_node_1 = |pair: &&Value| pair["nodes"].as_array().unwrap().contains(&json!(1));
        let pairs = document["pairs"].as_array().unwrap().iter();
        let rails = pairs.filter(of_node_1).flat_map(|pair| pair["rails"].as_array().unwrap());
        let tried: Vec<&Value> = rails.filter(|rail| rail["rail"] == 1).collect();
        assert!((2..=3).contains(&tried.len()), "{count} nodes: {tried:#?}");
        assert!(tried.iter().all(|rail| rail["error"].is_string()), "{count} nodes: {tried:#?}");
        assert_eq!(of_kind(&document, "faults"), [json!(["node", [1]])], "{count} nodes: {document:#}");
        assert_eq!(document["faults"][0]["rails"], json!([1]));
    }
}
