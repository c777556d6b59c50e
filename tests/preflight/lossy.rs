//! Nodes whose packets are lost on the way, and rails whose data takes another way.

use serde_json::{Value, json};

use super::interfaces::{accuses, preflight};
use super::job::Ended;
use crate::support::namespace::{can_be_made, has_nft};
use crate::support::nodes::{Nodes, address};

/// The document of a preflight of four nodes, one of which loses the packets that match.
fn document(matching: &str, node: usize) -> (Value, Vec<Ended>) {
    let nodes = Nodes::new(4, 2);
    nodes.drop_from(node, 1, matching);
    let ended = preflight(&nodes, 4, &["--json"]);
    (serde_json::from_str(&ended[0].stdout).unwrap(), ended)
}

fn items<'a>(document: &'a Value, of: &str) -> &'a [Value] {
    document[of].as_array().unwrap()
}

/// A preflight of four nodes passes, names the node that loses packets, and calls no other node slow.
fn names_alone(matching: &str, node: usize, kind: &str, wanted: &Value) {
    let (document, ended) = document(matching, node);
    let slow = items(&document, "slow");
    assert!(slow.iter().all(|slow| slow["kind"] == kind && slow["nodes"] == *wanted), "{slow:#?}");
    let resent = slow.iter().find(|slow| slow["figure"] == "resent_percent").expect("it loses packets");
    assert!(resent["again"].as_f64().unwrap() > 0.3, "{resent:#}");
    assert_eq!(document["faults"], json!([]));
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}

#[test]
fn a_node_that_loses_packets_is_named_alone() {
    if !can_be_made() || !has_nft() {
        return;
    }
    names_alone("numgen random mod 100 < 1", 2, "node", &json!([2]));
}

/// So many packets are lost that a pair may run out of its time, once or again: whether the job
/// passes is a matter of luck, and that no other node is named is not.
#[test]
fn a_node_that_loses_every_tenth_packet_is_part_of_all_that_is_told() {
    if !can_be_made() || !has_nft() {
        return;
    }
    let (document, _) = document("numgen random mod 100 < 10", 0);
    let told = [items(&document, "slow"), items(&document, "faults")].concat();
    assert!(!told.is_empty(), "{document:#}");
    for told in told {
        assert!(told["nodes"].as_array().unwrap().contains(&json!(0)), "{told:#}");
    }
}

#[test]
fn a_link_that_loses_packets_is_named_and_no_node() {
    if !can_be_made() || !has_nft() {
        return;
    }
    let matching = format!("ip daddr {} numgen random mod 100 < 1", address(0, 1));
    names_alone(&matching, 2, "link", &json!([0, 2]));
}

/// As with a node that loses as many, whether the job passes is a matter of luck.
#[test]
fn a_link_that_loses_every_tenth_packet_is_told_and_no_node() {
    if !can_be_made() || !has_nft() {
        return;
    }
    let matching = format!("ip daddr {} numgen random mod 100 < 10", address(0, 1));
    let (document, _) = document(&matching, 2);
    let told = [items(&document, "slow"), items(&document, "faults")].concat();
    assert!(!told.is_empty(), "{document:#}");
    for told in told {
        assert_eq!(told["nodes"], json!([0, 2]), "{told:#}");
    }
    assert_eq!(document["exclude"], json!([]));
}

#[test]
fn packets_from_a_size_on_that_are_lost_are_told_as_such() {
    if !can_be_made() || !has_nft() {
        return;
    }
    let nodes = Nodes::new(3, 2);
    nodes.drop_from(1, 1, "meta length > 1200");
    accuses(&nodes, "node1 eth1", "messages of 1000 bytes reach node");
}

#[test]
fn data_that_leaves_by_another_interface_is_a_warning() {
    if !can_be_made() {
        return;
    }
    let nodes = Nodes::new(3, 2);
    nodes.ip(1, "route del 10.78.1.0/24 dev eth1");
    nodes.ip(1, &format!("route add 10.78.1.0/24 dev eth0 src {}", address(1, 1)));
    let ended = preflight(&nodes, 3, &[]);
    ended[0].expect("data leaves by another interface than its own");
    ended[0].expect("): node1 eth1\n");
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}
