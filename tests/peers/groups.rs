//! Tests that a signal goes only to the command, or to its process group.

use nix::libc;

use super::peer::{
    Feature, Init, PLACES, Place, SHELL_THAT_STAYS, Started, below, bit, is_over, pending, start, state,
    wait_until_over,
};
use crate::support::poll_until;
use crate::support::running::children;

/// A process that ignores SIGUSR1, and its child. With `default`, the signal kills the child; with `block`,
/// the signal stays pending in the child, where the test can read it.
const FAMILY: &str = "use strict; use POSIX; $| = 1; my $n = SIGUSR1; my $pid; $SIG{USR1} = 'IGNORE'; \
     if (!($pid = fork)) { \
       sigprocmask(SIG_BLOCK, POSIX::SigSet->new($n)) if $ARGV[0] eq 'block'; \
       $SIG{USR1} = 'DEFAULT'; print \"ready\\n\"; sleep 1000; exit } \
     waitpid($pid, 0); print 'the grandchild died of ', $? & 127, \"\\n\"; exit 7";

fn family(init: &Init, place: Place, grandchild: &str) -> Started {
    let mut started = init.start(place, &["perl", "-e", FAMILY, grandchild]);
    started.is_ready();
    started
}

#[test]
fn with_the_group_a_signal_reaches_a_grandchild_whose_parent_ignores_it() {
    let Some(init) = Init::with(&[Feature::KillGroup]) else { return };
    for place in PLACES {
        let started = family(&init, place, "default");
        started.kill(libc::SIGUSR1);
        let ended = started.end().expect_code(7);
        assert_eq!(ended.stdout, "ready\nthe grandchild died of 10\n", "{place:?}");
    }
}

#[test]
fn without_the_group_a_signal_is_for_the_command_alone() {
    for (features, reaches) in [(&[][..], false), (&[Feature::KillGroup], true)] {
        let Some(init) = Init::with(features) else { return };
        for place in PLACES {
            let started = family(&init, place, "block");
            let grandchild = children(started.command())[0];
            started.rests();
            started.kill(libc::SIGUSR1);
            // The init sends a signal before it waits for the next one, so it has sent this one by now.
            started.rests();
            let got = pending(grandchild) & bit(libc::SIGUSR1) != 0;
            assert_eq!(got, reaches, "{place:?}, {features:?}");
        }
    }
}

/// Starts a shell with two background pipelines. Together with the init these are six processes. Returns the
/// four processes of the pipelines.
fn six_processes(init: &Init) -> (Started, Vec<i32>) {
    let script = "sleep 1000 | cat & sleep 1000 | cat >&2 & echo ready; wait";
    let arguments = init.arguments(Place::ByOption, &["sh", "-c", script]);
    let mut started = start(Place::ByOption, below(SHELL_THAT_STAYS, &arguments));
    started.is_ready();
    let command = started.command();
    let four = poll_until("the two pipelines run", || {
        let found = children(command);
        let executed =
            |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c != "sh\n");
        (found.len() == 4 && found.iter().all(executed)).then_some(found)
    });
    (started, four)
}

#[test]
fn with_the_group_a_stop_ends_all_six_processes_of_a_pipeline() {
    let Some(init) = Init::with(&[Feature::KillGroup]) else { return };
    let (mut started, four) = six_processes(&init);
    let (init, command) = (started.init(), started.command());
    started.kill(libc::SIGTERM);
    started.wait_for("ended with 143");
    for pid in four.into_iter().chain([init, command]) {
        wait_until_over(pid);
    }
}

#[test]
fn without_the_group_a_stop_leaves_the_others_of_a_pipeline() {
    let (mut started, four) = six_processes(&Init::plain());
    let (init, command) = (started.init(), started.command());
    started.kill(libc::SIGTERM);
    started.wait_for("ended with 143");
    wait_until_over(init);
    wait_until_over(command);
    // If a process had received the signal, it would have ended by now or would have the signal pending.
    for pid in four {
        assert!(!is_over(state(pid)) && pending(pid) == 0, "process {pid} was ended as well");
    }
}
