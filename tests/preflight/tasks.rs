//! Tests nodes on which a launcher starts several tasks.

use super::job::{Job, Node, TOKEN, has_names};
use crate::support::process::rdma_init;

/// Starts a task of a job on two nodes, as Slurm does if one step has two tasks on each node.
fn task(job: &Job, step: u16, [node, local]: [u32; 2], options: &[&str]) -> Node {
    let meet = job.meet();
    let mut command = rdma_init(["preflight", "--meet", &meet].iter().chain(options));
    command.envs([
        ("SLURM_JOB_ID", step.to_string()),
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
    ]);
    Node::start(node, command)
}

#[test]
fn a_task_whose_node_has_no_first_task_says_so_while_it_waits_and_at_the_end() {
    let job = Job::of(2);
    let ended = task(&job, job.port, [0, 1], &["--wait", "6s"]).end().expect_code(1);
    ended.expect("waiting for the first task of this node (local rank 0), which has not begun its preflight");
    ended.expect("did not begin its preflight within 6s (preflight-wait)");
}

#[test]
fn the_tasks_of_a_node_have_one_verdict_and_those_of_a_later_preflight_another_one() {
    if !has_names() {
        return;
    }
    let job = Job::of(2);
    let step = job.port;
    // The first tasks start last.
    let all = [[0, 1], [1, 1], [0, 0], [1, 0]].map(|place| task(&job, step, place, &[]));
    for task in all {
        task.end().expect_code(0);
    }
    // The same step runs it again, but node 1 does not join. The second task of node 0 again starts first.
    let (job, wait) = (Job::of(2), ["--wait", "20s"]);
    for task in [[0, 1], [0, 0]].map(|place| task(&job, step, place, &wait)) {
        task.end().expect_code(1).expect("did not join within 20s");
    }
}
