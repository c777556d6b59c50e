//! Measures what the watcher of node 0 costs in a job of a thousand nodes: its memory and its share of a core, while
//! all other watchers are connected and say nothing, and when it asks all of them in a stall. The node is this
//! program's release binary as PID 1, on a made-up /sys; the other nodes are connections of this process. It needs
//! root. `make bench BENCHES=watchers` runs it, with a minute in which all nodes say nothing. `make bench-idle` runs it
//! with an hour, after the measurement in idle.rs.

mod machine;
#[allow(dead_code)]
#[path = "../support/paths.rs"]
mod paths;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdma_init::wire::listen::allow_connections;
use rdma_init::wire::{Channel, Protocol, reach};
use serde::{Deserialize, Serialize};

/// As in src/watch/job/message.rs.
static PROTOCOL: Protocol = Protocol { schema: "rdma-init/watch-job/3", command: "watcher" };

const TOKEN: &str = "a secret of the benchmark";
const NODES: u32 = 1001;
const THREADS: u32 = 32;

/// The seconds in which all nodes say nothing, and how much later node 0 asks.
const TIME: &str = "RDMA_INIT_BENCH_IDLE";
const USUAL: u64 = 60;
const LATER: u64 = 30;

/// The benchmark fails where these do not hold.
const LARGEST_KB: u64 = 10 * 1024;
const LARGEST_SHARE: f64 = 0.001;

#[derive(Serialize)]
enum ToZero {
    Join { node: u32, nodes: u32, job: Option<String>, name: String },
    State { moved: Moved, ports: Vec<()> },
}

#[derive(Serialize)]
enum Moved {
    Ago { ms: u64, between_ms: u64 },
}

#[derive(Deserialize)]
enum ToNode {
    Tell,
    Refused(String),
}

fn main() -> ExitCode {
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    let program = format!("rdma-init {}, {build}", env!("CARGO_PKG_VERSION"));
    println!("{}", machine::machine("The watcher of node 0", &program));
    allow_connections(4 * NODES);
    let host = tempfile::tempdir().expect("a directory");
    let port = two_free_ports();
    let seconds = std::env::var(TIME).ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL);
    let asks_after = Duration::from_secs(seconds + LATER);
    let mut zero = start(host.path(), port, asks_after);
    let to = SocketAddr::from(([127, 0, 0, 1], port + 1));
    let pid = watcher(&to, zero.0.id());
    let alone = Cost::of(pid);
    let began = Instant::now();
    let mut all = connect(to);
    let connecting = began.elapsed();
    let connected = Cost::of(pid);
    // More than what manages InfiniBand.
    write(host.path(), "counters/port_xmit_data", "100000000");
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, quiet) = (Cost::of(pid), began.elapsed());
    let share = (after.seconds - connected.seconds) / quiet.as_secs_f64();
    answer(&mut all, asks_after);
    let mut lines = BufReader::new(zero.0.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("The job has stalled")).unwrap_or_default();
    let asked = Cost::of(pid);
    println!("| watcher of node 0 | Rss kB | of it anonymous kB | processor time |\n|---|---|---|---|");
    println!("| alone | {} | {} | |", alone.rss, alone.anonymous);
    println!(
        "| {} nodes have connected, in {:.1} s | {} | {} | {:.0} ms |",
        NODES - 1,
        connecting.as_secs_f64(),
        connected.rss,
        connected.anonymous,
        (connected.seconds - alone.seconds) * 1e3
    );
    println!(
        "| {seconds} s without a message | {} | {} | {:.4} % of a core |",
        after.rss,
        after.anonymous,
        share * 100.0
    );
    println!(
        "| until it has asked all of them | {} | {} | {:.0} ms |\n\n{said}",
        asked.rss,
        asked.anonymous,
        (asked.seconds - after.seconds) * 1e3
    );
    // The code of a debug build is larger than that.
    let is_small = cfg!(debug_assertions) || asked.rss < LARGEST_KB;
    let is_good = is_small && share < LARGEST_SHARE && said.contains("all nodes wait");
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Zero(Child);

impl Drop for Zero {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn two_free_ports() -> u16 {
    let free = |port: u16| TcpListener::bind(("0.0.0.0", port)).is_ok();
    (20_000..32_000).find(|port| free(*port) && free(port + 1)).expect("two ports are free")
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join("class/infiniband/mlx5_0/ports/1").join(file);
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    fs::write(path, format!("{text}\n")).expect("a file");
}

/// Starts node 0 with one HCA for InfiniBand. Its preflight finds no other node, which does not matter here.
fn start(root: &Path, port: u16, after: Duration) -> Zero {
    for folder in ["class/net", "fs/cgroup", "firmware", "class/infiniband_verbs/uverbs0"] {
        fs::create_dir_all(root.join(folder)).expect("a directory");
    }
    fs::write(root.join("class/infiniband_verbs/uverbs0/ibdev"), "mlx5_0\n").expect("a file");
    for (file, text) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "400 Gb/sec (4X NDR)"),
        ("link_layer", "InfiniBand"),
        ("lid", "0x1"),
        ("counters/port_xmit_data", "0"),
        ("counters/port_rcv_data", "0"),
    ] {
        write(root, file, text);
    }
    fs::write(root.join("class/infiniband/mlx5_0/node_type"), "1: CA\n").expect("a file");
    let (nodes, meet) = (NODES.to_string(), format!("127.0.0.1:{port}"));
    let script = "mount --rbind \"$0\" /sys; mount -t tmpfs tmpfs /dev; mkdir /dev/infiniband /dev/shm; \
                  mknod -m 666 /dev/null c 1 3; : >/dev/infiniband/uverbs0; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--mount", "--mount-proc", "--fork", "--kill-child", "sh", "-ec", script]);
    command.arg(root).arg(paths::binary());
    command.args(["--preflight", "warn", "--preflight-wait", "100ms", "--preflight-node", "0"]);
    command.args(["--preflight-nodes", &nodes, "--preflight-meet", &meet, "--watch", "warn"]);
    command.args(["--watch-after", &format!("{}s", after.as_secs()), "--", "sleep", "100000"]);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    command.env("RDMA_INIT_STATE_DIR", "").env("RDMA_INIT_WRITE_NCCL_CONF", "false");
    command.env("RDMA_INIT_TOKEN", TOKEN);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    Zero(command.spawn().expect("unshare(1) starts"))
}

/// Waits until the watcher of a start below this process listens, and returns its process.
fn watcher(to: &SocketAddr, unshare: u32) -> u32 {
    let end = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(to).is_err() {
        assert!(Instant::now() < end, "the watcher of node 0 does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let children = |pid: u32| {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    };
    let is_watcher = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "rdma-init-watch\n")
    };
    children(unshare).into_iter().flat_map(children).find(is_watcher).expect("a watcher")
}

/// Connects all nodes, as many at once as there are threads.
fn connect(to: SocketAddr) -> Vec<Channel> {
    let next = AtomicU32::new(1);
    let one = |node: u32| {
        let patience = Duration::from_secs(30);
        let connection = reach::connect(&[to], patience, "node 0", &PROTOCOL).expect("node 0 listens");
        let proven = reach::prove(connection, "", TOKEN.as_bytes(), patience, Instant::now() + patience);
        let (mut channel, _) = proven.expect("the same token");
        channel
            .send(&ToZero::Join { node, nodes: NODES, job: None, name: format!("gpu-{node:04}") })
            .expect("a reader");
        channel
    };
    let some = || {
        let nodes = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        nodes.take_while(|node| *node < NODES).map(one).collect::<Vec<Channel>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect()
    })
}

/// Answers node 0's question for all nodes, once each: they have moved nothing for as long as node 0.
fn answer(all: &mut [Channel], after: Duration) {
    let ms = u64::try_from(after.as_millis()).expect("a short time");
    for channel in all {
        match channel.receive(Duration::from_secs(120)).expect("a question") {
            ToNode::Tell => {
                let moved = Moved::Ago { ms, between_ms: 10_000 };
                channel.send(&ToZero::State { moved, ports: Vec::new() }).expect("a reader");
            }
            ToNode::Refused(why) => panic!("{why}"),
        }
    }
}

/// What a process has cost by now.
struct Cost {
    rss: u64,
    anonymous: u64,
    /// Of processor time.
    seconds: f64,
}

impl Cost {
    fn of(pid: u32) -> Cost {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let times = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("a kernel with schedstat");
        let nanoseconds: f64 = times.split(' ').next().and_then(|time| time.parse().ok()).expect("a number");
        Cost { rss: of("VmRSS:"), anonymous: of("RssAnon:"), seconds: nanoseconds / 1e9 }
    }
}
