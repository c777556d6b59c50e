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

/// Without an init, the kernel does not stop the command. No shell is there that could continue it.
#[test]
fn the_terminal_does_not_suspend_what_no_shell_can_continue() {
    for flags in [&[][..], &["--supervise"]] {
        let script = "echo ready; read -r line; echo got $line; exit 4";
        let ours = rdma_init([&["--log-level", "error"], flags, &["--", "sh", "-c", script]].concat());
        // The second one runs below a shell without job control, in the shell's process group.
        let command = if flags.is_empty() { ours } else { after("true;", ours) };
        let (running, mut screen) = screen::on_a_terminal(command);
        screen.shows("ready");
        screen.types("\x1a");
        screen.shows("^Z");
        screen.types("this\n");
        screen.shows("got this");
        running.end().expect_code(4);
    }
}

/// Whoever sends such a signal to PID 1 can send SIGCONT, too. A stop continues the command as well.
#[test]
fn a_command_that_was_stopped_through_pid_1_stays_so() {
    for (signal, code) in [(libc::SIGCONT, 4), (libc::SIGTERM, 143)] {
        let (running, mut screen) =
            on_a_terminal(&["sh", "-c", "echo ready; read -r line; echo got $line; exit 4"]);
        screen.shows("ready");
        let command = running.command();
        running.kill(libc::SIGTSTP);
        wait_until_stopped(command);
        running.rests();
        running.kill(signal);
        if signal == libc::SIGCONT {
            screen.types("this\n");
            screen.shows("got this");
        }
        running.end().expect_code(code);
    }
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

/// Where a person reads it, a report has the terminal's width, and colors unless the person refuses them.
#[test]
fn a_report_fits_the_terminal() {
    for (no_color, warning) in
        [("", "\x1b[33mwarning:\x1b[0m MASTER_ADDR="), ("1", "  warning: MASTER_ADDR=")]
    {
        let mut command = rdma_init(["--", "true"]);
        command.env("TERM", "xterm").env("NO_COLOR", no_color);
        command.env("NNODES", "2").env("NODE_RANK", "0").env("MASTER_ADDR", "127.0.0.1");
        let (running, mut screen) = screen::on_a_terminal(command);
        screen.shows(warning);
        screen.shows("and no other\r\n      node can reach it there.");
        running.end().expect_code(0);
    }
}
