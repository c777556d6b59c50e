//! Tests a preparation that hangs after it has decided: the command gets the decided variables.

use std::time::Duration;

use nix::libc;

use crate::support::clock::{Clock, HOUR, SECOND};
use crate::support::hang::Hang;
use crate::support::running::{Ended, Running, after, hanging, rdma_init, send};

/// The last part of the state directory's path, as the program opens it.
const STATE: &str = "a-state-that-hangs";

/// Returns the time after which the preparation is late.
fn late(clock: &Clock) -> (&'static str, Duration) {
    clock.choose(("1h", HOUR), ("4s", 4 * SECOND))
}

/// Waits until the preparation hangs, and lets its time pass.
fn end_late(running: Running, clock: &Clock, hang: &Hang) -> Ended {
    hang.wait();
    clock.pass(late(clock).1);
    running.end()
}

fn command(state: &std::path::Path, flags: &[&str]) -> std::process::Command {
    let script = "echo \"ran $$ ${T_X:-unprepared}\"; exit 7";
    let all = [flags, &["--set", "T_X=prepared", "--", "sh", "-c", script]].concat();
    let mut command = rdma_init(all);
    command.env("RDMA_INIT_STATE_DIR", state.join(STATE));
    command
}

/// The command has the variables that the report names.
#[test]
fn after_the_timeout_the_command_has_the_variables_of_the_report() {
    let place = tempfile::tempdir().unwrap();
    // In the last two cases the decision comes after the checks.
    for (as_pid_1, flags) in
        [(true, &[][..]), (false, &[]), (true, &["--memlock", "enforce"]), (false, &["--memlock", "enforce"])]
    {
        let (hang, clock) = (Hang::interruptible(STATE), Clock::advancing());
        let flags = [&["--prepare-timeout", late(&clock).0], flags].concat();
        let running = clock.hanging(command(place.path(), &flags), as_pid_1, &hang);
        let ended = end_late(running, &clock, &hang).expect_code(7);
        assert!(ended.stdout.ends_with(" prepared\n"), "{flags:?}: {ended:#?}");
        assert_eq!(ended.stdout.matches("ran ").count(), 1, "{ended:#?}");
        for part in ["prepare-timeout", "started with what was decided", "T_X"] {
            assert!(ended.stderr.contains(part), "no {part:?} in {ended:#?}");
        }
        assert!(!ended.stderr.contains("no variable is filled in"), "{ended:#?}");
    }
}

#[test]
fn after_a_crash_the_command_has_the_variables_of_the_report() {
    let place = tempfile::tempdir().unwrap();
    let hang = Hang::interruptible(STATE);
    let running = hanging(command(place.path(), &[]), true, &hang);
    hang.wait();
    send(running.child(), libc::SIGSEGV);
    let ended = running.end().expect_code(7);
    assert!(ended.stdout.ends_with(" prepared\n"), "{ended:#?}");
    assert!(ended.stderr.contains("the preparation was killed by SIGSEGV"), "{ended:#?}");
}

#[test]
fn the_limit_of_pinned_memory_is_raised_all_the_same() {
    let place = tempfile::tempdir().unwrap();
    for (mode, is_raised) in [("warn", true), ("off", false)] {
        let (hang, clock) = (Hang::interruptible(STATE), Clock::advancing());
        let mut ours = rdma_init([
            "--prepare-timeout",
            late(&clock).0,
            "--memlock",
            mode,
            "--",
            "sh",
            "-c",
            "ulimit -l",
        ]);
        ours.env("RDMA_INIT_STATE_DIR", place.path().join(STATE));
        let running = clock.hanging(after("ulimit -l 64; ulimit -S -l 32; exec", ours), true, &hang);
        let ended = end_late(running, &clock, &hang).expect_code(0);
        // The limit was raised to the hard limit, or is unlimited if this machine's root may do that.
        let raised = ["64\n", "unlimited\n"].contains(&ended.stdout.as_str());
        assert_eq!((raised, ended.stdout == "32\n"), (is_raised, !is_raised), "{mode}: {ended:#?}");
    }
}

/// If the variables do not fit into the kernel's limits, the command starts as without a decision.
#[test]
fn variables_that_have_no_room_do_not_keep_the_command_from_its_start_or_refuse_it() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("c.toml");
    std::fs::write(&config, format!("[set]\nT_FILLED = \"{}\"\n", "y".repeat(200_000))).unwrap();
    for as_pid_1 in [true, false] {
        for (mode, code, stdout) in [("warn", 7, " unprepared\n"), ("enforce", 121, "")] {
            let (hang, clock) = (Hang::interruptible(STATE), Clock::advancing());
            let flags = ["--prepare-timeout", late(&clock).0, "--memlock", mode];
            let mut ours = command(place.path(), &flags);
            ours.env("RDMA_INIT_CONFIG", &config);
            let running = clock.hanging(ours, as_pid_1, &hang);
            let ended = end_late(running, &clock, &hang).expect_code(code);
            assert!(ended.stdout.ends_with(stdout), "{ended:#?}");
            assert_eq!(ended.stdout.is_empty(), stdout.is_empty(), "{ended:#?}");
        }
    }
}

/// The state directory answers at once, so even the default timeout, which is long, delays nothing.
#[test]
fn a_state_that_answers_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    for as_pid_1 in [true, false] {
        let hang = Hang::interruptible("/nowhere");
        let ended = hanging(command(place.path(), &[]), as_pid_1, &hang).end().expect_code(7);
        assert!(ended.stdout.ends_with(" prepared\n"), "{ended:#?}");
        assert!(!ended.stderr.contains("prepare-timeout"), "{ended:#?}");
    }
}
