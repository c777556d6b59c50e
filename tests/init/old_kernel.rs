//! Tests kernels without features that are newer than Linux 4.18, the kernel of RHEL 8.

use std::process::Command;

use nix::libc;

use crate::support::poll_until;
use crate::support::refused_call::refuse;
use crate::support::running::{Ended, Way, as_pid_1, children, in_place, rdma_init, shell};

/// System calls that Linux 4.18 lacks, and that this program, its libc, or one of its libraries uses or may
/// use in the future.
const NEWER: [(&str, libc::c_long); 13] = [
    ("pidfd_send_signal, of Linux 5.1", libc::SYS_pidfd_send_signal),
    ("io_uring_setup, of Linux 5.1", libc::SYS_io_uring_setup),
    ("pidfd_open, of Linux 5.3", libc::SYS_pidfd_open),
    ("clone3, of Linux 5.3", libc::SYS_clone3),
    ("openat2, of Linux 5.6", libc::SYS_openat2),
    ("pidfd_getfd, of Linux 5.6", libc::SYS_pidfd_getfd),
    ("faccessat2, of Linux 5.8", libc::SYS_faccessat2),
    ("close_range, of Linux 5.9", libc::SYS_close_range),
    ("epoll_pwait2, of Linux 5.11", libc::SYS_epoll_pwait2),
    ("mount_setattr, of Linux 5.12", libc::SYS_mount_setattr),
    ("process_mrelease, of Linux 5.15", libc::SYS_process_mrelease),
    ("futex_waitv, of Linux 5.16", libc::SYS_futex_waitv),
    ("fchmodat2, of Linux 6.6", libc::SYS_fchmodat2),
];

/// Since Linux 5.1, a new system call has the same number on every architecture. The first of these is 424.
const FIRST_NEWER: libc::c_long = 424;
const AFTER_LAST: libc::c_long = 480;

/// Returns each of the calls alone, and all newer calls together.
fn kernels() -> Vec<(&'static str, Vec<libc::c_long>)> {
    let each = NEWER.into_iter().map(|(name, call)| (name, vec![call]));
    each.chain([("all of them", (FIRST_NEWER..AFTER_LAST).collect())]).collect()
}

fn on(calls: &[libc::c_long], mut command: Command) -> Command {
    refuse(&mut command, calls, libc::ENOSYS);
    command
}

#[test]
fn the_newer_calls_are_those_from_one_number_on() {
    for (name, call) in NEWER {
        assert!((FIRST_NEWER..AFTER_LAST).contains(&call), "{name}: {call}");
    }
}

#[test]
fn the_command_is_started_and_ended_and_orphans_are_reaped() {
    let starts: [Way; 2] = [(&[], as_pid_1), (&["--supervise"], in_place)];
    let script = "trap 'echo \"$T_X\"; exit 8' TERM; (sleep 0 &); echo ready; while :; do sleep 0.1; done";
    for (name, calls) in kernels() {
        for (flags, start) in starts {
            let ours = rdma_init([flags, &["--set", "T_X=prepared", "--", "sh", "-c", script]].concat());
            let mut running = start(on(&calls, ours));
            running.wait_for("ready");
            poll_until("the orphan is reaped", || (children(running.pid).len() == 1).then_some(()));
            running.kill(libc::SIGTERM);
            let ended = running.end().expect_code(8);
            assert!(ended.stdout.ends_with("prepared\n"), "{name}: {ended:#?}");
        }
        let ended = in_place(on(&calls, shell("exit 7"))).end().expect_code(7);
        assert!(!ended.stderr.contains("ENOSYS"), "{name}: {ended:#?}");
    }
}

/// Removes the figures with their units, because they include durations.
fn said(ended: Ended) -> (Option<i32>, String, String) {
    let is_figure = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = |text: &str| {
        let words = text.split_whitespace().filter(|word| !is_figure(word));
        words
            .filter(|word| !["us", "ms", "s"].contains(&word.trim_end_matches(')')))
            .collect::<Vec<_>>()
            .join(" ")
    };
    (ended.status.code(), words(&ended.stdout), words(&ended.stderr))
}

#[test]
fn the_commands_say_the_same() {
    for command in [&["plan", "--evidence"][..], &["self-test"], &["inspect"]] {
        for (name, calls) in kernels() {
            // On a machine where containers start and stop, interfaces change as well.
            poll_until(&format!("{command:?} says the same, {name}"), || {
                let now = said(in_place(rdma_init(command)).end());
                let then = said(in_place(on(&calls, rdma_init(command))).end());
                (then == now).then_some(())
            });
        }
    }
}
