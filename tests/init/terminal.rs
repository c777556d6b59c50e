//! Tests a command that has a terminal, as with `docker run -it`.

use std::os::fd::AsRawFd;

use nix::libc;

use crate::support::running::{Running, after, rdma_init, status, wait_until_stopped};
use crate::support::screen::{self, Screen};
use crate::support::status_field;

/// Starts a command as PID 1 of a session with its own terminal.
fn on_a_terminal(command: &[&str]) -> (Running, Screen) {
    let flags = ["--log-level", "error", "--"];
    screen::on_a_terminal(rdma_init(flags.iter().chain(command)))
}

/// A script that counts the signals that it receives, and ends with the counts when a line is typed. It
/// wakes up every 20 ms, because perl runs a handler only between two of its own operations.
const COUNTER: &[&str] = &[
    "perl",
    "-e",
    "use strict; my %n; $| = 1; for my $s (qw(INT QUIT WINCH HUP TSTP)) { \
     $SIG{$s} = sub { $n{$s}++; print \"got-$s\\n\" } } print \"ready\\n\"; \
     while (1) { my $in = ''; vec($in, 0, 1) = 1; last if select($in, undef, undef, 0.02) > 0 } \
     print join(' ', map { \"$_=$n{$_}\" } sort keys %n), \" end\\n\"; exit 5",
];

#[test]
fn one_interrupt_arrives_once() {
    let (running, mut screen) = on_a_terminal(COUNTER);
    screen.shows("ready");
    running.rests();
    let woken = || {
        let status = status(running.pid);
        (
            status_field(&status, "voluntary_ctxt_switches").map(str::to_owned),
            status_field(&status, "ShdPnd").map(str::to_owned),
        )
    };
    let before = woken();
    screen.types("\x03");
    screen.shows("got-INT");
    screen.types("\x1c");
    screen.shows("got-QUIT");
    // If the terminal had sent the signals to PID 1 as well, they would arrive a second time.
    assert_eq!(woken(), before, "PID 1 got something, too");
    screen.types("\n");
    screen.shows("INT=1 QUIT=1 end");
    running.end().expect_code(5);
}

#[test]
fn a_new_size_of_the_window_arrives() {
    let (running, mut screen) = on_a_terminal(COUNTER);
    screen.shows("ready");
    for rows in [30, 40] {
        screen.resize(rows);
        screen.shows("got-WINCH");
    }
    // If a container engine sends the signal to PID 1, it reaches the command as well.
    running.kill(libc::SIGWINCH);
    screen.shows("got-WINCH");
    screen.types("\n");
    screen.shows("WINCH=3 end");
    running.end().expect_code(5);
}

#[test]
fn the_end_of_the_terminal_is_the_end_of_the_command() {
    let (running, mut screen) = on_a_terminal(&["sh", "-c", "echo ready; exec sleep 1000"]);
    screen.shows("ready");
    // SAFETY: the request takes no argument; the descriptor is the terminal's master, where a hang-up can
    // be triggered.
    unsafe { libc::ioctl(screen.master.as_raw_fd(), libc::TIOCVHANGUP) };
    running.kill(libc::SIGHUP);
    running.end().expect_code(129);
}

/// The terminal suspends the command, and SIGCONT to PID 1 continues it.
#[test]
fn a_suspended_command_goes_on() {
    let (running, mut screen) =
        on_a_terminal(&["sh", "-c", "echo ready; read -r line; echo got $line; exit 4"]);
    screen.shows("ready");
    let command = running.command();
    screen.types("\x1a");
    wait_until_stopped(command);
    running.kill(libc::SIGCONT);
    screen.types("this\n");
    screen.shows("got this");
    running.end().expect_code(4);
}

/// The command redirects its standard input. The terminal still takes its output.
#[test]
fn a_terminal_for_the_output_alone_is_no_hang() {
    let (running, mut screen) =
        on_a_terminal(&["sh", "-c", "exec </dev/null; stty -a </dev/tty >/dev/null; echo out; exit 3"]);
    screen.shows("out");
    running.end().expect_code(3);
}

/// Standard input is redirected from the start. ^C still comes from the terminal, and only once.
#[test]
fn without_it_on_standard_input_the_terminal_is_the_command_s_too() {
    let script = "trap 'echo got-INT' INT; trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done";
    let ours = rdma_init(["--log-level", "error", "--", "sh", "-c", script]);
    let (running, mut screen) = screen::on_a_terminal(after("exec </dev/null; exec", ours));
    screen.shows("ready");
    running.rests();
    screen.types("\x03");
    screen.shows("got-INT");
    // If PID 1 had forwarded ^C a second time, that signal would have arrived before this one.
    running.kill(libc::SIGTERM);
    running.end().expect_code(5);
    assert!(!screen.text.contains("got-INT"), "{}", screen.text);
}
