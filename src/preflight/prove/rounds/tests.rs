//! A node 0 that violates the protocol.

use std::net::Ipv4Addr;

use super::*;
use crate::wire::channel::channels;

fn order(pairs: Vec<Partner>) -> Order {
    Order { first: 0, each_ms: 0, pairs }
}

fn after(messages: &[ToNode], change: impl Fn(&mut PairRounds)) -> anyhow::Result<Option<Told>> {
    heard(messages, change).0
}

fn has_more_after(messages: &[ToNode]) -> bool {
    heard(messages, |_| ()).1
}

/// Returns how node 3 of 4 reacts to these messages from node 0, and whether it must read more of them
/// right away.
fn heard(messages: &[ToNode], change: impl Fn(&mut PairRounds)) -> (anyhow::Result<Option<Told>>, bool) {
    let node = Node::node_3_of_4();
    let [mut zero, its] = channels();
    let listener = Listener::on_port(0).unwrap();
    let mut rounds = PairRounds::new(&node, its, &listener, Ipv4Addr::LOCALHOST.into(), &order(Vec::new()));
    change(&mut rounds);
    messages.iter().for_each(|message| zero.send(message).unwrap());
    (rounds.receive_from_node_0(), rounds.has_news())
}

#[test]
fn pairs_that_cannot_be_of_this_job_end_it() {
    let why =
        |pairs: Vec<Partner>| after(&[ToNode::Prove(order(pairs))], |_| ()).err().map(|why| why.to_string());
    assert_eq!(why(vec![Partner::in_round(0, 2), Partner::in_round(1, 1), Partner::in_round(2, 2)]), None);
    let start = "node 0 violates the protocol, so there is no verdict: it names";
    for (pairs, what) in [
        (vec![Partner::in_round(0, 4)], "node 4 of 4"),
        (vec![Partner::in_round(0, 3)], "this node as its own peer"),
        (vec![Partner::in_round(0, 2), Partner::in_round(0, 2)], "the pair with node 2 in round 0 twice"),
        ((0..520).map(|round| Partner::in_round(round, 2)).collect(), "more than 515 pairs"),
    ] {
        assert_eq!(why(pairs).as_deref(), Some(format!("{start} {what}").as_str()));
    }
}

#[test]
fn only_nodes_of_the_job_are_gone() {
    assert_eq!(after(&[ToNode::Gone { node: 2 }, ToNode::Gone { node: 2 }], |_| ()).unwrap(), None);
    let why = after(&[ToNode::Gone { node: 4 }], |_| ()).unwrap_err().to_string();
    assert!(why.ends_with("it says that node 4 of 4 has disconnected"), "{why}");
}

#[test]
fn a_node_0_that_only_says_that_it_works_is_not_waited_for_without_an_end() {
    let why = after(&[ToNode::Working], |rounds| rounds.end = Instant::now()).unwrap_err().to_string();
    assert!(why.starts_with("node 0 (node 0) has sent no verdict within "), "{why}");
}

#[test]
fn a_node_0_that_does_not_stop_to_send_does_not_keep_a_node_from_its_pairs() {
    let messages: Vec<ToNode> = (0..=MOST_AT_ONCE).map(|_| ToNode::Working).collect();
    assert!(has_more_after(&messages) && !has_more_after(&messages[2..]));
}

#[test]
fn a_verdict_is_as_long_as_it_may_be() {
    let line = "\u{e4}".repeat(20_000);
    let told = Told { passed: false, line: line.clone(), reason: Some(line) };
    let told = after(&[ToNode::Verdict(told)], |_| ()).unwrap().expect("a verdict");
    assert!(told.line.len() <= 16 * 1024 && told.reason.is_some_and(|reason| reason.len() <= 16 * 1024));
}
