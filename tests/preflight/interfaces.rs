//! Nodes whose interfaces are real ones, of network namespaces: what is wrong with an interface that
//! NCCL would use over sockets is found.

use super::job::{Ended, Job, Node};
use crate::support::namespace::can_be_made;
use crate::support::nodes::{Nodes, address};

/// The preflight of three nodes, which meet on `eth0` and have NCCL use `eth1`.
fn preflight(nodes: &Nodes) -> Vec<Ended> {
    let job = Job::of(3);
    let start = |node| {
        let mut command = job.command_in(nodes, node, &[]);
        command.env("NCCL_SOCKET_IFNAME", "=eth1");
        Node::start(node, command)
    };
    let started: Vec<Node> = (0..3).map(start).collect();
    started.into_iter().map(Node::end).collect()
}

fn passes(nodes: &Nodes) {
    let ended = preflight(nodes);
    ended[0].expect("rail 0 (eth1)");
    ended.into_iter().for_each(|ended| drop(ended.expect_code(0)));
}

fn accuses(nodes: &Nodes, rail: &str, why: &str) {
    let ended = preflight(nodes);
    assert_eq!(ended[0].stdout.matches("FAILED  ").count(), 1, "{:#?}", ended[0]);
    for ended in ended {
        let said = format!("{rail} fails with each of the 2 nodes that it was tried with: {why}");
        ended.expect_code(1).expect(&said);
    }
}

/// Node 0 is the one that connects in each of its pairs.
#[test]
fn an_address_that_no_node_reaches_is_found_where_its_node_connects() {
    if !can_be_made() {
        return;
    }
    let nodes = Nodes::new(3, 2);
    passes(&nodes);
    // This node reaches the others by its other interface.
    nodes.ip(0, &format!("addr del {}/24 dev eth1", address(0, 1)));
    nodes.ip(0, "addr add 10.99.0.1/24 dev eth1");
    nodes.ip(0, "route add 10.78.1.0/24 dev eth0");
    accuses(&nodes, "node0 eth1", "no connection from eth1 (10.99.0.1) to node");
}

#[test]
fn a_path_that_lets_nothing_through_is_found_at_either_end() {
    if !can_be_made() {
        return;
    }
    let nodes = Nodes::new(3, 2);
    for node in [0, 2] {
        nodes.cut_off(node, 1);
        accuses(&nodes, &format!("node{node} eth1"), "no connection ");
        nodes.put_back(node, 1);
    }
    passes(&nodes);
}

#[test]
fn a_node_without_the_interface_is_found() {
    if !can_be_made() {
        return;
    }
    let nodes = Nodes::new(3, 2);
    nodes.ip(1, "link del eth1");
    let ended = preflight(&nodes);
    assert_eq!(ended[0].stdout.matches("FAILED  ").count(), 1, "{:#?}", ended[0]);
    for ended in ended {
        ended.expect_code(1).expect("node1 brings 0 rails, where the other 2 nodes bring 1");
    }
}
