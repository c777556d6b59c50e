use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::*;
use crate::compare::brief::Brief;
use crate::preflight::message::{Join, ToZero};
use crate::preflight::pair::{PairFailure, PairOutcome, PairReport};
use crate::verbs::rail::Side;
use crate::wire::connection::Connection;
use crate::wire::session::Session;

/// The two ends of a connection whose ends know each other: node 0's end, and the node's.
pub(super) fn channels() -> [Channel; 2] {
    let (ours, its) = UnixStream::pair().unwrap();
    let greetings: [&[u8]; 2] = [b"first\n", b"second\n"];
    let mut sides = [Side::Second, Side::First].into_iter();
    [ours, its].map(|stream| {
        let stream = TcpStream::from(OwnedFd::from(stream));
        let connection = Connection::new(stream, "the other end".to_owned(), &MEETING).unwrap();
        let session = Session::new(MEETING.schema, b"a token", sides.next().unwrap(), greetings);
        Channel::new(connection, session)
    })
}

fn member(channel: Channel) -> Member {
    let owed = HashSet::from([(0, 1), (1, 2)]);
    let heard = Instant::now();
    Member { channel, address: None, port: 1, heard, round: 0, at_work: true, owed }
}

fn evidence() -> Evidence {
    Evidence::new(vec![crate::preflight::evidence::Member::default(); 3], 2)
}

#[test]
fn a_node_that_does_not_stop_to_send_is_heard_no_more() {
    let [ours, mut its] = channels();
    let mut member = member(ours);
    let mut hear = |its: &mut Channel, count: u16| {
        (0..count).for_each(|round| its.send(&ToZero::Alive { round }).unwrap());
        member.hear(0, &mut evidence(), 10)
    };
    assert_eq!(hear(&mut its, 9), Ok(()));
    assert_eq!(hear(&mut its, 0), Ok(()));
    assert_eq!(hear(&mut its, 11), Err("it does not stop to send messages".to_owned()));
}

#[test]
fn what_a_node_says_counts_only_where_it_was_asked() {
    let [ours, mut its] = channels();
    let (mut member, mut evidence) = (member(ours), evidence());
    let failed = || PairOutcome::Failed(PairFailure::Silent);
    let report = |node, round, partner| PairReport { round, node, partner, seconds: 1.0, outcome: failed() };
    let reports = vec![report(1, 0, 0), report(0, 1, 1), report(0, 0, 1), report(0, 0, 1)];
    its.send(&ToZero::Proved { reports, more: true }).unwrap();
    member.hear(0, &mut evidence, 10).unwrap();
    let [one] = evidence.tries() else { panic!("{:?}", evidence.tries()) };
    assert_eq!((one.round, one.nodes, one.said.iter().flatten().count()), (0, [0, 1], 1));
    assert_eq!((member.at_work, member.owed.len()), (true, 1));
}

#[test]
fn of_messages_without_an_end_the_longest_goes_where_there_is_no_room_for_all() {
    let listener = Listener::on_port(0).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let terms = Terms {
        nodes: 4,
        job: None,
        wait: Duration::from_secs(60),
        until,
        token: "a token",
        extent: Extent::Doubling,
        names: &[],
        say: &|_| {},
        show: None,
    };
    let mut zero = Zero::new(&terms, &listener).unwrap();
    zero.room = Room::of_bytes(3500);
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
    // A newcomer, whose message is shorter than the others', stays.
    let [ours, its] = channels();
    zero.newcomers.add(ours, &mut zero.room);
    send(&its, 900);
    assert_eq!(here(&mut zero), [0, 1]);
    assert_eq!(zero.newcomers.fds().count(), 1);
    // Who has gone takes no room any more.
    send(&others[0], 300);
    assert_eq!(here(&mut zero), [0, 1]);
    send(&its, 1000);
    assert_eq!(here(&mut zero), [0, 1]);
    assert_eq!(zero.newcomers.fds().count(), 0);
}

/// Sends so many bytes of a message, and not its end.
fn send(from: &Channel, length: usize) {
    (&mut from.connection().stream()).write_all(&vec![b'0'; length]).unwrap();
}

#[test]
fn what_a_newcomer_has_sent_counts_until_it_is_sent_away() {
    let mut room = Room::of_bytes(100);
    let mut newcomers = Newcomers::default();
    let [ours, mut its] = channels();
    newcomers.add(ours, &mut room);
    let join = Join {
        node: 9,
        nodes: 9,
        job: None,
        address: None,
        port: 1,
        rails: Vec::new(),
        transport: String::new(),
        report: Brief {
            schema: String::new(),
            host: "late".to_owned(),
            passed: true,
            hcas: Vec::new(),
            nccl: None,
            profile: None,
            nvlink: None,
            filled: BTreeMap::new(),
            checks: Vec::new(),
        },
    };
    its.send(&ToZero::Join(Box::new(join))).unwrap();
    send(&its, 1000);
    let joining = newcomers.hear(&mut room);
    assert_eq!(joining.len(), 1);
    assert!(joining[0].0.connection().held() > 0 && !room.is_too_small());
}
