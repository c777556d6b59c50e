//! Tests jobs without any problem.

use std::process::{Child, Command};
use std::thread::available_parallelism;

use serde_json::Value;

use super::faults::{document, of_kind, run};
use super::job::{Ended, Job, Node};
use crate::support::namespace::can_be_made;
use crate::support::nodes::Nodes;

/// How many jobs run beside other work, unless the variable sets another number.
const BESIDE_OTHERS: usize = 2;
const VARIABLE: &str = "RDMA_INIT_TEST_SOUND";

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
fn without_a_token_each_node_says_that_it_accepts_any_process() {
    let job = Job::of(2);
    let nodes = [0, 1].map(|node| {
        let mut command = job.command(node, &[]);
        command.env_remove("RDMA_INIT_TOKEN");
        Node::start(node, command)
    });
    for node in nodes {
        node.end().expect_code(0).expect("accepts any process as a node");
    }
}

#[test]
fn a_node_may_come_first_or_late() {
    let job = Job::of(3);
    let early = [job.start(2, &[]), job.start(1, &[])];
    early[0].wait_for("waiting for node 0 at 127.0.0.1:");
    let zero = job.start(0, &[]);
    for node in early.into_iter().chain([zero]) {
        node.end().expect_code(0);
    }
}

/// A process that uses all the CPU time that it can get.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `RDMA_INIT_TEST_SOUND=30 cargo test --test suite preflight::sound -- --nocapture` runs more of them.
#[test]
fn on_a_machine_that_other_work_keeps_busy_no_node_is_named() {
    if !can_be_made() {
        return;
    }
    let count = std::env::var(VARIABLE).ok().and_then(|count| count.parse().ok()).unwrap_or(BESIDE_OTHERS);
    let processors = available_parallelism().map_or(2, usize::from);
    for number in 0..count {
        let (nodes, rails) = ([4, 6, 8, 3][number % 4], 1 + number % 2);
        // A node that never had a processor while it was measured is slow once, and another one in the next job. What is
        // slow by itself is so in each.
        let names_a_node = |_| {
            let made = Nodes::new(nodes as usize, rails + 1);
            let others: Vec<Busy> = (0..processors * 2).map(|_| Busy::start()).collect();
            let ended = run(&made, &Job::of(nodes), rails, &[]);
            drop(others);
            let document = document(&ended[0]).unwrap();
            println!("{nodes} nodes, {rails} rails: {} s", document["seconds"]);
            assert!(of_kind(&document, "faults").is_empty(), "{document:#}");
            ended.into_iter().for_each(|ended: Ended| drop(ended.expect_code(0)));
            // A link between two nodes may be slow when it is measured.
            let slow = document["slow"].as_array().unwrap();
            slow.iter().find(|slow| slow["kind"] != "link").cloned()
        };
        let named: Vec<Value> = (0..3).map_while(names_a_node).collect();
        assert!(named.len() < 3, "{named:#?}");
    }
}
