//! Jobs in which all is well.

use super::job::{Job, Node};

#[test]
fn jobs_of_any_number_of_nodes_pass() {
    for nodes in [1, 2, 3, 5, 8] {
        for node in Job::of(nodes).all(&[]) {
            node.end().expect_code(0);
        }
    }
}

#[test]
fn each_node_with_each_other() {
    for node in Job::of(4).all(&["--rounds", "full"]) {
        node.end().expect_code(0);
    }
}

#[test]
fn without_a_token_it_is_said_that_anybody_is_taken() {
    let job = Job::of(2);
    let nodes = [0, 1].map(|node| {
        let mut command = job.command(node, &[]);
        command.env_remove("RDMA_INIT_TOKEN");
        Node::start(node, command)
    });
    for node in nodes {
        node.end().expect_code(0).expect("takes whoever comes");
    }
}

#[test]
fn a_node_may_come_first_or_late() {
    let job = Job::of(3);
    let early = [job.start(2, &[]), job.start(1, &[])];
    early[0].wait_for("waits for node 0 at 127.0.0.1:");
    let zero = job.start(0, &[]);
    for node in early.into_iter().chain([zero]) {
        node.end().expect_code(0);
    }
}
