//! Tests that each signal is forwarded each time it is sent, with its value.

use std::io;
use std::mem::zeroed;

use nix::libc;

use crate::support::poll_until;
use crate::support::refused_call::refuse;
use crate::support::running::{Running, Way, as_pid_1, has_taken_signals, in_place, rdma_init};
use crate::support::signal_states::{State, inherit};

/// Starts a command that blocks all signals, so that they stay pending and the test can read
/// them.
fn collector() -> (Running, Tracee) {
    let mut command = rdma_init(["--", "sleep", "1000"]);
    inherit(&mut command, &State { name: "all blocked", blocked: u64::MAX, ignored: &[], pending: None });
    let running = as_pid_1(command);
    let tracee = Tracee::stop(running.command());
    (running, tracee)
}

/// A traced process that is stopped. Its pending signals can be read without consuming them.
struct Tracee(i32);

/// A signal that arrived: its number, how it was sent, and its value.
type Arrived = (i32, i32, usize);

impl Tracee {
    fn stop(pid: i32) -> Tracee {
        // SAFETY: ptrace with plain numbers, on a process that is not a child of this one.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0), 0, "{}", io::Error::last_os_error());
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0), 0, "{}", io::Error::last_os_error());
            assert_eq!(libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL), pid);
        }
        Tracee(pid)
    }

    fn pending(&self) -> Vec<Arrived> {
        const AT_ONCE: usize = 64;
        let mut all = Vec::new();
        loop {
            let asked = libc::ptrace_peeksiginfo_args {
                off: all.len() as u64,
                flags: libc::PTRACE_PEEKSIGINFO_SHARED,
                nr: i32::try_from(AT_ONCE).unwrap(),
            };
            // SAFETY: the kernel writes at most as many entries as the array holds.
            let got = unsafe {
                let mut infos: [libc::siginfo_t; AT_ONCE] = zeroed();
                let got = libc::ptrace(libc::PTRACE_PEEKSIGINFO, self.0, &asked, &mut infos);
                assert!(got >= 0, "{}", io::Error::last_os_error());
                let got = usize::try_from(got).unwrap();
                let shown = |info: &libc::siginfo_t| {
                    (info.si_signo, info.si_code, info.si_value().sival_ptr as usize)
                };
                all.extend(infos[..got].iter().map(shown));
                got
            };
            if got == 0 {
                return all;
            }
        }
    }

    /// Waits until this many signals have arrived, and until this init has none left that it might forward.
    #[track_caller]
    fn expect(&self, init: &Running, number: usize) -> Vec<Arrived> {
        poll_until(&format!("{number} signals arrive"), || (self.pending().len() >= number).then_some(()));
        has_taken_signals(init.pid);
        self.pending()
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // SAFETY: as above; the call fails if the process is gone.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// The test waits for each signal to arrive, so that no signal is merged with another one or
/// cancels it.
#[test]
fn every_signal_is_forwarded() {
    let stops = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let not = [libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD, 32, 33];
    let all: Vec<i32> = (1..=64).filter(|signal| !not.contains(signal) && !stops.contains(signal)).collect();
    // The kernel discards a pending SIGCONT when a stop signal arrives, and the other way around.
    for signals in [all, stops.to_vec()] {
        let (running, tracee) = collector();
        for (sent, signal) in signals.iter().enumerate() {
            running.kill(*signal);
            poll_until(&format!("signal {signal} arrives"), || (tracee.pending().len() > sent).then_some(()));
        }
        let arrived: Vec<i32> = tracee.pending().iter().map(|arrived| arrived.0).collect();
        assert_eq!(arrived, signals);
    }
}

/// SIGCHLD informs PID 1 about its own children, so it is never forwarded, even if another process sends
/// it.
#[test]
fn sigchld_is_not_forwarded() {
    let (running, tracee) = collector();
    running.kill(libc::SIGCHLD);
    queue(running.pid, libc::SIGCHLD, 5);
    running.kill(libc::SIGUSR1);
    let arrived: Vec<i32> = tracee.expect(&running, 1).iter().map(|arrived| arrived.0).collect();
    assert_eq!(arrived, [libc::SIGUSR1]);
}

fn queue(pid: i32, signal: i32, value: usize) {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
    // SAFETY: the value is a number, and no code uses it as a pointer.
    let result = unsafe { libc::sigqueue(pid, signal, value) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

#[test]
fn the_value_of_a_queued_signal_is_kept() {
    let (running, tracee) = collector();
    let sent = [(libc::SIGUSR1, 0), (libc::SIGTERM, 17), (34, usize::MAX), (64, 0x1234_5678_9abc)];
    for (signal, value) in sent {
        queue(running.pid, signal, value);
    }
    let mut arrived = tracee.expect(&running, sent.len());
    arrived.sort_unstable();
    let mut wanted = sent.map(|(signal, value)| (signal, libc::SI_QUEUE, value));
    wanted.sort_unstable();
    assert_eq!(arrived, wanted);
}

#[test]
fn a_burst_of_real_time_signals_arrives_whole() {
    let (running, tracee) = collector();
    for value in 0..500 {
        queue(running.pid, 40, value);
    }
    let values: Vec<usize> = tracee.expect(&running, 500).iter().map(|arrived| arrived.2).collect();
    assert!(values == (0..500).collect::<Vec<usize>>(), "{} arrived: {values:?}", values.len());
    for _ in 0..500 {
        running.kill(41);
    }
    assert_eq!(tracee.expect(&running, 1000).iter().filter(|arrived| arrived.0 == 41).count(), 500);
}

/// Signals are forwarded from the first moment, even while the command is being prepared.
#[test]
fn a_burst_during_the_preparation_arrives_whole() {
    for _ in 0..20 {
        let mut command = rdma_init(["--", "sleep", "1000"]);
        inherit(&mut command, &State { name: "all blocked", blocked: u64::MAX, ignored: &[], pending: None });
        let running = as_pid_1(command);
        for value in 0..500 {
            queue(running.pid, 40, value);
        }
        let tracee = Tracee::stop(running.command());
        let values: Vec<usize> = tracee.expect(&running, 500).iter().map(|arrived| arrived.2).collect();
        assert!(values == (0..500).collect::<Vec<usize>>(), "{} arrived: {values:?}", values.len());
    }
}

/// With a process group, the value is kept if the kernel can send it to a group (Linux 6.9).
/// The signal itself arrives in any case.
#[test]
fn the_value_is_kept_for_a_group_or_said_to_be_lost() {
    let mut command = rdma_init(["--kill-group", "--", "sleep", "1000"]);
    inherit(&mut command, &State { name: "all blocked", blocked: u64::MAX, ignored: &[], pending: None });
    let mut running = as_pid_1(command);
    let tracee = Tracee::stop(running.command());
    queue(running.pid, 40, 7);
    let arrived = tracee.expect(&running, 1);
    if arrived == [(40, libc::SI_QUEUE, 7)] {
        return;
    }
    assert_eq!(arrived.iter().map(|(signal, ..)| *signal).collect::<Vec<_>>(), [40]);
    running.wait_for_error("the value that came with signal 40 was not forwarded");
}

/// An init that cannot wait for signals does not spin, and the container ends with the command.
#[test]
fn an_init_that_may_not_wait_for_signals_still_reaps() {
    let mut command = rdma_init(["--", "sh", "-c", "(true &); echo ready; read -r line; exit 5"]);
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    command.stdin(reader);
    refuse(&mut command, &[libc::SYS_rt_sigtimedwait], libc::EPERM);
    let mut running = as_pid_1(command);
    running.wait_for("ready");
    running.wait_for_error("cannot wait for signals");
    poll_until("PID 1 sleeps", || {
        let status = crate::support::running::status(running.pid);
        crate::support::status_field(&status, "State")?.starts_with('S').then_some(())
    });
    drop(writer);
    running.end().expect_code(5);
}

/// Nor does one that may not call wait4(2). The shell has no children: it waits for them with the same call.
#[test]
fn an_init_that_may_not_call_wait4_reaps_all_the_same() {
    for (script, code) in [("exit 5", 5), ("kill -KILL $$", 137)] {
        for (flags, start) in [(&[][..], as_pid_1), (&["--supervise"], in_place)] as [Way; 2] {
            let mut command = rdma_init([flags, &["--", "sh", "-c", script]].concat());
            refuse(&mut command, &[libc::SYS_wait4], libc::EPERM);
            start(command).end().expect_code(code);
        }
    }
}
