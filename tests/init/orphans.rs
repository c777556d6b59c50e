//! Tests that an init reaps orphans, and does nothing when there is nothing to do.

use std::fs;

use nix::libc;

use crate::support::running::{
    after, as_pid_1, children, has_taken_signals, rdma_init, send, shell, status, wait_until_stopped,
};
use crate::support::{poll_until, status_field};

#[test]
fn a_hundred_orphans_that_end_at_once_leave_no_zombie() {
    let script =
        "i=0; while [ $i -lt 100 ]; do (sleep 1000 &); i=$((i+1)); done; echo ready; exec sleep 1000";
    let mut running = as_pid_1(shell(script));
    running.wait_for("ready");
    let command = running.command();
    let orphans = || children(running.pid).into_iter().filter(|pid| *pid != command).collect::<Vec<i32>>();
    let orphans = poll_until("100 orphans of PID 1", || (orphans().len() == 100).then(orphans));
    for orphan in &orphans {
        send(*orphan, libc::SIGKILL);
    }
    poll_until("every orphan is reaped", || (children(running.pid) == [command]).then_some(()));
    running.kill(libc::SIGTERM);
    running.end().expect_code(143);
}

#[test]
fn orphans_that_come_and_go_do_not_disturb_the_command() {
    let script = "i=0; while [ $i -lt 300 ]; do (true &); i=$((i+1)); done; echo ready; read -r line; exit 4";
    let mut command = shell(script);
    let (reader, writer) = nix::unistd::pipe().unwrap();
    command.stdin(reader);
    let mut running = as_pid_1(command);
    running.wait_for("ready");
    poll_until("every orphan is reaped", || (children(running.pid).len() == 1).then_some(()));
    drop(writer);
    running.end().expect_code(4);
}

/// The container ends with the command, whatever processes remain.
#[test]
fn orphans_that_stay_do_not_hold_the_end_up() {
    as_pid_1(shell("(sleep 1000 >/dev/null 2>&1 &); (setsid sleep 1000 >/dev/null 2>&1 &); exit 6"))
        .end()
        .expect_code(6);
}

/// The exit code is that of the command, even if an orphan gets the command's PID.
#[test]
fn only_the_command_s_own_end_counts() {
    let running =
        as_pid_1(shell("(exit 3) & (sh -c 'kill -9 $$') & wait; (sh -c 'exit 8' &); sleep 0.1; exit 7"));
    running.end().expect_code(7);
}

#[test]
fn a_child_that_stops_and_goes_on_is_no_end() {
    let mut running = as_pid_1(shell("kill -STOP $$; echo went on; exit 3"));
    let command = running.command();
    wait_until_stopped(command);
    running.kill(libc::SIGCONT);
    running.wait_for("went on");
    running.end().expect_code(3);
}

#[test]
fn an_idle_pid_1_never_wakes_up() {
    let running = as_pid_1(rdma_init(["--", "sleep", "1000"]));
    running.command();
    assert_eq!(status_field(&status(running.pid), "Threads"), Some("1"));
    running.rests();
    let file = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", running.pid)).unwrap();
    // The number of the call, and its arguments: the third one is the timeout.
    let call = file("syscall");
    let words: Vec<&str> = call.split(' ').collect();
    assert_eq!((words[0], words[3]), (&*libc::SYS_rt_sigtimedwait.to_string(), "0x0"), "{call}");
    assert_eq!(file("timers"), "", "PID 1 has a timer");
}

#[test]
fn a_child_that_may_not_be_signalled_is_warned_of_once() {
    let ours = rdma_init([
        "--",
        "setpriv",
        "--reuid",
        "65534",
        "--clear-groups",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ]);
    let mut running = as_pid_1(after("exec setpriv --bounding-set -kill --", ours));
    running.wait_for("ready");
    let child = running.child();
    for _ in 0..3 {
        running.kill(libc::SIGTERM);
        has_taken_signals(running.pid);
    }
    running.wait_for_error("cannot forward");
    send(child, libc::SIGKILL);
    let ended = running.end().expect_code(137);
    assert_eq!(ended.stderr.matches("cannot forward").count(), 1, "{ended:#?}");
    assert!(ended.stderr.contains("KILL"), "{ended:#?}");
}
