use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::*;
use crate::compare::brief::Brief;
use crate::preflight::judge::evidence::Debt;
use crate::preflight::meet::message::{self, Join, ToZero};
use crate::preflight::prove::pair::{PairFailure, PairOutcome, PairReport};
use crate::preflight::who::addresses::Addresses;
use crate::preflight::who::own::Network;

/// Returns node 0's end of a connection, and the node's end.
pub(super) fn channels() -> [Channel; 2] {
    let (ours, its) = UnixStream::pair().unwrap();
    message::channels([ours, its].map(|stream| TcpStream::from(OwnedFd::from(stream))))
}

fn member(channel: Channel) -> JoinedNode {
    JoinedNode { channel, address: None, port: 1, heard: Instant::now() }
}

/// Returns the ledger of a job of three nodes, in which node 0 has two pairs to test.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    (0..3).for_each(|node| ledger.join(node));
    ledger.order([(0, 0, 1), (1, 0, 2)]);
    ledger
}

fn evidence() -> Evidence {
    Evidence::new(vec![Member::default(); 3], 2)
}

#[test]
fn a_node_that_never_stops_sending_is_dismissed() {
    let [ours, mut its] = channels();
    let mut member = member(ours);
    let mut hear = |its: &mut Channel, count: u16| {
        (0..count).for_each(|_| its.send(&ToZero::Alive).unwrap());
        member.hear(0, &mut ledger(), &mut evidence(), 10)
    };
    assert_eq!(hear(&mut its, 9), Ok(()));
    assert_eq!(hear(&mut its, 0), Ok(()));
    assert_eq!(hear(&mut its, 11), Err("it does not stop sending messages".to_owned()));
}

#[test]
fn only_reports_about_requested_pairs_count() {
    let [ours, mut its] = channels();
    let (mut member, mut ledger, mut evidence) = (member(ours), ledger(), evidence());
    let failed = || PairOutcome::Failed(PairFailure::Silent);
    let report = |node, round, partner| PairReport { round, node, partner, seconds: 1.0, outcome: failed() };
    let reports = vec![report(1, 0, 0), report(0, 1, 1), report(0, 0, 1), report(0, 0, 1)];
    its.send(&ToZero::Proved(reports)).unwrap();
    member.hear(0, &mut ledger, &mut evidence, 10).unwrap();
    let [one] = evidence.tries() else { panic!("{:?}", evidence.tries()) };
    assert_eq!((one.round, one.nodes, one.said.iter().flatten().count()), (0, [0, 1], 1));
    assert_eq!(ledger.debts().next(), Some((0, Debt { owed: 1, of: 2, is_late: false })));
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
    let (listener, terms) = (Listener::on_port(0).unwrap(), terms());
    let mut zero = Zero::new(&terms, &listener).unwrap();
    // Node 0's own process has ended, which would be an error if node 0 waited at all.
    let own = UnixStream::pair().unwrap().0;
    let mut others = Vec::new();
    for node in 0..3 {
        let [ours, its] = channels();
        zero.members.insert(node, member(ours));
        zero.ledger.join(node);
        others.push(its);
    }
    zero.phase = JobPhase::Proving;
    zero.leaves(2, Gone::Left("it was killed".to_owned()));
    assert_eq!(zero.again(2, &[vec![(0, 2)], vec![(1, 2)]], own.as_fd()).unwrap(), 2);
}

/// One rail of each node carries verbs, and the others of this job carry TCP, so each pair would fail.
#[test]
fn nodes_with_different_networks_test_no_pair() {
    let (listener, terms) = (Listener::on_port(0).unwrap(), terms());
    let own = UnixStream::pair().unwrap().0;
    let orders = |networks: [Network; 3]| {
        let mut zero = Zero::new(&terms, &listener).unwrap();
        let mut others = Vec::new();
        for (node, network) in (0..).zip(networks) {
            let [ours, its] = channels();
            zero.members.insert(node, member(ours));
            zero.ledger.join(node);
            zero.heard.nodes[node as usize] = Some(Member { network, ..Member::default() });
            others.push(its);
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

#[test]
fn the_node_with_the_longest_partial_message_is_dropped_first() {
    let listener = Listener::on_port(0).unwrap();
    let terms = terms();
    let until = terms.until;
    let mut zero = Zero::new(&terms, &listener).unwrap();
    zero.budget = BufferBudget::of_bytes(3500);
    let (own, _other) = UnixStream::pair().unwrap();
    let mut others = Vec::new();
    for (node, length) in [(0, 1000), (1, 1200), (2, 1000)] {
        let [ours, its] = channels();
        let member = member(ours);
        zero.listen_to(node, &member).unwrap();
        zero.members.insert(node, member);
        send(&its, length);
        others.push(its);
    }
    let here = |zero: &mut Zero| {
        zero.hear(until, own.as_fd()).unwrap();
        zero.members.keys().copied().collect::<Vec<u32>>()
    };
    assert_eq!(here(&mut zero), [0, 1, 2]);
    send(&others[2], 300);
    assert_eq!(here(&mut zero), [0, 1, 2]);
    // An unidentified node stays, because its message is shorter than the others.
    let [ours, its] = channels();
    zero.newcomers.add(ours, &mut zero.budget);
    send(&its, 900);
    assert_eq!(here(&mut zero), [0, 1]);
    assert_eq!(zero.newcomers.fds().count(), 1);
    // A node that has disconnected no longer uses the budget.
    send(&others[0], 300);
    assert_eq!(here(&mut zero), [0, 1]);
    send(&its, 1000);
    assert_eq!(here(&mut zero), [0, 1]);
    assert_eq!(zero.newcomers.fds().count(), 0);
}

/// Sends this many bytes of a message, but not its end.
fn send(from: &Channel, length: usize) {
    (&mut from.connection().stream()).write_all(&vec![b'0'; length]).unwrap();
}

#[test]
fn what_a_newcomer_has_sent_counts_until_it_is_sent_away() {
    let mut budget = BufferBudget::of_bytes(100);
    let mut newcomers = Newcomers::default();
    let [ours, mut its] = channels();
    newcomers.add(ours, &mut budget);
    let join = Join {
        node: 9,
        nodes: 9,
        job: None,
        address: None,
        port: 1,
        rails: Vec::new(),
        rates: Vec::new(),
        addresses: Addresses::default(),
        transport: String::new(),
        network: Network::default(),
        report: Brief {
            schema: String::new(),
            host: "late".to_owned(),
            passed: true,
            hcas: Vec::new(),
            nccl: None,
            profile: None,
            nvlink: None,
            nvlink_domain: None,
            placement_group: None,
            filled: BTreeMap::new(),
            set: BTreeMap::new(),
            checks: Vec::new(),
        },
    };
    its.send(&ToZero::Join(Box::new(join))).unwrap();
    send(&its, 1000);
    let joining = newcomers.hear(&mut budget);
    assert_eq!(joining.len(), 1);
    assert!(joining[0].0.connection().held() > 0 && !budget.is_too_small());
}
