//! Nodes for the tests of `self-test --listen` and `--peer`: a process that waits for the other node, and an
//! invalid peer that follows the protocol only partially.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use hmac_sha256::{HKDF, HMAC, Hash};
use serde_json::{Value, json};

use super::run::{Ran, rdma_init, run};

pub const ONLY: [&str; 2] = ["--only", "pair-connect"];

pub const TOKEN: &str = "a secret of 2 nodes";

pub fn self_test(arguments: &[&str]) -> Command {
    rdma_init(["self-test"].iter().chain(arguments))
}

/// A self-test that waits for the other node.
pub struct Waiting {
    process: Child,
    messages: BufReader<std::process::ChildStderr>,
    pub address: String,
    /// What was read of its standard error.
    pub said: String,
    token: OsString,
}

impl Waiting {
    pub fn start(mut command: Command) -> Waiting {
        let token = command.get_envs().find(|(name, _)| *name == "RDMA_INIT_TOKEN");
        let token = token.and_then(|(_, token)| token).unwrap_or_default().to_owned();
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        messages.read_line(&mut line).unwrap();
        let rest = line.strip_prefix("rdma-init: waits on ").unwrap_or_else(|| panic!("{line:?}"));
        let address = rest.split_once(" for another node's self-test --peer").unwrap().0.to_owned();
        Waiting { process, messages, address, said: line, token }
    }

    /// Starts a process that waits for the other node and has a token.
    pub fn guarded(more: &[&str]) -> Waiting {
        let arguments = ["--listen", "127.0.0.1:0", "--wait", "30s"];
        let mut command = self_test(&[&arguments, more].concat());
        command.env("RDMA_INIT_TOKEN", TOKEN);
        Waiting::start(command)
    }

    pub fn listen(more: &[&str]) -> Waiting {
        Waiting::listen_for("30s", more)
    }

    pub fn listen_for(wait: &str, more: &[&str]) -> Waiting {
        let arguments = ["--listen", "127.0.0.1:0", "--wait", wait];
        Waiting::start(self_test(&[&arguments, more].concat()))
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    pub fn end(mut self) -> Ran {
        self.messages.read_to_string(&mut self.said).unwrap();
        let output = self.process.wait_with_output().unwrap();
        Ran { code: output.status.code(), signal: None, stdout: output.stdout, stderr: self.said }
    }

    /// Expects that the process waits until its time limit, and then reports why it rejected a connection.
    #[track_caller]
    pub fn gives_up(self, why: &str) {
        let ran = self.end().expect_code(1);
        let start = "FAILED: pair-connect: the other node did not connect to 127.0.0.1:";
        assert!(ran.text().contains(start) && ran.text().contains(why), "no {why:?} in\n{}", ran.text());
        assert!(ran.stderr.contains("is still waiting: ") && ran.stderr.contains(why), "{}", ran.stderr);
    }

    /// Expects that the process reports why it rejects a connection, and still finds the other node.
    #[track_caller]
    pub fn goes_on_waiting_after(mut self, why: &str) -> Ran {
        let is_told = |line: &str| line.contains("is still waiting: ") && line.contains(why);
        while !self.said.lines().any(is_told) {
            let length = self.messages.read_line(&mut self.said).unwrap();
            assert!(length > 0, "no {why:?} in\n{}", self.said);
        }
        let mut other = self_test(&[&["--peer", &self.address], &ONLY[..]].concat());
        other.env("RDMA_INIT_TOKEN", &self.token);
        run(other).expect_code(0);
        self.end().expect_code(0)
    }

    /// Expects that the process found its node and then failed.
    #[track_caller]
    pub fn fails(self, why: &str) {
        let ran = self.end().expect_code(1);
        assert!(ran.text().contains(why), "no {why:?} in\n{}", ran.text());
    }
}

/// A node that follows the protocol only partially. It shares no code with the program.
pub struct Stranger {
    pub out: TcpStream,
    lines: BufReader<TcpStream>,
    keys: [[u8; 32]; 2],
    sent: u64,
}

impl Stranger {
    pub fn on(out: TcpStream) -> Stranger {
        Stranger { lines: BufReader::new(out.try_clone().unwrap()), out, keys: Default::default(), sent: 0 }
    }

    pub fn at(waiting: &Waiting) -> Stranger {
        Stranger::on(waiting.connect())
    }

    /// Sends a line unchanged, without a code.
    pub fn put(&mut self, line: &str) {
        self.out.write_all(line.as_bytes()).unwrap();
    }

    /// Returns the next line; empty if the connection is closed.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        // The other end may have closed with unread data, which is an error here.
        let _ = self.lines.read_line(&mut line);
        line
    }

    /// Sends a message as the first side.
    pub fn say(&mut self, message: &Value) {
        let line = sealed(&self.keys[0], self.sent, message);
        self.sent += 1;
        self.put(&line);
    }

    /// Receives a message from the second side.
    pub fn hear(&mut self) -> Value {
        let line = self.line();
        let (_, text) = line.split_once(' ').unwrap_or_else(|| panic!("no code: {line:?}"));
        serde_json::from_str(text).unwrap()
    }

    /// Connects as the first side and exchanges the greetings.
    pub fn greeted(waiting: &Waiting, token: &str) -> Stranger {
        let mut stranger = Stranger::at(waiting);
        let own = greeting();
        stranger.put(&own);
        let other = stranger.line();
        assert!(other.starts_with("{\"Greeting\":"), "{other}");
        stranger.keys = keys(token, &own, &other);
        stranger
    }

    /// Connects as the first side and continues until both sides have proven that they know the token.
    pub fn proven(waiting: &Waiting) -> Stranger {
        let mut stranger = Stranger::greeted(waiting, "");
        stranger.say(&json!({"Hello": {"longest_ms": 0}}));
        assert!(stranger.hear().get("Hello").is_some());
        stranger
    }
}

pub fn greeting() -> String {
    greeting_of("rdma-init/pair/3", "9.9.9")
}

/// Returns the greeting of the protocol's earlier version.
pub fn old_greeting() -> String {
    greeting_of("rdma-init/pair/1", "0.0.9")
}

fn greeting_of(schema: &str, program: &str) -> String {
    let nonce = [7; 16];
    format!("{}\n", json!({"Greeting": {"schema": schema, "program": program, "nonce": nonce}}))
}

/// Returns the keys for the first side's and the second side's messages.
pub fn keys(token: &str, first: &str, second: &str) -> [[u8; 32]; 2] {
    let secret = HKDF::extract("rdma-init/pair/3", token);
    let [first, second] = [first, second].map(|line| Hash::hash(line.as_bytes()));
    ["first", "second"].map(|side| {
        let mut key = [0; 32];
        let purpose = format!("messages of the {side} side");
        HKDF::expand(&mut key, secret, [purpose.as_bytes(), &first, &second].concat());
        key
    })
}

pub fn sealed(key: &[u8; 32], number: u64, message: &Value) -> String {
    let text = message.to_string();
    let code = HMAC::mac([&number.to_be_bytes(), text.as_bytes()].concat(), key);
    let code: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{code} {text}\n")
}
