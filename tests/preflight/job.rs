//! A job whose nodes are processes.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rdma_init::preflight::meet::schedule::Extent;
use rdma_init::preflight::meet::times::Times;
use rdma_init::preflight::meet::zero::Terms;

use crate::support::nodes::{Nodes, address};
use crate::support::port::free_port;
use crate::support::process::{rdma_init, surroundings};
use crate::support::running::children;
use crate::support::{DEADLINE, binary, poll_for, skip};

pub const TOKEN: &str = "a secret of all nodes";

/// A job of some nodes, whose rendezvous is at one port.
pub struct Job {
    pub nodes: u32,
    pub port: u16,
}

impl Job {
    /// Returns a job at a port of its own.
    pub fn of(nodes: u32) -> Job {
        Job { nodes, port: free_port() }
    }

    pub fn meet(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the settings of node 0 for a test that acts as node 0; each pair of ports may take this
    /// long.
    pub fn terms(&self, each: Duration) -> Terms<'static> {
        // All nodes join, however long that takes on a busy machine.
        let wait = Duration::from_secs(600);
        Terms {
            nodes: self.nodes,
            job: None,
            meet: self.meet(),
            unresolved: None,
            wait,
            until: Instant::now() + wait,
            alone_after: None,
            token: TOKEN,
            extent: Extent::Doubling,
            times: Times { each },
            names: &[],
            are_names_certain: false,
            left_out: &[],
            say: &|_| {},
            show: None,
        }
    }

    /// Returns the command of a node with these options.
    pub fn command(&self, node: u32, options: &[&str]) -> Command {
        let (nodes, index, meet) = (self.nodes.to_string(), node.to_string(), self.meet());
        let own = ["preflight", "--nodes", &nodes, "--node", &index, "--meet", &meet];
        let mut command = rdma_init(own.iter().chain(options));
        command.env("RDMA_INIT_TOKEN", TOKEN);
        command
    }

    /// Returns the command of a node that is one of these namespaces; node 0 is the first of them.
    pub fn command_in(&self, nodes: &Nodes, node: u32, options: &[&str]) -> Command {
        let meet = format!("{}:{}", address(0, 0), self.port);
        let (all, index) = (self.nodes.to_string(), node.to_string());
        let own = ["preflight", "--nodes", &all, "--node", &index, "--meet", &meet];
        let mut command = nodes.on(node as usize, &binary());
        command.args(own.iter().chain(options));
        surroundings(&mut command).env("RDMA_INIT_TOKEN", TOKEN);
        command
    }

    /// Returns the command of a node that Slurm started on a host called `node3`.
    pub fn of_slurm(&self, node: u32, mut command: Command) -> Command {
        command
            .env("SLURM_STEP_NODELIST", format!("node[0-{}]", self.nodes - 1))
            .env("SLURM_STEP_NUM_NODES", self.nodes.to_string())
            .env("SLURM_NODEID", node.to_string());
        command
    }

    pub fn start(&self, node: u32, options: &[&str]) -> Node {
        Node::start(node, self.command(node, options))
    }

    /// Starts all nodes, and returns them in order.
    pub fn all(&self, options: &[&str]) -> Vec<Node> {
        (0..self.nodes).map(|node| self.start(node, options)).collect()
    }
}

/// A process that acts as a node. It is killed when this value is dropped.
pub struct Node {
    pub name: String,
    child: Child,
    streams: [Stream; 2],
}

#[derive(Debug)]
pub struct Ended {
    pub name: String,
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Node {
    /// Starts a process on a host called `node3`.
    pub fn start(node: u32, mut command: Command) -> Node {
        let name = format!("node{node}");
        let host = name.clone();
        // SAFETY: only system calls, with data that was made before.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::unshare(libc::CLONE_NEWUTS) == 0 {
                    libc::sethostname(host.as_ptr().cast(), host.len());
                }
                Ok(())
            });
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let streams = [Stream::of(child.stdout.take().unwrap()), Stream::of(child.stderr.take().unwrap())];
        Node { name, child, streams }
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Signals the process, and the one that takes part for it.
    pub fn signal(&self, signal: Signal) {
        // A process that is stopped starts no other one.
        kill(Pid::from_raw(self.pid()), signal).unwrap();
        for child in children(self.pid()) {
            let _ = kill(Pid::from_raw(child), signal);
        }
    }

    /// Waits until standard error contains this text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let found = poll_for(DEADLINE, || self.streams[1].so_far().contains(text).then_some(()));
        assert!(found.is_some(), "{}: no {text:?} in\n{}", self.name, self.streams[1].so_far());
    }

    /// Waits until standard error contains this text this many times. Returns `false` if the process ends
    /// first.
    #[track_caller]
    pub fn wait_for_count(&mut self, text: &str, count: usize) -> bool {
        let found = poll_for(DEADLINE, || {
            let has_ended = self.child.try_wait().unwrap().is_some();
            let is_there = self.streams[1].so_far().matches(text).count() >= count;
            (is_there || has_ended).then_some(is_there)
        });
        let so_far = || self.streams[1].so_far();
        found.unwrap_or_else(|| panic!("{}: not {count} times {text:?} in\n{}", self.name, so_far()))
    }

    /// Waits for the end of the node.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let status = poll_for(DEADLINE, || self.child.try_wait().unwrap());
        let [stdout, stderr] = [0, 1].map(|stream| self.streams[stream].so_far());
        let Some(status) = status else { panic!("{} has not ended\n{stdout}\n{stderr}", self.name) };
        let [stdout, stderr] = [0, 1].map(|stream| self.streams[stream].all());
        Ended { name: self.name.clone(), code: status.code(), stdout, stderr }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Returns everything that the node has printed.
    pub fn said(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    #[track_caller]
    pub fn expect(&self, text: &str) {
        assert!(self.said().contains(text), "no {text:?} in {self:#?}");
    }

    /// Expects that the verdict blames this node, and none of the others.
    #[track_caller]
    pub fn accuses(&self, node: u32, of: u32) {
        let is_said = |line: &&str| line.contains("FAILED") || line.contains("preflight failed");
        let verdict: String = self.stdout.lines().filter(is_said).collect();
        let own = format!("node{node}");
        assert!(verdict.contains(&own), "no {own} in {self:#?}");
        for other in (0..of).filter(|other| *other != node && format!("node{other}") != self.name) {
            assert!(!verdict.contains(&format!("node{other}")), "node{other} in {self:#?}");
        }
    }
}

/// The output of a process, which is read while it runs.
struct Stream {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn of(mut source: impl Read + Send + 'static) -> Stream {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = source.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Stream { text, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    /// Returns everything, once the process has ended.
    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.so_far()
    }
}

/// Returns whether processes can have their own host names here, and prints a message if not.
pub fn has_names() -> bool {
    let may = Command::new("unshare").args(["--uts", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        skip("host names of their own need root");
    }
    may
}
