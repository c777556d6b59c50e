//! Tests the two deadlines: one for a command that ignores a stop signal, and one for processes that
//! outlive the command. Each test runs with PID 1 and with a subreaper.

use std::time::{Duration, Instant};

use nix::libc;

use crate::support::poll_until;
use crate::support::running::{
    Ended, Running, after, as_pid_1, descendants, in_place, is_stopped, lives, rdma_init, send, status,
    wait_until_stopped,
};

/// Starts the program with options and a shell script, as PID 1 and as a subreaper.
fn both(options: &[&str], script: &str) -> [Running; 2] {
    let command = |more: &[&str]| rdma_init([options, more, &["--", "sh", "-c", script]].concat());
    [as_pid_1(command(&[])), in_place(command(&["--supervise"]))]
}

/// Starts the program in both ways, stops it once the script is ready, and expects this code.
fn stopped(options: &[&str], script: &str, code: i32) -> [Ended; 2] {
    both(options, script).map(|mut running| {
        running.wait_for("ready");
        running.kill(libc::SIGTERM);
        running.end().expect_code(code)
    })
}

/// All processes, including a worker in its own session, ignore the stop signals.
const STUBBORN: &str = "trap '' TERM INT QUIT
    (setsid sh -c 'sleep 1000 & exec sleep 1000' &)
    sleep 1000 &
    echo ready
    while :; do wait; done";

/// Waits for the three sleepers and the shell, and returns all processes.
fn wait_for_all(running: &mut Running) -> Vec<i32> {
    running.wait_for("ready");
    poll_until("the command and three sleepers run", || {
        let all = descendants(running.pid);
        let sleepers = all.iter().filter(|pid| status(**pid).starts_with("Name:\tsleep\n")).count();
        (sleepers == 3).then_some(all)
    })
}

#[test]
fn after_the_stop_timeout_everything_is_killed() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT] {
        for mut running in both(&["--stop-timeout", "700ms"], STUBBORN) {
            let all = wait_for_all(&mut running);
            let start = Instant::now();
            running.kill(signal);
            let ended = running.end().expect_code(137);
            let took = start.elapsed();
            assert!(took >= Duration::from_millis(700), "{took:?}: {ended:#?}");
            assert!(took < Duration::from_secs(20), "{took:?}: {ended:#?}");
            let left: Vec<&i32> = all.iter().filter(|pid| lives(**pid)).collect();
            assert!(left.is_empty(), "{left:?} of {all:?} are left");
            assert!(ended.stderr.contains("after the stop-timeout of 700ms were killed"), "{ended:#?}");
        }
    }
}

/// torchrun abandons its workers if it receives a second signal.
#[test]
fn a_stop_is_forwarded_once() {
    let script = "trap 'echo stopped' TERM; echo ready; while :; do sleep 0.02; done";
    for ended in stopped(&["--stop-timeout", "3s"], script, 137) {
        assert_eq!(ended.stdout.matches("stopped").count(), 1, "{ended:#?}");
    }
}

#[test]
fn a_command_that_ends_in_time_is_left_to_it() {
    let script = "trap 'sleep 0.3; echo saved; exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    for mut running in both(&["--stop-timeout", "20s"], script) {
        running.wait_for("ready");
        let start = Instant::now();
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(9);
        assert!(ended.stdout.ends_with("saved\n"), "{ended:#?}");
        assert!(start.elapsed() < Duration::from_secs(10), "{ended:#?}");
    }
}

#[test]
fn other_signals_start_no_deadline() {
    let script = "trap 'echo got one' HUP USR1; trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    for mut running in both(&["--stop-timeout", "200ms"], script) {
        running.wait_for("ready");
        for signal in [libc::SIGHUP, libc::SIGUSR1] {
            running.kill(signal);
            running.wait_for("got one");
        }
        assert!(!running.ends_within(Duration::from_millis(600)), "{:#?}", running.end());
        running.kill(libc::SIGTERM);
        running.end().expect_code(9);
    }
}

/// The stop deadline counts from the signal that PID 1 received, even if the command gets another one.
#[test]
fn a_stop_that_is_rewritten_is_a_stop() {
    let script = "trap 'echo checkpoint' USR1; echo ready; while :; do sleep 0.02; done";
    for ended in stopped(&["--stop-timeout", "3s", "--rewrite-signal", "TERM:USR1"], script, 137) {
        assert!(ended.stdout.ends_with("checkpoint\n"), "{ended:#?}");
    }
}

/// A stop signal may arrive before the command runs. In this case, it ends the preparation.
#[test]
fn a_stop_during_the_preparation_needs_no_deadline() {
    let hang = crate::support::hang::Hang::interruptible("/sys/class/infiniband");
    let command = rdma_init(["--stop-timeout", "1h", "--prepare-timeout", "1h", "--", "true"]);
    let running = crate::support::running::hanging(command, true, &hang);
    hang.wait();
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(143);
    assert!(ended.stderr.contains("the preparation of the command was killed by SIGTERM"), "{ended:#?}");
}

/// A preparation that cannot even receive the stop signal is killed, and no command is started.
#[test]
fn a_preparation_that_does_not_stop_is_killed() {
    let hang = crate::support::hang::Hang::interruptible("/sys/class/infiniband");
    let command = rdma_init(["--stop-timeout", "300ms", "--prepare-timeout", "1h", "--", "echo", "started"]);
    let running = crate::support::running::hanging(command, true, &hang);
    hang.wait();
    let child = running.child();
    send(child, libc::SIGSTOP);
    wait_until_stopped(child);
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(137);
    assert_eq!(ended.stdout, "", "{ended:#?}");
}

/// A worker in its own session that saves something when it is asked to end.
const SAVER: &str = "setsid sh -c 'trap \"sleep 0.5; echo saved; exit\" TERM; echo ready; \
                     while :; do sleep 0.02; done' &
                     read -r line";

/// A worker that reports when it is asked to end, but does not end.
const ASKED: &str = "setsid sh -c 'trap \"echo asked\" TERM; echo ready; while :; do sleep 0.02; done' &
                     read -r line; exit 4";

/// Starts the program with a pipe as standard input; the command ends when the pipe is closed.
fn until_closed(options: &[&str], script: &str) -> Vec<(Running, std::os::fd::OwnedFd)> {
    let command = |more: &[&str]| {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe can be made");
        let mut command = rdma_init([options, more, &["--", "sh", "-c", script]].concat());
        command.stdin(reader);
        (command, writer)
    };
    let (first, first_writer) = command(&[]);
    let (second, second_writer) = command(&["--supervise"]);
    vec![(as_pid_1(first), first_writer), (in_place(second), second_writer)]
}

#[test]
fn a_drain_timeout_lets_remaining_processes_finish() {
    let script = format!("{SAVER}\nexit 4");
    for (mut running, stdin) in until_closed(&["--drain-timeout", "20s"], &script) {
        running.wait_for("ready");
        let start = Instant::now();
        drop(stdin);
        let ended = running.end().expect_code(4);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}: {ended:#?}", start.elapsed());
        assert_eq!(ended.stdout, "ready\nsaved\n", "{ended:#?}");
        assert!(!ended.stderr.contains("drain-timeout"), "no process was killed: {ended:#?}");
    }
}

#[test]
fn a_command_that_is_killed_leaves_workers_that_are_drained() {
    let script = format!("{SAVER}\nexit 4");
    for (mut running, _stdin) in until_closed(&["--drain-timeout", "20s"], &script) {
        running.wait_for("ready");
        send(running.command(), libc::SIGKILL);
        let ended = running.end().expect_code(137);
        assert_eq!(ended.stdout, "ready\nsaved\n", "{ended:#?}");
    }
}

#[test]
fn the_drain_asks_once_and_kills_at_its_deadline() {
    for (mut running, stdin) in until_closed(&["--drain-timeout", "3s"], ASKED) {
        running.wait_for("ready");
        let all = descendants(running.pid);
        let start = Instant::now();
        drop(stdin);
        let ended = running.end().expect_code(4);
        assert!(start.elapsed() >= Duration::from_secs(3), "{:?}: {ended:#?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {ended:#?}", start.elapsed());
        assert_eq!(ended.stdout, "ready\nasked\n", "{ended:#?}");
        assert!(!all.iter().any(|pid| lives(*pid)), "{all:?}");
        assert!(ended.stderr.contains("after the drain-timeout of 3s were killed"), "{ended:#?}");
    }
}

/// The drain's signal reaches a stopped process as well.
#[test]
fn the_drain_wakes_stopped_processes() {
    let script = "setsid sh -c 'echo $$ ready; kill -STOP $$; sleep 1000' & read -r line; exit 4";
    for (mut running, stdin) in until_closed(&["--drain-timeout", "20s"], script) {
        running.wait_for("ready");
        poll_until("the worker is stopped", || {
            descendants(running.pid).into_iter().any(is_stopped).then_some(())
        });
        let start = Instant::now();
        drop(stdin);
        running.end().expect_code(4);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    }
}

#[test]
fn a_drain_without_remaining_processes_takes_no_time() {
    for running in both(&["--drain-timeout", "1h"], "(exit 3) & wait; exit 4") {
        running.end().expect_code(4);
    }
}

/// Of the two deadlines, the earlier one holds.
#[test]
fn a_stop_during_the_drain_starts_its_own_deadline() {
    let options = ["--drain-timeout", "1h", "--stop-timeout", "300ms"];
    for (mut running, stdin) in until_closed(&options, ASKED) {
        running.wait_for("ready");
        drop(stdin);
        running.wait_for("asked");
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(4);
        assert!(ended.stderr.contains("after the stop-timeout of 300ms were killed"), "{ended:#?}");
        assert_eq!(ended.stdout.matches("asked").count(), 1, "{ended:#?}");
    }
}

/// Processes that start while the others are being killed do not survive, either.
#[test]
fn a_fork_bomb_does_not_outlast_the_kill() {
    let script = "trap '' TERM; echo ready; b() { while :; do (sleep 0.01; setsid sleep 1000) & sleep 0.002; done; }; b";
    for mut running in both(&["--stop-timeout", "300ms"], script) {
        running.wait_for("ready");
        let pid = running.pid;
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(137);
        let left = crate::support::running::children(pid);
        assert!(left.is_empty(), "{left:?}: {ended:#?}");
    }
}

/// The end line names the signal that caused the end, not one that came after it.
#[test]
fn a_stop_during_the_drain_is_not_behind_the_end() {
    let options = ["--drain-timeout", "3s"];
    for (mut running, stdin) in until_closed(&options, ASKED) {
        running.wait_for("ready");
        drop(stdin);
        running.wait_for("asked");
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(4);
        assert!(!ended.stderr.contains("forwarded"), "{ended:#?}");
    }
}

/// The message gives the right reason, and the program does not wait for an end that cannot happen.
#[test]
fn a_command_that_may_not_be_killed_is_not_waited_for() {
    let ours = rdma_init(
        [
            &["--stop-timeout", "300ms", "--", "setpriv", "--reuid", "65534", "--clear-groups"][..],
            &["sh", "-c", "echo ready; exec sleep 1000"],
        ]
        .concat(),
    );
    let mut running = as_pid_1(after("exec setpriv --bounding-set -kill --", ours));
    running.wait_for("ready");
    let start = Instant::now();
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(137);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}: {ended:#?}", start.elapsed());
    assert!(ended.stderr.contains("cannot be killed"), "{ended:#?}");
    assert!(!ended.stderr.contains("hangs in the kernel"), "{ended:#?}");
}
