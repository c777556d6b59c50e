//! Tests terminals, with the init as a terminal's first process and as a shell's job.

use std::ffi::OsStr;

use nix::libc;

use super::peer::{
    Init, Place, first_process, is_not_for_tini, is_over, state, wait_for_state, wait_until_over,
    wait_until_stopped,
};
use crate::support::poll_until;
use crate::support::running::{Running, children, command_of};
use crate::support::screen::{Screen, on_a_terminal};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_Z: &str = "\x1a";

const BASH: [&str; 4] = ["bash", "--norc", "--noprofile", "--noediting"];

/// Starts the init as PID 1 on a terminal with this command.
fn first(command: &[&str]) -> (Running, Screen) {
    on_a_terminal(Init::plain().command(Place::Pid1, command))
}

#[test]
fn lines_and_the_end_of_input_arrive_and_output_comes_back() {
    let (running, mut screen) = first(&["sh", "-c", "stty -echo; echo ready; exec tac"]);
    screen.shows("ready");
    screen.types("one\ntwo\nthree\n");
    screen.types(CTRL_D);
    screen.shows("three\r\ntwo\r\none\r\n");
    running.end().expect_code(0);
}

#[test]
fn an_interrupt_at_the_terminal_ends_the_command() {
    let (running, mut screen) = first(&["sh", "-c", "echo ready; exec sleep 1000"]);
    screen.shows("ready");
    screen.types(CTRL_C);
    running.end().expect_code(130);
}

#[test]
fn typing_exit_ends_a_shell() {
    let (running, mut screen) = first(&[&BASH[..], &["-i"]].concat());
    screen.types("PS1=; echo re\"\"ady\n");
    screen.shows("ready");
    screen.types("exit 3\n");
    running.end().expect_code(3);
}

/// The command is a shell that is interactive or requests job control. One of its jobs is suspended and
/// resumed.
#[test]
fn a_shell_as_the_command_has_job_control() {
    for flag in ["-i", "-m"] {
        println!("bash {flag}");
        let (running, mut screen) = first(&[&BASH[..], &[flag]].concat());
        screen.types("PS1=; stty -echo; echo flags=$-.\n");
        screen.shows("flags=$-");
        screen.shows("flags=");
        screen.shows(".");
        let shell = running.command();
        screen.is_given_to(shell);
        screen.types("sh -c 'echo job-ready; exec sleep 1000'\n");
        screen.shows("job-ready");
        let job = poll_until("the job runs", || children(shell).first().copied());
        screen.is_given_to(job);
        screen.types(CTRL_Z);
        wait_until_stopped(job);
        screen.is_given_to(shell);
        screen.types("fg >/dev/null\n");
        screen.is_given_to(job);
        wait_for_state(job, "goes on", |state| state != Some('T'));
        screen.types(CTRL_C);
        screen.types("echo code=$?\n");
        screen.shows("code=130");
        assert!(is_over(state(job)));
        screen.types("exit 6\n");
        running.end().expect_code(6);
    }
}

/// An interactive shell that is PID 1 and runs the init as a job.
struct AtAShell {
    running: Running,
    screen: Screen,
    shell: i32,
}

/// An init that runs as the shell's job and has given the terminal to its command.
struct Job {
    init: i32,
    command: i32,
}

impl AtAShell {
    fn new() -> AtAShell {
        let bash = first_process("/bin/bash", BASH[1..].iter().chain(&["-i"]));
        let (running, mut screen) = on_a_terminal(bash);
        screen.types("PS1=; stty -echo; echo re\"\"ady\n");
        screen.shows("ready");
        let shell = running.pid;
        screen.is_given_to(shell);
        AtAShell { running, screen, shell }
    }

    /// Does the same as [`AtAShell::new`] for an init that stops along with its command; tini does not.
    fn that_suspends() -> Option<AtAShell> {
        (!is_not_for_tini("it does not stop along with its command")).then(AtAShell::new)
    }

    /// Returns the line to type that runs a script under the init.
    fn line(script: &str) -> String {
        let quoted = |text: &OsStr| format!("'{}'", text.to_str().unwrap().replace('\'', "'\\''"));
        let words = Init::plain().arguments(Place::ByOption, &["sh", "-c", script]);
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    fn job(&self) -> Job {
        let init = poll_until("the shell runs the init", || children(self.shell).first().copied());
        Job { init, command: command_of(init) }
    }

    /// Starts a job in the foreground, and waits until it reports that it is ready.
    fn runs(&mut self, script: &str) -> Job {
        self.screen.types(&format!("{}\n", AtAShell::line(script)));
        self.screen.shows("ready");
        let job = self.job();
        self.screen.is_given_to(job.command);
        job
    }

    /// Waits until the terminal belongs to the command, or to the init, which forwards typed input.
    fn has_in_front(&self, job: &Job) {
        poll_until("the job is in the foreground", || {
            let group = nix::unistd::tcgetpgrp(&self.screen.master).ok()?.as_raw();
            [job.init, job.command].contains(&group).then_some(())
        });
    }

    /// Types ^Z, and waits until the shell has the terminal again.
    fn suspends(&mut self, job: &Job) {
        self.screen.types(CTRL_Z);
        self.screen.shows("Stopped");
        is_stopped(job);
        self.screen.is_given_to(self.shell);
    }

    /// Resumes the job with `fg`, and waits until its command has the terminal.
    fn resumes(&mut self, job: &Job) {
        self.screen.types("fg >/dev/null\n");
        self.screen.is_given_to(job.command);
    }

    /// Resumes the job with `bg`.
    fn resumes_behind(&mut self) {
        self.screen.types("bg >/dev/null; echo in-the-background\n");
        self.screen.shows("in-the-background");
    }

    /// Types the line that the job reads; the job then exits with code 4.
    fn is_read(&mut self) {
        self.screen.types("this\n");
        self.screen.shows("got this.");
        self.screen.is_given_to(self.shell);
        self.screen.types("echo code=$?.\n");
        self.screen.shows("code=4.");
    }

    /// Ends the job with ^C, and then the shell.
    fn interrupts(mut self, job: &Job) {
        self.screen.types(CTRL_C);
        wait_until_over(job.command);
        wait_until_over(job.init);
        self.screen.is_given_to(self.shell);
        self.screen.types("echo code=$?.\n");
        self.screen.shows("code=130.");
        self.screen.types("exit 6\n");
        self.running.end().expect_code(6);
    }
}

fn is_stopped(job: &Job) {
    wait_until_stopped(job.command);
    wait_until_stopped(job.init);
}

fn goes_on(job: &Job) {
    for pid in [job.init, job.command] {
        wait_for_state(pid, "goes on", |state| matches!(state, Some('S' | 'R')));
    }
}

const SLEEPS: &str = "echo ready; exec sleep 1000";
const READS: &str = "echo ready; read -r line; echo \"got $line.\"; exit 4";

#[test]
fn an_interrupt_at_a_shell_gives_130() {
    let mut shell = AtAShell::new();
    let job = shell.runs(SLEEPS);
    shell.interrupts(&job);
}

#[test]
fn suspending_at_a_shell_stops_both_and_fg_resumes_both() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    let job = shell.runs(SLEEPS);
    for _ in 0..3 {
        shell.suspends(&job);
        shell.resumes(&job);
        goes_on(&job);
    }
    shell.interrupts(&job);
}

#[test]
fn a_command_that_was_suspended_reads_on() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    let job = shell.runs(READS);
    shell.suspends(&job);
    shell.resumes(&job);
    shell.is_read();
}

#[test]
fn bg_resumes_both_and_the_shell_keeps_the_terminal() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    let job = shell.runs(SLEEPS);
    shell.suspends(&job);
    shell.resumes_behind();
    goes_on(&job);
    shell.screen.is_given_to(shell.shell);
    shell.screen.types("fg >/dev/null\n");
    shell.has_in_front(&job);
    shell.interrupts(&job);
}

/// `bg` and `fg` have changed which process has the terminal, and ^Z still works as before.
#[test]
fn a_job_that_went_on_in_the_background_can_be_suspended_again() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    let job = shell.runs(SLEEPS);
    shell.suspends(&job);
    shell.resumes_behind();
    goes_on(&job);
    shell.screen.types("fg >/dev/null\n");
    shell.has_in_front(&job);
    shell.suspends(&job);
}

/// The terminal stops a background job that tries to read. The job continues reading when `fg` has given it
/// the terminal.
#[test]
fn a_command_that_reads_in_the_background_is_stopped_until_fg() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    let job = shell.runs(READS);
    shell.suspends(&job);
    shell.resumes_behind();
    is_stopped(&job);
    shell.resumes(&job);
    shell.is_read();
}

/// This job was started in the background and never had the terminal. `fg` gives it the
/// terminal.
#[test]
fn a_command_that_was_started_in_the_background_comes_to_the_front() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    shell.screen.types(&format!("{} &\n", AtAShell::line(READS)));
    shell.screen.shows("ready");
    let job = shell.job();
    is_stopped(&job);
    shell.resumes(&job);
    shell.is_read();
}

/// ^Z stops the whole job, with all processes of the pipeline.
#[test]
fn suspending_a_pipeline_at_a_shell_stops_all_of_it() {
    let Some(mut shell) = AtAShell::that_suspends() else { return };
    shell.screen.types(&format!("{} | cat\n", AtAShell::line(SLEEPS)));
    shell.screen.shows("ready");
    let job = shell.job();
    shell.screen.is_given_to(job.command);
    shell.screen.types(CTRL_Z);
    is_stopped(&job);
    shell.screen.is_given_to(shell.shell);
    shell.screen.types("fg >/dev/null\n");
    goes_on(&job);
    shell.screen.is_given_to(job.command);
    shell.screen.types(CTRL_C);
    wait_until_over(job.command);
    shell.screen.is_given_to(shell.shell);
}

/// Here, a supervisor suspends the init instead of a terminal.
#[test]
fn a_stop_signal_to_the_init_suspends_the_command() {
    let mut started = Init::plain().shell(Place::ByOption, "echo ready; exec sleep 1000");
    started.is_ready();
    let command = started.command();
    started.kill(libc::SIGTSTP);
    wait_until_stopped(command);
    started.kill(libc::SIGCONT);
    wait_for_state(command, "goes on", |state| matches!(state, Some('S' | 'R')));
    started.kill(libc::SIGTERM);
    started.end().expect_code(143);
}
