//! The watchers of a job's nodes judge a stall together. Each node has a PID 1 and a made-up /sys, and all of them are
//! on this machine's loopback interface. Their preflight finds no other node, which does not matter here.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc;

use super::watcher::{looks, memory::holds_little, watcher};
use crate::support::one_hca::Host;
use crate::support::poll_until;
use crate::support::port::free_ports;
use crate::support::process::rdma_init;
use crate::support::running::{Running, as_pid_1};

/// States of sockets in /proc/net/tcp (`include/net/tcp_states.h`).
const ESTABLISHED: &str = "01";
const CLOSE_WAIT: &str = "08";

const TOKEN: &str = "a secret of all nodes";

/// A job of some nodes, of which some are started.
struct Job {
    nodes: u32,
    port: u16,
    hosts: Vec<Host>,
    /// After what time without traffic a watcher reports it.
    watch_after: &'static str,
    rails: Mutex<Rails>,
}

/// The counters of all hosts' rails.
struct Rails {
    /// Whether those of each host move data.
    moves: Vec<bool>,
    sent: u64,
}

impl Job {
    fn of(nodes: u32, started: usize) -> Job {
        let hosts = (0..started).map(|_| Host::with_infiniband()).collect();
        Job {
            nodes,
            port: free_ports(2),
            hosts,
            watch_after: "2s",
            rails: Mutex::new(Rails { moves: vec![false; started], sent: 0 }),
        }
    }

    fn command(&self, node: usize, more: &[&str]) -> Command {
        self.command_of(node, more, "echo ready; exec sleep 1000")
    }

    fn command_of(&self, node: usize, more: &[&str], script: &str) -> Command {
        let (nodes, index, meet) =
            (self.nodes.to_string(), node.to_string(), format!("127.0.0.1:{}", self.port));
        let own = ["--preflight", "warn", "--preflight-wait", "100ms", "--preflight-nodes", &nodes];
        let place = ["--preflight-node", &index, "--preflight-meet", &meet];
        let words = ["--watch-after", self.watch_after, "--", "sh", "-c", script];
        let arguments: Vec<&str> = own.iter().chain(&place).chain(more).chain(&words).copied().collect();
        let mut command = self.hosts[node].shows("exec", &arguments);
        command.env("RDMA_INIT_TOKEN", TOKEN);
        command
    }

    /// Starts the nodes, and waits until the watchers of all others are connected to that of node 0.
    fn start(&self, more: &[&str]) -> Vec<Running> {
        let start = |node| {
            let mut running = as_pid_1(self.command(node, more));
            running.wait_for("ready");
            running
        };
        let running: Vec<Running> = (0..self.hosts.len()).map(start).collect();
        self.until_connected(self.hosts.len() - 1);
        running
    }

    /// Waits until so many nodes are connected, and node 0's watcher has closed the connections of the others.
    fn until_connected(&self, count: usize) {
        poll_until("the watchers are connected", || {
            (self.sockets(ESTABLISHED) == count && self.sockets(CLOSE_WAIT) == 0).then_some(())
        });
    }

    /// Waits until node 0 has heard that a node is gone, and the watchers of the others have then seen data move.
    fn until_seen_gone(&self, others: &[Running]) {
        self.until_connected(others.len() - 1);
        self.until_moved();
        others.iter().for_each(|node| looks(watcher(node.pid), 5));
    }

    /// Waits until the rails have moved some more.
    fn until_moved(&self) {
        let sent = || self.rails.lock().unwrap().sent;
        let before = sent();
        poll_until("the rails move", || (sent() > before + (3 << 24)).then_some(()));
    }

    /// How many sockets on the port of node 0's watcher have this state.
    fn sockets(&self, state: &str) -> usize {
        let port = format!(":{:04X}", self.port + 1);
        let is_one = |line: &&str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(1).is_some_and(|own| own.ends_with(&port)) && fields.get(3) == Some(&state)
        };
        let table = |path| fs::read_to_string(path).unwrap().lines().filter(is_one).count();
        table("/proc/net/tcp") + table("/proc/net/tcp6")
    }

    /// Runs `work` while the rails move that are to.
    fn while_moving<T>(&self, work: impl FnOnce() -> T) -> T {
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    self.send(&mut self.rails.lock().unwrap());
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let _ends = Ends(&ends);
            work()
        })
    }

    /// Moves data over the rails that are to, at the same time: a busy machine can hold this up in the middle, and it is
    /// then done once more.
    fn send(&self, rails: &mut Rails) {
        loop {
            // More than what manages InfiniBand.
            rails.sent += 1 << 24;
            let began = Instant::now();
            for (host, _) in self.hosts.iter().zip(&rails.moves).filter(|(_, moves)| **moves) {
                host.port("counters/port_xmit_data", &rails.sent.to_string());
            }
            if began.elapsed() < Duration::from_millis(100) {
                return;
            }
        }
    }

    /// Lets the rails of all nodes move data, and waits until their watchers have seen it.
    fn move_all(&self, nodes: &mut [Running]) {
        nodes.iter_mut().for_each(|node| node.wait_for_error("no data has moved over mlx5_0 in the first "));
        self.set(0..nodes.len(), true);
        nodes.iter_mut().for_each(|node| node.wait_for_error("Data moves over mlx5_0, after "));
    }

    /// Starts or ends the traffic of these nodes, all together.
    fn set(&self, nodes: impl IntoIterator<Item = usize>, moves: bool) {
        let mut rails = self.rails.lock().unwrap();
        nodes.into_iter().for_each(|node| rails.moves[node] = moves);
    }
}

/// Sets it at the end, also if a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn end(running: Running) -> String {
    running.kill(libc::SIGTERM);
    running.end().expect_code(143).stderr
}

#[test]
fn node_0_says_one_line_for_a_job_that_stalls_and_its_end_changes_nothing_for_the_others() {
    let job = Job::of(3, 3);
    let mut nodes = job.start(&[]);
    job.while_moving(|| {
        job.move_all(&mut nodes);
        job.set([2], false);
        // The subject is how far apart in time the nodes stop: the watcher of node 2 has seen long that nothing moves,
        // when those of the others still see data move.
        looks(watcher(nodes[2].pid), 10);
        job.until_moved();
        (0..2).for_each(|node| looks(watcher(nodes[node].pid), 2));
        job.hosts[2].port("hw_counters/req_transport_retries_exceeded", "2");
        job.set(0..2, false);
        nodes[0].wait_for_error("The job has stalled since ");
        nodes[0].wait_for_error("all others wait.");
        job.set([0], true);
        nodes[0].wait_for_error("The job moves data again, after ");
    });
    let said = end(nodes.remove(0));
    assert_eq!(said.matches("The job has stalled").count(), 1, "{said}");
    let line = said.lines().find(|line| line.contains("The job has stalled")).unwrap();
    assert!(
        line.starts_with("rdma-init: warning: ") && line.contains(" (node 2) stopped first, at "),
        "{line}"
    );
    assert!(line.contains(" (node 2)'s mlx5_0 counted 2 failed queue pairs; all others wait."), "{line}");
    job.until_connected(0);
    for node in nodes {
        let said = end(node);
        assert!(!said.contains("The job has") && !said.contains("watchers"), "{said}");
    }
}

#[test]
fn nodes_that_have_gone_or_never_came_are_told() {
    let job = Job::of(4, 3);
    let mut nodes = job.start(&[]);
    job.while_moving(|| {
        job.move_all(&mut nodes);
        let gone = nodes.remove(2);
        gone.kill(libc::SIGKILL);
        gone.end();
        job.until_seen_gone(&nodes);
        job.set(0..2, false);
        nodes[0].wait_for_error(" (node 2) disconnected first, at ");
        nodes[0].wait_for_error("; 2 other nodes wait; ");
        nodes[0].wait_for_error("; 1 node has never connected.");
    });
    nodes.into_iter().for_each(|node| drop(end(node)));
}

/// The connection closes in both cases: here, the watcher says before that how the command ended.
#[test]
fn how_the_command_of_a_node_ended_is_told() {
    let job = Job::of(3, 3);
    let mut nodes = job.start(&[]);
    job.while_moving(|| {
        job.move_all(&mut nodes);
        end(nodes.remove(2));
        job.until_seen_gone(&nodes);
        job.set(0..2, false);
        nodes[0].wait_for_error(" (node 2)'s command was killed by SIGTERM first, at ");
        nodes[0].wait_for_error("; all others wait.");
    });
    nodes.into_iter().for_each(|node| drop(end(node)));
}

/// The kill reaches every process of the container. Before that, the watcher has a tenth of a second to say how the
/// command ends, which is too short for it on a busy machine now and then.
#[test]
fn a_node_that_is_killed_after_its_stop_timeout_says_so() {
    let tries = (0..3).map(|_| told_of_one_that_was_killed());
    let said: Vec<String> = tries.take_while(|said| !said.contains(KILLED)).collect();
    assert!(said.len() < 3, "{said:#?}");
}

const KILLED: &str = " (node 2)'s command was killed by SIGKILL first, at ";

/// Returns what node 0 says of a job in which node 2 was killed after its stop timeout.
fn told_of_one_that_was_killed() -> String {
    let job = Job::of(3, 3);
    let mut nodes: Vec<Running> = (0..3)
        .map(|node| {
            let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
            let mut running = as_pid_1(job.command_of(node, &["--stop-timeout", "300ms"], script));
            running.wait_for("ready");
            running
        })
        .collect();
    job.until_connected(2);
    job.while_moving(|| {
        job.move_all(&mut nodes);
        let killed = nodes.remove(2);
        killed.kill(libc::SIGTERM);
        let said = killed.end().expect_code(137).stderr;
        assert!(said.contains("were killed") && !said.contains("The watcher's last look"), "{said}");
        job.until_seen_gone(&nodes);
        job.set(0..2, false);
        nodes[0].wait_for_error(" first, at ");
    });
    let ended = nodes.into_iter().map(|node| {
        node.kill(libc::SIGTERM);
        node.end().expect_code(137).stderr
    });
    ended.collect::<Vec<String>>().swap_remove(0)
}

/// A node that pauses for three intervals has stopped; on a busy machine, what moves the rail of node 1 may pause for
/// seconds.
#[test]
fn a_job_that_moves_on_one_node_is_not_stalled() {
    let job = Job { watch_after: "10s", ..Job::of(2, 2) };
    let mut nodes = job.start(&["--log-level", "debug", "--watch-interval", "2s"]);
    job.while_moving(|| {
        job.move_all(&mut nodes);
        job.set([0], false);
        nodes[0].wait_for_error("after earlier traffic: the job may have stalled.");
        // It asks again.
        nodes[0].wait_for_error("the job's watchers: a node still moves data");
        nodes[0].wait_for_error("the job's watchers: a node still moves data");
    });
    let said = nodes.into_iter().map(end).next().unwrap();
    assert!(!said.contains("The job has stalled"), "{said}");
}

#[test]
fn the_watcher_listens_on_a_port_of_its_own_or_not_at_all() {
    let job = Job::of(2, 1);
    let mut node = as_pid_1(job.command(0, &[]));
    poll_until("node 0's watcher listens", || (job.sockets("0A") == 1).then_some(()));
    // The port of the preflight is free for another one.
    let meet = format!("127.0.0.1:{}", job.port);
    let start = |node: &str| {
        let mut command = rdma_init(["preflight", "--nodes", "2", "--node", node, "--meet", &meet]);
        command.env("RDMA_INIT_TOKEN", TOKEN).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    for mut preflight in [start("0"), start("1")] {
        assert!(preflight.wait().unwrap().success());
    }
    node.wait_for("ready");
    end(node);
    poll_until("the port is closed", || (job.sockets("0A") == 0).then_some(()));
    let off = [("--watch-job=false", true), ("--watch-job=true", false)];
    for (option, has_token) in off {
        let mut command = job.command(0, &[option]);
        if !has_token {
            command.env_remove("RDMA_INIT_TOKEN");
        }
        let mut node = as_pid_1(command);
        node.wait_for("ready");
        job.hosts[0].port("state", "1: DOWN");
        node.wait_for_error("mlx5_0 is no longer active.");
        assert_eq!(job.sockets("0A"), 0, "{option}");
        job.hosts[0].port("state", "4: ACTIVE");
        end(node);
    }
}

#[test]
fn watchers_that_are_connected_hold_less_than_a_megabyte() {
    let job = Job::of(2, 2);
    let nodes = job.start(&["--watch-metrics", "/dev/shm/rdma.prom"]);
    nodes.iter().for_each(|node| holds_little(watcher(node.pid)));
    nodes.into_iter().for_each(|node| drop(end(node)));
}
