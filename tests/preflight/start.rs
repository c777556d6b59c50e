//! The preflight before a command starts.

use std::process::Command;

use super::job::{Ended, Job, Node, TOKEN, has_names};
use crate::support::process::rdma_init;

pub fn command(job: &Job, node: u32, mode: &str, more: &[&str]) -> Command {
    let (nodes, index, meet) = (job.nodes.to_string(), node.to_string(), job.meet());
    let own = [
        "--preflight",
        mode,
        "--preflight-nodes",
        &nodes,
        "--preflight-node",
        &index,
        "--preflight-meet",
        &meet,
    ];
    let words = ["--", "sh", "-c", "echo started; env"];
    let mut command = rdma_init(own.iter().chain(more).chain(&words));
    command.env("RDMA_INIT_TOKEN", TOKEN);
    command
}

fn started(ended: &Ended) -> bool {
    ended.stdout.starts_with("started\n")
}

#[test]
fn commands_start_where_all_is_well() {
    let job = Job::of(3);
    let nodes: Vec<Node> =
        (0..3).map(|node| Node::start(node, command(&job, node, "enforce", &[]))).collect();
    for node in nodes {
        let ended = node.end().expect_code(0);
        assert!(started(&ended), "{ended:#?}");
        assert!(!ended.stdout.contains(TOKEN), "{ended:#?}");
    }
}

#[test]
fn a_missing_node_keeps_all_commands_from_their_start_or_is_said() {
    if !has_names() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for mode in ["enforce", "warn"] {
        let job = Job::of(3);
        let nodes = [0, 2].map(|node| {
            let mut command = command(&job, node, mode, &["--preflight-wait", "3s"]);
            let log = folder.path().join(format!("{mode}-{node}"));
            std::fs::write(&log, "").unwrap();
            command.env("RDMA_INIT_TERMINATION_LOG", &log);
            (Node::start(node, command), log)
        });
        for (node, log) in nodes {
            let enforced = mode == "enforce";
            let ended = node.end().expect_code(if enforced { 121 } else { 0 });
            assert_eq!(started(&ended), !enforced, "{ended:#?}");
            let said = ended.stderr.replace("node 1", "node1");
            assert!(said.contains("node1"), "{ended:#?}");
            let reason = std::fs::read_to_string(log).unwrap().replace("node 1", "node1");
            assert_eq!(
                reason.contains("preflight = \"enforce\"") && reason.contains("node1"),
                enforced,
                "{reason}"
            );
        }
    }
}

#[test]
fn a_start_that_knows_no_job_says_what_is_missing() {
    for (mode, code) in [("warn", 0), ("enforce", 121)] {
        let command = rdma_init(["--preflight", mode, "--", "sh", "-c", "echo started"]);
        let ended = Node::start(0, command).end().expect_code(code);
        ended.expect("it is not known how many nodes the job has");
        assert_eq!(started(&ended), mode == "warn", "{ended:#?}");
    }
}
