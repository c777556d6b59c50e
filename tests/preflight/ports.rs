//! Tests ports that reach only a part of the fabric, flap, or have no carrier: the verdict names their node
//! or its links, and no other node.

use serde_json::Value;

use super::faults::{Case, SOUND, come_out, document, run, start};
use super::job::{Ended, Job, Node};
use super::places::separate;
use crate::support::namespace::{can_be_made, has_nft};
use crate::support::nodes::Nodes;

/// Expects that there is a fault, that each fault concerns this node or one of its links, and that no other
/// node is in the list for the scheduler. On a busy machine, being slower than others proves nothing, and
/// neither does a pair that passed in its second try.
#[track_caller]
fn names_this_alone(zero: &Ended, node: u64) {
    let document = document(zero).unwrap();
    let list = |what: &str| document[what].as_array().unwrap().clone();
    let faults = list("faults");
    let is_its = |fault: &Value| fault["nodes"].as_array().unwrap().contains(&node.into());
    let is_of_one_node = |fault: &Value| match fault["kind"].as_str() {
        Some("node" | "flapping") => fault["nodes"].as_array().unwrap().len() == 1,
        kind => kind == Some("link"),
    };
    let is_fine = |fault: &Value| fault["kind"] == "unsteady" || is_its(fault) && is_of_one_node(fault);
    assert!(faults.iter().any(is_its) && faults.iter().all(is_fine), "not node {node} alone: {faults:#?}");
    let excluded = list("exclude");
    assert!(excluded.iter().all(|name| *name == format!("node{node}")), "{excluded:?}");
}

#[test]
fn a_node_whose_port_reaches_half_of_the_fabric_is_named_alone() {
    if !can_be_made() || !has_nft() {
        return;
    }
    std::thread::scope(|scope| {
        for (node, missed) in [(5, [1, 3, 4, 7]), (0, [1, 2, 4, 6])] {
            scope.spawn(move || {
                let nodes = Nodes::new(8, 2);
                separate(&nodes, &[node], &missed, 1);
                let ended = run(&nodes, &Job::of(8), 1, &[]);
                names_this_alone(&ended[0], node as u64);
                ended.into_iter().for_each(|ended| drop(ended.expect_code(1)));
            });
        }
    });
}

/// With this many nodes, the node is named instead of its links.
#[test]
fn a_port_that_reaches_half_of_a_larger_fabric_is_one_fault_of_its_node() {
    if !can_be_made() || !has_nft() {
        return;
    }
    come_out(&[Case {
        name: "half of 14 nodes",
        nodes: 14,
        break_it: |nodes, _| separate(nodes, &[9], &[0, 2, 4, 6, 8, 10, 12], 1),
        faults: &[("node", &[9])],
        excluded: &[9],
        reason: "node9 eth1 fails with ",
        ..SOUND
    }]);
}

/// The carrier is down when the rounds begin, and changes at each further pair of the node.
#[test]
fn a_node_with_a_flapping_port_is_named_alone() {
    const FLAPS: u32 = 3;
    let Some(nodes) = Nodes::if_possible(8, 2) else { return };
    let job = Job::of(8);
    let node = |node| start(&nodes, &job, node, 1, &["--log-level", "debug"]);
    let mut all: Vec<Node> = (0..7).map(node).collect();
    all[0].wait_for("node3 has joined");
    nodes.set_carrier(FLAPS as usize, 1, false);
    all.push(node(7));
    for pair in 2.. {
        if !all[FLAPS as usize].wait_for_count("starting the pair with", pair) {
            break;
        }
        nodes.set_carrier(FLAPS as usize, 1, pair % 2 == 0);
    }
    let mut ended = all.into_iter().map(Node::end);
    names_this_alone(&ended.next().unwrap(), FLAPS.into());
    ended.for_each(|ended| assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}"));
}

fn take_carrier(nodes: &Nodes, node: usize, interface: usize) {
    nodes.set_carrier(node, interface, false);
    nodes.await_carrier(node, interface, false);
}

#[test]
fn a_node_with_a_rail_without_a_carrier_is_named_alone() {
    if !can_be_made() {
        return;
    }
    come_out(&[
        Case {
            name: "one of two rails",
            rails: 2,
            break_it: |nodes, _| take_carrier(nodes, 1, 2),
            faults: &[("uneven", &[1])],
            excluded: &[1],
            reason: "node1",
            ..SOUND
        },
        Case {
            name: "the only rail of node 0",
            break_it: |nodes, _| take_carrier(nodes, 0, 1),
            faults: &[("uneven", &[0])],
            excluded: &[0],
            reason: "node0",
            ..SOUND
        },
    ]);
}
