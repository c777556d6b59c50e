//! Tests when the init ends, and with which code.

use nix::libc;

use super::peer::{
    Feature, Init, PLACES, Place, SHELL_THAT_STAYS, below, is_over, start, state, wait_until_over,
};
use crate::support::poll_until;
use crate::support::running::children;

#[test]
fn exit_codes_are_the_command_s() {
    for place in PLACES {
        for code in [0, 1, 2, 32, 64, 121, 125, 126, 127, 128, 254, 255] {
            Init::plain().shell(place, &format!("exit {code}")).end().expect_code(code);
        }
    }
}

#[test]
fn death_by_a_signal_gives_128_and_its_number() {
    for place in PLACES {
        for signal in [1, 2, 3, 6, 9, 11, 13, 14, 15, 31, 34, 50, 64] {
            let script = format!("ulimit -c 0; kill -{signal} $$");
            Init::plain().shell(place, &script).end().expect_code(128 + signal);
        }
    }
}

#[test]
fn every_exit_code_can_become_0() {
    for code in 0..=255 {
        let Some(init) = Init::with(&[Feature::RemapExit(code)]) else { return };
        init.shell(Place::Pid1, &format!("exit {code}")).end().expect_code(0);
    }
    for code in [0, 1, 143, 255] {
        let Some(init) = Init::with(&[Feature::RemapExit(code)]) else { return };
        init.shell(Place::ByOption, &format!("exit {code}")).end().expect_code(0);
    }
}

#[test]
fn only_the_code_that_was_named_becomes_0() {
    let Some(init) = Init::with(&[Feature::RemapExit(3), Feature::RemapExit(255)]) else { return };
    for place in PLACES {
        for (code, becomes) in [(0, 0), (2, 2), (3, 0), (4, 4), (127, 127), (254, 254), (255, 0)] {
            init.shell(place, &format!("exit {code}")).end().expect_code(becomes);
        }
    }
}

/// An orchestrator then treats this stop as a success.
#[test]
fn the_code_of_a_signal_can_become_0() {
    let Some(init) = Init::with(&[Feature::RemapExit(143)]) else { return };
    for place in PLACES {
        let mut started = init.shell(place, "echo ready; exec sleep 1000");
        started.is_ready();
        started.kill(libc::SIGTERM);
        started.end().expect_code(0);
    }
}

#[test]
fn the_init_ends_with_the_command_despite_remaining_processes() {
    let script = "(exec sleep 1000 >/dev/null 2>&1 &); sleep 1000 >/dev/null 2>&1 & exit 6";
    for place in PLACES {
        Init::plain().shell(place, script).end().expect_code(6);
    }
}

/// A background process survives the end of a subreaper if PID 1 adopts it. The test checks this from
/// outside.
#[test]
fn a_process_in_the_background_outlives_a_subreaper() {
    let script = "sleep 1000 & echo ready; read -r line; exit 6";
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let arguments = Init::plain().arguments(Place::ByOption, &["sh", "-c", script]);
    let mut command = below(SHELL_THAT_STAYS, &arguments);
    command.stdin(reader);
    let mut started = start(Place::ByOption, command);
    started.is_ready();
    let (init, command) = (started.init(), started.command());
    let background = poll_until("something runs in the background", || children(command).first().copied());
    drop(writer);
    started.wait_for("ended with 6");
    wait_until_over(init);
    assert!(!is_over(state(background)), "the process in the background was ended");
}
