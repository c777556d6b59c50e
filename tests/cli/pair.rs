//! `self-test --listen` and `--peer`: two nodes that find each other, and whoever else
//! may come.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::run::{Ran, rdma_init, run};

const ONLY: [&str; 2] = ["--only", "pair-connect"];

fn self_test(arguments: &[&str]) -> Command {
    rdma_init(["self-test"].iter().chain(arguments))
}

/// A process that waits for its other node.
struct Waiting {
    process: Child,
    messages: BufReader<std::process::ChildStderr>,
    address: String,
}

impl Waiting {
    fn start(mut command: Command) -> Waiting {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        messages.read_line(&mut line).unwrap();
        assert!(line.starts_with("rdma-init: waits for another node"), "{line:?}");
        let address = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        Waiting { process, messages, address }
    }

    fn listen(more: &[&str]) -> Waiting {
        let arguments = ["--listen", "127.0.0.1:0", "--wait", "3s"];
        Waiting::start(self_test(&[&arguments, more].concat()))
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    fn end(mut self) -> Ran {
        let mut stderr = String::new();
        self.messages.read_to_string(&mut stderr).unwrap();
        let output = self.process.wait_with_output().unwrap();
        Ran { code: output.status.code(), signal: None, stdout: output.stdout, stderr }
    }

    /// It goes on waiting, up to its time, and says for whom it did not.
    #[track_caller]
    fn sends_away(self, why: &str) {
        let ran = self.end().expect_code(1);
        let start = "FAILED: pair-connect: no node of ours has come to 127.0.0.1:";
        assert!(ran.text().contains(start) && ran.text().contains(why), "no {why:?} in\n{}", ran.text());
        assert!(ran.stderr.contains("goes on waiting: ") && ran.stderr.contains(why), "{}", ran.stderr);
    }

    /// It had found its node, and fails.
    #[track_caller]
    fn fails(self, why: &str) {
        let ran = self.end().expect_code(1);
        assert!(ran.text().contains(why), "no {why:?} in\n{}", ran.text());
    }
}

/// One that speaks the protocol as far as it likes.
struct Stranger {
    out: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Stranger {
    fn at(waiting: &Waiting) -> Stranger {
        let out = waiting.connect();
        Stranger { lines: BufReader::new(out.try_clone().unwrap()), out }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.out, "{message}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Up to where both know each other.
    fn proven(waiting: &Waiting) -> Stranger {
        let mut stranger = Stranger::at(waiting);
        let own = [7u8; 16];
        stranger.say(&json!({"Greeting": {"schema": "rdma-init/pair/1", "program": "0.1.0", "nonce": own}}));
        let greeting = stranger.hear();
        let other = greeting["Greeting"]["nonce"].as_array().unwrap().iter();
        let other: Vec<u8> = other.map(|byte| byte.as_u64().unwrap() as u8).collect();
        let signed = [b"rdma-init/pair/1", &b"first"[..], &own, &other].concat();
        let mac = hmac_sha256::HMAC::mac(signed, b"");
        stranger.say(&json!({"Proof": {"mac": mac, "longest_ms": 0}}));
        assert!(stranger.hear().get("Proof").is_some());
        stranger
    }
}

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
fn whoever_comes_first_may_come_later() {
    // A port that nobody has, but for the time of a wink.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut command = self_test(&["--peer", &address, "--wait", "30s"]);
    let mut connecting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(connecting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("tries to reach 127.0.0.1:") && line.contains("refused"), "{line}");
    let ran = run(self_test(&["--listen", &address, "--wait", "30s"])).expect_code(1);
    assert!(ran.text().contains("ok       pair-connect"), "{}", ran.text());
    let output = connecting.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("ok       pair-connect"));
}

#[test]
fn a_token_must_be_the_same_on_both() {
    for (here, there, code) in
        [("secret", "secret", 0), ("secret", "other", 1), ("", "secret", 1), ("secret", "", 1)]
    {
        let mut listen = self_test(&[&["--listen", "127.0.0.1:0", "--wait", "3s"], &ONLY[..]].concat());
        listen.env("RDMA_INIT_TOKEN", here);
        let listening = Waiting::start(listen);
        let mut connect = self_test(&[&["--peer", &listening.address], &ONLY[..]].concat());
        connect.env("RDMA_INIT_TOKEN", there);
        let both = [run(connect), listening.end()].map(|ran| ran.expect_code(code));
        if code == 1 {
            assert!(both.iter().any(|ran| ran.text().contains("not the same token")), "{both:?}");
        }
        for ran in both {
            assert!(!ran.text().contains("secret") && !ran.stderr.contains("secret"), "{ran:?}");
        }
    }
}

#[test]
fn a_peer_that_sends_something_else_is_named_with_it() {
    let waiting = Waiting::listen(&ONLY);
    // Open to the end: what is closed with something unread takes back what it has sent.
    let mut stream = waiting.connect();
    stream.write_all(b"GET /\x1b[31m HTTP/1.1\r\n\r\n").unwrap();
    let ran = waiting.end().expect_code(1);
    assert!(
        ran.text().contains("is no rdma-init self-test, or another version: it sent \"GET /"),
        "{}",
        ran.text()
    );
    assert!(!ran.text().contains('\x1b'), "{}", ran.text());
}

#[test]
fn a_line_without_end_is_not_read_for_ever() {
    let waiting = Waiting::listen(&ONLY);
    let mut stream = waiting.connect();
    let part = [b'{'; 4096];
    // It closes the connection before it has taken all of it.
    let error = loop {
        if let Err(error) = stream.write_all(&part) {
            break error.kind();
        }
    };
    assert!(matches!(error, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error:?}");
    waiting.sends_away("is no rdma-init self-test");
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for() {
    let waiting = Waiting::listen(&ONLY);
    let _silent = waiting.connect();
    waiting.sends_away("has sent nothing for ");
}

#[test]
fn a_peer_that_says_half_of_it_is_not_waited_for() {
    let waiting = Waiting::listen(&ONLY);
    let mut slow = waiting.connect();
    slow.write_all(b"{\"Greeting\":").unwrap();
    waiting.sends_away("has sent no whole message for ");
}

#[test]
fn a_peer_that_goes_is_noticed_wherever_it_was() {
    let waiting = Waiting::listen(&ONLY);
    drop(waiting.connect());
    waiting.sends_away("has closed the connection");

    let waiting = Waiting::listen(&ONLY);
    let mut half = waiting.connect();
    half.write_all(b"{\"Greeting\":").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    waiting.sends_away("has closed the connection in the middle of a message");

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
        "FAILED: pair-data: b, before data was moved: ",
        "has closed the connection",
    ] {
        assert!(ran.text().contains(part), "no {part:?} in\n{}", ran.text());
    }
}

#[test]
fn another_version_is_named() {
    let waiting = Waiting::listen(&ONLY);
    let mut stranger = Stranger::at(&waiting);
    let nonce = [0u8; 16];
    stranger.say(&json!({"Greeting": {"schema": "rdma-init/pair/2", "program": "9.1.0", "nonce": nonce}}));
    waiting.sends_away("runs rdma-init 9.1.0, which cannot test with this one");
}

#[test]
fn a_peer_that_does_not_keep_to_the_protocol_is_refused() {
    let waiting = Waiting::listen(&ONLY);
    let mut stranger = Stranger::proven(&waiting);
    stranger.say(&json!({"Done": []}));
    waiting.fails("does not keep to the protocol: it sent Done too early");

    // What it says of itself reaches no terminal as it is.
    let waiting = Waiting::listen(&[]);
    let mut stranger = Stranger::proven(&waiting);
    let rail = json!({"hca": "a\u{1b}[2J", "port": 1, "driver": null, "firmware": null, "link_layer": "x",
                      "rate": "", "gid_type": null, "gid_index": null, "mtu": null});
    stranger.say(&json!({"Node": {"host": "b\u{1b}[31m", "nccl": "1\n2", "rails": vec![rail; 500]}}));
    stranger.say(&json!({"Ends": [null, null]}));
    stranger.say(&json!({"Ready": [true]}));
    stranger.say(&json!({"Done": [{"verified": true, "latency_ns": 1, "bandwidth_mbps": 1, "error": null, "skipped": null}]}));
    let ran = waiting.end().expect_code(1);
    assert!(ran.text().contains("FAILED: pair-rails: 0 ports in use here, 500 on b"), "{}", ran.text());
    assert!(!ran.text().contains('\x1b'), "{}", ran.text());
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
fn nobody_is_waited_for_longer_than_asked() {
    for (arguments, why) in [
        (["--listen", "127.0.0.1:0"], "no node has come to 127.0.0.1:"),
        (["--peer", "127.0.0.1:1"], "cannot reach 127.0.0.1:1 within "),
        (["--peer", "no-such-node.invalid"], "cannot reach no-such-node.invalid:18516 within "),
        (["--listen", "192.0.2.1:0"], "cannot listen on 192.0.2.1:0: "),
    ] {
        let ran = run(self_test(&[&arguments[..], &["--wait", "500ms"], &ONLY].concat())).expect_code(1);
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
