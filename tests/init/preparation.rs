//! Tests a preparation that hangs, crashes, or is stopped. The command still starts, once, and stopping the
//! container still stops it.

use std::process::Command;
use std::time::Duration;

use nix::libc;

use crate::support::clock::{Clock, HOUR, SECOND};
use crate::support::hang::Hang;
use crate::support::poll_until;
use crate::support::running::{
    Ended, Running, after, as_pid_1, children, hanging, has_taken_signals, rdma_init, send, signal_of,
    wait_until_stopped,
};
use crate::support::signal_states::{State, inherit};

/// The program opens this path in every preparation; the command never does.
const HANGS: &str = "/sys/class/infiniband";

/// Makes a command that prints a variable. The variable is set only if the preparation finished.
fn command(timeout: &str) -> Command {
    let script = "echo \"ran $$ ${T_X:-unprepared}\"; exit 7";
    rdma_init(["--prepare-timeout", timeout, "--set", "T_X=prepared", "--", "sh", "-c", script])
}

#[track_caller]
fn expect_untouched(ended: Ended, message: &str) -> Ended {
    let ended = ended.expect_code(7);
    assert_eq!(ended.stdout.matches("ran ").count(), 1, "{ended:#?}");
    assert!(ended.stdout.ends_with(" unprepared\n"), "{ended:#?}");
    assert_eq!(ended.stderr.matches(message).count(), 1, "{message:?} once in {ended:#?}");
    assert_eq!(ended.stderr.matches("as it would have been without rdma-init").count(), 1, "{ended:#?}");
    ended
}

#[test]
fn after_the_timeout_pid_1_starts_the_command() {
    for hang in [Hang::interruptible(HANGS), Hang::killable(HANGS)] {
        let clock = Clock::advancing();
        let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
        let running = clock.hanging(command(timeout), true, &hang);
        hang.wait();
        clock.pass(time);
        expect_untouched(running.end(), "prepare-timeout").expect_time(Duration::ZERO, time);
    }
}

#[test]
fn after_the_timeout_the_command_starts_in_place() {
    let hang = Hang::interruptible(HANGS);
    let clock = Clock::advancing();
    let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
    let running = clock.hanging(command(timeout), false, &hang);
    let pid = running.pid;
    hang.wait();
    clock.pass(time);
    let ended = expect_untouched(running.end(), "prepare-timeout");
    assert!(ended.stdout.starts_with(&format!("ran {pid} ")), "{ended:#?}");
    ended.expect_time(Duration::ZERO, time);
}

/// The time counts from the start, even if reading the configuration hangs. A flag for the timeout then
/// applies as well.
#[test]
fn a_configuration_that_hangs_does_not_outlast_the_flag() {
    for as_pid_1 in [true, false] {
        let hang = Hang::interruptible("/a/dead/mount/config.toml");
        let mut command = command("500ms");
        command.env("RDMA_INIT_CONFIG", "/a/dead/mount/config.toml");
        let ended = Clock::advancing().hanging(command, as_pid_1, &hang).end();
        // The timeout without the flag is 10 s.
        expect_untouched(ended, "prepare-timeout").expect_time(Duration::ZERO, Duration::from_millis(500));
    }
}

#[test]
fn a_stop_while_the_preparation_hangs_ends_the_container() {
    for hang in [Hang::interruptible(HANGS), Hang::killable(HANGS)] {
        let running = hanging(command("1h"), true, &hang);
        hang.wait();
        running.kill(libc::SIGTERM);
        let ended = running.end().expect_code(143);
        assert_eq!(ended.stdout, "", "{ended:#?}");

        let running = hanging(command("1h"), false, &hang);
        hang.wait();
        running.kill(libc::SIGTERM);
        assert_eq!(signal_of(running.end().status), Some(libc::SIGTERM));
    }
}

/// Starts a program by this clock whose preparation hangs and is stopped. This is similar to an uninterruptible call,
/// because signals that PID 1 forwards stay pending.
fn stopped(clock: &Clock, timeout: &str) -> (Hang, Running, i32) {
    let hang = Hang::interruptible(HANGS);
    let script = "echo started; exec sleep 1000";
    let running =
        clock.hanging(rdma_init(["--prepare-timeout", timeout, "--", "sh", "-c", script]), true, &hang);
    hang.wait();
    let child = running.child();
    send(child, libc::SIGSTOP);
    wait_until_stopped(child);
    (hang, running, child)
}

/// Sends signals to PID 1 one after the other, and waits until it has forwarded them.
fn forward(running: &Running, signals: &[i32]) {
    for signal in signals {
        running.kill(*signal);
        has_taken_signals(running.pid);
    }
}

/// PID 1 has forwarded a stop signal that the preparation could not receive. When the time is up, PID 1
/// still obeys the stop, whatever signals came after it.
#[test]
fn a_stop_is_not_forgotten_when_the_time_is_up() {
    for signals in [&[libc::SIGTERM][..], &[libc::SIGTERM, libc::SIGWINCH]] {
        let clock = Clock::advancing();
        let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
        let (_hang, running, _) = stopped(&clock, timeout);
        forward(&running, signals);
        clock.pass(time);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(143), "{signals:?}: {ended:#?}");
    }
}

/// Whoever sent the signal, and whichever way it came: the terminal sends it to the preparation itself.
#[test]
fn a_preparation_that_was_asked_to_end_is_no_reason_to_start() {
    for options in [&[][..], &["--self-test", "enforce"]] {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            let hang = Hang::interruptible(HANGS);
            let log = tempfile::NamedTempFile::new().unwrap();
            let mut command =
                rdma_init([&["--prepare-timeout", "1h"], options, &["--", "echo", "ran"]].concat());
            command.env("RDMA_INIT_TERMINATION_LOG", log.path());
            let running = hanging(command, true, &hang);
            hang.wait();
            send(running.child(), signal);
            let ended = running.end().expect_code(128 + signal);
            assert!(ended.stdout.is_empty() && !ended.stderr.contains("start"), "{ended:#?}");
            assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "", "{ended:#?}");
        }
    }
}

/// A signal that the command would have ignored does not keep it from starting.
#[test]
fn a_signal_that_is_ignored_is_no_stop() {
    let hang = Hang::interruptible(HANGS);
    let clock = Clock::advancing();
    let (timeout, time) = clock.choose(("1h", HOUR), ("3s", 3 * SECOND));
    let mut command = command(timeout);
    inherit(&mut command, &State { name: "nohup", blocked: 0, ignored: &[libc::SIGHUP], pending: None });
    let running = clock.hanging(command, true, &hang);
    hang.wait();
    forward(&running, &[libc::SIGHUP]);
    clock.pass(time);
    expect_untouched(running.end(), "prepare-timeout");
}

/// A preparation that ends because of a forwarded stop is not reported as crashed, whatever else was
/// forwarded.
#[test]
fn a_stop_among_other_signals_is_a_stop() {
    for signals in [&[libc::SIGTERM, libc::SIGWINCH][..], &[libc::SIGHUP, libc::SIGURG]] {
        let (_hang, running, child) = stopped(&Clock::real(), "1h");
        forward(&running, signals);
        send(child, libc::SIGCONT);
        let ended = running.end();
        assert_eq!(ended.status.code(), Some(128 + signals[0]), "{signals:?}: {ended:#?}");
    }
}

#[test]
fn a_preparation_that_is_stopped_is_given_up_after_the_timeout() {
    let hang = Hang::interruptible(HANGS);
    let clock = Clock::advancing();
    let (timeout, time) = clock.choose(("1h", HOUR), ("5s", 5 * SECOND));
    let running = clock.hanging(command(timeout), true, &hang);
    hang.wait();
    send(running.child(), libc::SIGSTOP);
    clock.pass(time);
    expect_untouched(running.end(), "prepare-timeout");
}

#[test]
fn a_preparation_that_is_killed_is_no_reason_not_to_start() {
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT] {
        let hang = Hang::interruptible(HANGS);
        let running = hanging(command("1h"), true, &hang);
        hang.wait();
        send(running.child(), signal);
        expect_untouched(running.end(), "the preparation was killed by");
    }
}

#[test]
fn a_preparation_that_was_given_up_is_reaped() {
    let hang = Hang::interruptible(HANGS);
    let script = "echo started; exec sleep 1000";
    let mut running =
        hanging(rdma_init(["--prepare-timeout", "500ms", "--", "sh", "-c", script]), true, &hang);
    running.wait_for("started");
    let command = running.command();
    poll_until("the preparation is reaped", || (children(running.pid) == [command]).then_some(()));
    running.kill(libc::SIGTERM);
    running.end().expect_code(143);
}

/// The timeouts lie around the time that a preparation takes. Either the preparation or the
/// deadline wins, never both.
fn runs_once(place: &str, start: impl Fn(Command) -> Running) {
    let mut untouched = 0;
    for microseconds in (100..12_000).step_by(100) {
        let timeout = format!("{microseconds}us");
        let ended = start(command(&timeout)).end().expect_code(7);
        assert_eq!(ended.stdout.matches("ran ").count(), 1, "{timeout}: {ended:#?}");
        untouched += usize::from(ended.stdout.contains("unprepared"));
    }
    println!("{place}, {untouched} of 119 were started as they are");
}

#[test]
fn the_command_runs_once_wherever_the_timeout_falls() {
    runs_once("as PID 1", as_pid_1);
}

#[test]
fn the_command_runs_once_wherever_the_timeout_falls_in_place() {
    let hang = Hang::interruptible("/nowhere");
    runs_once("in place", |command| hanging(command, false, &hang));
}

/// For the program's own commands there is no other command to start instead, so no timeout ends them.
#[test]
fn a_command_of_our_own_has_no_timeout_and_can_be_stopped() {
    const CONFIG: &str = "/a/dead/mount/config.toml";
    for path in [HANGS, CONFIG] {
        let hang = Hang::interruptible(path);
        let mut command = rdma_init(["inspect"]);
        command.env("RDMA_INIT_PREPARE_TIMEOUT", "100ms");
        if path == CONFIG {
            command.env("RDMA_INIT_CONFIG", CONFIG);
        }
        let clock = Clock::advancing();
        let mut running = clock.hanging(command, true, &hang);
        hang.wait();
        clock.advance(clock.choose(HOUR, SECOND));
        let ended = running.ends_within(Duration::from_millis(100));
        running.kill(libc::SIGTERM);
        let end = running.end();
        assert!(!ended, "{path}: {end:#?}");
        end.expect_code(143);
    }
}

/// PID 1 keeps the working directory and the descriptors that the command may still need.
#[test]
fn a_command_that_pid_1_starts_has_its_folder_and_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "content\n").unwrap();
    let hang = Hang::interruptible(HANGS);
    let ours = rdma_init(["--prepare-timeout", "300ms", "--", "sh", "-c", "pwd; cat <&5"]);
    let mut command = after("exec 5<file; exec", ours);
    command.current_dir(folder.path());
    let ended = hanging(command, true, &hang).end().expect_code(0);
    assert_eq!(ended.stdout, format!("{}\ncontent\n", folder.path().display()), "{ended:#?}");
}
