//! Tests how node 0 judges measured figures that arrive over its own protocol. The nodes are thin: they
//! join, report made-up figures for the pairs that they must test, and receive the verdict. So their ports
//! can have rates that no interface of a test machine has.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rdma_init::preflight::judge::culprit;
use rdma_init::preflight::judge::judging::{Limits, collect_inputs};
use rdma_init::preflight::judge::outliers;
use rdma_init::preflight::judge::verdict::judge;
use rdma_init::preflight::meet::message::{Order, ToNode, ToZero, Told};
use rdma_init::preflight::meet::zero::Zero;
use rdma_init::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};
use rdma_init::wire::listen::Listener;
use serde_json::{Value, json};

use super::job::Job;
use super::stranger::Stranger;

/// The figures of every rail without a problem.
const SOUND: Measured = Measured { latency_us: 2.4, gbps: 390.0 };
const RATE: f32 = 400.0;

/// Returns the figures that two nodes measure on a rail.
type Measures = fn([u32; 2], u16) -> Measured;

struct Case {
    name: &'static str,
    nodes: u32,
    rails: u16,
    measures: Measures,
    /// For everything that is slow: the kind, the nodes, the rail, the figure, and what it is compared
    /// with.
    slow: Value,
}

fn slower(is_slow: bool, times: f32) -> Measured {
    Measured { gbps: if is_slow { SOUND.gbps / times } else { SOUND.gbps }, ..SOUND }
}

/// Follows node 0's orders as a thin node until it receives the verdict.
fn take_part(job: &Job, node: u32, case: &Case) {
    let mut stranger = Stranger::proven(job);
    let ToZero::Join(mut join) = stranger.joining(job, node, &format!("host{node}")) else { unreachable!() };
    join.rails = (0..case.rails).map(|rail| format!("mlx5_{rail}")).collect();
    join.rates = vec![RATE; case.rails.into()];
    "verbs".clone_into(&mut join.transport);
    stranger.channel.send(&ToZero::Join(join)).expect("node 0 is there");
    loop {
        match stranger.channel.receive(Duration::from_secs(60)).expect("node 0 is there") {
            ToNode::Prove(order) => {
                stranger.channel.send(&ToZero::Proved(reports(node, &order, case))).expect("node 0 is there");
            }
            ToNode::Waiting { .. } | ToNode::Working => stranger.stays(),
            ToNode::Verdict(_) => return,
            other => panic!("{other:?}"),
        }
    }
}

fn reports(node: u32, order: &Order, case: &Case) -> Vec<PairReport> {
    let of_pair = |round: u16, partner: u32| {
        let nodes = [node.min(partner), node.max(partner)];
        let rails = (0..case.rails).map(|rail| RailReport::new(rail, Ok((case.measures)(nodes, rail))));
        PairReport { round, node, partner, seconds: 0.1, outcome: PairOutcome::Rails(rails.collect()) }
    };
    order.pairs.iter().map(|with| of_pair(with.round, with.node)).collect()
}

/// Returns the document of a job. Its second tries are those that ship.
fn document(case: &Case) -> Value {
    let job = Job::of(case.nodes);
    let listener = Listener::on_port(job.port).unwrap();
    let terms = job.terms(Duration::from_secs(5));
    std::thread::scope(|scope| {
        (0..case.nodes).for_each(|node| {
            drop(scope.spawn({
                let job = &job;
                move || take_part(job, node, case)
            }));
        });
        let (own, _other) = UnixStream::pair().unwrap();
        let own = own.as_fd();
        let mut zero = Zero::new(&terms, listener).unwrap();
        zero.meet(own).unwrap();
        zero.prove(own).unwrap();
        let mut next = zero.heard().evidence.rounds();
        for _ in 0..culprit::MOST_TIMES {
            let evidence = &zero.heard().evidence;
            let again = culprit::next_rounds(evidence, &outliers::suspects(evidence, None));
            if again.is_empty() {
                break;
            }
            next += zero.again(next, &again, own).unwrap() as u16;
        }
        zero.settle();
        let inputs = collect_inputs(zero.heard(), Limits::default(), Duration::ZERO);
        let document = serde_json::to_value(judge(&zero.heard().evidence, &inputs)).unwrap();
        zero.tell(|_| Told { passed: true, line: String::new(), reason: None }, own);
        document
    })
}

#[test]
fn what_is_slow_is_named_and_nothing_else() {
    let cases = [
        Case { name: "sound", nodes: 6, rails: 2, measures: |_, _| SOUND, slow: json!([]) },
        Case {
            name: "a port that trained to a quarter of its rate",
            nodes: 6,
            rails: 2,
            measures: |nodes, rail| slower(rail == 1 && nodes.contains(&2), 4.0),
            slow: json!([["node", [2], 1, "gbps", "others"]]),
        },
        Case {
            name: "node 0 with a port that trained to a quarter of its rate, of three nodes",
            nodes: 3,
            rails: 1,
            measures: |nodes, _| slower(nodes.contains(&0), 4.0),
            slow: json!([["node", [0], 0, "gbps", "others"]]),
        },
        Case {
            name: "two nodes below half of their ports' rate",
            nodes: 2,
            rails: 1,
            measures: |_, _| slower(true, 2.5),
            slow: json!([["link", [0, 1], 0, "gbps", "rate"]]),
        },
        Case {
            name: "all nodes below half of their ports' rate",
            nodes: 5,
            rails: 1,
            measures: |_, _| slower(true, 2.5),
            slow: json!([["rail", [], 0, "gbps", "rate"]]),
        },
        Case {
            name: "one of two rails, everywhere",
            nodes: 4,
            rails: 2,
            measures: |_, rail| slower(rail == 1, 2.2),
            slow: json!([["rail", [], 1, "gbps", "rate"]]),
        },
        Case {
            name: "a node whose answers are late",
            nodes: 6,
            rails: 2,
            measures: |nodes, _| Measured {
                latency_us: if nodes.contains(&4) { 14.4 } else { 2.4 },
                ..SOUND
            },
            slow: json!([["node", [4], 0, "latency_us", "others"], ["node", [4], 1, "latency_us", "others"]]),
        },
        Case {
            name: "two slow nodes of four",
            nodes: 4,
            rails: 1,
            measures: |nodes, _| slower(nodes.contains(&1) || nodes.contains(&3), 3.0),
            slow: json!([["node", [1], 0, "gbps", "others"], ["node", [3], 0, "gbps", "others"]]),
        },
        Case {
            name: "a slow link",
            nodes: 6,
            rails: 1,
            measures: |nodes, _| slower(nodes == [2, 3], 4.0),
            slow: json!([["link", [2, 3], 0, "gbps", "others"]]),
        },
    ];
    for case in &cases {
        let document = document(case);
        let of_slow =
            |slow: &Value| json!([slow["kind"], slow["nodes"], slow["rail"], slow["figure"], slow["basis"]]);
        let slow: Vec<Value> = document["slow"].as_array().unwrap().iter().map(of_slow).collect();
        assert_eq!(json!(slow), case.slow, "{}: {:#}", case.name, document["slow"]);
        assert_eq!(document["faults"], json!([]), "{}", case.name);
    }
}
