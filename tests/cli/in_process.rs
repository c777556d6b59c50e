//! Tests `plan --in PID`.

use std::fs;
use std::process::{Child, Command, Stdio};

use super::run::{rdma_init, run};

/// A process that waits with these variables, and ends when this value is dropped.
struct Waiting(Child);

impl Waiting {
    fn with(variables: &[(&str, &str)]) -> Waiting {
        let mut command = Command::new("cat");
        command.env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
        Waiting(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_shows_whose_its_variables_are() {
    let waiting = Waiting::with(&[
        ("NCCL_DEBUG", "INFO"),
        // The marker below contains the hash of this value.
        ("NCCL_IB_HCA", "=mlx5_77"),
        ("NCCL_RDMA_INIT", "1:ffff:IB_HCA=71f75da5"),
        ("NCCL_API_KEY", "hunter2"),
    ]);
    let pid = waiting.0.id().to_string();
    let ran = run(rdma_init(["plan", "--in", &pid, "--state-dir="])).expect_code(0);
    let text = ran.text();
    assert!(text.contains(&format!("process {pid}, as it was started: NCCL does not ask")), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    let of = |name: &str| *lines.iter().find(|line| line.contains(name)).unwrap();
    assert!(of("NCCL_DEBUG").starts_with("  own  ") && of("NCCL_DEBUG").contains("INFO"), "{text}");
    assert!(of("NCCL_IB_HCA").starts_with("  copy  "), "{text}");
    // NCCL reads it before a plugin; there is none here.
    assert!(!of("NCCL_DEBUG").contains("before it asks"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("NCCL_RDMA_INIT"), "{text}");
}

#[test]
fn its_conf_files_count_for_what_it_lacks() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".nccl.conf"), "NCCL_ALGO=Ring\nNCCL_DEBUG=WARN\n").unwrap();
    let own = home.path().join("own.conf");
    fs::write(&own, "NCCL_ALGO=Tree\n").unwrap();
    let in_home = [("NCCL_DEBUG", "INFO"), ("HOME", home.path().to_str().unwrap())];
    let of = |variables: &[(&str, &str)], name: &str| {
        let pid = Waiting::with(variables);
        let ran = run(rdma_init(["plan", "--in", &pid.0.id().to_string(), "--state-dir="])).expect_code(0);
        ran.text().lines().find(|line| line.contains(name)).unwrap_or_default().to_owned()
    };
    assert!(of(&in_home, "NCCL_ALGO").ends_with("not in the process; NCCL gets Ring"));
    assert!(of(&in_home, "NCCL_DEBUG").ends_with("set by the parent that started the process"));
    let named = [&in_home[..], &[("NCCL_CONF_FILE", own.to_str().unwrap())]].concat();
    assert!(of(&named, "NCCL_ALGO").ends_with("NCCL gets Tree"));
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    run(rdma_init(["plan", "--in", "4194305"])).expect_error(&["there is no process 4194305 here"]);
}

#[test]
fn a_process_of_rdma_init_is_none_of_the_job() {
    let mut waits = rdma_init(["--supervise", "--", "cat"]);
    let mut waits = waits.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = waits.id().to_string();
    let ran = run(rdma_init(["plan", "--in", &pid]));
    drop(waits.stdin.take());
    waits.wait().unwrap();
    ran.expect_error(&["is rdma-init itself", "name a process of the job"]);
}
