//! Tests nodes with real interfaces in network namespaces: the preflight finds what is wrong with an
//! interface that NCCL would use for sockets.

use serde_json::{Value, json};

use super::job::{Ended, Job, Node};
use crate::support::nodes::{Nodes, address};

/// Runs the preflight of this many nodes, which use `eth0` for the rendezvous and `eth1` for NCCL.
pub fn preflight(nodes: &Nodes, count: u32, options: &[&str]) -> Vec<Ended> {
    let job = Job::of(count);
    let start = |node| {
        let mut command = job.command_in(nodes, node, options);
        command.env("NCCL_SOCKET_IFNAME", "=eth1");
        Node::start(node, command)
    };
    let started: Vec<Node> = (0..count).map(start).collect();
    started.into_iter().map(Node::end).collect()
}

pub fn passes(nodes: &Nodes) {
    let ended = preflight(nodes, 3, &[]);
    ended[0].expect("rail 0 (eth1)");
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}

/// Expects that one rail of one node is faulty, and returns the verdict.
pub fn accuses(nodes: &Nodes, rail: &str, why: &str) -> String {
    let ended = preflight(nodes, 3, &[]);
    assert_eq!(ended[0].stdout.matches("FAILED  ").count(), 1, "{:#?}", ended[0]);
    let verdict = ended[0].stdout.clone();
    for ended in ended {
        let said = format!("{rail} fails with each of the 2 nodes that it was tested with: {why}");
        ended.expect_code(1).expect(&said);
    }
    verdict
}

/// In each of its pairs, node 0 is the one that connects.
#[test]
fn an_address_that_no_node_reaches_is_found_where_its_node_connects() {
    let Some(nodes) = Nodes::if_possible(3, 2) else { return };
    passes(&nodes);
    // This node reaches the others through its other interface.
    nodes.ip(0, &format!("addr del {}/24 dev eth1", address(0, 1)));
    nodes.ip(0, "addr add 10.99.0.1/24 dev eth1");
    nodes.ip(0, "route add 10.78.1.0/24 dev eth0");
    accuses(&nodes, "node0 eth1", "no connection from eth1 (10.99.0.1) to node");
}

#[test]
fn a_path_that_lets_nothing_through_is_found_at_either_end() {
    let Some(nodes) = Nodes::if_possible(3, 2) else { return };
    for node in [0, 2] {
        nodes.cut_off(node, 1);
        accuses(&nodes, &format!("node{node} eth1"), "no connection ");
        nodes.put_back(node, 1);
    }
    passes(&nodes);
}

#[test]
fn a_node_without_the_interface_is_found() {
    let Some(nodes) = Nodes::if_possible(3, 2) else { return };
    nodes.ip(1, "link del eth1");
    let ended = preflight(&nodes, 3, &[]);
    assert_eq!(ended[0].stdout.matches("FAILED  ").count(), 1, "{:#?}", ended[0]);
    for ended in ended {
        ended.expect_code(1).expect("node1 brings 0 rails, but the other 2 nodes bring 1");
    }
}

#[test]
fn nodes_with_one_address_are_both_named_and_neither_is_left_out() {
    let Some(nodes) = Nodes::if_possible(4, 2) else { return };
    nodes.ip(2, &format!("addr del {}/24 dev eth1", address(2, 1)));
    nodes.ip(2, &format!("addr add {}/24 dev eth1", address(1, 1)));
    let folder = tempfile::tempdir().unwrap();
    let (list, document) = (folder.path().join("list"), folder.path().join("json"));
    let job = Job::of(4);
    let start = |node| {
        let options: &[&str] = match node {
            0 => &["--exclude-file", list.to_str().unwrap(), "--json-file", document.to_str().unwrap()],
            _ => &[],
        };
        let mut command = job.command_in(&nodes, node, options);
        command.env("NCCL_SOCKET_IFNAME", "=eth1");
        Node::start(node, command)
    };
    let started: Vec<Node> = (0..4).map(start).collect();
    let said = "node1 and node2 have the same address on rail 0 (eth1): 10.78.1.2";
    let ended: Vec<Ended> = started.into_iter().map(Node::end).collect();
    assert_eq!(ended[0].stdout.matches("FAILED  ").count(), 1, "{:#?}", ended[0]);
    assert!(ended[0].stderr.contains(&format!("preflight: {said}")), "{:#?}", ended[0]);
    ended.into_iter().for_each(|ended| ended.expect_code(1).expect(said));
    assert_eq!(std::fs::read_to_string(list).unwrap(), "");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(document).unwrap()).unwrap();
    let [fault] = &document["faults"].as_array().unwrap()[..] else { panic!("{document:#}") };
    assert_eq!((&fault["kind"], &fault["nodes"]), (&"duplicate-address".into(), &json!([1, 2])));
    assert_eq!(document["members"][2]["addresses"], json!(["10.78.1.2/24"]));
}

#[test]
fn a_node_on_its_loopback_interface_is_accused_and_not_the_path_to_it() {
    let Some(nodes) = Nodes::if_possible(2, 2) else { return };
    let job = Job::of(2);
    let start = |(node, interface)| {
        let mut command = job.command_in(&nodes, node, &[]);
        command.env("NCCL_SOCKET_IFNAME", interface);
        Node::start(node, command)
    };
    let started: Vec<Node> = [(0, "=eth1"), (1, "=lo")].into_iter().map(start).collect();
    let said = "node1 has a loopback address on rail 0 (lo), which no other node can reach: 127.0.0.1";
    let ended: Vec<Ended> = started.into_iter().map(Node::end).collect();
    assert_eq!(ended[0].stdout.matches("FAILED  ").count(), 1, "{:#?}", ended[0]);
    ended.into_iter().for_each(|ended| ended.expect_code(1).expect(said));
}

/// There is a route between the two subnets, as between the racks of a routed fabric.
#[test]
fn a_subnet_of_its_own_is_told_and_is_no_fault_where_the_pairs_connect() {
    let Some(nodes) = Nodes::if_possible(3, 2) else { return };
    nodes.ip(1, &format!("addr del {}/24 dev eth1", address(1, 1)));
    nodes.ip(1, "addr add 10.99.0.2/24 dev eth1");
    nodes.ip(1, "route add 10.78.1.0/24 dev eth1");
    [0, 2].into_iter().for_each(|node| nodes.ip(node, "route add 10.99.0.0/24 dev eth1"));
    let ended = preflight(&nodes, 3, &[]);
    ended[0].expect("on rail 0 (eth1), the nodes are in 2 subnets, which need routes between them: 10.78.1.0/24 (2 nodes), 10.99.0.0/24 (node1)");
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}
