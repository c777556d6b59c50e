//! Tests jobs in which something goes wrong: only the faulty node is named, and no node hangs.

use nix::libc;
use nix::sys::signal::Signal;

use super::gate::Gate;
use super::job::{Job, Node, TOKEN, has_names};
use crate::support::poll_until;
use crate::support::process::rdma_init;
use crate::support::running::{children, send};

/// Starts a job of four nodes that is in the middle of its rounds: node 3 is stopped, and keeps the others
/// from finishing. Node 2 is running by then, and only has to join, because its start may take longer on a
/// busy machine than node 3 may be silent. `None`, with a message, if nodes cannot have their own host
/// names here.
fn in_the_middle() -> Option<Vec<Node>> {
    if !has_names() {
        return None;
    }
    let job = Job::of(4);
    let zero = job.start(0, &["--log-level", "debug"]);
    let (one, three) = (job.start(1, &[]), job.start(3, &[]));
    let gate = Gate::before(&job);
    let two = gate.job(&job).start(2, &[]);
    for node in ["node1", "node3"] {
        zero.wait_for(&format!("{node} has joined"));
    }
    let waiting = gate.wait();
    three.signal(Signal::SIGSTOP);
    waiting.let_through();
    zero.wait_for("the rounds have begun");
    Some(vec![zero, one, two, three])
}

#[test]
fn a_node_that_is_killed_in_the_middle_is_named() {
    let Some(mut nodes) = in_the_middle() else { return };
    let one = nodes.remove(1);
    one.signal(Signal::SIGKILL);
    assert_eq!(one.end().code, None);
    nodes[2].signal(Signal::SIGCONT);
    for node in nodes {
        node.end().expect_code(1).accuses(1, 4);
    }
}

#[test]
fn a_node_that_hangs_is_named() {
    let Some(mut nodes) = in_the_middle() else { return };
    let _three = nodes.remove(3);
    nodes[0].wait_for(" of 4 pairs are done, round ");
    for node in nodes {
        node.end().expect_code(1).accuses(3, 4);
    }
}

#[test]
fn a_node_that_never_joins_is_named() {
    let job = Job::of(4);
    for node in [0, 1, 3].map(|node| job.start(node, &["--wait", "20s"])) {
        let ended = node.end().expect_code(1);
        ended.expect("node 2");
        ended.expect("20s");
    }
}

#[test]
fn a_node_that_comes_and_dies_while_others_are_waited_for_is_said_to_have_left() {
    if !has_names() {
        return;
    }
    let job = Job::of(3);
    let zero = job.start(0, &["--wait", "60s", "--log-level", "debug"]);
    let one = job.start(1, &[]);
    zero.wait_for("node1 has joined");
    one.signal(Signal::SIGKILL);
    zero.wait_for("preflight: node1 has disconnected, and may reconnect: ");
    let ended = zero.end().expect_code(1);
    ended.expect("node1 (node 1) disconnected: ");
    ended.expect("node 2 did not join within 1m");
}

#[test]
fn nodes_end_when_node_0_dies_in_the_middle() {
    let Some(mut nodes) = in_the_middle() else { return };
    let zero = nodes.remove(0);
    zero.signal(Signal::SIGKILL);
    nodes[2].signal(Signal::SIGCONT);
    for node in nodes {
        node.end().expect_code(1).expect("node 0 disconnected, so there is no verdict");
    }
}

#[test]
fn nodes_end_when_node_0_never_comes() {
    let job = Job::of(2);
    let ended = job.start(1, &["--wait", "3s"]).end().expect_code(1);
    ended.expect(&format!(
        "this node did not reach node 0 at 127.0.0.1:{} within 3s (preflight-wait): of ",
        job.port
    ));
    ended.expect(" reached a port that refuses connections; the last one: cannot reach 127.0.0.1:");
    ended.expect("Connection refused (os error 111). Check that node 0 was started");
}

#[test]
fn nodes_end_when_node_0_hangs() {
    let Some(nodes) = in_the_middle() else { return };
    nodes[0].signal(Signal::SIGSTOP);
    nodes[3].signal(Signal::SIGCONT);
    for node in nodes.into_iter().skip(1) {
        node.end().expect_code(1).expect("node 0");
    }
}

#[test]
fn an_address_of_one_link_is_no_place_to_meet() {
    for node in ["0", "1"] {
        let arguments = ["preflight", "--nodes", "2", "--node", node, "--meet", "[fe80::1%lo]:18516"];
        let ended = Node::start(1, rdma_init(arguments)).end().expect_code(1);
        ended.expect("[fe80::1%lo]:18516 is valid on one link only");
    }
}

/// If what reads the network is lost, the process that becomes the command is not.
#[test]
fn a_preflight_whose_process_ends_has_no_verdict() {
    for (demand, code) in [("warn", 0), ("enforce", 121)] {
        let job = Job::of(2);
        let meet = job.meet();
        let key = ["--preflight", demand, "--preflight-nodes", "2", "--preflight-node", "0"];
        let mut command = rdma_init(key.iter().chain(&["--preflight-meet", &meet, "--", "true"]));
        command.env("RDMA_INIT_TOKEN", TOKEN);
        let node = Node::start(0, command);
        let receiver = poll_until("node 0 takes part", || {
            children(node.pid()).into_iter().find(|child| !children(*child).is_empty())
        });
        send(receiver, libc::SIGKILL);
        let ended = node.end().expect_code(code);
        assert!(ended.stderr.contains("the process that took part ended without a verdict"), "{ended:#?}");
    }
}
