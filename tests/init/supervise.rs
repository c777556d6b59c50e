//! Tests a command whose supervisor is not PID 1, and options for both cases.

use std::fs;
use std::process::{Command, Stdio};

use nix::libc;

use super::inherited::differences;
use crate::support::hang::Hang;
use crate::support::running::{
    after, as_pid_1, children, from_scratch, hanging, has_descriptors, in_place, rdma_init, send, shell,
    signal_of, status,
};
use crate::support::{poll_until, status_field};

fn supervised(script: &str) -> Command {
    rdma_init(["--supervise", "--", "sh", "-c", script])
}

#[test]
fn without_the_option_the_process_becomes_the_command() {
    let running = in_place(shell("echo $$; exec sleep 1000"));
    let pid = running.pid;
    poll_until("it is the command", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).ok().filter(|comm| comm == "sleep\n")
    });
    running.kill(libc::SIGTERM);
    assert_eq!(signal_of(running.end().status), Some(libc::SIGTERM));
}

#[test]
fn with_it_the_command_is_a_child_of_a_subreaper() {
    let mut running = in_place(supervised("(sleep 1000 &); echo ready; exec sleep 1000"));
    running.wait_for("ready");
    let command = running.command();
    let orphan = poll_until("the orphan is adopted", || {
        children(running.pid).into_iter().find(|child| *child != command)
    });
    send(orphan, libc::SIGKILL);
    poll_until("the orphan is reaped", || (children(running.pid) == [command]).then_some(()));
    running.kill(libc::SIGTERM);
    running.end().expect_code(143);
}

#[test]
fn the_file_and_the_variable_ask_for_it_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rdma-init.toml");
    fs::write(&file, "supervise = true\nremap-exit = [3]\n").unwrap();
    let mut by_file = shell("exit 3");
    by_file.env("RDMA_INIT_CONFIG", &file);
    in_place(by_file).end().expect_code(0);
    let mut by_variable = shell("exit 3");
    by_variable.env("RDMA_INIT_SUPERVISE", "true").env("RDMA_INIT_REMAP_EXIT", "3:4");
    in_place(by_variable).end().expect_code(4);
    let mut bad = shell("echo started");
    bad.env("RDMA_INIT_SUPERVISE", "true").env("RDMA_INIT_REMAP_EXIT", "x");
    let ended = in_place(bad).end().expect_code(125);
    assert!(ended.stderr.contains("RDMA_INIT_REMAP_EXIT") && ended.stdout.is_empty(), "{ended:#?}");
}

/// If a supervisor is gone, its child has another parent. If that is PID 1, it is not a supervisor of
/// rdma-init. The first process reads the configuration before it becomes the supervisor; its child reads
/// it again, and is stopped there.
#[test]
fn a_supervisor_that_is_killed_during_the_preparation_leaves_no_pid_1_of_ours() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("config.toml");
    fs::write(&config, "").unwrap();
    let hang = Hang::interruptible(config.to_str().unwrap()).but_the_first();
    let mut ours = supervised("echo started; exec sleep 1000");
    ours.env("RDMA_INIT_STATE_DIR", place.path().join("state")).env("RDMA_INIT_CONFIG", &config);
    let mut running = hanging(after("\"$@\" & wait $! || exec sleep 1000; :", ours), true, &hang);
    let child = hang.wait();
    let parent = || status_field(&status(child), "PPid").unwrap().parse::<i32>().unwrap();
    let supervisor = parent();
    assert_ne!(supervisor, running.pid);
    send(supervisor, libc::SIGKILL);
    poll_until("PID 1 has the child", || (parent() == running.pid).then_some(()));
    hang.release();
    running.wait_for("started");
    let state = fs::read_to_string(place.path().join("state/plan.json")).unwrap();
    assert!(state.contains("\"by_init\": false"), "{state}");
    running.kill(libc::SIGKILL);
    running.end();
}

/// If an option needs an init and there is none, the program reports that the option has no effect.
#[test]
fn options_that_need_an_init_are_reported_in_place() {
    for option in [
        &["--stop-timeout", "5s"][..],
        &["--kill-group"],
        &["--remap-exit", "3"],
        &["--rewrite-signal", "1:2"],
    ] {
        let command = rdma_init([option, &["--", "sh", "-c", "exit 3"]].concat());
        let ended = in_place(command).end().expect_code(3);
        assert_eq!(ended.stderr.matches("--supervise").count(), 1, "{option:?}: {ended:#?}");
    }
    let ended = in_place(shell("exit 3")).end().expect_code(3);
    assert!(!ended.stderr.contains("--supervise"), "{ended:#?}");
    let ended = as_pid_1(rdma_init(["--stop-timeout", "5s", "--", "true"])).end().expect_code(0);
    assert!(!ended.stderr.contains("--supervise"), "{ended:#?}");
}

#[test]
fn the_command_gets_the_mask_and_dispositions_that_were_inherited() {
    let differences = differences(&["--supervise"], in_place);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_supervisor_keeps_nothing_that_is_the_command_s() {
    let running = in_place(supervised("exec sleep 1000"));
    running.command();
    has_descriptors(running.pid, &[0, 1, 2]).unwrap();
    let cwd = || fs::read_link(format!("/proc/{}/cwd", running.pid)).unwrap();
    poll_until("the init is in /", || (cwd() == std::path::Path::new("/")).then_some(()));
    assert_eq!(status_field(&status(running.pid), "Threads"), Some("1"));
    running.kill(libc::SIGTERM);
    running.end().expect_code(143);
}

/// If the parent of the init ends, the command gets the signal, whether or not that init is PID 1.
#[test]
fn the_parent_death_signal_reaches_the_command() {
    for option in [&["--supervise"][..], &[]] {
        let ours = rdma_init(
            [
                &["--parent-death-signal", "USR1"],
                option,
                &[
                    "--",
                    "sh",
                    "-c",
                    "trap 'echo told; exit 0' USR1; echo ready $$; while :; do sleep 0.02; done",
                ],
            ]
            .concat(),
        );
        let mut parent = Command::new("/bin/sh");
        parent.env_clear().envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        // The program is not the last command of the script, because the shell would exec that one in its
        // own place.
        parent.args(["-c", "\"$@\"; exit 1", "sh"]).arg(ours.get_program()).args(ours.get_args());
        parent.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        from_scratch(&mut parent);
        let mut running = in_place(parent);
        running.wait_for("ready");
        running.kill(libc::SIGKILL);
        running.wait_for("told");
        running.end();
    }
}

#[test]
fn an_orphan_is_told_of_only_where_that_is_asked_for() {
    // The orphan ends only after PID 1 has adopted it, so that no shell can reap it before.
    let orphan = "until [ $(ps -o ppid= -p $$) -eq 1 ]; do :; done; exit 3";
    let script =
        format!("(sh -c '{orphan}' & :); until [ \"$(ps -o pid= --ppid 1 | tr -d ' ')\" = $$ ]; do :; done");
    for (options, expected) in [(&["--warn-on-reap"][..], true), (&[], false)] {
        let command = rdma_init([options, &["--", "sh", "-c", &script]].concat());
        let ended = as_pid_1(command).end();
        assert_eq!(ended.stderr.contains("reaped process"), expected, "{ended:#?}");
        assert_eq!(ended.stderr.contains("(exit code 3), which is not the command"), expected, "{ended:#?}");
    }
}
