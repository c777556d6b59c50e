//! Tests `rdma-init exec` in a container whose preparation still runs.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::hang::Hang;
use crate::support::running::{Running, hanging, shell};
use crate::support::{binary, poll_until};

const HANGS: &str = "/sys/class/infiniband";
const ENTERS: [&str; 4] = ["exec", "--", "env", "ENTERED=1"];

/// Starts a PID 1 whose preparation hangs, and a process that enters its container. Both have
/// `timeout` as the time for the preparation.
fn start(state: &Path, hang: &Hang, timeout: &str) -> (Running, Child) {
    let mut init = shell("echo ready; exec sleep 1000");
    init.env("RDMA_INIT_STATE_DIR", state).env("RDMA_INIT_PREPARE_TIMEOUT", timeout);
    init.env("RDMA_INIT_SET", "NCCL_IB_TC=106");
    let init = hanging(init, true, hang);
    hang.wait();
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &init.pid.to_string(), "--pid", "--mount"]).arg(binary()).args(ENTERS);
    enter.env_clear().env("PATH", "/usr/bin:/bin").env("RDMA_INIT_CONFIG", "/dev/null");
    enter.env("RDMA_INIT_STATE_DIR", state).env("RDMA_INIT_PREPARE_TIMEOUT", timeout);
    (init, enter.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
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
    for timeout in ["20s", "580000000000y"] {
        let place = tempfile::tempdir().unwrap();
        let hang = Hang::interruptible(HANGS);
        let (mut init, enters) = start(&place.path().join("state"), &hang, timeout);
        poll_until("the one who enters looks for the state", || is_us(enters.id(), &ENTERS).then_some(()));
        hang.release();
        assert_eq!(end(enters), (vec!["NCCL_IB_TC=106".to_owned()], String::new()));
        init.wait_for("ready");
    }
}

#[test]
fn it_waits_no_longer_than_the_start_may_take() {
    let place = tempfile::tempdir().unwrap();
    let hang = Hang::interruptible(HANGS);
    let (mut init, enters) = start(&place.path().join("state"), &hang, "2s");
    let (variables, said) = end(enters);
    assert!(said.contains("the variables are decided anew"), "{said}");
    assert!(!variables.contains(&"NCCL_IB_TC=106".to_owned()), "{variables:?}");
    init.wait_for("ready");
}

/// Returns whether nsenter's child has become rdma-init with these arguments.
pub fn is_us(nsenter: u32, arguments: &[&str]) -> bool {
    let children =
        std::fs::read_to_string(format!("/proc/{nsenter}/task/{nsenter}/children")).unwrap_or_default();
    children.split_whitespace().any(|child| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        let wanted = format!("{}\0{}\0", binary().display(), arguments.join("\0"));
        line == wanted.as_bytes()
    })
}
