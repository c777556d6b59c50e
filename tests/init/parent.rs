//! Tests a container whose PID 1 is a shell that starts the program as its child.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::libc;

use crate::support::executable::executable;
use crate::support::process::program;
use crate::support::running::{Ended, as_pid_1, in_place, rdma_init};
use crate::support::{binary, poll_until, skip, status_field};

const NOTE: &str = "note: PID 1 of this container is a shell (";

/// Makes the command for a shell whose script finds the program's path in `$0`.
fn shell(words: &[&str], script: &str) -> Command {
    let mut command = program(words[0], &words[1..]);
    command.args(["-c", script]).arg(binary());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns how often the program has written the note about the shell.
fn told(ended: &Ended) -> usize {
    assert_eq!(ended.stdout, "started\n", "{ended:#?}");
    ended.stderr.matches(NOTE).count()
}

#[test]
fn a_parent_shell_is_reported_but_one_that_execs_rdma_init_is_not() {
    for (words, name) in
        [(&["/bin/dash"][..], "dash"), (&["/bin/bash"], "bash"), (&["/bin/busybox", "sh"], "sh")]
    {
        if !Path::new(words[0]).exists() {
            skip(&format!("there is no {}", words[0]));
            continue;
        }
        let run = |script: &str| as_pid_1(shell(words, script)).end().expect_code(0);
        let ended = run("$0 -- echo started; true");
        assert_eq!(told(&ended), 1, "{words:?}: {ended:#?}");
        assert!(ended.stderr.contains(&format!("{NOTE}{name}), and rdma-init is its child.")), "{ended:#?}");
        assert!(ended.stderr.contains("fix: Start rdma-init in place of the shell, with exec"), "{ended:#?}");
        // If another rdma-init runs in between, signals do not reach that one, either.
        let ended = run("$0 --supervise -- echo started; true");
        assert_eq!(told(&ended), 1, "{words:?}: {ended:#?}");
        for script in [
            "exec $0 -- echo started",
            "exec $0 --supervise -- echo started",
            // The shell has a trap that may forward signals.
            "trap 'kill $child' TERM; $0 -- echo started & child=$!; wait $child",
            "trap 'kill $child' TERM; $0 --supervise -- echo started & child=$!; wait $child",
            // `plan` starts no command that could miss a signal.
            "$0 plan 2>&1; echo started; true",
        ] {
            let ended = run(script);
            assert!(!(ended.stdout + &ended.stderr).contains(NOTE), "{words:?}: {script}");
        }
    }
    // bash becomes its last command without an exec.
    if Path::new("/bin/bash").exists() {
        let ended = as_pid_1(shell(&["/bin/bash"], "$0 -- echo started")).end().expect_code(0);
        assert_eq!(told(&ended), 0, "{ended:#?}");
    }
}

#[test]
fn a_script_is_a_shell_and_one_at_a_terminal_is_none_of_those() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("entrypoint.sh");
    let text = format!("#!/bin/sh\n{} -- echo started\ntrue\n", binary().display());
    executable(&script, &text);
    let started = |mut command: Command| {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut command = started(program::<&str>(&script, []));
    command.stdin(Stdio::null());
    assert_eq!(told(&as_pid_1(command).end().expect_code(0)), 1);
    // Here a user types the commands, so the shell reads them from standard input.
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let mut command = started(program::<&str>("/bin/sh", []));
    command.stdin(input);
    assert_eq!(told(&as_pid_1(command).end().expect_code(0)), 0);
}

/// This shell entered the container, as with `docker exec CONTAINER sh -c ...`.
#[test]
fn a_shell_that_enters_is_not_pid_1() {
    let mut init = as_pid_1(shell(&["/bin/sh"], "echo ready; sleep 1000; true"));
    init.wait_for("ready");
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &init.pid.to_string(), "--pid", "--mount", "sh", "-c"]);
    enter.args(["$0 -- echo started; true"]).arg(binary());
    enter.env_clear().envs(rdma_init::<&str>([]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = enter.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"started\n", "{said}");
    assert!(!said.contains(NOTE), "{said}");
    // The note is not written about a shell on the machine itself, either.
    let ended = in_place(shell(&["/bin/sh"], "$0 -- echo started; true")).end().expect_code(0);
    assert_eq!(told(&ended), 0);
}

/// The facts name PID 1 only if it is another program.
#[test]
fn our_own_init_is_no_parent() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let facts = state.join("facts.json");
    let words = ["--state-dir", state.to_str().unwrap(), "--", "cat", facts.to_str().unwrap()];
    let facts = |words: &str| -> serde_json::Value {
        let ended = as_pid_1(shell(&["/bin/sh"], words)).end().expect_code(0);
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let words = words.join(" ");
    assert_eq!(facts(&format!("$0 {words}; true"))["parent"]["program"], "sh");
    let own = facts(&format!("exec $0 {words}"));
    assert!(own["schema"].is_string() && own.get("parent").is_none(), "{own}");
}

/// The note is right: the command does not get the signal, and with the fix it does.
#[test]
fn a_stop_reaches_the_command_only_with_the_fix() {
    let job = "-- sh -c 'trap \"echo stopped; exit 7\" TERM; echo ready; while :; do sleep 0.05; done'";
    let mut without = as_pid_1(shell(&["/bin/sh"], &format!("$0 {job}; true")));
    without.wait_for("ready");
    without.kill(libc::SIGTERM);
    // The kernel has dropped the signal, so none is pending.
    let status = poll_until("the shell has no signal pending", || {
        let status = crate::support::running::status(without.pid);
        (status_field(&status, "ShdPnd")? == "0000000000000000").then_some(status)
    });
    assert_eq!(status_field(&status, "SigCgt").map(|mask| mask.ends_with("4002")), Some(false), "{status}");
    assert!(!without.has_ended());
    drop(without);
    let mut with = as_pid_1(shell(&["/bin/sh"], &format!("exec $0 {job}")));
    with.wait_for("ready");
    with.kill(libc::SIGTERM);
    assert_eq!(with.end().expect_code(7).stdout, "ready\nstopped\n");
}
