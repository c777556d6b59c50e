//! Jobs in which all is well.

use super::job::{Job, Node, TOKEN, has_names};
use crate::support::process::rdma_init;

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

/// As Slurm starts two tasks on each of two nodes.
#[test]
fn several_tasks_of_a_node_have_one_verdict() {
    if !has_names() {
        return;
    }
    let port = Job::of(2).port.to_string();
    let task = |node: u32, local: u32| {
        let meet = format!("127.0.0.1:{port}");
        let mut command = rdma_init(["preflight", "--meet", &meet]);
        let variables = [
            ("SLURM_JOB_ID", port.clone()),
            ("SLURM_NNODES", "2".to_owned()),
            ("SLURM_JOB_NUM_NODES", "2".to_owned()),
            ("SLURM_STEP_NUM_NODES", "2".to_owned()),
            ("SLURM_NODEID", node.to_string()),
            ("SLURM_PROCID", (2 * node + local).to_string()),
            ("SLURM_LOCALID", local.to_string()),
            ("SLURM_NTASKS", "4".to_owned()),
            ("SLURM_JOB_NODELIST", "node[0-1]".to_owned()),
            ("SLURM_STEP_NODELIST", "node[0-1]".to_owned()),
            ("SLURMD_NODENAME", format!("node{node}")),
            ("RDMA_INIT_TOKEN", TOKEN.to_owned()),
        ];
        Node::start(node, {
            command.envs(variables);
            command
        })
    };
    let others = [task(0, 1), task(1, 1)];
    let first = [task(0, 0), task(1, 0)];
    for task in others.into_iter().chain(first) {
        task.end().expect_code(0);
    }
}
