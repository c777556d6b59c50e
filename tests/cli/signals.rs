//! Tests that a command in place gets the signal mask and the dispositions that the program was started with.

use std::process::Command;

use nix::libc;

use super::run::{from_scratch, rdma_init, run};
use crate::support::signal_states::{STATES, State, inherit, shown};

/// Compares the output of `cat` when it is started directly with its output when the program starts it.
fn compare(state: &State) -> Option<String> {
    let mut direct = Command::new("/bin/cat");
    direct.env_clear().arg("/proc/self/status");
    from_scratch(&mut direct);
    inherit(&mut direct, state);
    let mut ours = rdma_init(["--", "/bin/cat", "/proc/self/status"]);
    inherit(&mut ours, state);
    let (direct, ours) = (run(direct).expect_code(0), run(ours).expect_code(0));
    let (wanted, found) = (shown(direct.text()), shown(ours.text()));
    (wanted != found).then(|| format!("{}:\n  wanted {wanted}\n  found  {found}", state.name))
}

#[test]
fn mask_and_dispositions_are_those_inherited() {
    let differences: Vec<String> = STATES.iter().filter_map(compare).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A signal that was pending at the start is still pending in the command, and the program does not take it
/// for one of its own.
#[test]
fn a_pending_signal_stays_pending() {
    let mut lost = Vec::new();
    for signal in [libc::SIGALRM, libc::SIGCHLD, libc::SIGTERM, libc::SIGPIPE, 34, 62, 63, 64] {
        let files = ["/proc/self/status", "/proc/self/environ"];
        let mut command = rdma_init(["--set", "T_X=prepared", "--", "cat"].iter().chain(&files));
        inherit(
            &mut command,
            &State { name: "pending", blocked: u64::MAX, ignored: &[], pending: Some(signal) },
        );
        let ran = run(command).expect_code(0);
        let pending = format!("ShdPnd:\t{:016x}\n", 1u64 << (signal - 1));
        let prepared = ran.text().contains("\0T_X=prepared\0");
        if !ran.text().contains(&pending) || !prepared {
            lost.push(format!("signal {signal}, prepared: {prepared}, {}", ran.stderr));
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// An interval timer survives an exec, so it reaches the command.
#[test]
fn an_interval_timer_goes_on() {
    let mut command = rdma_init(["--", "sleep", "1000"]);
    // SAFETY: setitimer is async-signal-safe.
    unsafe {
        use std::os::unix::process::CommandExt;
        command.pre_exec(|| {
            let time = libc::timeval { tv_sec: 0, tv_usec: 300_000 };
            let timer =
                libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
            libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &timer, 0);
            Ok(())
        });
    }
    assert_eq!(run(command).signal, Some(libc::SIGALRM));
}

#[test]
fn the_command_has_one_thread_and_no_child() {
    let ran = run(rdma_init(["--", "sh", "-c", "cat /proc/$$/status; cat /proc/$$/task/$$/children"]));
    assert!(ran.text().contains("Threads:\t1\n"), "{ran:#?}");
    // The only child is the second `cat` itself.
    let children = ran.text().lines().last().unwrap_or_default().split_whitespace().count();
    assert_eq!(children, 1, "{ran:#?}");
}
