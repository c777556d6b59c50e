//! Measures how much time and memory `compare` needs for the reports of ten thousand nodes.
//! `make bench` runs it.

#[allow(dead_code)]
#[path = "../support/paths.rs"]
mod paths;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rdma_init::self_test::check::{Check, Outcome};
use rdma_init::self_test::report::{Rail, Report, SCHEMA};

const NODES: usize = 10_000;
const HCAS: usize = 8;
const CHECKS: usize = 40;
const ROUNDS: usize = 5;

/// The benchmark fails if `compare` needs more time or memory than this.
const LONGEST: Duration = Duration::from_secs(2);
const LARGEST_MB: i64 = 500;

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("all.log");
    let each = folder.path().join("each");
    let bytes = write_all(&log, &each).expect("room for the reports");
    println!("\n## compare\n");
    println!("{NODES} reports of {HCAS} HCAs and {CHECKS} checks, {} bytes each.\n", bytes / NODES);
    println!("| | seconds | peak RSS of all so far, MB |\n|---|---:|---:|");
    let mut held = true;
    for (name, path) in [("one file", &log), ("a folder of files", &each)] {
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| compare(path)).collect();
        times.sort_unstable();
        let (time, peak) = (times[ROUNDS / 2], peak_mb());
        println!("| {name} | {:.2} | {peak} |", time.as_secs_f64());
        held &= time < LONGEST && peak < LARGEST_MB;
    }
    if held {
        return ExitCode::SUCCESS;
    }
    eprintln!("more than {LONGEST:?} or {LARGEST_MB} MB");
    ExitCode::FAILURE
}

/// Writes all reports into one log, with the tags that mpirun puts before each line, and each report into
/// its own file. Returns the total size of the reports in bytes.
fn write_all(log: &Path, each: &Path) -> std::io::Result<usize> {
    fs::create_dir(each)?;
    let mut log = BufWriter::new(File::create(log)?);
    let mut bytes = 0;
    for node in 0..NODES {
        let text = serde_json::to_string(&report(node))?;
        bytes += text.len();
        writeln!(log, "[1,{node}]<stdout>:{text}")?;
        fs::write(each.join(format!("{node}.json")), text)?;
    }
    log.flush()?;
    Ok(bytes)
}

/// Makes the report of a node. One node in a hundred has different firmware, and another one in a hundred
/// fails a check.
fn report(node: usize) -> Report {
    let firmware = if node.is_multiple_of(100) { "28.36.1010" } else { "28.39.1002" };
    let rail = |hca: usize| Rail {
        hca: format!("mlx5_{hca}"),
        port: 1,
        driver: Some("mlx5_core".to_owned()),
        firmware: Some(firmware.to_owned()),
        link_layer: "Ethernet".to_owned(),
        rate: "200 Gb/sec (4X HDR)".to_owned(),
        gid_type: Some("RoCE v2".to_owned()),
        gid_index: Some(3),
        mtu: Some(4200),
        traffic_class: None,
    };
    let check = |number: usize| Check {
        id: format!("check-{number}"),
        title: format!("what check {number} is about"),
        outcome: if number == 7 && node % 100 == 1 { Outcome::Failed } else { Outcome::Passed },
        subject: Some(format!("mlx5_{}", number % HCAS)),
        evidence: vec!["some \"evidence\" of what was found on this node, ".repeat(2)],
        message: None,
        fix: None,
        took_us: 1234,
        is_in_plan: false,
    };
    let filled = (0..10).map(|number| (format!("NCCL_VARIABLE_{number}"), format!("{number}")));
    Report {
        schema: SCHEMA.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        host: format!("node{node:05}"),
        passed: node % 100 != 1,
        took_us: 123_456,
        hcas: (0..HCAS).map(rail).collect(),
        nccl: Some("2.21.5".to_owned()),
        nvlink: None,
        nvlink_domain: None,
        placement_group: None,
        profile: Some("generic-roce".to_owned()),
        filled: filled.collect::<BTreeMap<String, String>>(),
        set: BTreeMap::new(),
        checks: (0..CHECKS).map(check).collect(),
        pair: None,
    }
}

fn compare(path: &Path) -> Duration {
    let start = Instant::now();
    let mut command = Command::new(paths::binary());
    command.arg("compare").arg(path).env("RDMA_INIT_CONFIG", "/dev/null").stdout(Stdio::null());
    let status = command.status().expect("the program runs");
    assert_eq!(status.code(), Some(1), "some nodes differ");
    start.elapsed()
}

/// Returns the peak resident memory of the largest child process so far.
fn peak_mb() -> i64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(i64::MAX, |usage| usage.max_rss() / 1024)
}
