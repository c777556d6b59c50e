//! Tests the line that says how the command ended.

use nix::libc;

use crate::support::running::{as_pid_1, in_place, rdma_init, shell};

/// Returns the last line, which comes after the report of the start.
fn last_line(stderr: &str) -> &str {
    stderr.lines().last().unwrap_or_default()
}

#[test]
fn a_code_that_is_not_0_is_told() {
    let ended = as_pid_1(shell("exit 3")).end().expect_code(3);
    let line = last_line(&ended.stderr);
    assert!(line.starts_with("rdma-init: sh ended with exit code 3 after "), "{ended:#?}");
    assert!(!line.contains("forwarded"), "{line}");
    let ended = as_pid_1(shell("exit 0")).end().expect_code(0);
    assert!(!ended.stderr.contains("ended"), "{ended:#?}");
    // Without an init, no process is left that could write the line.
    let ended = in_place(shell("exit 3")).end().expect_code(3);
    assert!(!ended.stderr.contains("ended"), "{ended:#?}");
}

#[test]
fn the_signal_that_was_forwarded_is_named() {
    let mut running = as_pid_1(shell("echo ready; exec sleep 1000"));
    running.wait_for("ready");
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(143);
    let line = last_line(&ended.stderr);
    assert!(line.starts_with("rdma-init: sh was killed by SIGTERM (exit code 143) after "), "{line}");
    assert!(line.contains("; SIGTERM was forwarded to it "), "{line}");

    // The signal is named even if the command ends with success.
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let mut running = as_pid_1(shell(script));
    running.wait_for("ready");
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(0);
    assert!(last_line(&ended.stderr).contains("exit code 0"), "{ended:#?}");
    assert!(last_line(&ended.stderr).contains("SIGTERM was forwarded"), "{ended:#?}");
}

/// A signal that does not ask for the end is named only if it kills the command. A window that was resized
/// an hour ago is not the cause of the end.
#[test]
fn other_signals_are_named_only_where_they_kill() {
    let script = "trap : WINCH; trap 'exit 3' HUP; echo ready; while :; do sleep 0.02; done";
    let mut running = as_pid_1(shell(script));
    running.wait_for("ready");
    running.kill(libc::SIGWINCH);
    running.kill(libc::SIGHUP);
    let ended = running.end().expect_code(3);
    assert!(!last_line(&ended.stderr).contains("forwarded"), "{ended:#?}");

    let mut running = as_pid_1(shell("echo ready; exec sleep 1000"));
    running.wait_for("ready");
    running.kill(libc::SIGUSR1);
    let ended = running.end().expect_code(138);
    assert!(last_line(&ended.stderr).contains("killed by SIGUSR1"), "{ended:#?}");
    assert!(last_line(&ended.stderr).contains("SIGUSR1 was forwarded"), "{ended:#?}");
}

#[test]
fn at_level_error_there_is_no_line() {
    for level in ["error", "warn", "info", "debug"] {
        let ended =
            as_pid_1(rdma_init(["--log-level", level, "--", "sh", "-c", "exit 3"])).end().expect_code(3);
        assert_eq!(ended.stderr.contains("exit code 3"), level != "error", "{level}: {ended:#?}");
    }
}

#[test]
fn as_json_it_is_one_object() {
    let mut running = as_pid_1(rdma_init([
        "--log-format",
        "json",
        "--log-level",
        "warn",
        "--remap-exit",
        "143:7",
        "--",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ]));
    running.wait_for("ready");
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(7);
    let event: serde_json::Value = serde_json::from_str(&ended.stderr).expect(&ended.stderr);
    assert_eq!(event["event"], "end");
    assert_eq!(event["command"], "sh");
    assert_eq!(event["exit_code"], 7);
    assert_eq!(event["killed_by"], "SIGTERM");
    assert_eq!(event["forwarded"], "SIGTERM");
    assert!(event["ran_ms"].is_u64() && event["forwarded_ms_before"].is_u64(), "{event}");
}

#[test]
fn a_code_that_is_turned_into_another_is_told_as_such() {
    let ended = as_pid_1(rdma_init(["--remap-exit", "3:9", "--", "sh", "-c", "exit 3"])).end().expect_code(9);
    assert!(last_line(&ended.stderr).contains("exit code 3 (turned into 9)"), "{ended:#?}");
}

/// The shell dies of the signal, and the container ends before the worker has saved its checkpoint.
#[test]
fn processes_that_the_end_of_the_container_kills_are_named() {
    let script = "trap 'echo saving' TERM; echo ready; while :; do sleep 0.02; done";
    let shell = format!("sh -c \"{script}\"; true");
    for options in [&[][..], &["--kill-group"]] {
        let mut running = as_pid_1(rdma_init([options, &["--", "sh", "-c", &shell]].concat()));
        running.wait_for("ready");
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(143);
        let line = last_line(&ended.stderr);
        assert!(
            line.contains("It left these processes, which the end of the container kills: sh ("),
            "{line}"
        );
        assert!(line.contains("set drain-timeout"), "{line}");
    }
}
