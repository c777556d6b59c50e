//! Tests that the init forwards another signal instead of the one that was sent.

use nix::libc;

use super::peer::{
    COLLECTOR, Feature, Init, PLACES, Place, bit, first_process, is_not_for_tini, pending, start,
    wait_until_stopped,
};
use crate::support::poll_until;

/// Sends these signals to an init that rewrites them, and checks that exactly the signals in `arrives` are
/// then pending in the command.
fn expect(rewrites: &[&str], sent: &[i32], arrives: &[i32]) {
    let features: Vec<_> = rewrites.iter().map(|rewrite| Feature::Rewrite(rewrite)).collect();
    let Some(init) = Init::with(&features) else { return };
    let wanted = arrives.iter().fold(0, |mask, signal| mask | bit(*signal));
    for place in PLACES {
        let mut started = init.start(place, COLLECTOR);
        started.is_ready();
        let command = started.command();
        for signal in sent {
            started.rests();
            started.kill(*signal);
        }
        started.rests();
        let found = poll_until("something arrives", || Some(pending(command)).filter(|found| *found != 0));
        assert_eq!(found, wanted, "{place:?}, {rewrites:?}: {found:x} instead of {wanted:x}");
    }
}

#[test]
fn the_signals_that_arrive_are_the_rewritten_ones() {
    use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for (rewrites, sent, arrives) in [
        // The signals are given by name and by number.
        (&["TERM:INT"][..], &[SIGTERM][..], &[SIGINT][..]),
        (&["SIGTERM:SIGQUIT"], &[SIGTERM], &[SIGQUIT]),
        (&["15:3"], &[SIGTERM], &[SIGQUIT]),
        (&["term:3"], &[SIGTERM], &[SIGQUIT]),
        (&["15:RTMIN+1"], &[SIGTERM], &[35]),
        // A signal that is not listed stays unchanged.
        (&["TERM:INT"], &[SIGHUP, SIGUSR1], &[SIGHUP, SIGUSR1]),
        // Only one step of a chain of rewrites applies.
        (&["USR1:USR2", "USR2:HUP"], &[SIGUSR1], &[SIGUSR2]),
        (&["USR1:USR2", "USR2:HUP"], &[SIGUSR2], &[SIGHUP]),
        (&["USR2:HUP", "USR1:USR2"], &[SIGUSR1], &[SIGUSR2]),
        // Two signals are swapped.
        (&["INT:TERM", "TERM:INT"], &[SIGINT], &[SIGTERM]),
        (&["INT:TERM", "TERM:INT"], &[SIGTERM], &[SIGINT]),
        // A signal that becomes 0 is dropped.
        (&["USR1:0"], &[SIGUSR1, SIGUSR2], &[SIGUSR2]),
        (&["10:0", "12:0"], &[SIGUSR1, SIGUSR2, SIGHUP], &[SIGHUP]),
    ] {
        expect(rewrites, sent, arrives);
    }
}

/// Sends a signal to an init with these features and this script, and checks how it ends.
fn expect_end(features: &[Feature], script: &str, signal: i32, code: i32, stdout: &str) {
    let Some(init) = Init::with(features) else { return };
    for place in PLACES {
        let mut started = init.shell(place, script);
        started.is_ready();
        started.kill(signal);
        assert_eq!(started.end().expect_code(code).stdout, stdout, "{place:?}");
    }
}

#[test]
fn a_signal_can_become_a_kill() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    expect_end(&[Feature::Rewrite("TERM:KILL")], script, libc::SIGTERM, 137, "ready\n");
}

#[test]
fn a_signal_that_is_rewritten_decides_on_the_code() {
    let script = "trap 'echo interrupted; exit 4' INT; echo ready; while :; do sleep 0.02; done";
    expect_end(&[Feature::Rewrite("TERM:INT")], script, libc::SIGTERM, 4, "ready\ninterrupted\n");
}

/// The command waits for its child and exits with the child's code.
#[test]
fn a_rewritten_signal_goes_to_the_group() {
    let script = "trap : TERM; sh -c 'echo ready; exec sleep 1000'; exit $?";
    let features = [Feature::KillGroup, Feature::Rewrite("HUP:TERM")];
    expect_end(&features, script, libc::SIGHUP, 143, "ready\n");
}

/// The command may be faster than the init, which then reads its orders and a signal at the same time. The
/// preparation takes a while to read this long configuration, so that the test can stop the init before it
/// gets its orders.
#[test]
fn a_signal_right_after_the_start_is_rewritten() {
    if is_not_for_tini("it does not rewrite") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, format!("rewrite-signal = [{}]\n", "\"TERM:INT\", ".repeat(20_000))).unwrap();
    let script = "trap 'echo interrupted; exit 4' INT; echo ready; while :; do sleep 0.02; done";
    let mut command = Init::plain().command(Place::Pid1, &["sh", "-c", script]);
    command.env("RDMA_INIT_CONFIG", &config);
    let mut started = start(Place::Pid1, command);
    started.child();
    started.kill(libc::SIGSTOP);
    wait_until_stopped(started.init());
    started.wait_for("ready");
    started.kill(libc::SIGTERM);
    started.kill(libc::SIGCONT);
    assert_eq!(started.end().expect_code(4).stdout, "ready\ninterrupted\n");
}

#[test]
fn a_malformed_rewrite_is_refused_and_named() {
    let malformed = [
        "foo",
        "derp",
        "15",
        "TERM",
        "15:",
        ":15",
        ":",
        "15:12:",
        "15:12:10",
        "128:15",
        "15:128",
        "65:1",
        "1:65",
        "-1:15",
        "15:-1",
        "0:15",
        "derp:15",
        "15:derp",
        "HUP:",
        "HUP=INT",
        "SIGSIGTERM:INT",
        "1.5:2",
        "KILL:TERM",
        "STOP:0",
        "CHLD:USR1",
    ];
    for text in malformed {
        let Some(init) = Init::with(&[Feature::Rewrite("USR1:USR2"), Feature::Rewrite(text)]) else { return };
        for place in PLACES {
            let ended = init.start(place, &["echo", "started"]).end().expect_code(125);
            assert!(ended.stderr.contains(&format!("{text:?}")), "{place:?}, {text:?}: {ended:#?}");
            assert_eq!(ended.stdout, "", "{place:?}, {text:?}");
        }
    }
}

#[test]
fn an_option_without_its_rewrite_is_refused() {
    if is_not_for_tini("it does not rewrite") {
        return;
    }
    let mut arguments = Init::plain().arguments(Place::Pid1, &["true"]);
    arguments.insert(1, "--rewrite-signal".into());
    let ended = start(Place::Pid1, first_process(&arguments[0], &arguments[1..])).end().expect_code(125);
    assert!(ended.stderr.contains("--rewrite-signal"), "{ended:#?}");
}
