//! Tests the clock that lets the deadlines of these tests pass.

use crate::support::clock::{Clock, HOUR};
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
