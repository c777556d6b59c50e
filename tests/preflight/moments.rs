//! Tests nodes that die or hang at random moments, which are calls of the system: node 0 reaches a verdict, and it names
//! only this node.
//! `RDMA_INIT_TEST_MOMENTS=200 cargo test --test suite preflight::moments -- --nocapture` tries more of them.

use std::fmt::{Display, Formatter};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::job::{Ended, Job, Node};
use crate::support::faults::{Place, call_of, fail, strike};
use crate::support::namespace::can_be_made;
use crate::support::nodes::Nodes;
use crate::support::{binary, poll_until};

const NODES: u32 = 8;

/// How many moments are tested, unless the variable sets another number.
const MOMENTS: u64 = 12;
const VARIABLE: &str = "RDMA_INIT_TEST_MOMENTS";

/// How many jobs run at the same time.
const JOBS: u64 = 4;

/// Each node makes so many calls of a kind in every job. How many more there are depends on how busy the machine is.
const CALLS: usize = 20;

/// The result of one moment.
struct Moment {
    signal: Signal,
    at: Place,
    node: u32,
    code: Option<i32>,
}

impl Display for Moment {
    fn fmt(&self, to: &mut Formatter) -> std::fmt::Result {
        let Moment { signal, at, node, code } = self;
        write!(to, "{signal} to node {node} at {} {at:?}: {code:?}", call_of(*at).1)
    }
}

/// Runs a job of nodes with two interfaces over TCP. One of the nodes has this filter. Returns how node 0 ended, and how
/// the others did.
fn run(nodes: &Nodes, filtered: u32, install: impl FnOnce() + Send) -> (Ended, Vec<Ended>) {
    let job = Job::of(NODES);
    let start = &|node: u32| {
        let mut command = job.command_in(nodes, node, &["--wait", "60s", "--json"]);
        command.env("NCCL_SOCKET_IFNAME", "eth");
        Node::start(node, command)
    };
    std::thread::scope(|scope| {
        let (over, is_over) = channel::<()>();
        // The filter is that of a thread. The node ends with its thread.
        scope.spawn(move || {
            install();
            let _node = start(filtered);
            let _ = is_over.recv();
        });
        let mut all = (0..NODES).filter(|node| *node != filtered).map(start).collect::<Vec<_>>().into_iter();
        let ended = (all.next().expect("node 0").end(), all.map(Node::end).collect());
        drop(over);
        ended
    })
}

/// Sends this signal to one of the nodes at this call of the system.
fn job(nodes: &Nodes, node: u32, signal: Signal, at: Place) -> Moment {
    let (zero, others) = run(nodes, node, strike(&binary(), at, signal as i32));
    let code = zero.code;
    match code {
        // The node had nothing left to do, or its process with this number was another one.
        Some(0) => {}
        _ => names(&zero.expect_code(1), node),
    }
    for other in others {
        assert_eq!(other.code, code, "{}, {signal} to node {node} at {at:?}", other.name);
    }
    Moment { signal, at, node, code }
}

/// Returns the calls of a node that its job makes in any case.
fn places() -> Vec<Place> {
    // The filter makes the node slow; on a busy machine, it may be too late.
    let mut places = poll_until("a job that nothing strikes passes", || {
        let (install, calls) = fail(&binary(), None);
        let (zero, _) = run(&Nodes::new(NODES as usize, 2), 1, install);
        let places = calls.recv().expect("the filter has gone with the node");
        (zero.code == Some(0)).then_some(places)
    });
    places.retain(|place| place.nth < CALLS);
    places
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
    let (next, done, places) = (AtomicU64::new(0), Mutex::new(Vec::new()), places());
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
                    let at = places[random.usize(..places.len())];
                    let moment = job(&nodes, random.u32(1..NODES), signal, at);
                    println!("{moment}");
                    done.lock().unwrap().push(moment);
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    assert_eq!(done.len() as u64, count);
    assert!(done.iter().any(|moment| moment.code == Some(1)), "no signal did anything");
}
