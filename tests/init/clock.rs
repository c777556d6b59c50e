//! Tests the clock that lets the deadlines of these tests pass.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::clock::{Clock, HOUR, Player, SECOND, Step};
use crate::support::poll_until;
use crate::support::running::{Running, rdma_init, shell};
use crate::support::skip;

fn advancing() -> Option<Clock> {
    let clock = Clock::advancing();
    if clock.is_real() {
        skip("only the clock of a program for x86-64 can be advanced, on such a machine");
    }
    Some(clock).filter(|clock| !clock.is_real())
}

/// Lets hours pass until the command has slept enough. Those before it slept count for nothing.
fn sleep_out(running: &mut Running, clock: &Clock) {
    running.command();
    poll_until("the command wakes up", || {
        clock.advance(HOUR);
        running.has_ended().then_some(())
    });
}

/// The clock of the command is that of the program.
#[test]
fn a_sleep_of_hours_is_over_at_once() {
    let script = "before=$(date +%s); sleep 20000; echo $(($(date +%s) - before))";
    for is_pid_1 in [true, false] {
        let Some(clock) = advancing() else { return };
        let command = rdma_init(["--supervise", "--", "sh", "-c", script]);
        let mut running = if is_pid_1 { clock.as_pid_1(command) } else { clock.in_place(command) };
        sleep_out(&mut running, &clock);
        let ended = running.end().expect_code(0);
        assert!(ended.stdout.trim_end().parse::<u64>().unwrap() >= 20_000, "{ended:#?}");
    }
}

/// The tracer does not wake up what a signal has stopped.
#[test]
fn a_stopped_process_stays_stopped() {
    let Some(clock) = advancing() else { return };
    let script = "sh -c 'kill -STOP $$; echo went on' & stopped=$!; sleep 20000; echo waking it; \
                  while grep -qs 'State:.[^Z]' /proc/$stopped/status; do kill -CONT $stopped 2>/dev/null || :; done";
    let mut running = clock.as_pid_1(shell(script));
    sleep_out(&mut running, &clock);
    let ended = running.end().expect_code(0);
    assert_eq!(ended.stdout, "waking it\nwent on\n", "{ended:#?}");
}

/// Writes the seconds that have passed to a file, each five seconds, and freezes the program once.
struct Hand {
    file: PathBuf,
    frozen: Option<(Duration, Duration)>,
}

impl Player for Hand {
    fn tick(&mut self, at: Duration, _: i32) -> Step {
        fs::write(&self.file, format!("{}\n", at.as_secs())).unwrap();
        match self.frozen.filter(|(from, _)| at >= *from) {
            Some((_, time)) => {
                self.frozen = None;
                Step::Frozen(time)
            }
            None => Step::After(5 * SECOND),
        }
    }
}

/// Returns what a script prints that sleeps by a clock of steps, and what the player has written when it awakes.
fn stepped(script: &str, frozen: Option<(Duration, Duration)>) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seconds");
    let mut command = shell(script);
    command.env("SECONDS_FILE", &file);
    let Some(clock) = Clock::stepped(Hand { file, frozen }) else {
        skip("only the clock of a program for x86-64 can be advanced, on such a machine");
        return None;
    };
    Some(clock.as_pid_1(command).end().expect_code(0).stdout)
}

/// Two processes sleep beside each other for an hour, and each wakes up after what the player plays at that time.
#[test]
fn a_clock_of_steps_passes_only_while_all_wait() {
    let each = |pause: &str| {
        format!(
            "began=$(date +%s); for n in 1 2 3; do sleep {pause}; echo {pause} $(cat \"$SECONDS_FILE\") $(($(date +%s) - began)); done"
        )
    };
    let script = format!("({}) & {}; wait", each("1000"), each("1203"));
    let Some(lines) = stepped(&script, None) else { return };
    let mut awakened = 0;
    for line in lines.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let &[pause, played, passed] = &numbers[..] else { panic!("{lines}") };
        awakened += 1;
        assert!(passed >= pause && played <= passed && played + 10 > passed, "{lines}");
    }
    assert_eq!(awakened, 6, "{lines}");
}

/// What sleeps meanwhile is late.
#[test]
fn a_frozen_program_awakes_after_its_deadline() {
    let script = "began=$(date +%s); sleep 30; echo $(cat \"$SECONDS_FILE\") $(($(date +%s) - began))";
    let Some(lines) = stepped(script, Some((20 * SECOND, HOUR))) else { return };
    assert_eq!(lines, "3620 3620\n");
}
