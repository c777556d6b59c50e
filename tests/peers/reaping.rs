//! Tests that processes whose parent has ended are adopted, reaped, and, if the user wants it, reported.

use nix::libc;

use super::peer::{
    Feature, Init, PLACES, Peer, Place, SHELL_ABOVE, Started, below, inner, is_not_for_tini, is_over, peer,
    start, state, wait_until_stopped,
};
use crate::support::running::{children, send, status};
use crate::support::{poll_until, status_field};

/// Expects that the init reaps a hundred orphans that end at the same time.
#[track_caller]
fn expect_a_hundred_orphans_to_be_reaped(mut started: Started) {
    started.is_ready();
    let (init, command) = (started.init(), started.command());
    for orphan in started.orphans(100) {
        send(orphan, libc::SIGKILL);
    }
    poll_until("every orphan is reaped", || (children(init) == [command]).then_some(()));
    started.kill(libc::SIGTERM);
    let ended = started.end().expect_code(143);
    assert!(!ended.stderr.contains("eaped"), "{ended:#?}");
}

const LEAVES_A_HUNDRED: &str =
    "i=0; while [ $i -lt 100 ]; do (sleep 1000 &); i=$((i+1)); done; echo ready; exec sleep 1000";

/// PID 1 reaps them, as does a subreaper that an option or a variable creates.
#[test]
fn a_hundred_orphans_are_reaped_in_each_place() {
    for place in PLACES {
        println!("{place:?}");
        expect_a_hundred_orphans_to_be_reaped(Init::plain().shell(place, LEAVES_A_HUNDRED));
    }
}

/// The process that starts the init may already have made itself a subreaper. rdma-init still needs the
/// option to supervise the command; tini always does.
#[test]
fn a_hundred_orphans_are_reaped_by_what_is_a_subreaper_already() {
    let make =
        format!("syscall({}, {}, 1, 0, 0, 0); exec @ARGV", libc::SYS_prctl, libc::PR_SET_CHILD_SUBREAPER);
    let mut arguments: Vec<_> = ["perl", "-e", &make].map(Into::into).into();
    let place = if peer() == Peer::Ours { Place::ByOption } else { Place::ByVariable };
    arguments.extend(Init::plain().arguments(place, &["sh", "-c", LEAVES_A_HUNDRED]));
    expect_a_hundred_orphans_to_be_reaped(start(place, below(SHELL_ABOVE, &arguments)));
}

/// An init that is not PID 1 and has no option does not adopt orphans.
#[test]
fn without_being_asked_nothing_but_pid_1_adopts() {
    let arguments = Init::plain()
        .arguments(Place::ByVariable, &["sh", "-c", "(sleep 1000 &); echo ready; exec sleep 1000"]);
    let mut started = start(Place::ByOption, below(SHELL_ABOVE, &arguments));
    started.wait_for("ready");
    let first = started.pid;
    let adopted = poll_until("PID 1 adopts the orphan", || children(first).get(1).copied());
    poll_until("it is the orphan", || (status_field(&status(adopted), "Name")? == "sleep").then_some(()));
    if peer() == Peer::Tini {
        started.wait_for_error("zombie reaping won't work");
    }
}

/// Returns whether this line reports that the process was reaped.
fn tells_of(line: &str, pid: i32) -> bool {
    line.contains("eaped") && line.split(|c: char| !c.is_ascii_digit()).any(|word| word == pid.to_string())
}

#[test]
fn the_warning_on_reaping_names_the_process() {
    let Some(init) = Init::with(&[Feature::WarnOnReap]) else { return };
    for place in PLACES {
        let mut started = init.shell(place, "(sleep 1000 &); echo ready; exec sleep 1000");
        started.is_ready();
        let orphan = started.orphans(1)[0];
        let number = inner(orphan);
        send(orphan, libc::SIGKILL);
        started.wait_for_error("eaped");
        started.orphans(0);
        started.kill(libc::SIGTERM);
        let ended = started.end().expect_code(143);
        let told = ended.stderr.lines().filter(|line| tells_of(line, number)).count();
        assert_eq!(told, 1, "{place:?}, process {number}: {ended:#?}");
        // The command's own end is not reported as an orphan's.
        assert_eq!(ended.stderr.matches("eaped").count(), 1, "{place:?}: {ended:#?}");
    }
}

#[test]
fn without_the_option_reaping_is_silent() {
    for place in PLACES {
        let mut started = Init::plain().shell(place, "(sleep 1000 &); echo ready; exec sleep 1000");
        started.is_ready();
        send(started.orphans(1)[0], libc::SIGKILL);
        started.orphans(0);
        started.kill(libc::SIGTERM);
        let ended = started.end().expect_code(143);
        assert!(!ended.stderr.contains("eaped"), "{place:?}: {ended:#?}");
    }
}

/// Three children end while the init is stopped, so it gets one SIGCHLD for all of them.
#[test]
fn three_children_that_end_at_once_are_all_reaped() {
    for place in PLACES {
        let mut started = Init::plain()
            .shell(place, "for i in 1 2 3; do (sleep 1000 &); done; echo ready; exec sleep 1000");
        started.is_ready();
        let orphans = started.orphans(3);
        let init = started.init();
        started.rests();
        send(init, libc::SIGSTOP);
        wait_until_stopped(init);
        for orphan in &orphans {
            send(*orphan, libc::SIGKILL);
        }
        for orphan in &orphans {
            poll_until("the orphan has ended, and is still there", || (state(*orphan)? == 'Z').then_some(()));
        }
        send(init, libc::SIGCONT);
        started.orphans(0);
        started.kill(libc::SIGTERM);
        started.end().expect_code(143);
    }
}

/// The command is among the processes that ended. The init uses its exit code, and reaps all others as well.
#[test]
fn the_command_s_end_is_seen_among_others() {
    for place in PLACES {
        let mut started = Init::plain().shell(
            place,
            "(sleep 1000 &); (sleep 1000 &); trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done",
        );
        started.is_ready();
        let (init, command) = (started.init(), started.command());
        let orphans = started.orphans(2);
        started.rests();
        send(init, libc::SIGSTOP);
        wait_until_stopped(init);
        send(orphans[0], libc::SIGKILL);
        send(command, libc::SIGTERM);
        send(orphans[1], libc::SIGKILL);
        for pid in [orphans[0], command, orphans[1]] {
            poll_until("it has ended, and is still there", || (state(pid)? == 'Z').then_some(()));
        }
        send(init, libc::SIGCONT);
        started.end().expect_code(9);
    }
}

#[test]
fn a_grandchild_whose_parent_is_gone_is_reaped() {
    for place in PLACES {
        let script = "sh -c 'sleep 1000 & echo ready; wait'; exec sleep 1000";
        let mut started = Init::plain().shell(place, script);
        started.is_ready();
        let parent = poll_until("the command has a child", || children(started.command()).first().copied());
        let grandchild = poll_until("the child has one", || children(parent).first().copied());
        assert!(!children(started.init()).contains(&grandchild));
        send(parent, libc::SIGKILL);
        assert_eq!(started.orphans(1), [grandchild], "{place:?}");
        send(grandchild, libc::SIGKILL);
        poll_until("the grandchild is gone", || state(grandchild).is_none().then_some(()));
        started.kill(libc::SIGTERM);
        started.end().expect_code(143);
    }
}

/// The command itself checks for zombies.
#[test]
fn many_children_that_end_leave_no_zombie() {
    let script = "i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; \
                  while cat /proc/[0-9]*/stat 2>/dev/null | grep -q ') Z '; do sleep 0.02; done; exit 4";
    Init::plain().shell(Place::Pid1, script).end().expect_code(4);
}

/// Some orphans start and end while others stay.
#[test]
fn an_orphan_that_stays_does_not_hide_those_that_end() {
    for place in PLACES {
        let mut started =
            Init::plain().shell(place, "(sleep 1000 &); (sleep 1000 &); echo ready; exec sleep 1000");
        started.is_ready();
        let [stays, ends] = started.orphans(2)[..] else { unreachable!() };
        send(ends, libc::SIGKILL);
        assert_eq!(started.orphans(1), [stays], "{place:?}");
        assert!(!is_over(state(stays)));
        started.kill(libc::SIGTERM);
        started.end().expect_code(143);
    }
}

/// rdma-init says that it cannot report orphans if it does not supervise the command.
#[test]
fn the_lack_of_orphan_reports_in_place_is_reported() {
    if is_not_for_tini("it looks after the command wherever it runs") {
        return;
    }
    let Some(init) = Init::with(&[Feature::WarnOnReap]) else { return };
    let arguments = init.arguments(Place::ByVariable, &["true"]);
    let ended = start(Place::ByOption, below(SHELL_ABOVE, &arguments)).end().expect_code(0);
    assert!(ended.stderr.contains("Add --supervise"), "{ended:#?}");
}
