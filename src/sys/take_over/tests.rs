use std::ffi::CString;
use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::time::Instant;

use nix::libc;

use super::*;
use crate::sys::fork::{self, Ended, Reaped};
use crate::sys::signals::{Inherited, block_all};

const LONG: Duration = Duration::from_secs(60);

fn command(script: &str) -> PreparedExec {
    let c = |text: &str| CString::new(text).unwrap();
    PreparedExec::new(["/bin/sh", "-c", script].map(c).to_vec(), Vec::new())
}

/// Runs `work` in a separate process, which must become another program. Returns its exit code.
fn in_process(work: impl FnOnce(Inherited)) -> i32 {
    let pid = fork::spawn(|| {
        let inherited = block_all();
        inherited.restore();
        work(inherited);
        1
    });
    let pid = pid.unwrap();
    let until = Instant::now() + LONG;
    loop {
        match fork::reap_child(pid) {
            Reaped::Ended(_, Ended::Exited(code)) => return code,
            Reaped::Ended(_, Ended::Killed(signal)) => return 128 + signal,
            _ if Instant::now() > until => panic!("it hangs"),
            _ => std::thread::yield_now(),
        }
    }
}

/// Raises a signal as a bug would: the signal comes from this process itself.
fn crash(signal: i32) {
    // SAFETY: a plain number.
    unsafe { libc::raise(signal) };
}

#[test]
fn after_a_crash_the_process_becomes_the_command() {
    for signal in crash::SIGNALS {
        let code = in_process(|inherited| {
            let _guarded =
                Guarded::start(LONG, command("exit 7"), inherited, ForEach::cause(|_| String::new()));
            crash(signal);
        });
        assert_eq!(code, 7, "{signal}");
    }
}

#[test]
fn what_was_cancelled_is_not_taken_over() {
    let code = in_process(|inherited| {
        let guarded = Guarded::start(LONG, command("exit 7"), inherited, ForEach::cause(|_| String::new()));
        guarded.cancel();
        // The test cannot use SIGSEGV, because the test harness catches it.
        crash(libc::SIGABRT);
    });
    assert_eq!(code, 128 + libc::SIGABRT);
}

/// A child has its parent's handlers, but must not become the command, too.
#[test]
fn a_child_that_crashes_ends() {
    let code = in_process(|inherited| {
        let _guarded = Guarded::start(LONG, command("exit 7"), inherited, ForEach::cause(|_| String::new()));
        let code = in_process(|_| crash(libc::SIGABRT));
        fork::exit_now(if code == 128 + libc::SIGABRT { 3 } else { 4 });
    });
    assert_eq!(code, 3);
}

/// A child that hangs would keep its device open as long as the command runs.
#[test]
fn children_end_with_the_preparation() {
    let (mut reader, writer) = pipe().unwrap();
    let code = in_process(|inherited| {
        let _guarded = Guarded::start(LONG, command("exit 7"), inherited, ForEach::cause(|_| String::new()));
        for _ in 0..3 {
            // The child keeps the other end of the pipe open until it ends; the command does not have it.
            let _ = fork::spawn(|| fork::wait_to_be_killed());
        }
        crash(libc::SIGSEGV);
    });
    assert_eq!(code, 7);
    drop(writer);
    let mut open = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&reader), nix::poll::PollFlags::POLLIN)];
    let ended = nix::poll::poll(&mut open, nix::poll::PollTimeout::from(60_000u16));
    assert_eq!(ended, Ok(1), "a child still has descriptor {}", reader.as_raw_fd());
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}
