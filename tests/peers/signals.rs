//! Tests that signals go from the init to the command.

use nix::libc;

use super::peer::{COLLECTOR, Init, PLACES, Peer, bit, peer, pending};
use crate::support::poll_until;
use crate::support::running::send;

#[test]
fn a_signal_that_the_command_dies_of_gives_128_and_its_number() {
    use libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
    for place in PLACES {
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2] {
            let mut started = Init::plain().shell(place, "ulimit -c 0; echo ready; exec sleep 1000");
            started.is_ready();
            started.kill(signal);
            started.end().expect_code(128 + signal);
        }
    }
}

/// tini does not handle the signals that its own faults raise, and ignores SIGTTIN and SIGTTOU.
const NOT_BY_TINI: [i32; 9] = [
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Returns all signals that the init must forward. SIGCHLD concerns the init's own children, and 32 and 33
/// belong to libc's threads.
fn forwarded() -> impl Iterator<Item = i32> {
    let never = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, 32, 33];
    let not_by_peer: &[i32] = if peer() == Peer::Tini { &NOT_BY_TINI } else { &[] };
    (1..=64).filter(move |signal| !never.contains(signal) && !not_by_peer.contains(signal))
}

#[test]
fn every_signal_is_proxied() {
    for place in PLACES {
        let mut started = Init::plain().start(place, COLLECTOR);
        started.is_ready();
        let command = started.command();
        for signal in forwarded() {
            started.kill(signal);
            poll_until(&format!("{place:?}: signal {signal} arrives"), || {
                (pending(command) & bit(signal) != 0).then_some(())
            });
        }
        // A stop signal and a SIGCONT cancel each other; all other signals are still pending.
        let job_control = [libc::SIGCONT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let others = forwarded().filter(|signal| !job_control.contains(signal));
        let others = others.fold(0, |mask, signal| mask | bit(signal));
        assert_eq!(pending(command) & others, others, "{place:?}");
    }
}

/// The command has handlers for the usual signals, and prints the ones that it got.
#[test]
fn a_command_that_handles_signals_gets_each_of_them() {
    let names = ["HUP", "INT", "QUIT", "USR1", "ALRM", "TERM", "CONT", "WINCH", "USR2", "PIPE"];
    let handlers: String = names.iter().map(|name| format!("trap 'echo got {name}.' {name}; ")).collect();
    let script = format!("{handlers} echo ready; while :; do sleep 0.02; done");
    for place in PLACES {
        let mut started = Init::plain().shell(place, &script);
        started.is_ready();
        for name in names {
            let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().unwrap();
            started.kill(signal as i32);
            started.wait_for(&format!("got {name}."));
        }
        let command = started.command();
        send(command, libc::SIGKILL);
        started.end().expect_code(137);
    }
}
