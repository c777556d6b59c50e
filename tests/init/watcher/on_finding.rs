//! Tests the command that the watcher starts for each warning.

use std::fs;

use nix::libc;
use tempfile::TempDir;

use super::{awaits_events, watcher};
use crate::support::executable::executable;
use crate::support::one_hca::{Host, stop};
use crate::support::poll_until;
use crate::support::running::{as_pid_1, children, in_place, rdma_init, send};

/// Makes a shell script with these lines for the key `on-finding`.
fn script(place: &TempDir, lines: &str) -> String {
    let script = place.path().join("tell");
    executable(&script, &format!("#!/bin/sh\n{lines}\n"));
    script.to_str().unwrap().to_owned()
}

#[test]
fn a_command_for_findings_without_a_watcher_has_no_effect_and_that_is_said() {
    let line = "the key on-finding has no effect, because watch is \"off\": no watcher starts the command.";
    let host = Host::new();
    let off = stop(host.job(&["--watch", "off", "--on-finding", "true"]));
    assert_eq!(off.matches("on-finding").count(), 1, "{off}");
    assert!(off.contains(&format!("rdma-init: {line}\n")), "{off}");
    let on = stop(host.job(&["--on-finding", "true"]));
    assert!(!on.contains("on-finding"), "{on}");
    // In place there is no watcher either, and without a word of the user that is not said.
    let in_place = |options: &[&str]| {
        let arguments = [options, &["--", "true"]].concat();
        in_place(rdma_init(arguments)).end().expect_code(0).stderr
    };
    let lost = in_place(&["--watch", "warn", "--on-finding", "true"]);
    assert!(lost.contains("these settings have no effect: watch, on-finding. "), "{lost}");
    assert!(in_place(&["--on-finding", "true"]).contains("have no effect: on-finding. "));
    assert!(!in_place(&[]).contains("no effect"));
}

#[test]
fn a_command_gets_each_warning() {
    let host = Host::new();
    let place = tempfile::tempdir().unwrap();
    // What the command prints must not reach the job's standard output.
    let script = script(&place, "echo \"$1 $(cat)\"");
    let mut running = host.job(&["--on-finding", &format!("{script} told:")]);
    host.port("state", "1: DOWN");
    let json = r#"told: {"id":"link-down","severity":"warning","message":"mlx5_0 is no longer active.","fix":"Check the cable, the transceiver and the switch's port; the kernel's log has the times.","about":{"ports":["mlx5_0:1"]},"phase":"run","time":"2"#;
    running.wait_for_error(json);
    host.port("state", "4: ACTIVE");
    running.wait_for_error("mlx5_0 is active again");
    // None of its processes remain.
    let watcher = watcher(running.pid);
    poll_until("the command is reaped", || children(watcher).is_empty().then_some(()));
    let said = stop(running);
    assert_eq!(said.matches("told:").count(), 1, "a note starts nothing: {said}");
}

/// Its processes are not the job's: PID 1 does not reap them.
#[test]
fn what_that_command_leaves_behind_is_no_orphan_of_the_job() {
    let host = Host::new();
    let place = tempfile::tempdir().unwrap();
    let left = place.path().join("left");
    let leaves = format!("(sleep 0.1; : >{}) &", left.display());
    for lines in [leaves.as_str(), "exec sleep 1000"] {
        host.port("state", "4: ACTIVE");
        let mut running = host.job(&["--warn-on-reap", "--on-finding", &script(&place, lines)]);
        let watcher = watcher(running.pid);
        host.port("state", "1: DOWN");
        running.wait_for_error("mlx5_0 is no longer active.");
        if lines == leaves {
            poll_until("the process that is left has ended", || left.exists().then_some(()));
            poll_until("the watcher has reaped it", || children(watcher).is_empty().then_some(()));
        } else {
            poll_until("the command runs", || (!children(watcher).is_empty()).then_some(()));
            let has_slept = || {
                let of = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                children(watcher).iter().map(of).any(|comm| comm == "sleep\n")
            };
            poll_until("it sleeps, and the watcher has said so", || has_slept().then_some(()));
            running.rests();
        }
        let said = stop(running);
        assert!(!said.contains("which is not the command"), "{lines}: {said}");
    }
}

#[test]
fn the_failure_of_that_command_is_told_once() {
    let host = Host::new();
    let mut running = host.job(&["--on-finding", "/no/such/command"]);
    for _ in 0..2 {
        host.port("state", "1: DOWN");
        running.wait_for_error("mlx5_0 is no longer active.");
        host.port("state", "4: ACTIVE");
        running.wait_for_error("mlx5_0 is active again");
    }
    running.wait_for_error(
        "the command of the key on-finding, /no/such/command, cannot be executed: No such file or directory.",
    );
    let said = stop(running);
    assert_eq!(said.matches("on-finding").count(), 1, "{said}");
}

/// Root regains its capabilities with each program that it executes, and the kernel then clears the setting
/// that ends the program with the watcher.
#[test]
fn the_command_of_a_finding_ends_with_the_job() {
    let host = Host::new();
    let place = tempfile::tempdir().unwrap();
    let script = script(&place, "sleep 1000\n:");
    let arguments = ["--supervise", "--on-finding", &script, "--", "sh", "-c", "echo ready; exec sleep 1000"];
    let mut running = as_pid_1(host.shows("\"$@\" & exec sleep 1000;", &arguments));
    running.wait_for("ready");
    let supervisor = running.child();
    let watcher = watcher(supervisor);
    host.port("state", "1: DOWN");
    let hook = poll_until("the command runs", || children(watcher).first().copied());
    let sleeper = poll_until("it has a child", || children(hook).first().copied());
    let command = children(supervisor).into_iter().find(|pid| *pid != watcher).unwrap();
    send(command, libc::SIGKILL);
    let has_ended = |pid: i32| {
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (state.is_empty() || state.contains(") Z ")).then_some(())
    };
    poll_until("the supervisor has ended", || has_ended(supervisor));
    for pid in [hook, sleeper] {
        poll_until("nothing of the command is left", || has_ended(pid));
    }
    running.kill(libc::SIGKILL);
    running.end();
}

/// What made the command fail happened after the last look. The other command has a
/// moment for it, which is too short on a busy machine now and then.
#[test]
fn the_command_gets_what_ended_the_job() {
    let place = tempfile::tempdir().unwrap();
    let script = script(&place, "sleep 0.1; echo \"told: $(cat)\"");
    let said = |last: &str| {
        let host = Host::with_infiniband();
        let gate = place.path().join("gate");
        let wait = format!("echo ready; until [ -e {} ]; do sleep 0.01; done; {last}", gate.display());
        let options = ["--watch-interval", "1h", "--on-finding", &script, "--", "sh", "-c", &wait];
        let mut running = as_pid_1(host.shows("exec", &options));
        running.wait_for("ready");
        awaits_events(watcher(running.pid));
        host.port("state", "1: DOWN");
        fs::write(&gate, "").unwrap();
        let said = running.end().stderr;
        fs::remove_file(&gate).unwrap();
        said
    };
    let is_told = |said: &String| {
        said.contains(
            r#"told: {"id":"link-down","severity":"warning","message":"mlx5_0 is no longer active.""#,
        )
    };
    let fails: Vec<String> = (0..3).map(|_| said("kill -9 $$")).take_while(|said| !is_told(said)).collect();
    assert!(fails.len() < 3, "{fails:#?}");
    let ends = said("exit 0");
    assert!(!is_told(&ends), "{ends}");
}

/// It has two seconds from the end of the job's command.
#[test]
fn a_command_that_does_not_end_is_killed_after_the_end_of_the_job() {
    let host = Host::with_infiniband();
    let place = tempfile::tempdir().unwrap();
    let (began, ended) = (place.path().join("began"), place.path().join("ended"));
    let lines = format!(": >{}; sleep 1000; : >{}", began.display(), ended.display());
    let running = host.job(&["--on-finding", &script(&place, &lines)]);
    host.port("state", "1: DOWN");
    poll_until("the command runs", || began.exists().then_some(()));
    stop(running);
    assert!(!ended.exists());
}
