//! Tests `self-test --listen` and `--peer`: two nodes find each other, and any other process that connects is
//! rejected.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::json;

use super::nodes::{ONLY, Stranger, TOKEN, Waiting, old_greeting, self_test};
use super::run::run;
use crate::support::port::free_port;

#[test]
fn two_nodes_find_each_other_and_agree_that_there_is_no_rail() {
    let listening = Waiting::listen(&[]);
    let connected = run(self_test(&["--peer", &listening.address]));
    for ran in [connected, listening.end()] {
        let ran = ran.expect_code(1);
        for part in ["ok       pair-connect", "FAILED: pair-rails: no port is in use on either node"] {
            assert!(ran.text().contains(part), "no {part:?} in\n{}", ran.text());
        }
    }
}

#[test]
fn the_connecting_node_may_start_before_the_listener() {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = self_test(&["--peer", &address, "--wait", "30s"]);
    let mut connecting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(connecting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("cannot reach 127.0.0.1:") && line.contains("refused"), "{line}");
    let ran = run(self_test(&["--listen", &address, "--wait", "30s"])).expect_code(1);
    assert!(ran.text().contains("ok       pair-connect"), "{}", ran.text());
    let output = connecting.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("ok       pair-connect"));
}

#[test]
fn a_token_must_be_the_same_on_both() {
    let other = "another secret of 2 nodes";
    for (here, there, code) in [(TOKEN, TOKEN, 0), (TOKEN, other, 1), ("", TOKEN, 1), (TOKEN, "", 1)] {
        let mut listen = self_test(&[&["--listen", "127.0.0.1:0", "--wait", "30s"], &ONLY[..]].concat());
        listen.env("RDMA_INIT_TOKEN", here);
        let listening = Waiting::start(listen);
        let mut connect = self_test(&[&["--peer", &listening.address], &ONLY[..]].concat());
        connect.env("RDMA_INIT_TOKEN", there);
        let connected = run(connect).expect_code(code);
        assert_eq!(connected.text().contains("not have the same token"), code == 1, "{connected:?}");
        assert!(!connected.text().contains("it is not authenticated"), "{connected:?}");
        let listened = match code {
            0 => listening.end().expect_code(0),
            _ => listening.goes_on_waiting_after("not have the same token"),
        };
        let is_anybody = listened.text().contains("it is not authenticated (no RDMA_INIT_TOKEN)");
        assert_eq!(is_anybody, here.is_empty(), "{listened:?}");
        for ran in [connected, listened] {
            assert!(!ran.text().contains("secret") && !ran.stderr.contains("secret"), "{ran:?}");
        }
    }
}

#[test]
fn any_peer_is_accepted_only_with_the_option() {
    for arguments in [&["--listen"][..], &["--listen=:0"], &["--listen=[::]:0"], &["--peer=192.0.2.1"]] {
        let ran = run(self_test(arguments));
        ran.expect_error(&["rdma-init: ", "RDMA_INIT_TOKEN", "openssl rand -hex 16", "--any-peer"]);
    }
    let listening = Waiting::start(self_test(&[&["--listen=:0", "--any-peer"], &ONLY[..]].concat()));
    assert!(listening.said.contains("and accepts any peer (no RDMA_INIT_TOKEN)"), "{}", listening.said);
    let port = listening.address.rsplit(':').next().unwrap().to_owned();
    let peer = format!("--peer=localhost.:{port}");
    for ran in [run(self_test(&[&[&peer[..]], &ONLY[..]].concat())), listening.end()] {
        let ran = ran.expect_code(0);
        assert!(ran.text().contains("it is not authenticated (no RDMA_INIT_TOKEN)"), "{}", ran.text());
    }
    let ran = run(self_test(&[&["--peer=192.0.2.1", "--any-peer", "--wait=300ms"], &ONLY[..]].concat()));
    assert!(ran.stderr.contains("accepts any peer that answers on 192.0.2.1:18516"), "{ran:?}");
}

#[test]
fn a_token_that_can_be_guessed_is_refused() {
    for (token, why) in [("0123456789abcde", "is shorter than 16 bytes"), ("x", "is shorter than 16 bytes")] {
        for role in ["--listen=127.0.0.1:0", "--peer=127.0.0.1:1"] {
            let mut command = self_test(&[role]);
            command.env("RDMA_INIT_TOKEN", token);
            run(command).expect_error(&["RDMA_INIT_TOKEN", why, "openssl rand -hex 16"]);
        }
    }
    let mut command = self_test(&["--listen=127.0.0.1:0"]);
    command.env("RDMA_INIT_TOKEN", std::ffi::OsStr::from_bytes(&[0xff; 32]));
    run(command).expect_error(&["RDMA_INIT_TOKEN is not UTF-8 text"]);
    let mut command = self_test(&["--listen=127.0.0.1:0", "--any-peer"]);
    command.env("RDMA_INIT_TOKEN", TOKEN);
    run(command).expect_error(&["use only one of the two"]);
}

#[test]
fn a_peer_that_sends_something_else_is_named_with_it() {
    let waiting = Waiting::listen(&ONLY);
    // The stream stays open to the end: if it were closed with unread data, the bytes sent would be lost.
    let mut stream = waiting.connect();
    stream.write_all(b"GET /\x1b[31m HTTP/1.1\r\n\r\n").unwrap();
    let ran = waiting.goes_on_waiting_after(
        "is not an rdma-init self-test, or is one of another version: it sent \"GET /",
    );
    assert!(!ran.stderr.contains('\x1b') && !ran.text().contains('\x1b'), "{ran:?}");
}

#[test]
fn a_line_without_end_is_not_read_for_ever() {
    let waiting = Waiting::listen(&ONLY);
    let mut stream = waiting.connect();
    let part = [b'{'; 4096];
    // The node closes the connection before it has read everything.
    let error = loop {
        if let Err(error) = stream.write_all(&part) {
            break error.kind();
        }
    };
    assert!(matches!(error, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error:?}");
    waiting.goes_on_waiting_after("is not an rdma-init self-test");
}

/// The time for a connection ends with the time for all.
#[test]
fn a_peer_that_says_nothing_or_half_of_it_is_not_waited_for() {
    for (part, why) in [("", "has sent nothing for "), ("{\"Greeting\":", "has sent no whole message for ")] {
        let waiting = Waiting::listen_for("5s", &ONLY);
        let mut connection = waiting.connect();
        connection.write_all(part.as_bytes()).unwrap();
        waiting.gives_up(why);
    }
}

#[test]
fn a_peer_that_disconnects_is_noticed_at_every_step() {
    let waiting = Waiting::listen(&ONLY);
    drop(waiting.connect());
    waiting.goes_on_waiting_after("has closed the connection");

    let waiting = Waiting::listen(&ONLY);
    let mut half = waiting.connect();
    half.write_all(b"{\"Greeting\":").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    waiting.goes_on_waiting_after("has closed the connection in the middle of a message");

    let waiting = Waiting::listen(&ONLY);
    drop(Stranger::proven(&waiting));
    waiting.fails("has closed the connection");

    let waiting = Waiting::listen(&[]);
    let mut stranger = Stranger::proven(&waiting);
    stranger.say(&json!({"Node": {"host": "b", "nccl": null, "rails": []}}));
    assert!(stranger.hear().get("Node").is_some());
    drop(stranger);
    let ran = waiting.end().expect_code(1);
    for part in [
        "ok       pair-connect",
        "FAILED: pair-data: b, before any data was moved: ",
        "has closed the connection",
    ] {
        assert!(ran.text().contains(part), "no {part:?} in\n{}", ran.text());
    }
}

#[test]
fn another_version_is_named_by_both() {
    let why = "runs rdma-init 0.0.9 with the protocol rdma-init/pair/1, which cannot test with this one";
    let waiting = Waiting::listen(&ONLY);
    let mut old = Stranger::at(&waiting);
    old.put(&old_greeting());
    // The old node can also recognize that the versions differ.
    let greeting: serde_json::Value = serde_json::from_str(&old.line()).unwrap();
    assert_eq!(greeting["Greeting"]["schema"], "rdma-init/pair/3");
    assert_eq!(greeting["Greeting"]["nonce"].as_array().unwrap().len(), 16);
    waiting.goes_on_waiting_after(why);

    // An old node that listens sends its greeting at once.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut command = self_test(&[&["--peer", &address], &ONLY[..]].concat());
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Stranger::on(listener.accept().unwrap().0).put(&old_greeting());
    let output = process.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(why), "{output:?}");
}

#[test]
fn a_peer_that_does_not_keep_to_the_protocol_is_refused() {
    let waiting = Waiting::listen(&ONLY);
    let mut stranger = Stranger::proven(&waiting);
    stranger.say(&json!({"Done": []}));
    waiting.fails("violates the protocol: it sent Done too early");

    // Control characters in a node's description of itself do not reach the terminal.
    let waiting = Waiting::listen(&[]);
    let mut stranger = Stranger::proven(&waiting);
    let rail = json!({"hca": "a\u{1b}[2J", "port": 1, "driver": null, "firmware": null, "link_layer": "x",
                      "rate": "", "gid_type": null, "gid_index": null, "mtu": null});
    stranger.say(&json!({"Node": {"host": "b\u{1b}[31m", "nccl": "1\n2", "rails": vec![rail; 500]}}));
    stranger.say(&json!({"Ends": []}));
    stranger.say(&json!({"Ready": []}));
    stranger.say(&json!({"Done": []}));
    let ran = waiting.end().expect_code(1);
    assert!(ran.text().contains("FAILED: pair-rails: 0 ports in use here, 500 on b"), "{}", ran.text());
    assert!(!ran.text().contains('\x1b'), "{}", ran.text());

    // Ends of rails that do not exist are not passed to a device, either.
    let end = json!({"number": 17, "lid": 0, "gid": "::ffff:10.0.0.1", "mtu": 4096, "address": 0, "key": 1, "size": 4096});
    let moved =
        json!({"verified": true, "latency_ns": 1, "bandwidth_mbps": 1, "error": null, "skipped": null});
    for messages in [
        vec![json!({"Ends": [end]})],
        vec![json!({"Ends": []}), json!({"Ready": [true]})],
        vec![json!({"Ends": []}), json!({"Ready": []}), json!({"Done": [moved]})],
    ] {
        let waiting = Waiting::listen(&[]);
        let mut stranger = Stranger::proven(&waiting);
        stranger.say(&json!({"Node": {"host": "b", "nccl": null, "rails": []}}));
        messages.iter().for_each(|message| stranger.say(message));
        waiting.fails("violates the protocol: it reports another number of rails");
    }
}

#[test]
fn only_one_peer_is_listened_to_and_no_probe_of_a_port_is_one() {
    let waiting = Waiting::start(self_test(&["--listen", "127.0.0.1:0", "--wait", "30s"]));
    drop(waiting.connect());
    waiting.connect().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut first = Stranger::proven(&waiting);
    assert!(first.hear().get("Node").is_some());
    let second = TcpStream::connect(&waiting.address).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::ConnectionRefused);
    drop(first);
    waiting.fails("has closed the connection");
}

#[test]
fn a_proxy_whose_node_is_not_up_yet_is_tried_again() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap().to_string();
    let mut command = self_test(&[&["--peer", &address, "--wait", "30s"], &ONLY[..]].concat());
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..3 {
        drop(proxy.accept().unwrap());
    }
    let mut other = proxy.accept().unwrap().0;
    other.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("it sent \"SSH-2.0-OpenSSH_9.2\""));
}

#[test]
fn a_node_that_says_nothing_is_tried_again() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let mut command = self_test(&[&["--peer", &address, "--wait", "30s"], &ONLY[..]].concat());
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _first = silent.accept().unwrap();
    // The second connection is to an invalid peer, which sends data.
    silent.accept().unwrap().0.write_all(b"nonsense\n").unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("tries again: 127.0.0.1:"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("it sent \"nonsense\""), "{output:?}");
}

#[test]
fn the_self_test_waits_no_longer_than_asked() {
    for (arguments, why) in [
        (["--listen", "127.0.0.1:0"], "the other node did not connect to 127.0.0.1:"),
        (["--peer", "127.0.0.1:1"], "cannot reach 127.0.0.1:1 within "),
        (["--peer", "no-such-node.invalid"], "cannot reach no-such-node.invalid:18516 within "),
        (["--listen", "192.0.2.1:0"], "cannot listen on 192.0.2.1:0: "),
    ] {
        let mut command = self_test(&[&arguments[..], &["--wait", "500ms"], &ONLY].concat());
        command.env("RDMA_INIT_TOKEN", TOKEN);
        let ran = run(command).expect_code(1);
        assert!(ran.text().contains(why), "no {why:?} in\n{}", ran.text());
    }
}

#[test]
fn what_was_not_tested_has_not_passed() {
    let ran =
        run(self_test(&["--peer", "127.0.0.1:1", "--wait", "300ms", "--only", "pair-data"])).expect_code(1);
    assert!(ran.text().contains("FAILED: pair-connect: cannot reach"), "{}", ran.text());
}

#[test]
fn what_cannot_go_together_is_refused() {
    for arguments in [
        ["--listen", "--peer", "node2"],
        ["--peer", "node2", "--level=quick"],
        ["--peer", "node2", "--facts=demo:erdma"],
        ["--any-peer", "--json", "--level=quick"],
        ["--level", "pair", "--json"],
        ["--size", "100", "--json"],
        ["--peer", "node:port", "--json"],
        ["--listen", "node:70000", "--json"],
        ["--only", "pair-data", "--json"],
        ["--only", "verbs-open", "--level=quick"],
        ["--only", "nccl", "--skip=nccl"],
    ] {
        run(self_test(&arguments)).expect_error(&["rdma-init: "]);
    }
}
