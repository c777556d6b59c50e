//! Tests the preflight before a command starts.

use std::process::Command;

use super::job::{Ended, Job, Node, TOKEN, has_names};
use crate::support::executable::executable;
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
            let mut command = command(&job, node, mode, &["--preflight-wait", "20s"]);
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
fn the_lines_of_a_preflight_and_of_a_refusal_have_fields_in_json() {
    let job = Job::of(2);
    let options = ["--preflight-wait", "1s", "--log-format", "json"];
    let ended = Node::start(0, command(&job, 0, "enforce", &options)).end().expect_code(121);
    let lines = ended.stderr.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let of = |event: &str, field: &str| {
        let mut all = lines.iter().filter(|line| line["event"] == event && !line[field].is_null());
        all.next().unwrap_or_else(|| panic!("no {event} with {field} in {lines:#?}"))
    };
    let fault = of("preflight", "fault");
    assert_eq!((&fault["fault"], &fault["node"]), (&"unreached".into(), &0.into()));
    assert!(fault["message"].as_str().unwrap().starts_with("no node reaches node 0"), "{fault}");
    assert_eq!(of("preflight", "passed")["passed"], false);
    assert_eq!(of("refusal", "code")["code"], 121);
}

/// The commands of the other nodes are running, and no node waits for one that joins again.
#[test]
fn a_node_that_has_passed_and_is_started_again_alone_starts_its_command() {
    let job = Job::of(2);
    let (id, meet) = (job.port.to_string(), job.meet());
    let start = |node: u32, wait: &str| {
        let own = ["--preflight", "enforce", "--preflight-meet", &meet, "--preflight-wait", wait];
        let mut command = rdma_init(own.iter().chain(&["--", "sh", "-c", "echo started"]));
        let node = node.to_string();
        command.env("RDMA_INIT_TOKEN", TOKEN).envs([
            ("SLURM_JOB_ID", id.as_str()),
            ("SLURM_NNODES", "2"),
            ("SLURM_JOB_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_NODEID", &node),
            ("SLURM_PROCID", &node),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_STEP_NODELIST", "node[0-1]"),
        ]);
        Node::start(node.parse().unwrap(), command)
    };
    // Before it has passed, it is refused.
    assert!(!started(&start(1, "3s").end().expect_code(121)));
    for node in [start(0, "60s"), start(1, "60s")] {
        assert!(started(&node.end().expect_code(0)));
    }
    for (node, why) in [(1, "node 0 was not reachable within 3s"), (0, "no other node joined within 3s")] {
        let ended = start(node, "3s").end().expect_code(0);
        ended.expect("preflight not repeated: this node has passed before and was started again, and ");
        ended.expect(why);
        assert!(started(&ended), "{ended:#?}");
    }
}

#[test]
fn a_start_that_knows_no_job_says_what_is_missing() {
    for (mode, code) in [("warn", 0), ("enforce", 121)] {
        let command = rdma_init(["--preflight", mode, "--", "sh", "-c", "echo started"]);
        let ended = Node::start(0, command).end().expect_code(code);
        ended.expect(
            "cannot determine how many nodes the job has, which of them this one is and where the nodes meet",
        );
        ended.expect("; set --preflight-nodes N, --preflight-node I and --preflight-meet HOST");
        assert_eq!(started(&ended), mode == "warn", "{ended:#?}");
    }
}

/// Starts four nodes of Slurm, each of which runs torchrun with these arguments.
fn torchrun_on_slurm(arguments: &[&str]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let torchrun = folder.path().join("torchrun");
    executable(&torchrun, "#!/bin/sh\necho started\n");
    let own = ["--preflight", "enforce", "--preflight-wait", "1s", "--", torchrun.to_str().unwrap()];
    let mut command = rdma_init(own.iter().chain(arguments).chain(&["train.py"]));
    command.env("SLURM_STEP_NODELIST", "n[1-4]").env("SLURM_STEP_NUM_NODES", "4").env("SLURM_NODEID", "0");
    Node::start(0, command).end()
}

#[test]
fn torchrun_starts_nothing_as_one_node_where_there_are_four() {
    let abbreviated = torchrun_on_slurm(&["--nnode=4", "--node-rank=0"]).expect_code(121);
    abbreviated.expect("within 1s, none of the others joined (4 nodes)");
    let without = torchrun_on_slurm(&["--nproc-per-node=8"]).expect_code(121);
    without.expect(
        "torchrun without --nnodes starts a job of 1 node, and SLURM_STEP_NUM_NODES=4 contradicts it",
    );
    assert!(!started(&abbreviated) && !started(&without));
    assert!(started(&torchrun_on_slurm(&["--standalone"]).expect_code(0)));
}
