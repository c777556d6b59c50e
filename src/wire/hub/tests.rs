use std::io::Write;

use super::*;
use crate::wire::channel::channels;

const PROTOCOL: Protocol = Protocol { schema: concat!("rdma-init", "/hub/1"), command: "hub" };

/// A node that has joined.
struct Node;

impl Peer for Node {
    const PROTOCOL: &'static Protocol = &PROTOCOL;
    const GUESTS: usize = 2;
    const PAUSE: Duration = Duration::ZERO;
    const LONGEST: usize = 4096;
    const SILENCE: Option<Duration> = Some(Duration::from_secs(60));
    type Message = u32;
    type Reply = ();
}

fn hub() -> Hub<Node> {
    Hub::new(Ok(Listener::on_port(0).unwrap()), b"a token", 3).unwrap()
}

fn member(hub: &mut Hub<Node>, node: u32) -> Channel {
    let [ours, its] = channels();
    hub.admit(ours, node, Node).unwrap();
    its
}

fn newcomer(hub: &mut Hub<Node>) -> Channel {
    let [ours, its] = channels();
    hub.welcome(ours);
    its
}

/// Sends this many bytes of a message, but not its end.
fn send(from: &Channel, length: usize) {
    (&mut from.connection().stream()).write_all(&vec![b'0'; length]).unwrap();
}

fn events(hub: &mut Hub<Node>) -> Vec<HubEvent<Node>> {
    hub.poll(Instant::now() + MESSAGE, &mut |_, _| {}).unwrap();
    std::iter::from_fn(|| hub.next_event()).collect()
}

/// Returns who has left in this pass, and why.
fn left(hub: &mut Hub<Node>) -> Vec<(u32, String)> {
    let left = events(hub).into_iter().filter_map(|event| match event {
        HubEvent::Left(node, _, why) => Some((node, why.to_string())),
        HubEvent::Joins(..) | HubEvent::Said(..) => None,
    });
    left.collect()
}

#[test]
fn beyond_the_limit_the_oldest_unidentified_nodes_are_dropped() {
    let mut hub = hub();
    let mut others: Vec<Channel> = (0..NEWCOMERS + 2).map(|_| newcomer(&mut hub)).collect();
    while events(&mut hub).is_empty() && hub.is_late {}
    let closed = others.iter_mut().map(|channel| channel.receive_if_there::<()>(64).is_err());
    assert!(closed.eq((0..NEWCOMERS + 2).map(|number| number < 2)));
    while hub.drop_oldest() {}
    assert_eq!(hub.epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::ZERO), Ok(0));
}

#[test]
fn what_a_node_has_sent_behind_who_it_is_is_heard_once_it_is_a_member() {
    let mut hub = hub();
    let mut its = newcomer(&mut hub);
    its.send(&7).unwrap();
    its.send(&8).unwrap();
    send(&its, 1000);
    hub.poll(Instant::now(), &mut |_, _| {}).unwrap();
    let Some(HubEvent::Joins(channel, 7)) = hub.next_event() else { panic!("it joins first") };
    assert_eq!((hub.newcomers.len(), hub.held), (0, 0));
    hub.admit(channel, 7, Node).unwrap();
    assert!(hub.held > 1000);
    assert!(matches!(events(&mut hub)[..], [HubEvent::Said(7, 8)]));
    assert_eq!(hub.held, 1000);
    drop(its);
    assert_eq!(left(&mut hub).len(), 1);
    assert_eq!(hub.held, 0);
}

#[test]
fn a_node_that_never_stops_sending_is_dismissed() {
    let mut hub = hub();
    let mut its = member(&mut hub, 0);
    its.send(&7).unwrap();
    hub.poll(Instant::now(), &mut |_, _| {}).unwrap();
    hub.messages = MESSAGES_AT_ONCE - 1;
    assert!(matches!(hub.next_event(), Some(HubEvent::Said(0, 7))));
    assert!(hub.next_event().is_none());
    (0..2).for_each(|_| its.send(&7).unwrap());
    hub.poll(Instant::now(), &mut |_, _| {}).unwrap();
    hub.messages = MESSAGES_AT_ONCE - 1;
    assert!(matches!(hub.next_event(), Some(HubEvent::Said(0, 7))));
    let Some(HubEvent::Left(0, _, why)) = hub.next_event() else { panic!("it goes on") };
    assert_eq!(why.to_string(), "it does not stop sending messages");
}

#[test]
fn the_node_with_the_longest_partial_message_is_dropped_first() {
    let mut hub = hub();
    hub.most_held = 3500;
    let others = [(0, 1000), (1, 1200), (2, 1000)].map(|(node, length)| {
        let its = member(&mut hub, node);
        send(&its, length);
        its
    });
    assert_eq!(left(&mut hub), []);
    send(&others[2], 300);
    assert_eq!(left(&mut hub), []);
    // A newcomer stays, because its message is shorter than the others.
    let its = newcomer(&mut hub);
    send(&its, 900);
    assert_eq!(left(&mut hub), [(2, "1300 bytes of a message arrived, but not its end".to_owned())]);
    // A node that has left no longer uses the budget.
    send(&others[0], 300);
    assert_eq!((left(&mut hub), hub.newcomers.len()), (Vec::new(), 1));
    send(&its, 1000);
    assert_eq!((left(&mut hub), hub.newcomers.len(), hub.members().len()), (Vec::new(), 0, 2));
}

#[test]
fn a_member_that_sends_nothing_has_left_unless_the_hub_is_late() {
    let mut hub = hub();
    let _others = [0, 1].map(|node| member(&mut hub, node));
    let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(61)) else { return };
    hub.members.values_mut().for_each(|link| link.heard = long_ago);
    hub.is_late = true;
    assert!(hub.next_event().is_none());
    let why = || "it has sent nothing for 60 s".to_owned();
    assert_eq!(left(&mut hub), [(0, why()), (1, why())]);
    // One that is a newcomer for too long is dropped.
    let _its = newcomer(&mut hub);
    hub.newcomers.values_mut().for_each(|link| link.heard = long_ago);
    assert!(hub.wake_at().is_some_and(|wake| wake < Instant::now()));
    assert_eq!((left(&mut hub), hub.newcomers.len()), (Vec::new(), 0));
}

/// A connection that proves nothing and sends nothing must not keep the hub awake.
#[test]
fn unproven_connections_are_read_only_when_they_have_sent_something() {
    let mut hub = hub();
    let to = hub.listener.as_ref().ok().unwrap().own.port();
    let mut caller = std::net::TcpStream::connect(("127.0.0.1", to)).unwrap();
    while hub.guests.is_empty() {
        events(&mut hub);
    }
    let served = hub.serve_at;
    assert!(events(&mut hub).is_empty());
    assert_eq!(hub.serve_at, served);
    caller.write_all(b"GET /\n").unwrap();
    while !hub.guests.is_empty() {
        events(&mut hub);
    }
    assert!(hub.serve_at > served);
}
