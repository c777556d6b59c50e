use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::preflight::judge::evidence::Debt;
use crate::preflight::prove::pair::{PairFailure, PairOutcome, PairReport};
use crate::preflight::who::own::Network;
use crate::wire::Channel;
use crate::wire::channel::channels;

/// Makes nodes members, and returns their ends.
fn with_nodes(zero: &mut Zero, nodes: u32) -> Vec<Channel> {
    let join = |node| {
        let [ours, its] = channels();
        zero.hub.admit(ours, node, JoinedNode { address: None, port: 1 }).unwrap();
        zero.ledger.join(node);
        its
    };
    (0..nodes).map(join).collect()
}

#[test]
fn only_reports_about_requested_pairs_count() {
    let terms = terms();
    let mut zero = Zero::new(&terms, Listener::on_port(0).unwrap()).unwrap();
    let _others = with_nodes(&mut zero, 3);
    zero.ledger.order([(0, 0, 1), (1, 0, 2)]);
    zero.heard.evidence = Evidence::new(vec![Member::default(); 3], 2);
    let failed = || PairOutcome::Failed(PairFailure::Silent);
    let report = |node, round, partner| PairReport { round, node, partner, seconds: 1.0, outcome: failed() };
    let reports = vec![report(1, 0, 0), report(0, 1, 1), report(0, 0, 1), report(0, 0, 1)];
    zero.take(0, ToZero::Proved(reports)).unwrap();
    let tries = zero.heard.evidence.tries();
    let [one] = tries else { panic!("{tries:?}") };
    assert_eq!((one.round, one.nodes, one.said.iter().flatten().count()), (0, [0, 1], 1));
    assert_eq!(zero.ledger.debts().next(), Some((0, Debt { owed: 1, of: 2, is_late: false })));
}

fn terms() -> Terms<'static> {
    let wait = Duration::from_secs(60);
    Terms {
        nodes: 4,
        job: None,
        meet: String::new(),
        unresolved: None,
        wait,
        alone_after: None,
        until: Instant::now() + wait,
        token: "a token",
        extent: Extent::Doubling,
        times: Times { each: Duration::ZERO },
        names: &[],
        are_names_certain: false,
        left_out: &[],
        say: &|_| {},
        show: None,
    }
}

/// A node that was slow in a pair and has disconnected was chosen for retries. Those are skipped, and
/// node 0 waits for no node.
#[test]
fn second_tries_with_a_node_that_has_gone_are_over_at_once() {
    let terms = terms();
    let mut zero = Zero::new(&terms, Listener::on_port(0).unwrap()).unwrap();
    // Node 0's own process has ended, which would be an error if node 0 waited at all.
    let own = UnixStream::pair().unwrap().0;
    let _others = with_nodes(&mut zero, 3);
    zero.phase = JobPhase::Proving;
    zero.leaves(2, Gone::Left("it was killed".to_owned()));
    assert_eq!(zero.again(2, &[vec![(0, 2)], vec![(1, 2)]], own.as_fd()).unwrap(), 2);
}

/// One rail of each node carries verbs, and the others of this job carry TCP, so each pair would fail.
#[test]
fn nodes_with_different_networks_test_no_pair() {
    let terms = terms();
    let own = UnixStream::pair().unwrap().0;
    let orders = |networks: [Network; 3]| {
        let mut zero = Zero::new(&terms, Listener::on_port(0).unwrap()).unwrap();
        let _others = with_nodes(&mut zero, 3);
        for (node, network) in (0..).zip(networks) {
            zero.heard.nodes[node] = Some(Member { network, ..Member::default() });
        }
        zero.phase = JobPhase::Proving;
        // Node 0's own process has ended, which is an error once node 0 waits for a pair.
        zero.prove(own.as_fd()).is_err()
    };
    let (verbs, sockets) = (Network::Verbs("mlx5_0:1".to_owned()), Network::Sockets("x".to_owned()));
    assert!(!orders([verbs.clone(), sockets.clone(), sockets.clone()]));
    assert!(orders([sockets.clone(), Network::Unknown, sockets]));
    assert!(orders([verbs.clone(), Network::Unknown, verbs]));
}
