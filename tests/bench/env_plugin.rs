//! Measures what the env plugin costs a process: its preparation, an answer, and system calls. `make bench`
//! runs it, and `make bench BENCHES=env_plugin` runs only this.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rdma_init::env_plugin::answer::{MARKER, hash};
use rdma_init::env_plugin::{DECISION_FILE, LIBRARY, LIBRARY_FILE};

mod table;

const HCAS: usize = 9;
const INTERFACES: usize = 20;
const PROCESSES: usize = 101;
const ANSWERS: usize = 100_000;

/// The benchmark fails if either takes longer, in nanoseconds.
const LONGEST_INIT: f64 = 1e6;
const LONGEST_ANSWER: f64 = 1e3;

/// What a start on another node filled in. The marker lists as many entries as that of a large host.
const COPY: &str = "=mlx5_10,mlx5_11,mlx5_12,mlx5_13,mlx5_14,mlx5_15,mlx5_16,mlx5_17";

fn marker() -> String {
    let hash = hash(COPY.as_bytes()).map(char::from).iter().collect::<String>();
    let others: String = (0..20).map(|number| format!("OTHER_VARIABLE_{number}=00000000,")).collect();
    format!("1:ffff:{others}IB_HCA={hash}")
}

/// A variable that the process has as a copy, one that only the decision has, and one that neither has.
const VARIABLES: [&str; 3] = ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_ALGO"];

fn main() -> ExitCode {
    let place = tempfile::tempdir().expect("a temporary folder");
    let client = make(place.path());
    let mut inits = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..PROCESSES {
        let (init, answer) = run(place.path(), &client);
        inits.push(init);
        answers.push(answer);
    }
    let (init, answer) = (table::median(&mut inits), table::median(&mut answers));
    let calls = [1, ANSWERS].map(|times| system_calls(place.path(), &client, times));
    let (more, quiet) = match calls {
        [Some(one), Some(many)] => ((many - one).to_string(), many == one),
        _ => ("not counted: no strace".to_owned(), true),
    };
    let note = format!(
        "{HCAS} HCAs and {INTERFACES} interfaces; medians of {PROCESSES} processes with {ANSWERS} answers for each of {} variables.",
        VARIABLES.len()
    );
    let row = |what: &str, value: String| vec![what.to_owned(), value];
    let rows = [
        row("preparation of a process", format!("{:.0} us", init / 1e3)),
        row("an answer", format!("{answer:.0} ns")),
        row("system calls of all these answers", more),
    ];
    print!("{}", table::table("The env plugin", &note, &["", "cost"], &rows));
    if init < LONGEST_INIT && answer < LONGEST_ANSWER && quiet {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "more than {LONGEST_INIT} ns, or {LONGEST_ANSWER} ns for an answer, or an answer makes system calls"
    );
    ExitCode::FAILURE
}

/// Makes a node, with a client that asks as NCCL does. Returns the client.
fn make(node: &Path) -> PathBuf {
    fs::write(node.join(LIBRARY_FILE), LIBRARY).unwrap();
    let mut decision = format!(
        "rdma-init env plugin 1\nnode 0a1b\nsys {0}/sys\nproc {0}/proc\nset NCCL_SOCKET_IFNAME==eth0\n",
        node.display()
    );
    let names: Vec<String> = (1..HCAS).map(|number| format!("mlx5_{number}")).collect();
    let _ = writeln!(decision, "set NCCL_IB_HCA=={}", names.join(","));
    for number in 0..HCAS {
        let pci = format!("0000:{number:02x}:00.0");
        let folder = node.join(format!("sys/class/infiniband/mlx5_{number}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("node_guid"), format!("b859:9f03:00aa:{number:04x}\n")).unwrap();
        symlink(format!("../../../{pci}"), folder.join("device")).unwrap();
        let _ = writeln!(decision, "hca mlx5_{number} b859:9f03:00aa:{number:04x} {pci}");
    }
    let mut dev = "Inter-| Receive\n face |bytes\n".to_owned();
    for number in 0..INTERFACES {
        fs::create_dir_all(node.join(format!("sys/class/net/eth{number}"))).unwrap();
        let _ = writeln!(dev, "  eth{number}: 1 2 3");
    }
    fs::create_dir_all(node.join("proc/self/net")).unwrap();
    fs::write(node.join("proc/self/net/dev"), dev).unwrap();
    fs::write(node.join(DECISION_FILE), decision + "end\n").unwrap();
    let client = node.join("client");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nccl/env/client.c");
    let mut compile = Command::new("gcc");
    compile.args(["-O1", "-o"]).arg(&client).arg(source).args(["-ldl", "-lpthread"]);
    assert!(compile.status().is_ok_and(|status| status.success()), "gcc compiles the client");
    client
}

fn arguments(command: &mut Command, node: &Path, times: usize) {
    let library = node.join(LIBRARY_FILE);
    command.arg(&library).arg(times.to_string()).arg("0").args(VARIABLES);
    command.env("NCCL_ENV_PLUGIN", library).env("NCCL_IB_HCA", COPY).env(MARKER, marker());
}

/// Returns the nanoseconds for the preparation and for one answer.
fn run(node: &Path, client: &Path) -> (f64, f64) {
    let mut command = Command::new(client);
    arguments(&mut command, node, ANSWERS);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("NCCL_SOCKET_IFNAME==eth0"), "{text}");
    let time = |what: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(what)?.strip_suffix(" ns")).unwrap();
        line.trim().parse().unwrap()
    };
    (time("init "), time("answer "))
}

/// Counts the client's system calls; `None` without strace.
fn system_calls(node: &Path, client: &Path, times: usize) -> Option<usize> {
    let trace = node.join("trace");
    let mut command = Command::new("strace");
    // The children are not traced, because the kernel decides when they end.
    command.arg("-o").arg(&trace).arg(client);
    arguments(&mut command, node, times);
    command.output().ok()?.status.success().then_some(())?;
    let text = fs::read_to_string(trace).ok()?;
    Some(text.lines().filter(|line| line.contains('(') && !line.starts_with("---")).count())
}
