//! Who else comes to the port of a job, and nodes that do not keep to the protocol.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};

use rdma_init::preflight::message::{ToNode, ToZero};
use rdma_init::preflight::pair::{PairFailure, PairOutcome, PairReport};

use super::job::{Job, Node};
use super::stranger::{Stranger, connect};

#[test]
fn somebody_else_at_the_port_is_sent_away() {
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

#[test]
fn a_second_job_cannot_listen_at_the_same_port() {
    let job = Job::of(2);
    let listener = TcpListener::bind(job.meet()).unwrap();
    job.start(0, &[]).end().expect_code(1).expect("give all nodes of this one another port");
    drop(listener);
}

#[test]
fn two_nodes_with_one_index_are_told_so() {
    let job = Job::of(3);
    let (zero, one) = (job.start(0, &[]), job.start(1, &[]));
    let mut first = Stranger::proven(&job);
    first.join(&job, 2, "node2");
    assert!(zero_has(&mut first), "node 0 waits or begins");
    let second = job.start(2, &[]).end().expect_code(1);
    second.expect("two nodes have the index 2: node2 at 127.0.0.1:");
    drop(first);
    let _ = (zero, one);
}

/// Whether node 0 has taken the node: it says something, and that is no refusal.
fn zero_has(stranger: &mut Stranger) -> bool {
    let said = stranger.channel.receive(std::time::Duration::from_secs(30));
    matches!(said, Ok(ToNode::Waiting { .. } | ToNode::Prove { .. } | ToNode::Working))
}

#[test]
fn nodes_that_expect_another_job_are_told_so() {
    let job = Job::of(2);
    let zero = job.start(0, &[]);
    let larger = Job { nodes: 3, port: job.port };
    larger.start(2, &[]).end().expect_code(1).expect("it expects 3 nodes, and node 0 expects 2");
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
fn half_a_message_and_one_that_is_too_long_cost_nobody_else_anything() {
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
    zero.wait_for("gone has come");
    drop(gone);
    let others = [job.start(1, &[]), job.start(2, &[])];
    for node in others.into_iter().chain([zero]) {
        node.end().expect_code(0);
    }
}

#[test]
fn what_a_node_says_of_pairs_that_nobody_asked_for_counts_nothing() {
    let job = Job::of(2);
    let zero = job.start(0, &["--json"]);
    let mut liar = Stranger::proven(&job);
    liar.join(&job, 1, "liar");
    loop {
        match liar.channel.receive(std::time::Duration::from_secs(30)).expect("node 0 is there") {
            ToNode::Prove { .. } => break,
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
    liar.channel.send(&ToZero::Proved { reports: vec![report(777), report(0)], more: false }).unwrap();
    drop(liar);
    let ended = zero.end().expect_code(1);
    ended.expect("liar (node 1) has left");
    assert!(!ended.said().contains("777"), "{ended:#?}");
}
