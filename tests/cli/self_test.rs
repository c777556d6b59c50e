//! `self-test`, on hosts that are captured.

use std::fs;

use serde_json::Value;

use super::run::{Ran, rdma_init, run};
use crate::support::{repository, skip};

fn self_test(arguments: &[&str]) -> Ran {
    run(rdma_init(["self-test"].iter().chain(arguments)))
}

/// A golden host.
fn host(name: &str) -> String {
    repository(format!("tests/cases/{name}/facts.json")).display().to_string()
}

#[test]
fn a_sound_host_passes() {
    let ran = self_test(&["--facts", "demo:cce-roce"]).expect_code(0);
    for part in ["passed", "ok       port", "mlx5_1..mlx5_8: ACTIVE, LinkUp", "skipped  librdmacm"] {
        assert!(ran.text().contains(part), "{part:?} is not in\n{}", ran.text());
    }
}

#[test]
fn what_fails_is_named_with_its_fix_and_told_by_the_code() {
    for (name, check, fix) in [
        ("image-without-libibverbs", "FAILED: libibverbs:", "Install libibverbs1"),
        ("image-without-provider", "FAILED: provider:", "ibverbs-providers"),
        ("only-link-local", "FAILED: gid:", "Give the container an address"),
        ("no-rdma-at-all", "FAILED: fabric:", "no RDMA device"),
        ("user-comm-id-elsewhere", "FAILED: interface:", "NCCL_COMM_ID"),
    ] {
        let facts = host(name);
        let mut command = rdma_init(["self-test", "--facts", &facts]);
        if name == "user-comm-id-elsewhere" {
            command.env("NCCL_COMM_ID", "192.0.2.1:4000");
        }
        let ran = run(command).expect_code(1);
        assert!(ran.text().contains(check) && ran.text().contains(fix), "{name}: {}", ran.text());
    }
    // A warning is no failure.
    let ran = self_test(&["--facts", &host("mixed-rates")]).expect_code(0);
    assert!(ran.text().contains("warning: rate:"), "{}", ran.text());
}

#[test]
fn checks_can_be_listed_left_out_and_chosen() {
    let listed = self_test(&["--list"]).expect_code(0);
    assert!(listed.text().lines().any(|line| line.starts_with("memlock ")), "{}", listed.text());
    let facts = host("image-without-libibverbs");
    self_test(&["--facts", &facts, "--skip", "libibverbs", "--skip", "nccl-decides"]).expect_code(0);
    let only = self_test(&["--facts", &facts, "--only", "libibverbs"]).expect_code(1);
    assert!(only.text().contains("(1 check on"), "{}", only.text());
    self_test(&["--only", "nosuch"]).expect_error(&["nosuch", "--list"]);
}

#[test]
fn json_is_a_document_on_one_line() {
    let ran = self_test(&["--facts", &host("image-without-libibverbs"), "--json"]).expect_code(1);
    assert_eq!(ran.text().lines().count(), 1);
    let report: Value = serde_json::from_str(ran.text()).unwrap();
    assert_eq!((&report["schema"], &report["passed"]), (&"rdma-init/self-test/1".into(), &false.into()));
    let checks = report["checks"].as_array().unwrap();
    let failed: Vec<&Value> = checks.iter().filter(|check| check["outcome"] == "failed").collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert_eq!(failed[0]["id"], "libibverbs");
    assert_eq!(report["hcas"].as_array().unwrap().len(), 2);
}

#[test]
fn this_machine_can_be_tested() {
    let ran = self_test(&["--only", "shared-memory-writable", "--only", "nofile"]).expect_code(0);
    assert!(ran.text().contains("this user may make files in it"), "{}", ran.text());
}

/// The job does not start where there is no fabric, which is most machines.
#[test]
fn at_start_up_a_failure_is_said_or_keeps_the_command_from_starting() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let start = |flags: &[&str]| {
        let mut command = rdma_init(flags.iter().chain(&["--", "echo", "started"]));
        command.env("RDMA_INIT_TERMINATION_LOG", &log);
        run(command)
    };
    if start(&["--require-rdma"]).code == Some(0) {
        return skip("this machine has RDMA devices, so the self-test may pass");
    }
    fs::remove_file(&log).unwrap();
    let warned = start(&["--self-test", "warn"]).expect_code(0);
    assert_eq!(warned.text(), "started\n");
    for part in ["rdma-init: self-test failed (", "FAILED fabric", "FAILED: fabric: The job will run on TCP"]
    {
        assert!(warned.stderr.contains(part), "{part:?} is not in\n{}", warned.stderr);
    }
    assert!(!log.exists());

    let refused = start(&["--self-test", "enforce", "--refuse-exit-code", "77"]).expect_code(77);
    assert_eq!(refused.text(), "");
    assert!(
        refused.stderr.contains("refusing to start the command (exit code 77): self-test"),
        "{refused:#?}"
    );
    let reason = fs::read_to_string(&log).unwrap();
    let wanted = "rdma-init: self-test = \"enforce\", and a check failed: fabric: The job will run on TCP";
    assert!(reason.starts_with(wanted) && reason.lines().count() == 1, "{reason:?}");

    // What only warns is silent where only errors are wanted; a failure is not.
    let quiet = start(&["--self-test", "warn", "--log-level", "error"]).expect_code(0);
    assert!(quiet.stderr.contains("FAILED fabric") && !quiet.stderr.contains("warning"), "{quiet:#?}");
    let json = start(&["--self-test", "warn", "--log-format", "json"]).expect_code(0);
    let events: Vec<Value> = json.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed = events.iter().find(|event| event["event"] == "check" && event["level"] == "ERROR").unwrap();
    assert_eq!(failed["id"], "fabric");
    let whole = events.iter().find(|event| event["event"] == "self-test").unwrap();
    assert!(whole["passed"] == false && whole["took_us"].is_u64(), "{whole}");
}
