//! Tests a child that is killed after PID 1 has permitted it to become the command. If it was not the
//! command yet, PID 1 starts the command; if it was, PID 1 never starts it again.

use std::path::PathBuf;
use std::time::Duration;

use nix::libc;

use crate::support::clock::{Clock, HOUR, SECOND};
use crate::support::executable::executable;
use crate::support::hang::Hang;
use crate::support::poll_until;
use crate::support::running::{Ended, Running, Way, as_pid_1, children, in_place, rdma_init, send};

/// Makes a command with its own path, so that its execution can be made to hang.
fn command() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("command");
    executable(&path, "#!/bin/sh\necho \"ran ${T_X:-unprepared}\"; exit 7\n");
    (folder, path)
}

/// Starts a program whose child hangs in its execve.
fn about_to_exec(clock: &Clock, flags: &[&str], is_pid_1: bool) -> (tempfile::TempDir, Hang, Running) {
    let (folder, path) = command();
    let path = path.to_str().unwrap();
    let hang = Hang::interruptible(path);
    let all = [&["--set", "T_X=prepared"], flags, &["--", path]].concat();
    let running = clock.hanging(rdma_init(all), is_pid_1, &hang);
    hang.wait();
    (folder, hang, running)
}

#[test]
fn the_command_is_started_with_what_was_decided() {
    for (is_pid_1, flags) in [(true, &[][..]), (true, &["--memlock", "enforce"]), (false, &["--supervise"])] {
        for signal in [libc::SIGKILL, libc::SIGSEGV] {
            let ended = killed(about_to_exec(&Clock::real(), flags, is_pid_1), signal).expect_code(7);
            is_as_decided(&ended);
        }
    }
}

/// The deadline passes while the child is about to exec.
#[test]
fn a_deadline_does_not_change_what_was_decided() {
    for signal in [libc::SIGKILL, libc::SIGSEGV] {
        let clock = Clock::advancing();
        let (timeout, time) = clock.choose(("1h", HOUR), ("4s", 4 * SECOND));
        let started = about_to_exec(&clock, &["--prepare-timeout", timeout], true);
        // PID 1 measures the time from an earlier moment.
        clock.pass(time);
        let ended = killed(started, signal).expect_code(7);
        assert!(!ended.stderr.contains("(prepare-timeout)"), "{ended:#?}");
        is_as_decided(&ended);
    }
}

/// Kills the hanging child, and lets all other processes continue.
fn killed((_folder, hang, running): (tempfile::TempDir, Hang, Running), signal: i32) -> Ended {
    let child = running.child();
    send(child, signal);
    // The child must be gone before the hang is released, because otherwise it could still
    // execute the command.
    poll_until("the child is gone", || (!children(running.pid).contains(&child)).then_some(()));
    hang.release();
    running.end()
}

#[track_caller]
fn is_as_decided(ended: &Ended) {
    assert_eq!(ended.stdout, "ran prepared\n", "{ended:#?}");
    for part in ["the preparation was killed by SIG", "started with what was decided"] {
        assert_eq!(ended.stderr.matches(part).count(), 1, "{part}: {ended:#?}");
    }
}

#[test]
fn a_stop_is_still_a_stop() {
    let (_folder, hang, running) = about_to_exec(&Clock::real(), &[], true);
    running.kill(libc::SIGTERM);
    let ended = running.end().expect_code(143);
    hang.release();
    assert_eq!(ended.stdout, "", "{ended:#?}");
}

/// A command that has run once does not run again, however soon it is killed.
#[test]
fn a_command_that_is_killed_is_not_started_again() {
    let script = "echo ran; kill -KILL $$";
    let starts: [Way; 2] = [(&[], as_pid_1), (&["--supervise"], in_place)];
    for (flags, start) in starts {
        for _ in 0..50 {
            let ended: Ended = start(rdma_init([flags, &["--", "sh", "-c", script]].concat())).end();
            let ended = ended.expect_code(137);
            assert_eq!(ended.stdout, "ran\n", "{ended:#?}");
        }
    }
}

/// The child is killed at different moments before the exec.
#[test]
fn a_kill_at_any_time_starts_nothing_twice() {
    // The command runs long enough that the kill happens before it ends on its own.
    let script = "echo ran; exec sleep 0.2";
    let mut untouched = 0;
    for microseconds in (0..10_000).step_by(200) {
        let mut running = as_pid_1(rdma_init(["--", "sh", "-c", script]));
        // On a busy machine, the command may have ended before this test sees it.
        let child = poll_until("PID 1 has a child, or has ended", || {
            let child = children(running.pid).first().copied();
            (child.is_some() || running.has_ended()).then_some(child)
        });
        let Some(child) = child else { continue };
        // Only the moment of the kill differs: whatever it hits, the same has to be true.
        std::thread::sleep(Duration::from_micros(microseconds));
        send(child, libc::SIGKILL);
        let ended = running.end();
        let ran = ended.stdout.matches("ran").count();
        assert!(ran <= 1, "{microseconds}: {ended:#?}");
        let code = ended.status.code();
        // A command that PID 1 started in place of the killed child ends on its own.
        assert!(code == Some(137) || code == Some(0) && ran == 1, "{microseconds}: {ended:#?}");
        untouched += usize::from(code == Some(0));
    }
    println!("{untouched} of 50 were started in the place of one that was killed");
}
