//! Measures how the preflight grows with the number of nodes, on this machine: nodes as processes that test
//! the fabric over TCP, and thin nodes that only join and report. `make bench` runs it, and `make bench
//! BENCHES=preflight` runs only this.

mod machine;
#[allow(dead_code)]
#[path = "../support/paths.rs"]
mod paths;

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rdma_init::compare::brief::Brief;
use rdma_init::preflight::judge::judging::{Limits, collect_inputs};
use rdma_init::preflight::judge::verdict::judge;
use rdma_init::preflight::meet::message::{Join, MEETING, Order, ToNode, ToZero, Told};
use rdma_init::preflight::meet::schedule::{Extent, Schedule};
use rdma_init::preflight::meet::times::Times;
use rdma_init::preflight::meet::zero::{Terms, Zero};
use rdma_init::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};
use rdma_init::preflight::who::addresses::Addresses;
use rdma_init::preflight::who::own::Network;
use rdma_init::wire::connection::Connection;
use rdma_init::wire::listen::{Listener, allow_connections};
use rdma_init::wire::{Channel, reach};
use serde_json::json;

const TOKEN: &str = "a secret of the benchmark";

/// The numbers of nodes that are processes, and of thin nodes.
const PROCESSES: [u32; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
const THIN: [u32; 4] = [256, 1024, 2048, 4096];

/// The benchmark fails if these are exceeded.
const LONGEST: Duration = Duration::from_secs(60);
const LARGEST_KB: u64 = 100 * 1024;

/// One of these words after `--` selects one part.
const PARTS: [&str; 2] = ["processes", "thin"];

/// The argument that makes a process of this program node 0 of thin nodes.
const ZERO: &str = "--zero";

/// The number of threads that the thin nodes share.
const THREADS: u32 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, nodes, port] = &arguments[..]
        && word == ZERO
    {
        thin_zero(nodes.parse().expect("a number"), port.parse().expect("a port"));
        return ExitCode::SUCCESS;
    }
    let wanted = |word: &str| !arguments.iter().any(|one| PARTS.contains(&one.as_str()) && one != word);
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    let program = format!("rdma-init {}, {build}", env!("CARGO_PKG_VERSION"));
    println!("{}", machine::machine("The preflight's growth", &program));
    println!("Nodes as processes, which share the CPUs of this machine, over TCP, one rail each:\n");
    println!(
        "| nodes | rounds | pairs | seconds in all | ms for a node and round | peak RSS of node 0, MB |\n|---:|---:|---:|---:|---:|---:|"
    );
    let mut held = true;
    for nodes in PROCESSES.into_iter().filter(|_| wanted("processes")) {
        let (time, peak) = processes(nodes);
        let schedule = Schedule { nodes, extent: Extent::Doubling };
        let pairs: usize = (0..schedule.rounds()).map(|round| schedule.pairs(round).count()).sum();
        let seconds = time.as_secs_f64();
        let each = seconds * 1000.0 / f64::from(nodes * schedule.rounds());
        println!(
            "| {nodes} | {} | {pairs} | {seconds:.1} | {each:.1} | {:.1} |",
            schedule.rounds(),
            peak as f64 / 1024.0
        );
        held &= time < LONGEST;
    }
    println!("\nThin nodes, which meet, say that their pairs passed on 8 rails, and hear the verdict:\n");
    println!(
        "| nodes | seconds in all | processor seconds of node 0 | ms of them for a node | peak RSS of node 0, MB |\n|---:|---:|---:|---:|---:|"
    );
    for nodes in THIN.into_iter().filter(|_| wanted("thin")) {
        let (time, processor, peak) = thin(nodes);
        let (seconds, each) = (time.as_secs_f64(), processor * 1000.0 / f64::from(nodes));
        println!("| {nodes} | {seconds:.1} | {processor:.2} | {each:.2} | {:.1} |", peak as f64 / 1024.0);
        held &= peak < LARGEST_KB;
    }
    if held {
        return ExitCode::SUCCESS;
    }
    eprintln!("more than {LONGEST:?} or {LARGEST_KB} kB");
    ExitCode::FAILURE
}

/// Returns a free port below the range from which the kernel takes ports for connections
/// (`net.ipv4.ip_local_port_range`): within that range, one of thousands of nodes might take it.
fn free_port() -> u16 {
    (20_000..32_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

fn node(port: u16, nodes: u32, node: u32) -> Command {
    let mut command = Command::new(paths::binary());
    command.args(["preflight", "--nodes", &nodes.to_string(), "--node", &node.to_string()]);
    command.args(["--meet", &format!("127.0.0.1:{port}")]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    command.env("RDMA_INIT_TOKEN", TOKEN).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Returns how long a job of processes takes, and the peak memory of node 0 in kB.
fn processes(nodes: u32) -> (Duration, u64) {
    let port = free_port();
    let start = Instant::now();
    let zero = First::start(node(port, nodes, 0));
    let others: Vec<Child> = (1..nodes)
        .map(|index| node(port, nodes, index).stderr(Stdio::null()).spawn().expect("a node starts"))
        .collect();
    for mut other in others {
        assert!(other.wait().expect("it ends").success(), "a node has failed");
    }
    let (peak, _) = zero.end();
    (start.elapsed(), peak)
}

/// Node 0, whose memory and time are read when its rounds are over.
struct First {
    child: Child,
    lines: std::thread::JoinHandle<Option<(u64, f64)>>,
}

impl First {
    /// Starts node 0. It writes its debug messages while it is still running, so its memory and time can be
    /// read after the last one.
    fn start(mut command: Command) -> First {
        command.args(["--log-level", "debug"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("node 0 starts");
        let (pid, stderr) = (child.id(), child.stderr.take().expect("a pipe"));
        let lines = std::thread::spawn(move || {
            let mut used = None;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.contains("preflight: ") {
                    used = peak_kb(pid).map(|peak| (peak, processor(pid))).or(used);
                }
            }
            used
        });
        First { child, lines }
    }

    fn end(mut self) -> (u64, f64) {
        assert!(self.child.wait().expect("it ends").success(), "node 0 has failed");
        self.lines.join().expect("the reader ends").expect("it has said something")
    }
}

/// Returns the peak memory; `None` if the process has ended.
fn peak_kb(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line?.trim().trim_end_matches(" kB").parse().ok()
}

/// Returns the CPU time in seconds.
fn processor(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(f64::NAN);
    (ticks(11) + ticks(12)) / 100.0
}

/// Returns how long a job of thin nodes takes, and the CPU time and memory of node 0.
fn thin(nodes: u32) -> (Duration, f64, u64) {
    let port = free_port();
    let start = Instant::now();
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    command.args([ZERO, &nodes.to_string(), &port.to_string()]).stdout(Stdio::piped());
    let zero = command.spawn().expect("node 0 starts");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let own = (0..nodes).filter(|node| node % THREADS == thread);
                let mut all: Vec<(u32, Channel)> = Vec::new();
                let mut told = Instant::now();
                for index in own {
                    all.push((index, join(port, nodes, index)));
                    stay(&mut all, &mut told);
                }
                for place in 0..all.len() {
                    let (index, channel) = &mut all[place];
                    prove(*index, channel);
                    stay(&mut all, &mut told);
                }
                for (index, channel) in &mut all {
                    await_verdict(*index, channel);
                }
            });
        }
    });
    let output = zero.wait_with_output().expect("node 0 ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let (peak, processor) = said.trim().split_once(' ').expect("what it took");
    (start.elapsed(), processor.parse().expect("seconds"), peak.parse().expect("kB"))
}

/// Runs node 0 of thin nodes: only the parts that receive, judge, and send.
fn thin_zero(nodes: u32, port: u16) {
    let wait = Duration::from_secs(300);
    let until = Instant::now() + wait;
    let listener = Listener::on_port(port).expect("a port");
    // No process writes to this socket.
    let (own, _other) = UnixStream::pair().expect("a pair");
    let terms = Terms {
        nodes,
        job: None,
        meet: format!("127.0.0.1:{port}"),
        unresolved: None,
        wait,
        until,
        alone_after: None,
        token: TOKEN,
        extent: Extent::Doubling,
        times: Times { each: Duration::from_secs(5) },
        names: &[],
        are_names_certain: false,
        left_out: &[],
        say: &|_| {},
        show: None,
    };
    // A descriptor for each node, as the program itself takes care of.
    allow_connections(nodes);
    let mut zero = Zero::new(&terms, listener).expect("a random number");
    zero.meet(own.as_fd()).expect("all nodes come");
    zero.prove(own.as_fd()).expect("the rounds end");
    let inputs = collect_inputs(zero.heard(), Limits::default(), Duration::ZERO);
    let verdict = judge(&zero.heard().evidence, &inputs);
    assert!(verdict.passed, "{:?}", verdict.reason());
    let line = verdict.line_of(1);
    zero.tell(|_| Told { passed: true, line: line.clone(), reason: None }, own.as_fd());
    let pid = std::process::id();
    println!("{} {}", peak_kb(pid).expect("this process lives"), processor(pid));
}

fn join(port: u16, nodes: u32, node: u32) -> Channel {
    let mut channel = loop {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let connection = Connection::new(stream, "node 0".to_owned(), &MEETING).expect("a connection");
        let end = Instant::now() + Duration::from_secs(60);
        if let Ok((channel, _)) = reach::prove(connection, "", TOKEN.as_bytes(), Duration::from_secs(5), end)
        {
            break channel;
        }
    };
    let rail = |hca: u32| {
        json!({"hca": format!("mlx5_{hca}"), "port": 1, "driver": "mlx5_core", "firmware": "28.39.1002",
               "link_layer": "Ethernet", "rate": "400 Gb/sec (4X NDR)", "gid_type": "RoCE v2, IPv4",
               "gid_index": 3, "mtu": 4200})
    };
    let checks: Vec<_> =
        (0..45).map(|id| json!({"id": format!("check-{id}"), "outcome": "passed"})).collect();
    let report: Brief = serde_json::from_value(json!({
        "schema": "rdma-init/self-test/1", "host": format!("node{node:05}"), "passed": true,
        "hcas": (0..8).map(rail).collect::<Vec<_>>(), "nccl": "2.27.7", "profile": "generic-roce",
        "filled": {"NCCL_IB_HCA": "=mlx5_0", "NCCL_SOCKET_IFNAME": "eth0"}, "checks": checks
    }))
    .expect("a report");
    let join = Join {
        node,
        nodes,
        job: None,
        address: Some([127, 0, 0, 1].into()),
        // No process listens on this port, so that node 0's own attempts fail at once.
        port: 1,
        rails: (0..8).map(|hca| format!("mlx5_{hca}:1")).collect(),
        rates: vec![400.0; 8],
        addresses: Addresses::default(),
        transport: "verbs".to_owned(),
        network: Network::Verbs("mlx5_0:1..mlx5_7:1".to_owned()),
        report,
    };
    channel.send(&ToZero::Join(Box::new(join))).expect("node 0 is there");
    channel
}

/// Reports from time to time that all nodes of a thread are alive.
fn stay(all: &mut [(u32, Channel)], told: &mut Instant) {
    if told.elapsed() > Duration::from_secs(5) {
        for (_, channel) in all {
            channel.send(&ToZero::Alive).expect("node 0 is there");
        }
        *told = Instant::now();
    }
}

/// Reports that all pairs passed.
fn prove(node: u32, channel: &mut Channel) {
    loop {
        match channel.receive(Duration::from_secs(120)) {
            Ok(ToNode::Prove(Order { pairs, .. })) => {
                let rail = |rail: u16| RailReport::new(rail, Ok(Measured { latency_us: 2.5, gbps: 390.0 }));
                let report = |partner: u32, round: u16| PairReport {
                    round,
                    node,
                    partner,
                    seconds: 1.0,
                    outcome: PairOutcome::Rails((0..8).map(rail).collect()),
                };
                let reports = pairs.iter().map(|pair| report(pair.node, pair.round)).collect();
                channel.send(&ToZero::Proved(reports)).expect("node 0 is there");
                return;
            }
            Ok(_) => channel.send(&ToZero::Alive).expect("node 0 is there"),
            Err(stranger) => panic!("node {node}: {}", stranger.why),
        }
    }
}

fn await_verdict(node: u32, channel: &mut Channel) {
    loop {
        match channel.receive(Duration::from_secs(120)) {
            Ok(ToNode::Verdict(_)) => return,
            Ok(_) => {}
            Err(stranger) => panic!("node {node}: {}", stranger.why),
        }
    }
}
