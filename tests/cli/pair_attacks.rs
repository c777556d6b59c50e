//! Tests that an attacker between two nodes, or beside them, can neither impersonate one of them nor keep
//! them apart.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::json;

use super::nodes::{ONLY, Stranger, TOKEN, Waiting, greeting, keys, sealed, self_test};
use super::run::{Ran, run};

const FORGED: &str = "FORGED-BY-MITM";

const IN_BETWEEN: &str = "is not the other node's next message: a process in between";

/// An attacker in the middle: the peer takes it for the listener, and the listener takes it for the peer.
struct Between {
    listening: Option<Waiting>,
    connecting: Option<Child>,
    /// Where the peer connects.
    own: TcpListener,
    /// The connections to the listener and to the peer.
    listener: Stranger,
    peer: Stranger,
    /// The greetings of the peer and of the listener.
    greetings: [String; 2],
}

impl Between {
    /// Returns an attacker through which both nodes have authenticated each other.
    fn proven(more: &[&str]) -> Between {
        let mut between = Between::greeted(more);
        let hello = between.peer.line();
        between.listener.put(&hello);
        let hello = between.listener.line();
        between.peer.put(&hello);
        between
    }

    /// Returns an attacker through which both nodes have greeted each other.
    fn greeted(more: &[&str]) -> Between {
        let listening = Waiting::guarded(more);
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = own.local_addr().unwrap().to_string();
        let mut command = self_test(&[&["--peer", &address, "--wait", "30s"], more].concat());
        command.env("RDMA_INIT_TOKEN", TOKEN);
        let connecting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut peer, mut listener) = (Stranger::on(own.accept().unwrap().0), Stranger::at(&listening));
        let first = peer.line();
        listener.put(&first);
        let second = listener.line();
        peer.put(&second);
        let greetings = [first, second];
        Between { listening: Some(listening), connecting: Some(connecting), own, listener, peer, greetings }
    }

    /// Returns both nodes' final reports: first the listener's, then the peer's.
    #[track_caller]
    fn end(mut self) -> [Ran; 2] {
        drop((self.listener, self.peer));
        let listened = self.listening.take().unwrap().end();
        let output = self.connecting.take().unwrap().wait_with_output().unwrap();
        let connected = Ran {
            code: output.status.code(),
            signal: None,
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        let both = [listened, connected].map(|ran| ran.expect_code(1));
        for ran in &both {
            assert!(!ran.text().contains(FORGED) && !ran.stderr.contains(FORGED), "{ran:#?}");
        }
        both
    }
}

/// Expects that neither node took the attacker's message for the other node's.
#[track_caller]
fn expect_no_peer_accepted(both: &[Ran; 2]) {
    for ran in both {
        assert!(ran.text().contains("FAILED: pair-connect: "), "{ran:#?}");
        assert!(!ran.text().contains("ok       pair-connect"), "{ran:#?}");
    }
}

fn forged_node() -> serde_json::Value {
    json!({"Node": {"host": FORGED, "nccl": null, "rails": []}})
}

#[test]
fn a_relay_of_the_proof_cannot_send_as_a_node() {
    // Tries a message without a code, one with another token's code, and one with an empty token's code.
    for forge in [
        |_: &[String; 2]| [forged_node().to_string() + "\n", forged_node().to_string() + "\n"],
        |greetings: &[String; 2]| {
            keys("a guess of the token", &greetings[0], &greetings[1])
                .map(|key| sealed(&key, 1, &forged_node()))
        },
        |greetings: &[String; 2]| {
            keys("", &greetings[0], &greetings[1]).map(|key| sealed(&key, 1, &forged_node()))
        },
    ] {
        let mut between = Between::proven(&ONLY);
        let [for_listener, for_peer] = forge(&between.greetings);
        between.listener.put(&for_listener);
        between.peer.put(&for_peer);
        // Both nodes must read it before anything is closed.
        while !between.listener.line().is_empty() {}
        while !between.peer.line().is_empty() {}
        let both = between.end();
        expect_no_peer_accepted(&both);
        for ran in &both {
            assert!(ran.text().contains(IN_BETWEEN), "{ran:#?}");
        }
    }
}

#[test]
fn a_message_that_is_changed_repeated_or_sent_back_is_refused() {
    type Attack = fn(&mut Between);
    let attacks: [(&str, Attack); 5] = [
        ("changed", |between| {
            let node = between.peer.line().replacen("\"host\":\"", "\"host\":\"x", 1);
            between.listener.put(&node);
        }),
        ("extended", |between| {
            let node = between.peer.line();
            between.listener.put(&node.replace('\n', " \n"));
        }),
        ("of another message's code", |between| {
            let node = between.peer.line();
            let other = between.listener.line();
            between.listener.put(&format!("{}{}", &other[..64], &node[64..]));
        }),
        ("sent back", |between| {
            let own = between.listener.line();
            between.listener.put(&own);
        }),
        ("cut", |between| {
            let node = between.peer.line();
            between.listener.put(&node[..node.len() - 2]);
            between.listener.put("\n");
        }),
    ];
    for (what, attack) in attacks {
        let mut between = Between::proven(&ONLY);
        attack(&mut between);
        // The listener closes the connection.
        while !between.listener.line().is_empty() {}
        let both = between.end();
        expect_no_peer_accepted(&both);
        assert!(both[0].text().contains(IN_BETWEEN), "{what}: {:#?}", both[0]);
    }
}

#[test]
fn a_proof_that_is_repeated_is_no_message() {
    let mut between = Between::greeted(&ONLY);
    let proof = between.peer.line();
    between.listener.put(&proof);
    assert!(between.listener.line().contains("Hello"));
    between.listener.put(&proof);
    while !between.listener.line().is_empty() {}
    // The peer, whose node has not answered, tries again, and finds another program.
    between.peer.out.shutdown(Shutdown::Both).unwrap();
    between.peer = Stranger::on(between.own.accept().unwrap().0);
    between.peer.line();
    between.peer.put("nonsense\n");
    while !between.peer.line().is_empty() {}
    let both = between.end();
    expect_no_peer_accepted(&both);
    assert!(both[0].text().contains(IN_BETWEEN), "{:#?}", both[0]);

    // The same message proves nothing on another connection, either.
    let waiting = Waiting::guarded(&ONLY);
    let mut again = Stranger::at(&waiting);
    again.put(&greeting());
    again.line();
    again.put(&proof);
    assert_eq!(again.line(), "\"Refused\"\n");
    waiting.goes_on_waiting_after("not have the same token");
}

#[test]
fn messages_in_another_order_or_with_one_left_out_are_refused() {
    for order in [&[1, 0][..], &[1], &[0, 0], &[]] {
        let mut between = Between::proven(&[]);
        let node = between.listener.line();
        between.peer.put(&node);
        // The peer continues with its description and its ends.
        let lines = [between.peer.line(), between.peer.line()];
        assert!(lines[0].contains("Node") && lines[1].contains("Ends"), "{lines:?}");
        order.iter().for_each(|index| between.listener.put(&lines[*index]));
        if !order.is_empty() {
            while !between.listener.line().is_empty() {}
        }
        let both = between.end();
        let why = if order.is_empty() { "has closed the connection" } else { IN_BETWEEN };
        assert!(both[0].text().contains(why), "{order:?}: {:#?}", both[0]);
        assert!(both[1].text().contains("has closed the connection"), "{order:?}: {:#?}", both[1]);
    }
}

#[test]
fn an_end_that_is_cut_off_is_noticed() {
    let mut between = Between::proven(&[]);
    // These are the descriptions, the ends, and which rails are ready.
    for _ in 0..3 {
        let (first, second) = (between.peer.line(), between.listener.line());
        between.listener.put(&first);
        between.peer.put(&second);
    }
    // Only the listener's result is passed on.
    let done = between.listener.line();
    assert!(done.contains("Done"), "{done}");
    between.peer.put(&done);
    let both = between.end();
    let why = "FAILED: pair-data: ";
    assert!(
        both[0].text().contains(why) && both[0].text().contains("has closed the connection"),
        "{both:#?}"
    );
}

#[test]
fn the_listener_tells_an_invalid_peer_nothing_about_the_token() {
    let waiting = Waiting::guarded(&ONLY);
    let mut stranger = Stranger::greeted(&waiting, "a guess of the token");
    stranger.say(&json!({"Hello": {"longest_ms": 0}}));
    assert_eq!(stranger.line(), "\"Refused\"\n");
    assert_eq!(stranger.line(), "");
    waiting.goes_on_waiting_after("not have the same token");
}

#[test]
fn a_process_that_poses_as_the_node_is_detected() {
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = own.local_addr().unwrap().to_string();
    let mut command = self_test(&[&["--peer", &address], &ONLY[..]].concat());
    command.env("RDMA_INIT_TOKEN", TOKEN).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = command.spawn().unwrap();
    let mut peer = Stranger::on(own.accept().unwrap().0);
    let first = peer.line();
    // The peer gets its own message back, which it would accept from the other node.
    peer.put(&first);
    let proof = peer.line();
    peer.put(&proof);
    let output = process.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("not have the same token"), "{output:?}");
}

fn peer_of(waiting: &Waiting) -> Command {
    let mut command = self_test(&[&["--peer", &waiting.address, "--wait", "20s"], &ONLY[..]].concat());
    command.env("RDMA_INIT_TOKEN", TOKEN);
    command
}

#[test]
fn silent_connections_do_not_keep_the_other_node_out() {
    // There are more connections than the listener keeps, in every kind of silence.
    let waiting = Waiting::guarded(&ONLY);
    let mut silent: Vec<TcpStream> = (0..30).map(|_| waiting.connect()).collect();
    silent.extend((0..30).map(|_| {
        let mut stream = waiting.connect();
        stream.write_all(b"{\"Greeting\":").unwrap();
        stream
    }));
    let greeted: Vec<Stranger> = (0..30).map(|_| Stranger::greeted(&waiting, "")).collect();
    // Each of them may be silent for 5 s: one after the other, they would use up both nodes' time.
    run(peer_of(&waiting)).expect_code(0);
    let ran = waiting.end().expect_code(0);
    assert!(ran.stderr.contains("was rejected, because too many others connected"), "{}", ran.stderr);
    drop((silent, greeted));
}

#[test]
fn a_flood_of_invalid_peers_is_counted_and_blocks_no_node() {
    let waiting = Waiting::guarded(&ONLY);
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = waiting.address.clone();
    let (peer, listened) = thread::scope(|scope| {
        for kind in 0..3 {
            let (address, is_over, count) = (&address, &is_over, &count);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(address) else { continue };
                    let _ = match kind {
                        0 => Ok(()),
                        1 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
                        _ => stream.write_all(greeting().as_bytes()).and_then(|()| stream.write_all(b"x\n")),
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while count.load(Ordering::Relaxed) < 300 {
            thread::yield_now();
        }
        let peer = run(peer_of(&waiting));
        is_over.store(true, Ordering::Relaxed);
        (peer, waiting.end())
    });
    peer.expect_code(0);
    let ran = listened.expect_code(0);
    assert!(ran.stderr.contains("is still waiting: 100 invalid connections so far"), "{}", ran.stderr);
    assert!(ran.stderr.len() < 4096, "{} bytes\n{}", ran.stderr.len(), ran.stderr);
}
