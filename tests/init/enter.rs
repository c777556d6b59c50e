//! Tests `rdma-init exec` in a container whose preparation is still running.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::crash::fault;
use crate::support::hang::Hang;
use crate::support::port::free_port;
use crate::support::running::{Running, after, as_pid_1, hanging, rdma_init, shell};
use crate::support::{binary, poll_until};

const HANGS: &str = "/sys/class/infiniband";
const ENTERS: [&str; 4] = ["exec", "--", "env", "ENTERED=1"];

/// Starts a PID 1 whose preparation hangs, and a process that enters its container. `timeout` is the
/// preparation timeout of both.
fn start(state: &Path, hang: &Hang, timeout: &str) -> (Running, Child) {
    let mut init = shell("echo ready; exec sleep 1000");
    init.env("RDMA_INIT_STATE_DIR", state).env("RDMA_INIT_PREPARE_TIMEOUT", timeout);
    init.env("RDMA_INIT_SET", "NCCL_IB_TC=106");
    let init = hanging(init, true, hang);
    hang.wait();
    let enters = enter(&init, state, &[("RDMA_INIT_PREPARE_TIMEOUT", timeout)], &ENTERS);
    (init, enters)
}

/// Starts the program with these arguments in the container of this PID 1.
fn enter(init: &Running, state: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Child {
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &init.pid.to_string(), "--pid", "--mount"]).arg(binary()).args(arguments);
    enter.env_clear().env("PATH", "/usr/bin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    enter.env("RDMA_INIT_STATE_DIR", state).envs(variables.iter().copied());
    enter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Starts the program below a shell that stays as PID 1, as tini and others do.
fn below_another(command: Command) -> Command {
    after("run() { \"$@\"; true; }; run", command)
}

/// Waits for the first line of a process's messages.
fn first_line(enters: &mut Child) -> String {
    let mut said = String::new();
    BufReader::new(enters.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    said
}

/// Returns the answer of `rdma-init status`, and expects that the container is not ready.
fn not_ready(init: &Running, state: &Path) -> String {
    let asked = enter(init, state, &[], &["status"]).wait_with_output().unwrap();
    let said = String::from_utf8(asked.stdout).unwrap();
    assert_eq!(asked.status.code(), Some(1), "{said}");
    said
}

/// Returns the NCCL variables that the entering process has got, and its messages.
fn end(enters: Child) -> (Vec<String>, String) {
    let output = enters.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let said = text(output.stderr);
    assert!(output.status.success(), "{said}");
    let lines =
        text(output.stdout).lines().filter(|line| line.starts_with("NCCL_")).map(str::to_owned).collect();
    (lines, said)
}

#[test]
fn it_waits_for_a_start_that_is_not_done() {
    // The second time is longer than any clock can show.
    for timeout in ["1000s", "580000000000y"] {
        let place = tempfile::tempdir().unwrap();
        let hang = Hang::interruptible(HANGS);
        let (mut init, enters) = start(&place.path().join("state"), &hang, timeout);
        poll_until("the one who enters looks for the state", || {
            is_us(enters.id(), &binary(), &ENTERS).then_some(())
        });
        hang.release();
        let (variables, said) = end(enters);
        assert_eq!(variables, ["NCCL_IB_TC=106"]);
        // On a busy machine, it takes long enough to print this line.
        let is_fine = |line: &str| line.contains("is waiting until the container is prepared");
        assert!(said.lines().all(is_fine), "{said}");
        init.wait_for("ready");
    }
}

#[test]
fn it_waits_no_longer_than_the_start_may_take() {
    let place = tempfile::tempdir().unwrap();
    let hang = Hang::interruptible(HANGS);
    let (mut init, enters) = start(&place.path().join("state"), &hang, "2s");
    let (variables, said) = end(enters);
    assert!(said.contains("variables are decided anew"), "{said}");
    assert!(!variables.contains(&"NCCL_IB_TC=106".to_owned()), "{variables:?}");
    init.wait_for("ready");
}

#[test]
fn it_waits_no_longer_than_it_is_asked_to_and_says_for_what() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let port = free_port();
    // Node 1 does not join.
    let mut init = shell("echo ready; exec sleep 1000");
    init.env("RDMA_INIT_STATE_DIR", &state).env("RDMA_INIT_SET", "NCCL_IB_TC=106").envs([
        ("RDMA_INIT_PREFLIGHT", "warn"),
        ("RDMA_INIT_PREFLIGHT_NODES", "2"),
        ("RDMA_INIT_PREFLIGHT_NODE", "0"),
        ("RDMA_INIT_PREFLIGHT_WAIT", "1000s"),
        ("RDMA_INIT_PREFLIGHT_MEET", &format!("127.0.0.1:{port}")),
        ("RDMA_INIT_TOKEN", "a secret of all nodes"),
    ]);
    let mut init = as_pid_1(init);
    init.wait_for_error("1 of 2 nodes have joined");
    let inside = |arguments: &[&str]| enter(&init, &state, &[("RDMA_INIT_PREFLIGHT", "warn")], arguments);
    let said = not_ready(&init, &state);
    let phase = "preflight: 1 of 2 nodes have joined; node 0 is waiting for";
    assert!(said.contains(&format!("not ready: the start is under way: {phase}")), "{said}");
    let (variables, said) = end(inside(&["exec", "--wait", "1s", "--", "env"]));
    let waits = format!("is waiting until the container is prepared, for 1s at most (--wait): {phase}");
    // The message says what the process waited for, how long, and what to do.
    let late = format!("the start of the container is still under way after 1s (--wait): {phase}");
    assert!(said.contains(&waits) && said.contains(&late), "{said}");
    assert!(said.contains("rdma-init status reports that the command is running"), "{said}");
    assert!(!said.contains("saved no state here"), "{said}");
    assert!(!variables.contains(&"NCCL_IB_TC=106".to_owned()), "{variables:?}");
    for none in ["0", "0s"] {
        let (variables, said) = end(inside(&["exec", "--wait", none, "--", "env"]));
        let late = format!("the start of the container is still under way: {phase}");
        assert!(said.contains(&late) && !said.contains("is waiting until"), "{said}");
        assert!(!variables.contains(&"NCCL_IB_TC=106".to_owned()), "{variables:?}");
    }
}

/// The options of the start are flags of PID 1, or of a process below another PID 1. The entering process
/// does not know them.
#[test]
fn it_waits_for_a_preflight_whose_options_it_does_not_know() {
    for below in [|command| command, below_another] {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let port = free_port();
        let meet = format!("127.0.0.1:{port}");
        let of = |node: &'static str| {
            ["--preflight-nodes", "2", "--preflight-node", node, "--preflight-meet", &meet]
        };
        let start = |node: &'static str, command: &str| {
            let mut start = rdma_init(
                ["--preflight", "warn"].iter().chain(&of(node)).chain(&["--", "sh", "-c", command]),
            );
            start.env("RDMA_INIT_SET", "NCCL_IB_TC=106").env("RDMA_INIT_TOKEN", "a secret of all nodes");
            start
        };
        let mut zero = start("0", "echo ready; exec sleep 1000");
        zero.env("RDMA_INIT_STATE_DIR", &state);
        let mut zero = as_pid_1(below(zero));
        zero.wait_for_error("1 of 2 nodes have joined");
        let phase = "the start is under way: preflight: 1 of 2 nodes have joined";
        assert!(not_ready(&zero, &state).contains(phase));
        // With its own options, it would not wait.
        let mut enters =
            enter(&zero, &state, &[("RDMA_INIT_PREPARE_TIMEOUT", "1ms")], &["exec", "--", "env"]);
        let said = first_line(&mut enters);
        assert!(
            said.contains("is waiting until the container is prepared, for ")
                && said.contains("1 of 2 nodes"),
            "{said}"
        );
        let one = start("1", "true").output().unwrap();
        assert!(one.status.success(), "{one:?}");
        assert_eq!(end(enters).0, ["NCCL_IB_TC=106"]);
        zero.wait_for("ready");
    }
}

/// At this point, the self-test is over, and the state is not written yet: the start waits when it opens
/// the state directory.
#[test]
fn the_phase_of_a_start_is_reported_until_its_state_exists() {
    for is_pid_1 in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let hang = Hang::interruptible("env.sh");
        let mut init = rdma_init([
            "--self-test=warn",
            "--prepare-timeout=1000s",
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 1000",
        ]);
        init.env("RDMA_INIT_STATE_DIR", &state).env("RDMA_INIT_SET", "NCCL_IB_TC=106");
        let init = if is_pid_1 { init } else { below_another(init) };
        let mut init = hanging(init, true, &hang);
        hang.wait();
        let said = not_ready(&init, &state);
        assert!(said.contains("not ready: the start is under way: self-test"), "PID 1 {is_pid_1}: {said}");
        let mut enters =
            enter(&init, &state, &[("RDMA_INIT_PREPARE_TIMEOUT", "1ms")], &["exec", "--", "env"]);
        let said = first_line(&mut enters);
        assert!(
            said.contains("is waiting until") && said.ends_with(": self-test\n"),
            "PID 1 {is_pid_1}: {said}"
        );
        hang.release();
        assert_eq!(end(enters).0, ["NCCL_IB_TC=106"], "PID 1 {is_pid_1}");
        init.wait_for("ready");
        poll_until("nothing of the phase stays", || (!state.join("phase.json").exists()).then_some(()));
    }
}

/// A start that only decides is found even below another PID 1, and a process can wait longer for it than
/// starts usually take.
#[test]
fn it_waits_as_long_as_it_is_asked_to() {
    for (is_below, flag) in [(false, "--memlock=warn"), (true, "--memlock=warn"), (true, "--supervise")] {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let hang = Hang::interruptible(HANGS);
        let script = "echo ready; exec sleep 1000";
        let mut init = rdma_init(["--prepare-timeout=1000s", flag, "--", "sh", "-c", script]);
        init.env("RDMA_INIT_STATE_DIR", &state).env("RDMA_INIT_SET", "NCCL_IB_TC=106");
        let mut init = hanging(if is_below { below_another(init) } else { init }, true, &hang);
        hang.wait();
        let own = [("RDMA_INIT_PREPARE_TIMEOUT", "1ms")];
        let mut enters = enter(&init, &state, &own, &["exec", "--wait", "2h", "--", "env"]);
        let said = first_line(&mut enters);
        assert!(
            said.ends_with("is waiting until the container is prepared, for 2h at most (--wait)\n"),
            "{said}"
        );
        hang.release();
        assert_eq!(end(enters).0, ["NCCL_IB_TC=106"]);
        init.wait_for("ready");
    }
}

/// Without an init, a crashed process becomes the command, and keeps its PID and its start time.
#[test]
fn a_preparation_that_has_crashed_is_not_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    // The state is about to be written, and the phase file of the self-test exists.
    let hang = Hang::interruptible("env.sh");
    let script = "echo ready; exec sleep 1000";
    let mut start = rdma_init(["--self-test=warn", "--prepare-timeout=1000s", "--", "sh", "-c", script]);
    start.env("RDMA_INIT_STATE_DIR", &state);
    let mut start = hanging(start, false, &hang);
    let ours = |arguments: &[&str]| {
        let mut ours = rdma_init(arguments);
        ours.env("RDMA_INIT_STATE_DIR", &state).output().unwrap()
    };
    let prepares = hang.wait();
    let shown = String::from_utf8(ours(&["status"]).stdout).unwrap();
    assert_eq!(shown, "not ready: the start is under way: self-test\n");
    fault(prepares, nix::libc::SIGSEGV);
    start.wait_for("ready");
    assert!(state.join("phase.json").exists());
    let shown = String::from_utf8(ours(&["status"]).stdout).unwrap();
    assert!(shown.contains("nothing was prepared"), "{shown}");
    let entered = ours(&["exec", "--wait", "2h", "--", "true"]);
    let said = String::from_utf8(entered.stderr).unwrap();
    assert!(said.contains("saved no state here") && !said.contains("is waiting until"), "{said}");
}

/// Returns whether nsenter's child has become this program with these arguments.
pub fn is_us(nsenter: u32, program: &Path, arguments: &[&str]) -> bool {
    let children =
        std::fs::read_to_string(format!("/proc/{nsenter}/task/{nsenter}/children")).unwrap_or_default();
    children.split_whitespace().any(|child| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        let wanted = format!("{}\0{}\0", program.display(), arguments.join("\0"));
        line == wanted.as_bytes()
    })
}
