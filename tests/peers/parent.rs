//! Tests what happens when the init's own parent ends.

use nix::libc;

use super::peer::{Feature, Init, Place, Started, below, is_over, start, state, wait_until_over};
use crate::support::running::{children, command_of, rests, send, status};
use crate::support::{poll_until, status_field};

/// The init and its command, below a shell that the test can kill.
struct Family {
    started: Started,
    parent: i32,
    init: i32,
    command: i32,
}

/// Starts the init below two shells: PID 1 is a shell that stays, and its child, the init's parent, is
/// another shell.
fn family(init: &Init, script: &str) -> Family {
    let shells = "sh -c '\"$@\"; exit $?' sh \"$@\"; echo the parent ended; exec sleep 1000";
    let arguments = init.arguments(Place::ByOption, &["sh", "-c", script]);
    let mut started = start(Place::ByOption, below(shells, &arguments));
    started.wait_for("ready");
    let parent = started.child();
    let init = children(parent)[0];
    let command = command_of(init);
    rests(init);
    Family { started, parent, init, command }
}

const TELLS: &str = "trap 'echo got USR1' USR1; trap 'echo got USR2; exit 3' USR2; echo ready; \
                     while :; do sleep 0.02; done";

impl Family {
    /// Kills the parent, and waits until the kernel has given the init another one. If the kernel sends the
    /// init a signal about that, it has done so by then.
    fn kill_parent(&mut self) {
        send(self.parent, libc::SIGKILL);
        self.started.wait_for("the parent ended");
        poll_until("the init has another parent", || {
            let status = status(self.init);
            let parent = status_field(&status, "PPid").map(str::to_owned);
            (parent != Some(self.parent.to_string())).then_some(())
        });
    }
}

#[test]
fn the_command_gets_a_signal_when_the_init_s_parent_ends() {
    let Some(init) = Init::with(&[Feature::ParentDeath("USR1")]) else { return };
    let mut family = family(&init, TELLS);
    family.kill_parent();
    family.started.wait_for("got USR1");
    assert!(!is_over(state(family.init)) && !is_over(state(family.command)));
    // Nothing else has changed: other signals still arrive.
    send(family.init, libc::SIGUSR2);
    family.started.wait_for("got USR2");
    wait_until_over(family.init);
}

#[test]
fn the_command_ends_with_the_init_s_parent() {
    let Some(init) = Init::with(&[Feature::ParentDeath("TERM")]) else { return };
    let mut family = family(&init, "echo ready; exec sleep 1000");
    family.kill_parent();
    wait_until_over(family.command);
    wait_until_over(family.init);
}

#[test]
fn without_the_option_the_end_of_the_parent_changes_nothing() {
    let mut family = family(&Init::plain(), TELLS);
    family.kill_parent();
    // A signal for the parent's end would have been reported before this one.
    send(family.init, libc::SIGUSR2);
    family.started.wait_for("got USR2");
    wait_until_over(family.init);
    send(family.started.pid, libc::SIGKILL);
    let ended = family.started.end();
    assert_eq!(ended.stdout, "ready\nthe parent ended\ngot USR2\n");
}
