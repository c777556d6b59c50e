//! Tests the command line, and how the command is found.

use std::io::Write;

use super::peer::{Feature, Init, PLACES, Peer, Place, first_process, is_not_for_tini, peer, start};
use crate::support::running::{Ended, as_pid_1};

/// Runs the init as PID 1 with these arguments.
fn run(arguments: &[&str]) -> Ended {
    as_pid_1(first_process(peer().program(), arguments)).end()
}

#[test]
fn the_version_goes_to_standard_output() {
    let ended = run(&["--version"]).expect_code(0);
    let wanted = match peer() {
        Peer::Ours => concat!("rdma-init ", env!("CARGO_PKG_VERSION"), "\n"),
        Peer::Tini => "tini version ",
    };
    assert!(ended.stdout.starts_with(wanted), "{ended:#?}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn help_is_no_error_and_goes_to_standard_output() {
    let flags: &[&str] = if peer() == Peer::Ours { &["-h", "--help"] } else { &["-h"] };
    for flag in flags {
        let ended = run(&[flag]).expect_code(0);
        assert!(ended.stdout.contains("Usage: "), "{ended:#?}");
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn without_arguments_there_is_an_error_that_says_how_to_use_it() {
    let ended = run(&[]).expect_code(if peer() == Peer::Ours { 125 } else { 1 });
    assert!(ended.stderr.contains("Usage: "), "{ended:#?}");
    assert_eq!(ended.stdout, "");
}

#[test]
fn what_is_no_option_is_an_error() {
    let ended = run(&["-x", "--", "echo", "started"]).expect_code(if peer() == Peer::Ours { 125 } else { 1 });
    assert_eq!(ended.stdout, "");
    assert!(!ended.stderr.is_empty());
}

/// tini uses the first argument that is not an option as the command. rdma-init could not distinguish it from
/// one of its own commands, so it requires the dashes.
#[test]
fn a_command_without_dashes_is_run_by_tini_and_refused_by_ours() {
    match peer() {
        Peer::Ours => {
            let ended = run(&["true"]).expect_code(125);
            assert!(ended.stderr.contains("rdma-init -- true"), "{ended:#?}");
        }
        Peer::Tini => drop(run(&["true"]).expect_code(0)),
    }
}

#[test]
fn true_and_false_end_as_they_do() {
    for place in PLACES {
        Init::plain().start(place, &["true"]).end().expect_code(0);
        Init::plain().start(place, &["false"]).end().expect_code(1);
    }
}

#[test]
fn a_command_that_is_missing_gives_127_and_a_message() {
    for place in PLACES {
        for command in ["no-such-command", "/no/such/command", "/etc/no-such-command"] {
            let ended = Init::plain().start(place, &[command]).end().expect_code(127);
            assert!(ended.stderr.contains(command), "{place:?}: {ended:#?}");
        }
    }
}

/// The init and the process that could not become the command race, and the result is the same whichever is
/// faster.
#[test]
fn a_command_that_never_ran_is_not_reported_as_ended() {
    if is_not_for_tini("it says nothing about the end of its command") {
        return;
    }
    for place in PLACES {
        for _ in 0..30 {
            let ended = Init::plain().start(place, &["no-such-command"]).end().expect_code(127);
            assert!(!ended.stderr.contains("ended with exit code"), "{place:?}: {ended:#?}");
        }
    }
}

/// rdma-init changes only the command's exit codes. tini also changes the codes of its own failures.
#[test]
fn the_code_of_a_command_that_never_ran_is_not_remapped_by_ours() {
    let Some(init) = Init::with(&[Feature::RemapExit(127)]) else { return };
    let code = if peer() == Peer::Ours { 127 } else { 0 };
    for place in PLACES {
        for _ in 0..30 {
            init.start(place, &["no-such-command"]).end().expect_code(code);
        }
    }
}

#[test]
fn a_folder_gives_126_and_a_message() {
    for place in PLACES {
        let ended = Init::plain().start(place, &["/etc"]).end().expect_code(126);
        assert!(ended.stderr.contains("/etc"), "{place:?}: {ended:#?}");
    }
}

#[test]
fn what_is_piped_in_reaches_the_command() {
    for place in PLACES {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = Init::plain().command(place, &["cat"]);
        command.stdin(reader);
        let mut started = start(place, command);
        (&writer).write_all(b"one line\n").unwrap();
        started.wait_for("one line\n");
        (&writer).write_all(b"another\n").unwrap();
        drop(writer);
        assert_eq!(started.end().expect_code(0).stdout, "one line\nanother\n", "{place:?}");
    }
}

/// The dashes end the init's options, and everything after them belongs to the command.
#[test]
fn the_command_s_own_options_are_left_alone() {
    for place in [Place::Pid1, Place::ByOption, Place::ByVariable] {
        let ended =
            Init::plain().start(place, &["printf", "%s|", "-g", "--", "--version"]).end().expect_code(0);
        assert_eq!(ended.stdout, "-g|--|--version|");
    }
}
