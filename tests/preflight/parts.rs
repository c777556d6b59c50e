//! Tests fabrics whose nodes reach only some of the others, and a node 0 that the others do not reach: the
//! verdict blames the fabric or node 0, and no other node.

use serde_json::json;

use super::faults::{Case, SOUND, come_out, document, run};
use super::job::{Job, Node, TOKEN};
use super::places::separate;
use crate::support::namespace::{can_be_made, has_nft};
use crate::support::nodes::{Nodes, address};
use crate::support::process::rdma_init;

/// Makes node 0 drop packets from matching addresses to its port on `eth0`.
fn close_port(nodes: &Nodes, job: &Job, matching: &str) {
    nodes.nft(
        0,
        &format!(
            "table inet closed {{ chain in {{ type filter hook input priority 0; \
             iifname eth0 tcp dport {} {matching} drop; }}\n }}",
            job.port
        ),
    );
}

#[test]
fn parts_of_the_fabric_are_told_and_no_node_is_accused() {
    if !can_be_made() || !has_nft() {
        return;
    }
    // The longest cases come first.
    come_out(&[
        Case {
            name: "leaves without a spine",
            nodes: 8,
            rails: 1,
            break_it: |nodes, _| {
                separate(nodes, &[0, 1, 2], &[3, 4, 5, 6, 7], 1);
                separate(nodes, &[3, 4, 5], &[6, 7], 1);
            },
            faults: &[("apart", &[0, 1, 2, 3, 4, 5, 6, 7])],
            reason: "do not reach each other on rail 0 (eth1): node0..node2 | node3..node5 | node6, node7: ",
            ..SOUND
        },
        Case {
            name: "leaves of four nodes without a spine",
            nodes: 12,
            rails: 1,
            break_it: |nodes, _| {
                separate(nodes, &[0, 1, 2, 3], &[4, 5, 6, 7, 8, 9, 10, 11], 1);
                separate(nodes, &[4, 5, 6, 7], &[8, 9, 10, 11], 1);
            },
            faults: &[("apart", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])],
            reason: "do not reach each other on rail 0 (eth1): node0..node3 | node4..node7 | node8..node11: ",
            ..SOUND
        },
        Case {
            name: "two halves that one node joins",
            nodes: 8,
            rails: 1,
            break_it: |nodes, _| separate(nodes, &[0, 1, 3], &[4, 5, 6, 7], 1),
            faults: &[("apart", &[0, 1, 2, 3, 4, 5, 6, 7])],
            // Only one of the tested pairs between the halves passes.
            reason: "two groups, which reach each other on rail 0 (eth1) only through node2, ",
            ..SOUND
        },
        Case {
            name: "dead paths between two halves",
            nodes: 8,
            rails: 1,
            break_it: |nodes, _| {
                for (node, others) in [(0, [4, 6]), (1, [5, 7]), (2, [6, 4]), (3, [7, 5])] {
                    separate(nodes, &[node], &others, 1);
                }
            },
            options: &["--rounds", "full"],
            faults: &[("scattered", &[0, 1, 2, 3, 4, 5, 6, 7])],
            reason: "fail on rail 0 (eth1)",
            ..SOUND
        },
        Case {
            name: "a port of node 0 that no other node reaches",
            nodes: 4,
            rails: 1,
            break_it: |nodes, job| close_port(nodes, job, ""),
            faults: &[("unreached", &[])],
            reason: "node 0 at 10.78.0.1:",
            ..SOUND
        },
        Case {
            name: "a port of node 0 that one other node reaches",
            nodes: 5,
            rails: 1,
            break_it: |nodes, job| close_port(nodes, job, &format!("ip saddr != {}", address(3, 0))),
            faults: &[("unreached", &[])],
            reason: "node 0 at 10.78.0.1:",
            ..SOUND
        },
    ]);
}

/// No name server is asked for this name.
#[test]
fn a_node_0_that_cannot_resolve_its_own_name_says_so() {
    let meet = format!("a..b:{}", Job::of(2).port);
    let mut command =
        rdma_init(["preflight", "--nodes", "2", "--node", "0", "--wait", "1s", "--meet", &meet]);
    command.env("RDMA_INIT_TOKEN", TOKEN);
    let ended = Node::start(0, command).end().expect_code(1);
    let why = "node 0 itself cannot resolve this name: \"a..b\" is neither an address nor the name of a host";
    ended.expect(&format!("no node reaches node 0 at {meet} ({why}): "));
    ended.expect("fix: Make the name resolve on all nodes");
}

/// The pair connects two of the three leaves. Together they have more than half of the nodes, but the third
/// leaf is still not cut off from a main part.
#[test]
fn a_lucky_pair_between_leaves_without_a_spine_accuses_no_node() {
    let Some(nodes) = Nodes::if_possible(9, 2).filter(|_| has_nft()) else { return };
    let job = Job::of(9);
    separate(&nodes, &[0, 1], &[3, 4, 5, 6, 7, 8], 1);
    separate(&nodes, &[2], &[4, 5, 6, 7, 8], 1);
    separate(&nodes, &[3, 4, 5], &[6, 7, 8], 1);
    let ended = run(&nodes, &job, 1, &[]);
    let document = document(&ended[0]).unwrap();
    let kinds: Vec<&str> =
        document["faults"].as_array().unwrap().iter().filter_map(|fault| fault["kind"].as_str()).collect();
    assert!(kinds.contains(&"apart"), "{document:#}");
    // On a busy machine, more pairs may be named as links, but never as nodes.
    let is_of_a_node = |kind: &&str| ["node", "flapping", "cut", "gone", "owes"].contains(kind);
    assert!(!kinds.iter().any(is_of_a_node), "{document:#}");
    assert_eq!(document["exclude"], json!([]));
    ended.into_iter().for_each(|ended| drop(ended.expect_code(1)));
}
