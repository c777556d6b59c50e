//! Tests other processes that connect to the port of a job, and nodes that violate the protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::Command;

use rdma_init::preflight::meet::message::{ToNode, ToZero};
use rdma_init::preflight::prove::pair::{PairFailure, PairOutcome, PairReport};
use rdma_init::preflight::who::own::Network;

use super::job::{Job, Node, has_names};
use super::stranger::{Stranger, connect};

#[test]
fn another_program_at_the_port_is_rejected() {
    let job = Job::of(2);
    let zero = job.start(0, &[]);
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{\"Greeting\":", b""] {
        let mut stream = connect(&job);
        stream.write_all(said).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read(&mut [0; 100]);
    }
    let one = job.start(1, &[]);
    one.end().expect_code(0);
    zero.end()
        .expect_code(0)
        .expect("is not an rdma-init preflight, or is one of another version: it sent \"GET /");
}

#[test]
fn a_job_with_another_token_at_the_same_port_is_told_so() {
    let job = Job::of(2);
    let zero = job.start(0, &[]);
    drop(connect(&job));
    let mut command = job.command(1, &[]);
    command.env("RDMA_INIT_TOKEN", "a secret of another job");
    let other = Node::start(1, command).end().expect_code(1);
    other.expect("does not have the same token as this node");
    assert!(!other.said().contains("secret"), "{other:#?}");
    job.start(1, &[]).end().expect_code(0);
    zero.end().expect_code(0).expect("does not have the same token as this node");
}

/// Starts node 0 of a job, which writes its document and its page, and another process that takes part and
/// is rejected. Expects that the FAILED line of the missing node gives this reason.
#[track_caller]
fn is_missing_because(missing: u32, other: impl FnOnce(&Job) -> Command, why: &str, fix: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [document, page] = ["json", "html"].map(|name| folder.path().join(name));
    let job = Job::of(2);
    let (json, html) = (document.to_str().unwrap(), page.to_str().unwrap());
    let zero = job.start(0, &["--wait", "20s", "--json-file", json, "--html", html]);
    Node::start(1, other(&job)).end().expect_code(1);
    let ended = zero.end().expect_code(1);
    let line = format!("FAILED   node {missing} did not join within 20s: ");
    let line = ended.stdout.lines().find(|said| said.trim_start().starts_with(&line));
    assert!(line.is_some_and(|line| line.contains(why)), "{ended:#?}");
    let parsed: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&document).unwrap()).unwrap();
    let shown_fix = parsed["faults"][0]["fix"].as_str().unwrap();
    assert!(shown_fix.starts_with(fix), "{shown_fix}");
    assert!(!parsed["warnings"].to_string().contains(why), "it is told once: {parsed:#}");
    for text in [document, page].map(|path| std::fs::read_to_string(path).unwrap()) {
        assert!(text.contains(why) && text.contains("rejected: "), "{text}");
    }
}

#[test]
fn what_keeps_a_node_out_stands_beside_its_absence() {
    let with_token = |token: &'static str| {
        move |job: &Job| {
            let mut command = job.command(1, &[]);
            command.env("RDMA_INIT_TOKEN", token);
            command
        }
    };
    is_missing_because(
        1,
        with_token("a secret of another job"),
        "it does not have the token of node 0",
        "Set the same RDMA_INIT_TOKEN on all nodes",
    );
    let of_three = |job: &Job| Job { nodes: 3, port: job.port }.command(1, &[]);
    let fix = "Give all nodes the same number of nodes";
    is_missing_because(1, of_three, "it expects 3 nodes, but node 0 expects 2", fix);
}

#[test]
fn a_second_job_cannot_listen_at_the_same_port() {
    let job = Job::of(2);
    let listener = TcpListener::bind(job.meet()).unwrap();
    job.start(0, &[]).end().expect_code(1).expect("give all nodes of this one another port");
    drop(listener);
}

#[test]
fn two_nodes_with_one_index_are_told_so() {
    if !has_names() {
        return;
    }
    let job = Job::of(3);
    let (zero, one) = (job.start(0, &["--log-level", "debug"]), job.start(1, &[]));
    // Otherwise node 0 would wait for the node after it has gone.
    zero.wait_for("node1 has joined");
    let mut first = Stranger::proven(&job);
    first.join(&job, 2, "node2");
    assert!(zero_has(&mut first), "node 0 waits or begins");
    let second = job.start(2, &[]).end().expect_code(1);
    second.expect("two nodes have the index 2: node2 at 127.0.0.1:");
    second.expect(". Give each node its own index");
    drop(first);
    drop(one);
    let ended = zero.end().expect_code(1);
    ended.expect("two nodes joined with the index 2: node2 at 127.0.0.1:");
    ended.expect("neither is trusted over the other");
}

/// Returns whether node 0 has accepted the node: it answers, and does not refuse.
fn zero_has(stranger: &mut Stranger) -> bool {
    let said = stranger.channel.receive(std::time::Duration::from_secs(30));
    matches!(said, Ok(ToNode::Waiting { .. } | ToNode::Prove(_) | ToNode::Working))
}

/// The node 0 of this job uses the interfaces of this machine.
#[test]
fn a_job_in_which_one_node_would_use_verbs_tests_no_pair() {
    let job = Job::of(2);
    let zero = job.start(0, &["--json"]);
    let mut other = Stranger::proven(&job);
    let ToZero::Join(mut join) = other.joining(&job, 1, "with-rdma") else { unreachable!() };
    join.network = Network::Verbs("mlx5_0:1".to_owned());
    other.channel.send(&ToZero::Join(join)).expect("node 0 is there");
    let told = loop {
        match other.channel.receive(std::time::Duration::from_secs(30)).expect("node 0 is there") {
            ToNode::Verdict(told) => break told,
            ToNode::Waiting { .. } | ToNode::Working => other.stays(),
            unexpected => panic!("{unexpected:?}"),
        }
    };
    let said = "NCCL will use verbs on 1 of 2 nodes (with-rdma: mlx5_0:1) and sockets on 1 (";
    assert!(!told.passed && told.reason.is_some_and(|reason| reason.contains(said)), "{}", told.line);
    let document: serde_json::Value = serde_json::from_str(&zero.end().expect_code(1).stdout).unwrap();
    let [fault] = &document["faults"].as_array().unwrap()[..] else { panic!("{document:#}") };
    assert_eq!((&fault["kind"], &fault["nodes"]), (&"mixed-transports".into(), &serde_json::json!([0])));
    assert_eq!((&document["pairs_tried"], &document["exclude"]), (&0.into(), &serde_json::json!([])));
}

#[test]
fn nodes_that_expect_another_job_are_told_so() {
    let job = Job::of(2);
    let zero = job.start(0, &[]);
    let larger = Job { nodes: 3, port: job.port };
    larger
        .start(2, &[])
        .end()
        .expect_code(1)
        .expect("it expects 3 nodes, but node 0 expects 2. Give all nodes the same number of nodes");
    job.start(1, &[]).end().expect_code(0);
    zero.end().expect_code(0);
}

#[test]
fn another_version_is_told_so() {
    let job = Job::of(2);
    let listener = TcpListener::bind(job.meet()).unwrap();
    let one = job.start(1, &[]);
    let (mut stream, _) = listener.accept().unwrap();
    let old = "{\"Greeting\":{\"schema\":\"rdma-init/preflight-meeting/0\",\"program\":\"0.0.9\",\
               \"nonce\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}}\n";
    stream.write_all(old.as_bytes()).unwrap();
    one.end().expect_code(1).expect("runs rdma-init 0.0.9 with the protocol rdma-init/preflight-meeting/0");
}

#[test]
fn partial_and_oversized_messages_affect_no_other_node() {
    let job = Job::of(2);
    let zero = job.start(0, &[]);
    let half = Stranger::proven(&job);
    let text = serde_json::to_string(&half.joining(&job, 1, "half")).unwrap();
    let mut stream = half.channel.connection().stream();
    stream.write_all(&text.as_bytes()[..text.len() / 2]).unwrap();
    drop(half);
    let long = Stranger::proven(&job);
    let mut stream = long.channel.connection().stream();
    // Node 0 closes the connection at some point.
    let _ = (0..300).try_for_each(|_| stream.write_all(&[b'0'; 1024]));
    let one = job.start(1, &[]);
    one.end().expect_code(0);
    zero.end().expect_code(0);
}

#[test]
fn a_node_that_joins_and_closes_is_missing_until_it_comes_again() {
    let job = Job::of(3);
    let zero = job.start(0, &["--log-level", "debug"]);
    let mut gone = Stranger::proven(&job);
    gone.join(&job, 1, "gone");
    zero.wait_for("gone has joined");
    drop(gone);
    zero.wait_for("gone has disconnected");
    let others = [job.start(1, &[]), job.start(2, &[])];
    for node in others.into_iter().chain([zero]) {
        node.end().expect_code(0);
    }
}

/// The node is alive but does not report its pair: the verdict names it with what it owes, and the job does
/// not pass.
#[test]
fn a_node_with_unreported_pairs_is_named_with_their_number() {
    let job = Job::of(2);
    let zero = job.start(0, &["--json", "--each", "1s"]);
    let mut busy = Stranger::proven(&job);
    busy.join(&job, 1, "busy");
    let told = loop {
        match busy.channel.receive(std::time::Duration::from_secs(30)).expect("node 0 is there") {
            ToNode::Verdict(told) => break told,
            ToNode::Prove(_) | ToNode::Waiting { .. } | ToNode::Working => {
                busy.channel.send(&ToZero::Alive).expect("node 0 is there");
            }
            other => panic!("{other:?}"),
        }
    };
    let owes = "busy owes 1 of its 1 pair";
    assert!(!told.passed && told.reason.is_some_and(|reason| reason.contains(owes)), "{}", told.line);
    let ended = zero.end().expect_code(1);
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let owing = document["faults"].as_array().unwrap().iter().find(|fault| fault["kind"] == "owes");
    assert!(owing.is_some_and(|fault| fault["nodes"] == serde_json::json!([1])), "{document:#}");
    assert_eq!((&document["pairs_scheduled"], &document["pairs_tried"]), (&1.into(), &1.into()));
}

#[test]
fn reports_about_unrequested_pairs_are_ignored() {
    let job = Job::of(2);
    let zero = job.start(0, &["--json"]);
    let mut liar = Stranger::proven(&job);
    liar.join(&job, 1, "liar");
    loop {
        match liar.channel.receive(std::time::Duration::from_secs(30)).expect("node 0 is there") {
            ToNode::Prove(_) => break,
            ToNode::Waiting { .. } | ToNode::Working => {}
            other => panic!("{other:?}"),
        }
    }
    let report = |round| PairReport {
        round,
        node: 1,
        partner: 0,
        seconds: 0.0,
        outcome: PairOutcome::Failed(PairFailure::Refused(format!("round {round}"))),
    };
    liar.channel.send(&ToZero::Proved(vec![report(777), report(0)])).unwrap();
    drop(liar);
    let ended = zero.end().expect_code(1);
    ended.expect("liar (node 1) disconnected");
    assert!(!ended.said().contains("round 777"), "{ended:#?}");
}
