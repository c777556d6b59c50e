//! Tests two nodes whose own names resolve to loopback, and a job of PyTorch's Gloo on them.

use std::fs;
use std::process::{Command, Output};

use super::torchrun::PROGRAMS;
use crate::support::{binary, repository};

/// Runs the job, and returns its outcome and the output of the two ranks. A rank waits this many seconds
/// for the other.
fn job(seconds: u32, options: &[&str]) -> (Output, [String; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(repository("tests/launchers/gloo.sh"))
        .arg(binary())
        .arg(format!("{}/python", *PROGRAMS))
        .arg(seconds.to_string())
        // This machine has no HCA, so nothing shows that it belongs to a job.
        .args(["--profile", "generic-roce"])
        .args(options)
        .env_remove("RDMA_INIT_TEST_BINARY")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = ["node-1", "node-2"].map(|node| fs::read_to_string(folder.path().join(node)).unwrap());
    (output, said)
}

#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn gloo_bootstraps_where_nccl_does_if_host_names_are_127_0_1_1() {
    let (output, said) = job(60, &[]);
    assert!(output.status.success(), "{output:?} {said:?}");
    for said in &said {
        assert!(said.contains("set    GLOO_SOCKET_IFNAME  eth0 "), "{said}");
        assert!(said.contains("\nsum 3\n"), "{said}");
    }
}

/// This is why the variable is filled in.
#[test]
#[ignore = "needs PyTorch: make test-torch"]
fn without_the_variable_gloo_meets_on_the_loopback_and_the_job_fails() {
    let (output, said) = job(10, &["--libraries", "nccl"]);
    assert!(!output.status.success(), "{output:?} {said:?}");
    assert!(said.iter().all(|said| !said.contains("sum")), "{said:?}");
    assert!(said.iter().any(|said| said.contains("Connection refused, remote=[127.0.1.1]")), "{said:?}");
}
