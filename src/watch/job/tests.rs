//! The two ends, over real connections.

#[allow(unreachable_pub)]
#[path = "../../../tests/support/port.rs"]
mod port;

use std::io::Write;

use port::free_port;

use super::message::{End, Join, Moved, PROTOCOL, State, ToNode, ToZero};
use super::own::tests::Watched;
use super::*;
use crate::facts::fake_root::FakeRoot;
use crate::facts::port_counters::Counters;
use crate::facts::port_look::{PortLook, read};
use crate::finding::Severity;
use crate::findings::port_name::RailId;
use crate::watch::judge::Pauses;
use crate::watch::track::WatchedPort;
use crate::wire::reach;

const TOKEN: &str = "0123456789abcdef";
const SECOND: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(60);
const AFTER: Duration = Duration::from_secs(600);
const PAUSES: Pauses = Pauses { note: AFTER, stall: Some(AFTER), is_broken: false };

fn look(sent: u64) -> Vec<PortLook> {
    let root = FakeRoot::new();
    let sent = format!("{sent}\n");
    let files = [("state", "4: ACTIVE\n"), ("counters/port_xmit_data", sent.as_str())];
    root.files("sys/class/infiniband/x_0/ports/1", &files);
    let reader = root.reader();
    vec![read(&reader, &Counters::new(&reader), "x_0", 1, None, None)]
}

fn ports() -> Vec<WatchedPort> {
    vec![WatchedPort { rail: RailId::new("x_0", 1), first: look(0).remove(0), ..WatchedPort::default() }]
}

/// The device is gone.
fn gone() -> Vec<PortLook> {
    let reader = FakeRoot::new().reader();
    vec![read(&reader, &Counters::new(&reader), "x_0", 1, None, None)]
}

fn orders(node: u32, nodes: u32, port: u16) -> JobOrders {
    JobOrders { node, nodes, job: None, name: format!("gpu-{node}"), place: format!("127.0.0.1:{port}") }
}

/// Node 0, and other nodes, all of which this test moves on.
struct Nodes {
    zero: Zero,
    own: Watched,
    others: Vec<(Node, Watched)>,
    port: u16,
    /// A clock that a busy machine does not make faster.
    passed: Duration,
}

impl Nodes {
    fn new(nodes: u32, connected: u32) -> Nodes {
        let port = free_port();
        let token = || TOKEN.as_bytes().to_vec();
        let zero = Zero::new(orders(0, nodes, port), &token(), REST).unwrap();
        let others = (1..=connected).map(|node| {
            (Node::new(orders(node, nodes, port), token(), REST, Duration::ZERO), Watched::default())
        });
        Nodes { zero, own: Watched::default(), others: others.collect(), port, passed: Duration::ZERO }
    }

    /// Lets all of them go on, at this time more than has passed.
    fn go_on(&mut self, more: Duration) -> Duration {
        self.passed += Duration::from_millis(1);
        let now = self.passed + more;
        self.zero.go_on(now);
        self.others.iter_mut().for_each(|(node, own)| node.go_on(now, own));
        sleep(Duration::from_millis(1));
        now
    }

    #[track_caller]
    fn until(&mut self, more: Duration, mut is_done: impl FnMut(&mut Nodes, Duration) -> bool) {
        let end = self.passed + 60 * SECOND;
        loop {
            let now = self.go_on(more);
            if is_done(self, now) {
                return;
            }
            assert!(self.passed < end, "it takes too long");
        }
    }

    fn until_connected(&mut self, count: usize) {
        self.until(Duration::ZERO, |nodes, _| nodes.zero.connected() == count);
    }

    /// A connection of a process with this token, as far as it is proven.
    fn caller(&mut self, token: &str) -> Option<crate::wire::Channel> {
        // Node 0 listens from now on.
        self.go_on(Duration::ZERO);
        let to = [std::net::SocketAddr::from(([127, 0, 0, 1], self.port))];
        let token = token.to_owned();
        let calling = std::thread::spawn(move || {
            let connection = reach::connect(&to, 5 * SECOND, "node 0", &PROTOCOL).unwrap();
            reach::prove(connection, "", token.as_bytes(), SECOND, Instant::now() + 5 * SECOND).ok()
        });
        self.until(Duration::ZERO, |_, _| calling.is_finished());
        calling.join().unwrap().map(|(channel, _)| channel)
    }
}

fn clocks(now: Duration) -> Clocks {
    Clocks { now, wall: Duration::from_secs(50_000) + now }
}

#[test]
fn nodes_are_asked_only_in_a_stall_and_the_job_gets_one_line() {
    let mut nodes = Nodes::new(4, 3);
    nodes.until_connected(3);
    let ports = ports();
    // Node 2 stops at 100 s, the others at 140 s.
    for seconds in 1..=14 {
        let at = seconds * 10 * SECOND;
        nodes.own.look(at, &ports, &look(seconds.into()));
        for (node, (_, own)) in (1..).zip(&mut nodes.others) {
            own.look(at, &ports, &look(if node == 2 { seconds.min(10) } else { seconds }.into()));
        }
        assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(at)), None);
        nodes.go_on(at);
    }
    assert!(!nodes.zero.is_asking(), "a job that moves is not asked");
    let later = 760 * SECOND;
    let mut said = Vec::new();
    nodes.until(later, |nodes, now| {
        said.extend(nodes.zero.look(&nodes.own, PAUSES, clocks(now)));
        !said.is_empty()
    });
    let [line] = &said[..] else { panic!("{said:?}") };
    // Both looks are as old as a machine makes them that has other work.
    let (since, first) = line.message.split_once(" UTC, 10m ").unwrap();
    assert!(since.ends_with("since 13:55:40"), "{line:?}");
    let (_, apart) = first.split_once("s ago: gpu-2 stopped first, at 13:55:00, at least ").unwrap();
    // 40 seconds, less what is between two looks, and the time of the question.
    let (apart, rest) = apart.split_once("s ").unwrap();
    assert!((1..=30).contains(&apart.parse::<u32>().unwrap()), "{line:?}");
    assert_eq!(rest, "before the others; all others wait.", "{line:?}");
    // It is said once, until it moves again.
    for more in [100, 200] {
        let now = nodes.go_on(later + more * SECOND);
        assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(now)), None);
    }
    assert!(!nodes.zero.is_asking());
    nodes.own.look(1000 * SECOND, &ports, &look(99));
    let again = nodes.zero.look(&nodes.own, PAUSES, clocks(1000 * SECOND)).unwrap();
    assert!(again.message.starts_with("The job moves data again, after 14m "), "{again:?}");
}

/// Nodes 1 and 2 move data until 140 s.
fn until_others_stop(nodes: &mut Nodes, own: impl Fn(u64) -> Vec<PortLook>) -> String {
    let ports = ports();
    for seconds in 1..=30 {
        let at = Duration::from_secs(seconds * 10);
        nodes.own.look(at, &ports, &own(seconds));
        for (_, other) in &mut nodes.others {
            other.look(at, &ports, &look(seconds.min(14)));
        }
        assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(at)), None);
        nodes.go_on(at);
    }
    let mut said = None;
    nodes.until(760 * SECOND, |nodes, now| {
        said = nodes.zero.look(&nodes.own, PAUSES, clocks(now));
        said.is_some()
    });
    said.unwrap().message
}

#[test]
fn a_node_0_whose_devices_are_gone_is_told() {
    let mut nodes = Nodes::new(3, 2);
    nodes.until_connected(2);
    let said = until_others_stop(&mut nodes, |seconds| if seconds < 14 { look(seconds) } else { gone() });
    assert!(said.ends_with("gpu-0's x_0 is gone; all others wait."), "{said}");
}

#[test]
fn a_node_0_that_has_never_moved_data_is_told_and_that_the_others_move_again() {
    let mut nodes = Nodes::new(3, 2);
    nodes.until_connected(2);
    let said = until_others_stop(&mut nodes, |_| look(0));
    assert!(said.ends_with("; gpu-0 has never moved data; all others wait."), "{said}");
    // It is said once, and no node is asked again until one of them says that it goes on.
    for more in [900, 1000, 1100] {
        let now = nodes.go_on(more * SECOND);
        for (node, own) in &mut nodes.others {
            assert_eq!(node.look(own, PAUSES.note, clocks(now)), None);
        }
        assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(now)), None);
        assert!(!nodes.zero.is_asking());
    }
    let ports = ports();
    let mut again = None;
    nodes.until(2000 * SECOND, |nodes, now| {
        let (node, own) = &mut nodes.others[0];
        own.look(now, &ports, &look(now.as_millis().try_into().unwrap()));
        node.look(own, PAUSES.note, clocks(now));
        again = nodes.zero.look(&nodes.own, PAUSES, clocks(now));
        again.is_some()
    });
    assert!(again.unwrap().message.starts_with("The job moves data again, after 3"));
}

/// A job that runs on sockets: the rails of no node ever move.
#[test]
fn a_node_0_that_has_never_moved_asks_once_and_again_if_something_has_changed() {
    let mut nodes = Nodes::new(3, 1);
    nodes.until_connected(1);
    let ports = ports();
    let mut asked = 0;
    // Ten times as long as it waits between two questions.
    let mut for_ten_minutes = |nodes: &mut Nodes, from: u32| {
        for more in (from..from + 600).step_by(20) {
            let at = more * SECOND;
            let mut was_asking = false;
            nodes.until(at, |nodes, now| {
                nodes.own.look(now, &ports, &look(0));
                for (node, own) in &mut nodes.others {
                    own.look(now, &ports, &look(0));
                    node.look(own, PAUSES.note, clocks(now));
                }
                assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(now)), None);
                was_asking |= nodes.zero.is_asking();
                !nodes.zero.is_asking()
            });
            asked += u32::from(was_asking);
        }
        std::mem::take(&mut asked)
    };
    assert_eq!(for_ten_minutes(&mut nodes, 0), 0, "it is early");
    assert_eq!(for_ten_minutes(&mut nodes, 620), 1);
    let token = TOKEN.as_bytes().to_vec();
    let new = Node::new(orders(2, 3, nodes.port), token, REST, Duration::ZERO);
    nodes.others.push((new, Watched::default()));
    nodes.until_connected(2);
    assert_eq!(for_ten_minutes(&mut nodes, 1300), 1, "another node has come");
}

/// Returns node 0's line for the job, after node 0 and the first of the others have moved data for the last time.
fn said_of_a_stall(nodes: &mut Nodes) -> String {
    let ports = ports();
    nodes.own.look(10 * SECOND, &ports, &look(1));
    nodes.others[0].1.look(10 * SECOND, &ports, &look(1));
    let mut said = None;
    nodes.until(700 * SECOND, |nodes, now| {
        said = nodes.zero.look(&nodes.own, PAUSES, clocks(now));
        said.is_some()
    });
    said.unwrap().message
}

#[test]
fn a_node_whose_command_ends_says_so_and_one_that_is_lost_does_not() {
    let mut nodes = Nodes::new(4, 3);
    nodes.until_connected(3);
    nodes.others[0].0.bye(End::Exited { code: 3 });
    nodes.until_connected(2);
    // Whatever it says after that, it has left.
    nodes.others.remove(0);
    nodes.others.remove(0);
    nodes.until_connected(1);
    let said = said_of_a_stall(&mut nodes);
    assert!(said.contains(" ago: gpu-1's command ended first, at 13:5"), "{said}");
    assert!(said.contains(", with exit code 3, and 1 more node later; "), "{said}");
}

#[test]
fn a_node_that_goes_and_one_that_never_came_are_told() {
    let mut nodes = Nodes::new(4, 2);
    nodes.until_connected(2);
    nodes.others.remove(0);
    nodes.until_connected(1);
    let said = said_of_a_stall(&mut nodes);
    assert!(said.contains(" ago: gpu-1 disconnected first, at 13:5"), "{said}");
    assert!(said.ends_with("; 2 other nodes wait; 1 node has never connected."), "{said}");
}

#[test]
fn that_all_other_nodes_have_left_is_told_once_and_as_no_stall() {
    let mut nodes = Nodes::new(3, 2);
    nodes.until_connected(2);
    nodes.others.clear();
    nodes.until_connected(0);
    let ports = ports();
    nodes.own.look(10 * SECOND, &ports, &look(1));
    let mut said = Vec::new();
    nodes.until(700 * SECOND, |nodes, now| {
        said.extend(nodes.zero.look(&nodes.own, PAUSES, clocks(now)));
        !said.is_empty()
    });
    for more in [800, 900] {
        let now = nodes.go_on(more * SECOND);
        said.extend(nodes.zero.look(&nodes.own, PAUSES, clocks(now)));
    }
    nodes.own.look(1000 * SECOND, &ports, &look(9));
    said.extend(nodes.zero.look(&nodes.own, PAUSES, clocks(1000 * SECOND)));
    let [line] = &said[..] else { panic!("{said:?}") };
    assert!(line.message.starts_with("Both other nodes that were connected have left: gpu-"), "{line:?}");
}

/// A node leaves before data moves; hours later, the others stall.
#[test]
fn a_node_that_leaves_early_does_not_silence_a_later_stall() {
    let mut nodes = Nodes::new(4, 3);
    nodes.until_connected(3);
    nodes.others.truncate(2);
    nodes.until_connected(2);
    let ports = ports();
    let mut said = Vec::new();
    let mut until_said = |nodes: &mut Nodes, seconds: u32| {
        nodes.until(seconds * SECOND, |nodes, now| {
            let finding = nodes.zero.look(&nodes.own, PAUSES, clocks(now));
            said.extend(finding.map(|finding| finding.message));
            !said.is_empty()
        });
        said.pop().unwrap_or_default()
    };
    for seconds in [0, 1] {
        nodes.own.look(seconds * SECOND, &ports, &look(0));
        nodes.others.iter_mut().for_each(|(_, own)| own.look(seconds * SECOND, &ports, &look(0)));
    }
    let left = until_said(&mut nodes, 650);
    assert!(left.starts_with("gpu-3 disconnected at "), "{left}");
    nodes.own.look(7000 * SECOND, &ports, &look(9));
    nodes.others.iter_mut().for_each(|(_, own)| own.look(7000 * SECOND, &ports, &look(9)));
    let stall = until_said(&mut nodes, 7700);
    assert!(stall.starts_with("The job has stalled since "), "{stall}");
}

/// Node 2 moves data, but its watcher hangs: the stall that is said without its answer is none.
#[test]
fn an_answer_that_comes_too_late_is_followed_by_another_question() {
    let mut nodes = Nodes::new(3, 2);
    nodes.until_connected(2);
    let ports = ports();
    nodes.own.look(10 * SECOND, &ports, &look(0));
    nodes.others[0].1.look(10 * SECOND, &ports, &look(1));
    let hangs = nodes.others.pop().unwrap();
    let now = nodes.go_on(700 * SECOND);
    assert_eq!((nodes.zero.look(&nodes.own, PAUSES, clocks(now)), nodes.zero.unanswered()), (None, 2));
    nodes.until(700 * SECOND, |nodes, _| {
        assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(now)), None);
        nodes.zero.unanswered() == 1
    });
    let now = nodes.go_on(710 * SECOND);
    let said = nodes.zero.look(&nodes.own, PAUSES, clocks(now)).unwrap().message;
    assert!(said.ends_with("; gpu-2 does not answer."), "{said}");
    nodes.others.push(hangs);
    nodes.others[1].1.look(770 * SECOND, &ports, &look(9));
    let mut again = None;
    nodes.until(780 * SECOND, |nodes, now| {
        again = nodes.zero.look(&nodes.own, PAUSES, clocks(now));
        again.is_some()
    });
    assert!(again.unwrap().message.starts_with("The job moves data again, after "));
}

/// Its `watch-after` is shorter than that of node 0, so that it does not say later that it has come to rest.
#[test]
fn a_node_that_rests_by_its_own_setting_is_asked_again() {
    let mut nodes = Nodes::new(2, 0);
    nodes.go_on(Duration::ZERO);
    let node = Node::new(orders(1, 2, nodes.port), TOKEN.into(), 20 * SECOND, Duration::ZERO);
    nodes.others.push((node, Watched::default()));
    nodes.until_connected(1);
    let ports = ports();
    nodes.own.look(590 * SECOND, &ports, &look(0));
    nodes.others[0].1.look(590 * SECOND, &ports, &look(1));
    nodes.others[0].1.look(600 * SECOND, &ports, &look(2));
    for is_asking in [true, false] {
        nodes.until(640 * SECOND, |nodes, now| {
            let (node, own) = &mut nodes.others[0];
            node.look(own, PAUSES.note, clocks(now));
            assert_eq!(nodes.zero.look(&nodes.own, PAUSES, clocks(now)), None);
            nodes.zero.is_asking() == is_asking
        });
    }
    let mut said = None;
    nodes.until(720 * SECOND, |nodes, now| {
        let (node, own) = &mut nodes.others[0];
        node.look(own, PAUSES.note, clocks(now));
        said = nodes.zero.look(&nodes.own, PAUSES, clocks(now));
        said.is_some()
    });
    let said = said.unwrap().message;
    assert!(said.starts_with("The job has stalled since "), "{said}");
}

#[test]
fn a_node_connects_again_when_node_0_is_back() {
    let mut nodes = Nodes::new(2, 1);
    nodes.until_connected(1);
    let new = Zero::new(orders(0, 2, nodes.port), TOKEN.as_bytes(), REST).unwrap();
    nodes.zero = new;
    nodes.until_connected(1);
}

/// Returns what node 1 says 700 s after the start, and again later, if it moved data last at 10 s, and node 0 has left.
fn said_without_zero(leave: impl Fn(&mut Nodes)) -> Vec<Finding> {
    let mut nodes = Nodes::new(2, 1);
    nodes.until_connected(1);
    let ports = ports();
    let look_at = |nodes: &mut Nodes, seconds: u32, sent| {
        let (node, own) = &mut nodes.others[0];
        own.look(seconds * SECOND, &ports, &look(sent));
        node.look(own, PAUSES.note, clocks(seconds * SECOND))
    };
    assert_eq!(look_at(&mut nodes, 10, 1), None);
    leave(&mut nodes);
    nodes.zero =
        Zero::new(JobOrders { nodes: 9, ..orders(0, 2, free_port()) }, TOKEN.as_bytes(), REST).unwrap();
    nodes.until(10 * SECOND, |nodes, _| !nodes.others[0].0.is_joined());
    assert_eq!(look_at(&mut nodes, 600, 1), None, "it has not rested for long");
    [700, 710].into_iter().filter_map(|seconds| look_at(&mut nodes, seconds, 1)).collect()
}

#[test]
fn nodes_that_leave_after_the_stall_was_said_are_said_too() {
    let mut nodes = Nodes::new(4, 3);
    nodes.until_connected(3);
    let ports = ports();
    nodes.own.look(10 * SECOND, &ports, &look(1));
    nodes.others.iter_mut().for_each(|(_, own)| own.look(10 * SECOND, &ports, &look(1)));
    let mut said: Vec<String> = Vec::new();
    for (minutes, connected) in [(11, 3), (13, 2), (15, 0)] {
        nodes.others.truncate(connected);
        nodes.until_connected(connected);
        let count = said.len();
        nodes.until(minutes * 60 * SECOND, |nodes, now| {
            let is_reported = nodes.others.iter().all(|(node, _)| node.reports_rest());
            said.extend(nodes.zero.look(&nodes.own, PAUSES, clocks(now)).map(|finding| finding.message));
            said.len() > count && is_reported
        });
    }
    let [first, second, third] = &said[..] else { panic!("{said:?}") };
    assert!(first.ends_with("all nodes wait."), "{first}");
    assert!(second.contains(": gpu-3 disconnected first, at "), "{second}");
    assert!(third.starts_with("All 3 other nodes that were connected have left: gpu-"), "{third}");
}

#[test]
fn that_node_0_has_left_is_said_once_by_a_node_that_rests() {
    let lost = said_without_zero(|_| ());
    let [lost] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!(lost.severity, Severity::Warning);
    let start = "127.0.0.1 (node 0) disconnected at 13:5";
    let end = " (times in UTC). This node has moved no data since 13:53:30.";
    assert!(lost.message.starts_with(start) && lost.message.ends_with(end), "{lost:?}");
    let end = |end: End| {
        let said = said_without_zero(|nodes| {
            nodes.zero.bye(end);
            // It is in the kernel before node 0 closes the connection.
            nodes.until(10 * SECOND, |nodes, _| !nodes.others[0].0.is_joined());
        });
        let [said] = &said[..] else { panic!("{said:?}") };
        (said.severity, said.message.split_once(" at 13:5").unwrap().0.to_owned())
    };
    let killed = "127.0.0.1 (node 0)'s command was killed by SIGKILL";
    assert_eq!(end(End::Killed { signal: 9 }), (Severity::Warning, killed.to_owned()));
    let ended = "127.0.0.1 (node 0)'s command ended";
    assert_eq!(end(End::Exited { code: 0 }), (Severity::Info, ended.to_owned()));
}

/// A checkpoint may take longer than `watch-after`, on all nodes.
#[test]
fn a_stall_is_a_note_until_it_is_too_long_for_a_pause_or_a_node_has_left() {
    let long = Pauses { stall: Some(3 * AFTER), ..PAUSES };
    for leaves in [false, true] {
        let mut nodes = Nodes::new(4, 3);
        nodes.until_connected(3);
        let ports = ports();
        nodes.own.look(10 * SECOND, &ports, &look(1));
        nodes.others.iter_mut().for_each(|(_, own)| own.look(10 * SECOND, &ports, &look(1)));
        let mut said: Vec<(u64, Severity)> = Vec::new();
        for minutes in [11, 15, 20, 29, 31, 35] {
            if leaves && minutes == 20 {
                nodes.others.remove(0);
                nodes.until_connected(2);
            }
            nodes.until(minutes * 60 * SECOND, |nodes, now| {
                let finding = nodes.zero.look(&nodes.own, long, clocks(now));
                said.extend(finding.map(|finding| (minutes.into(), finding.severity)));
                !nodes.zero.is_asking()
            });
        }
        let warned = if leaves { 20 } else { 31 };
        assert_eq!(said, [(11, Severity::Info), (warned, Severity::Warning)]);
        assert!(nodes.zero.reports_rest());
    }
}

/// In a pipeline, or while node 0 works alone, nothing is wrong.
#[test]
fn that_a_part_of_the_job_still_moves_is_a_note() {
    let mut nodes = Nodes::new(3, 2);
    nodes.until_connected(2);
    let ports = ports();
    nodes.own.look(10 * SECOND, &ports, &look(1));
    nodes.others[0].1.look(20 * SECOND, &ports, &look(1));
    let mut said = Vec::new();
    for minutes in [11, 15, 30] {
        nodes.others[1].1.look(minutes * 60 * SECOND, &ports, &look(minutes.into()));
        nodes.until(minutes * 60 * SECOND, |nodes, now| {
            said.extend(nodes.zero.look(&nodes.own, PAUSES, clocks(now)));
            !nodes.zero.is_asking()
        });
    }
    let [line] = &said[..] else { panic!("{said:?}") };
    let wanted = "gpu-0, gpu-1 have moved no data since 13:53:40 UTC, 10m ";
    assert!(line.message.starts_with(wanted) && line.severity == Severity::Info, "{line:?}");
    assert!(line.message.ends_with(" ago, while gpu-2 still moves data."), "{line:?}");
    assert!(!nodes.zero.reports_rest(), "the hook of this node is called");
}

#[test]
fn only_a_node_of_this_job_that_is_not_there_may_join() {
    let mut nodes = Nodes::new(3, 1);
    nodes.until_connected(1);
    assert!(nodes.caller("another token....").is_none(), "without the token, nothing is proven");
    let join = |node, nodes, job: Option<&str>, name: &str| {
        ToZero::Join(Join { node, nodes, job: job.map(str::to_owned), name: name.to_owned() })
    };
    let long = "x".repeat(300);
    let wrong = [
        join(1, 3, None, "x"),
        join(0, 3, None, "x"),
        join(3, 3, None, "x"),
        join(2, 4, None, "x"),
        join(2, 3, Some("job"), "x"),
        join(2, 3, None, &long),
        ToZero::State(State { moved: Moved::Never, ports: Vec::new() }),
        ToZero::Changed,
        ToZero::Bye(End::Exited { code: 0 }),
    ];
    for message in wrong {
        let mut caller = nodes.caller(TOKEN).unwrap();
        caller.send(&message).unwrap();
        let mut refused = false;
        nodes.until(Duration::ZERO, |_, _| match caller.receive_if_there::<ToNode>(1024) {
            Ok(None) => false,
            Ok(Some(ToNode::Refused(_))) => {
                refused = true;
                false
            }
            Ok(Some(ToNode::Tell | ToNode::Stalled(_) | ToNode::Bye(_))) => panic!("{message:?} has joined"),
            Err(_) => true,
        });
        assert_eq!(refused, matches!(message, ToZero::Join(_)), "{message:?}");
        assert_eq!(nodes.zero.connected(), 1);
    }
    let mut caller = nodes.caller(TOKEN).unwrap();
    caller.send(&join(2, 3, None, "x")).unwrap();
    nodes.until_connected(2);
    // Nodes are silent until they are asked.
    caller.send(&ToZero::State(State { moved: Moved::Never, ports: Vec::new() })).unwrap();
    nodes.until_connected(1);
    let mut caller = nodes.caller(TOKEN).unwrap();
    caller.send(&join(2, 3, None, "x")).unwrap();
    nodes.until_connected(2);
    // What has not been told cannot change.
    caller.send(&ToZero::Changed).unwrap();
    nodes.until_connected(1);
}

#[test]
fn a_message_without_an_end_is_bounded() {
    let mut nodes = Nodes::new(3, 1);
    let mut caller = nodes.caller(TOKEN).unwrap();
    let join = Join { node: 2, nodes: 3, job: None, name: "x".to_owned() };
    caller.send(&ToZero::Join(join)).unwrap();
    nodes.until_connected(2);
    let mut stream = caller.connection().stream();
    // Node 0 closes the connection before it has read all of it.
    stream.write_all(&[b'0'; 3 * 4096]).unwrap();
    nodes.until_connected(1);
}

#[test]
fn invalid_peers_keep_no_node_out() {
    let mut nodes = Nodes::new(2, 0);
    nodes.go_on(Duration::ZERO);
    let to = ("127.0.0.1", nodes.port);
    let flood = std::thread::spawn(move || {
        (0..300).map(|_| std::net::TcpStream::connect(to).unwrap()).collect::<Vec<_>>()
    });
    nodes.until(Duration::ZERO, |nodes, now| nodes.zero.wake_at(now).is_some());
    nodes
        .others
        .push((Node::new(orders(1, 2, nodes.port), TOKEN.into(), REST, Duration::ZERO), Watched::default()));
    nodes.until_connected(1);
    nodes.until(Duration::ZERO, |_, _| flood.is_finished());
    assert_eq!(flood.join().unwrap().len(), 300);
}

#[test]
fn a_node_0_that_never_stops_asking_is_left() {
    let mut nodes = Nodes::new(2, 1);
    nodes.until_connected(1);
    let now = nodes.go_on(Duration::ZERO);
    for _ in 0..30 {
        nodes.zero.tell_all();
    }
    nodes.until_connected(0);
    let (node, _) = &nodes.others[0];
    assert!(node.wake_at(now).unwrap() > now + 100 * SECOND, "it comes again much later");
}

#[test]
fn a_watcher_sleeps_until_a_signal_or_the_time() {
    let orders = orders(0, 2, free_port());
    let mut job = Job::new(orders, TOKEN, Instant::now(), SECOND, SECOND).unwrap();
    job.wait(Instant::now() + Duration::from_millis(20), &[]);
    let until = Instant::now() + Duration::from_millis(300);
    let mut wakes = 0;
    while Instant::now() < until {
        job.sleep(until, &[]);
        wakes += 1;
    }
    assert!(wakes < 4, "{wakes}");
}
