//! Tests nodes that die or hang at random moments: node 0 reaches a verdict, and it names only this node.
//! `RDMA_INIT_TEST_MOMENTS=200 cargo test --test suite preflight::moments -- --nocapture` tries more of them.

use std::fmt::{Display, Formatter};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::job::{Ended, Job, Node};
use crate::support::namespace::can_be_made;
use crate::support::nodes::Nodes;

const NODES: u32 = 8;

/// How many moments are tested, unless the variable sets another number.
const MOMENTS: u64 = 12;
const VARIABLE: &str = "RDMA_INIT_TEST_MOMENTS";

/// How many jobs run at the same time.
const JOBS: u64 = 4;

/// In milliseconds after the start; many jobs are over by then.
const LATEST: u64 = 5000;

/// The result of one moment.
struct Moment {
    signal: Signal,
    after: Duration,
    node: u32,
    took: Duration,
    code: Option<i32>,
}

impl Display for Moment {
    fn fmt(&self, to: &mut Formatter) -> std::fmt::Result {
        let Moment { signal, after, node, took, code } = self;
        write!(to, "{signal} to node {node} after {after:?}: {code:?} after {took:.1?}")
    }
}

/// Runs a job of nodes with two interfaces over TCP. One of the nodes gets this signal.
fn job(nodes: &Nodes, node: u32, signal: Signal, after: Duration) -> Moment {
    let job = Job::of(NODES);
    let started = Instant::now();
    let start = |node: u32| {
        let options = ["--wait", "20s", "--json"];
        let mut command = job.command_in(nodes, node, &options);
        command.env("NCCL_SOCKET_IFNAME", "eth");
        Node::start(node, command)
    };
    let all: Vec<Node> = (0..NODES).map(start).collect();
    std::thread::sleep(after.saturating_sub(started.elapsed()));
    all[node as usize].signal(signal);
    let mut all = all.into_iter().zip(0..);
    let zero: Ended = all.next().expect("node 0").0.end();
    let took = started.elapsed();
    let code = zero.code;
    match code {
        // The signal came too late.
        Some(0) => {}
        _ => names(&zero.expect_code(1), node),
    }
    for (other, number) in all {
        if number != node {
            assert_eq!(other.end().code, code, "node {number}, {signal} to node {node} after {after:?}");
        }
    }
    Moment { signal, after, node, took, code }
}

/// Expects that the verdict names only this node. A node that got the signal early never joined, and has no
/// name.
#[track_caller]
fn names(zero: &Ended, node: u32) {
    let document: Value = serde_json::from_str(&zero.stdout).unwrap();
    let faults = document["faults"].as_array().unwrap();
    let is_of_node = |fault: &&Value| fault["nodes"] == serde_json::json!([node]);
    let is_fault = |fault: &&Value| fault["kind"] != "unsteady";
    assert!(faults.iter().any(|fault| is_of_node(&fault)), "no node {node} in {faults:#?}");
    let others: Vec<&Value> = faults.iter().filter(is_fault).filter(|fault| !is_of_node(fault)).collect();
    assert!(others.is_empty(), "besides node {node}: {others:#?}");
}

#[test]
fn a_node_that_dies_or_hangs_at_any_moment_is_named_in_time() {
    if !can_be_made() {
        return;
    }
    let count = std::env::var(VARIABLE).ok().and_then(|count| count.parse().ok()).unwrap_or(MOMENTS);
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..JOBS.min(count) {
            scope.spawn(|| {
                let nodes = Nodes::new(NODES as usize, 2);
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= count {
                        break;
                    }
                    let mut random = fastrand::Rng::with_seed(seed);
                    let signal = if seed % 2 == 0 { Signal::SIGKILL } else { Signal::SIGSTOP };
                    let after = Duration::from_millis(random.u64(200..LATEST));
                    let moment = job(&nodes, random.u32(1..NODES), signal, after);
                    println!("{moment}");
                    done.lock().unwrap().push(moment);
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(done.len() as u64, count);
    assert!(done.iter().any(|moment| moment.code == Some(1)), "all came too late");
}
