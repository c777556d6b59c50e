//! Measures what PID 1 and the watcher cost while the command of a job sleeps, on a host whose ports are watched.
//! `make bench BENCHES=pid1` runs it for two minutes beside the other parts: one at rest, one while counters rise.
//! `make bench-idle` runs it alone, and then the benchmark of node 0's watcher, for an hour each; `make bench-idle
//! SECONDS=180` for three minutes each.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::libc::SIGKILL;

use super::image::Root;
use super::memory::{kilobytes, settle};
use super::peers::Peer;
use super::table::table;
use super::trial::{Sink, Trial};

/// The seconds of the measurement.
const TIME: &str = "RDMA_INIT_BENCH_IDLE";
const USUAL: u64 = 60;

/// The name of the watcher's process.
const WATCHER: &str = "rdma-init-watch\n";

/// What a process has used so far.
#[derive(Clone, Copy)]
struct Used {
    nanoseconds: u64,
    wakes: u64,
}

/// The counters rise for at most so many seconds: each look reads the same files.
const LONGEST_RISE: u64 = 600;

/// Measures them while the counters of the ports rest, and while they rise.
pub fn measure(host: &str, root: &Rc<Root>) -> String {
    let seconds = std::env::var(TIME).ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL);
    let rest = measure_one(&format!("Idle, {host}"), &Peer::idle(root), seconds);
    let ends = AtomicBool::new(false);
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(root.path().as_bytes()));
    let moving = thread::scope(|scope| {
        scope.spawn(|| raise_counters(&path, &ends));
        let moving = measure_one(&format!("Moving, {host}"), &Peer::idle(root), seconds.min(LONGEST_RISE));
        ends.store(true, Ordering::Relaxed);
        moving
    });
    rest + &moving
}

/// Raises each counter of each port each second, until `ends`.
fn raise_counters(root: &Path, ends: &AtomicBool) {
    let folders =
        |path: PathBuf| fs::read_dir(path).expect("a directory").flatten().map(|entry| entry.path());
    let counters: Vec<File> = folders(root.join("sys/class/infiniband"))
        .flat_map(|hca| folders(hca.join("ports/1/counters")))
        .map(|path| File::options().write(true).open(path).expect("a counter"))
        .collect();
    for count in 1.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let text = format!("{:020}\n", count * 1_000_000_u64);
        counters.iter().for_each(|file| file.write_all_at(text.as_bytes(), 0).expect("a counter"));
        thread::sleep(Duration::from_secs(1));
    }
}

fn measure_one(title: &str, peers: &[Peer], seconds: u64) -> String {
    let mut sink = Sink::new();
    let trials: Vec<(&str, Trial)> = peers
        .iter()
        .map(|peer| {
            peer.before_start();
            let trial = Trial::start(&peer.start(&["/bin/sleep", "100000"]), &sink);
            settle(trial.pid);
            (peer.name, trial)
        })
        .collect();
    let mut processes = Vec::new();
    for (name, trial) in &trials {
        processes.push(((*name).to_owned(), trial.pid));
        let watcher = children(trial.pid).into_iter().find(|pid| comm(*pid) == WATCHER);
        processes.extend(watcher.map(|pid| (format!("{name}: watcher"), pid)));
    }
    let before: Vec<Used> = processes.iter().map(|(_, pid)| used(*pid)).collect();
    let started = Instant::now();
    thread::sleep(Duration::from_secs(seconds));
    let time = started.elapsed();
    let rows: Vec<Vec<String>> = processes
        .iter()
        .zip(before)
        .map(|((name, pid), before)| {
            let now = used(*pid);
            let busy = (now.nanoseconds - before.nanoseconds) as f64;
            let private = kilobytes(*pid, "Private_Clean:") + kilobytes(*pid, "Private_Dirty:");
            vec![
                name.clone(),
                (now.wakes - before.wakes).to_string(),
                format!("{:.2}", busy / 1e6),
                format!("{:.4}", 100.0 * busy / time.as_nanos() as f64),
                kilobytes(*pid, "Rss:").to_string(),
                kilobytes(*pid, "Pss:").to_string(),
                private.to_string(),
            ]
        })
        .collect();
    for (_, trial) in trials {
        trial.kill(SIGKILL);
        trial.end();
    }
    sink.empty();
    table(
        title,
        &format!(
            "PID 1 and the watcher beside `sleep`, for {seconds} s, all at a time. The watcher looks at the ports every 10 s."
        ),
        &["", "wake-ups", "CPU ms", "% of a CPU", "Rss kB", "Pss kB", "private kB"],
        &rows,
    )
}

fn comm(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

fn children(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn used(pid: i32) -> Used {
    let times = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("the kernel shows it");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Used {
        nanoseconds: times.split(' ').next().and_then(|text| text.parse().ok()).expect("a number"),
        wakes: switches.and_then(|text| text.trim().parse().ok()).expect("a number"),
    }
}
