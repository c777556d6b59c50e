//! Tests how the container ends: with the command's code, by a signal, and by an early stop signal.

use std::time::Duration;

use nix::libc;

use crate::support::poll_until;
use crate::support::running::{
    after, as_pid_1, is_at_rest, is_in_main, rdma_init, shell, signal_of, wait_until_stopped,
};

#[test]
fn our_own_commands_work_as_pid_1() {
    let ended = as_pid_1(rdma_init(["--version"])).end().expect_code(0);
    assert_eq!(ended.stdout, concat!("rdma-init ", env!("CARGO_PKG_VERSION"), "\n"));
    as_pid_1(rdma_init(["plan", "--facts", "demo:erdma"])).end().expect_code(0);
    as_pid_1(rdma_init::<&str>([])).end().expect_code(125);
    as_pid_1(rdma_init(["ls", "-la"])).end().expect_code(125);
    as_pid_1(rdma_init(["--memlock", "on", "--", "true"])).end().expect_code(125);
    let ended = as_pid_1(rdma_init(["--", "no-such-command"])).end().expect_code(127);
    assert!(ended.stderr.contains("cannot run no-such-command"), "{ended:#?}");
    as_pid_1(rdma_init(["--", "/"])).end().expect_code(126);
}

#[test]
fn a_signal_from_inside_arrives_as_well() {
    let script = "trap 'exit 9' TERM; kill -TERM 1; while :; do sleep 0.05; done";
    as_pid_1(shell(script)).end().expect_code(9);
}

#[test]
fn kill_from_inside_does_nothing_and_from_outside_ends_everything() {
    let mut running = as_pid_1(shell("kill -KILL 1; kill -STOP 1; echo alive; exec sleep 1000"));
    running.wait_for("alive");
    running.kill(libc::SIGKILL);
    assert_eq!(signal_of(running.end().status), Some(libc::SIGKILL));
}

/// No stop signal is lost once PID 1 has reached its `main`.
#[test]
fn a_stop_is_kept_from_the_first_moment_on() {
    for _ in 0..100 {
        let running = as_pid_1(rdma_init(["--", "sleep", "1000"]));
        poll_until("PID 1 is in its `main`", || is_in_main(running.pid).then_some(()));
        running.kill(libc::SIGTERM);
        running.end().expect_code(143);
    }
}

/// The container ends, whenever the stop signal arrives. Before `main`, the kernel drops a signal to a PID
/// 1 without a handler. In this case, a second stop signal must end it.
#[test]
fn a_stop_at_any_moment_ends_the_container() {
    let mut lost = Vec::new();
    for microseconds in (0..3000).step_by(20) {
        let mut running = as_pid_1(rdma_init(["--", "sleep", "1000"]));
        // Only the moment of the signal differs: whatever it hits, the same has to be true.
        std::thread::sleep(Duration::from_micros(microseconds));
        let in_main = is_in_main(running.pid);
        running.kill(libc::SIGTERM);
        if !in_main {
            poll_until("PID 1 ends, or runs its command and rests", || {
                (running.has_ended() || is_at_rest(running.pid)).then_some(())
            });
        }
        if !in_main && !running.has_ended() {
            lost.push(microseconds);
            running.kill(libc::SIGTERM);
        }
        running.end().expect_code(143);
    }
    println!("{} of 150 were sent before `main` and lost, after microseconds: {lost:?}", lost.len());
}

/// Many signals arrive at once while the command starts: the first one ends it, and the others do no harm.
#[test]
fn a_storm_of_stops_ends_the_container() {
    for _ in 0..20 {
        let mut running = as_pid_1(rdma_init(["--", "sleep", "1000"]));
        while !running.has_ended() {
            running.kill(libc::SIGTERM);
        }
        running.end().expect_code(143);
    }
}

#[test]
fn a_pid_1_that_was_stopped_goes_on() {
    let mut running = as_pid_1(shell("echo ready; exec sleep 1000"));
    running.wait_for("ready");
    running.kill(libc::SIGSTOP);
    wait_until_stopped(running.pid);
    running.kill(libc::SIGTERM);
    running.kill(libc::SIGCONT);
    running.end().expect_code(143);
}

#[test]
fn it_needs_no_privilege() {
    let first =
        "exec setpriv --reuid 65533 --clear-groups --no-new-privs --bounding-set -all --inh-caps -all";
    let ended =
        as_pid_1(after(first, rdma_init(["--set", "T_X=1", "--", "sh", "-c", "id -u; echo $T_X; exit 3"])))
            .end();
    assert_eq!(ended.expect_code(3).stdout, "65533\n1\n");
}

/// The command starts even without /proc, /sys, /dev, and standard input.
#[test]
fn it_needs_no_file_system() {
    let first = "for folder in /sys /dev /proc; do mount -t tmpfs none $folder; done; exec <&-; exec";
    let script = "test ! -e /proc/self && test ! -e /dev/null && echo $T_X; exit 3";
    let mut command = rdma_init(["--set", "T_X=1", "--", "sh", "-c", script]);
    command.env("RDMA_INIT_CONFIG", "");
    assert_eq!(as_pid_1(after(first, command)).end().expect_code(3).stdout, "1\n");
}
