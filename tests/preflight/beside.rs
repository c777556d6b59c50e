//! Tests 64 honest nodes beside an attacker that has the token: either the verdict is right, or it names
//! the attacker's node. The nodes are thin: they join, report their pairs, and receive the verdict.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rdma_init::preflight::judge::judging::{Limits, collect_inputs};
use rdma_init::preflight::judge::verdict::judge;
use rdma_init::preflight::meet::message::{Order, ToNode, ToZero, Told};
use rdma_init::preflight::meet::node::ALIVE;
use rdma_init::preflight::meet::zero::Zero;
use rdma_init::preflight::prove::pair::{Measured, PairFailure, PairOutcome, PairReport, RailReport};
use rdma_init::wire::listen::Listener;
use rdma_init::wire::listen::allow_connections;

use super::job::Job;
use super::stranger::{Stranger, connect};

const HONEST: u32 = 64;
const ATTACKER: u32 = HONEST;

/// What the attacker does with its pairs and with everything else it knows.
type Attack = fn(&Job, &mut Stranger, &Order);

fn passed() -> PairOutcome {
    PairOutcome::Rails(vec![RailReport::new(0, Ok(Measured { latency_us: 20.0, gbps: 10.0 }))])
}

/// Returns a node's reports about all of its pairs.
fn reports(node: u32, order: &Order, outcome: &PairOutcome) -> Vec<PairReport> {
    let of = |(round, partner)| PairReport { round, node, partner, seconds: 0.1, outcome: outcome.clone() };
    order.pairs.iter().map(|with| of((with.round, with.node))).collect()
}

fn report(stranger: &mut Stranger, reports: Vec<PairReport>) {
    // Node 0 may have closed the connection of an attacker.
    let _ = stranger.channel.send(&ToZero::Proved(reports));
}

/// Runs node 0 of the job. Returns whether the job passes, which nodes are faulty, and the reason.
fn zero(job: &Job, listener: Listener) -> (bool, Vec<u32>, String) {
    let terms = job.terms(Duration::ZERO);
    let (own, _other) = UnixStream::pair().unwrap();
    let mut zero = Zero::new(&terms, listener).unwrap();
    zero.meet(own.as_fd()).unwrap();
    zero.prove(own.as_fd()).unwrap();
    zero.settle();
    let inputs = collect_inputs(zero.heard(), Limits::default(), Duration::ZERO);
    let verdict = judge(&zero.heard().evidence, &inputs);
    let found = (verdict.passed, verdict.accused().to_vec(), verdict.reason().unwrap_or_default().to_owned());
    zero.tell(|_| Told { passed: found.0, line: String::new(), reason: None }, own.as_fd());
    found
}

/// Sends signs of life for these nodes while something is done, as each node does: a silent node would
/// count as hung.
fn alive<T>(nodes: &mut [Stranger], work: impl FnOnce() -> T) -> T {
    let (working, work_ends) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while work_ends.recv_timeout(ALIVE / 5) == Err(RecvTimeoutError::Timeout) {
                nodes.iter_mut().for_each(Stranger::stays);
            }
        });
        let done = work();
        drop(working);
        done
    })
}

fn beside(attack: Attack) -> (bool, Vec<u32>, String) {
    // Both ends of all connections are in this process.
    allow_connections(4096);
    let job = Job::of(HONEST + 1);
    let listener = Listener::on_port(job.port).unwrap();
    std::thread::scope(|scope| {
        let zero = scope.spawn(|| zero(&job, listener));
        let join = |node: u32| {
            let mut stranger = Stranger::proven(&job);
            stranger.join(&job, node, &format!("host{node}"));
            stranger
        };
        let mut honest = Vec::new();
        for node in 0..HONEST {
            let stranger = alive(&mut honest, || join(node));
            honest.push(stranger);
        }
        let mut attacker = alive(&mut honest, || join(ATTACKER));
        let order = attacker.order();
        alive(&mut honest, || attack(&job, &mut attacker, &order));
        for (node, stranger) in (0..).zip(&mut honest) {
            let order = stranger.order();
            report(stranger, reports(node, &order, &passed()));
        }
        for stranger in &mut honest {
            loop {
                match stranger.channel.receive(Duration::from_secs(60)).expect("node 0 is there") {
                    ToNode::Verdict(_) => break,
                    ToNode::Waiting { .. } | ToNode::Working | ToNode::Gone { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        drop((honest, attacker));
        zero.join().unwrap()
    })
}

#[test]
fn reports_for_others_and_floods_change_nothing() {
    let (has_passed, accused, reason) = beside(|job, attacker, order| {
        let failed = PairOutcome::Failed(PairFailure::Silent);
        // Reports about other nodes, about pairs of other nodes, and about rounds that do not exist.
        for node in 0..HONEST {
            report(attacker, reports(node, order, &failed));
        }
        let of = |round, partner| PairReport {
            round,
            node: ATTACKER,
            partner,
            seconds: 0.1,
            outcome: PairOutcome::Failed(PairFailure::Silent),
        };
        let own: Vec<(u16, u32)> = order.pairs.iter().map(|with| (with.round, with.node)).collect();
        let others = (0..100).flat_map(|round| (0..HONEST).map(move |partner| (round, partner)));
        let others: Vec<PairReport> =
            others.filter(|half| !own.contains(half)).map(|(round, partner)| of(round, partner)).collect();
        others.chunks(100).for_each(|some| report(attacker, some.to_vec()));
        // Connections that send nothing, and some that only prove that they have the token.
        let silent: Vec<_> = (0..600).map(|_| connect(job)).collect();
        attacker.stays();
        let proven = (0..20).map(|_| Stranger::proven(job)).inspect(|_| attacker.stays());
        let proven: Vec<_> = proven.collect();
        report(attacker, reports(ATTACKER, order, &passed()));
        drop((silent, proven));
    });
    assert!(has_passed && accused.is_empty(), "{reason}");
}

#[test]
fn a_node_that_fails_with_all_others_is_the_only_one_named() {
    let (passed, accused, reason) = beside(|_, attacker, order| {
        let failed = PairOutcome::Rails(vec![RailReport::new(0, Err("no answer".to_owned()))]);
        report(attacker, reports(ATTACKER, order, &failed));
    });
    assert_eq!((passed, accused), (false, vec![ATTACKER]), "{reason}");
}

#[test]
fn a_node_that_reports_impossible_figures_is_the_only_one_named() {
    let (passed, accused, reason) = beside(|_, attacker, order| {
        let rail = RailReport::new(0, Ok(Measured { latency_us: 20.0, gbps: 3e38 }));
        report(attacker, reports(ATTACKER, order, &PairOutcome::Rails(vec![rail])));
    });
    assert_eq!((passed, accused), (false, vec![ATTACKER]), "{reason}");
    assert!(reason.contains("it reports something impossible: 3e38 Gbit/s in 2e1 us"), "{reason}");
}
