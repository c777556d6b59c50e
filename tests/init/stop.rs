//! Tests the two deadlines: one for a command that ignores a stop signal, and one for processes that
//! outlive the command. Each test runs with PID 1 and with a subreaper.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::libc;

use crate::support::clock::{Clock, HOUR, SECOND};
use crate::support::running::{
    Ended, Running, after, as_pid_1, descendants, has_taken_signals, is_stopped, lives, rdma_init, send,
    status, wait_until_stopped,
};
use crate::support::{poll_until, status_field};

/// Starts the program with options and a shell script, as PID 1 and as a subreaper.
fn both(options: &[&str], script: &str) -> Vec<Running> {
    both_by(&Clock::real(), options, script).collect()
}

/// Does the same by this clock. Each one starts when it is taken, so that it does not see time pass that is for another.
fn both_by(clock: &Clock, options: &[&str], script: &str) -> impl Iterator<Item = Running> {
    let command = |more: &[&str]| rdma_init([options, more, &["--", "sh", "-c", script]].concat());
    let (first, second, clock) = (command(&[]), command(&["--supervise"]), clock.clone());
    [(first, true), (second, false)].into_iter().map(move |(command, is_pid_1)| {
        if is_pid_1 { clock.as_pid_1(command) } else { clock.in_place(command) }
    })
}

/// Starts the program in both ways, stops it once the script is ready, and lets the stop timeout pass after the script
/// has said this.
fn timed_out_after(options: &[&str], script: &str, said: &str) -> Vec<Ended> {
    let clock = Clock::advancing();
    let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
    let timeout = ["--stop-timeout", timeout];
    let mut all: Vec<Running> = both_by(&clock, &[&timeout, options].concat(), script).collect();
    for running in &mut all {
        running.wait_for("ready");
        running.kill(libc::SIGTERM);
        running.wait_for(said);
    }
    clock.pass(time);
    all.into_iter().map(|running| running.end().expect_code(137)).collect()
}

/// All processes, including a worker in its own session, ignore the stop signals.
const STUBBORN: &str = "trap '' TERM INT QUIT
    (setsid sh -c 'sleep 100000 & exec sleep 100000' &)
    sleep 100000 &
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
        let clock = Clock::advancing();
        let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
        for mut running in both_by(&clock, &["--stop-timeout", timeout], STUBBORN) {
            let all = wait_for_all(&mut running);
            let asked = running.now();
            running.kill(signal);
            has_taken_signals(running.pid);
            clock.pass(time);
            let ended = running.end().expect_code(137).expect_time(asked, time);
            let left: Vec<&i32> = all.iter().filter(|pid| lives(**pid)).collect();
            assert!(left.is_empty(), "{left:?} of {all:?} are left");
            let said = format!("after the stop-timeout of {timeout} were killed: ");
            let killed = ended.stderr.split_once(&said).map(|(_, killed)| killed);
            // The order is that of the PIDs, which start again at the end of their range.
            assert!(
                killed.is_some_and(|killed| killed.contains("sh (") && killed.contains("sleep (")),
                "{ended:#?}"
            );
        }
    }
}

/// torchrun abandons its workers if it receives a second signal.
#[test]
fn a_stop_is_forwarded_once() {
    let script = "trap 'echo stopped' TERM; echo ready; while :; do sleep 0.02; done";
    for ended in timed_out_after(&[], script, "stopped") {
        assert_eq!(ended.stdout.matches("stopped").count(), 1, "{ended:#?}");
    }
}

#[test]
fn a_command_that_ends_in_time_is_left_to_it() {
    let script = "trap 'sleep 0.3; echo saved; exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    for mut running in both(&["--stop-timeout", "1h"], script) {
        running.wait_for("ready");
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(9);
        assert!(ended.stdout.ends_with("saved\n"), "{ended:#?}");
    }
}

#[test]
fn other_signals_start_no_deadline() {
    let script = "trap 'echo got one' HUP USR1; trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let clock = Clock::advancing();
    for mut running in both_by(&clock, &["--stop-timeout", clock.choose("1h", "600ms")], script) {
        running.wait_for("ready");
        for signal in [libc::SIGHUP, libc::SIGUSR1] {
            running.kill(signal);
            running.wait_for("got one");
        }
        clock.advance(clock.choose(HOUR, SECOND));
        assert!(!running.ends_within(Duration::from_millis(100)), "{:#?}", running.end());
        running.kill(libc::SIGTERM);
        running.end().expect_code(9);
    }
}

/// The stop deadline counts from the signal that PID 1 received, even if the command gets another one.
#[test]
fn a_stop_that_is_rewritten_is_a_stop() {
    let script = "trap 'echo checkpoint' USR1; echo ready; while :; do sleep 0.02; done";
    for ended in timed_out_after(&["--rewrite-signal", "TERM:USR1"], script, "checkpoint") {
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
fn until_closed(options: &[&str], script: &str) -> Vec<(Running, OwnedFd)> {
    until_closed_by(&Clock::real(), options, script).collect()
}

/// Does the same by this clock, one after the other as [`both_by`] does.
fn until_closed_by(
    clock: &Clock,
    options: &[&str],
    script: &str,
) -> impl Iterator<Item = (Running, OwnedFd)> {
    let command = |more: &[&str]| {
        let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe can be made");
        let mut command = rdma_init([options, more, &["--", "sh", "-c", script]].concat());
        command.stdin(reader);
        (command, writer)
    };
    let (first, second, clock) = (command(&[]), command(&["--supervise"]), clock.clone());
    [(first, true), (second, false)].into_iter().map(move |((command, writer), is_pid_1)| {
        (if is_pid_1 { clock.as_pid_1(command) } else { clock.in_place(command) }, writer)
    })
}

#[test]
fn a_drain_timeout_lets_remaining_processes_finish() {
    let script = format!("{SAVER}\nexit 4");
    for (mut running, stdin) in until_closed(&["--drain-timeout", "1h"], &script) {
        running.wait_for("ready");
        drop(stdin);
        let ended = running.end().expect_code(4);
        assert_eq!(ended.stdout, "ready\nsaved\n", "{ended:#?}");
        assert!(!ended.stderr.contains("drain-timeout"), "no process was killed: {ended:#?}");
    }
}

#[test]
fn a_command_that_is_killed_leaves_workers_that_are_drained() {
    let script = format!("{SAVER}\nexit 4");
    for (mut running, _stdin) in until_closed(&["--drain-timeout", "1h"], &script) {
        running.wait_for("ready");
        send(running.command(), libc::SIGKILL);
        let ended = running.end().expect_code(137);
        assert_eq!(ended.stdout, "ready\nsaved\n", "{ended:#?}");
    }
}

#[test]
fn the_drain_asks_once_and_kills_at_its_deadline() {
    let clock = Clock::advancing();
    let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
    for (mut running, stdin) in until_closed_by(&clock, &["--drain-timeout", timeout], ASKED) {
        running.wait_for("ready");
        let all = descendants(running.pid);
        let closed = running.now();
        drop(stdin);
        running.wait_for("asked");
        clock.pass(time);
        let ended = running.end().expect_code(4).expect_time(closed, time);
        assert_eq!(ended.stdout, "ready\nasked\n", "{ended:#?}");
        assert!(!all.iter().any(|pid| lives(*pid)), "{all:?}");
        let killed = format!("after the drain-timeout of {timeout} were killed");
        assert!(ended.stderr.contains(&killed), "{ended:#?}");
    }
}

/// The drain's signal reaches a stopped process as well.
#[test]
fn the_drain_wakes_stopped_processes() {
    let script = "setsid sh -c 'echo $$ ready; kill -STOP $$; sleep 1000' & read -r line; exit 4";
    for (mut running, stdin) in until_closed(&["--drain-timeout", "1h"], script) {
        running.wait_for("ready");
        poll_until("the worker is stopped", || {
            descendants(running.pid).into_iter().any(is_stopped).then_some(())
        });
        drop(stdin);
        running.end().expect_code(4);
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
    let clock = Clock::advancing();
    let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
    let options = ["--drain-timeout", timeout];
    for (mut running, stdin) in until_closed_by(&clock, &options, ASKED) {
        running.wait_for("ready");
        drop(stdin);
        running.wait_for("asked");
        running.kill(libc::SIGTERM);
        has_taken_signals(running.pid);
        clock.pass(time);
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
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(137);
    assert!(ended.stderr.contains("cannot be killed"), "{ended:#?}");
    assert!(!ended.stderr.contains("hangs in the kernel"), "{ended:#?}");
}

/// The process group has had the signal with the command. A worker in its own session gets it from the drain.
#[test]
fn no_process_is_asked_twice_to_end() {
    let counts = "$n = 0; $SIG{TERM} = sub { $n++ }; $| = 1; print qq($ARGV[0] ready\\n); \
        select(undef, undef, undef, 0.02) until $n; select(undef, undef, undef, 0.02) for 1 .. 20; print qq($ARGV[0] got $n\\n)";
    let script = format!("perl -e '{counts}' in-group & setsid perl -e '{counts}' apart & wait");
    for mut running in both(&["--kill-group", "--drain-timeout", "1h"], &script) {
        running.wait_for("in-group ready");
        poll_until("both are ready", || {
            let all = descendants(running.pid);
            let perls = all.iter().filter(|pid| status(**pid).starts_with("Name:\tperl\n"));
            (perls
                .filter(|pid| {
                    status_field(&status(**pid), "SigCgt").is_some_and(|mask| mask != "0000000000000000")
                })
                .count()
                == 2)
                .then_some(())
        });
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(143);
        assert!(
            ended.stdout.contains("in-group got 1\n") && ended.stdout.contains("apart got 1\n"),
            "{ended:#?}"
        );
    }
}
