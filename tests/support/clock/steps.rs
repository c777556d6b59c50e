//! The steps of a clock that stands still while something of the program runs.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use nix::libc::{self, c_long, user_regs_struct};

use super::{Player, Step};
use crate::support::running::send;

/// The calls in which a process may wait for another one, beside those with a timeout.
pub(super) const WAITS: [c_long; 4] =
    [libc::SYS_wait4, libc::SYS_waitid, libc::SYS_pause, libc::SYS_rt_sigsuspend];

/// How long a call waits at the most by the real clock: longer than any test.
pub(super) const FAR: Duration = Duration::from_secs(1_000_000);

pub(super) struct Steps {
    player: Box<dyn Player>,
    /// When the player is next.
    next: Duration,
    /// All that is traced.
    tasks: HashSet<i32>,
    /// Those of them that are in a call that waits. Such a call ends with a stop, so none of them goes on unnoticed.
    waiting: HashSet<i32>,
    /// Those that a signal has stopped.
    stopped: HashSet<i32>,
    /// Those whose time was up, so that they were interrupted.
    due: HashSet<i32>,
    /// Whether all of them were found asleep, and none has done anything since.
    do_sleep: bool,
}

impl Steps {
    pub(super) fn new(player: Box<dyn Player>, main: i32) -> Steps {
        let (waiting, stopped, due) = (HashSet::new(), HashSet::new(), HashSet::new());
        Steps {
            player,
            next: Duration::ZERO,
            tasks: HashSet::from([main]),
            waiting,
            stopped,
            due,
            do_sleep: false,
        }
    }

    /// A task has stopped for this thread, and is about to go on.
    pub(super) fn goes_on(&mut self, pid: i32) {
        self.do_sleep = false;
        self.tasks.insert(pid);
        self.waiting.remove(&pid);
        self.stopped.remove(&pid);
    }

    /// A new task begins, unless it has ended already: its end may come before this news, and its parent may not yet have
    /// waited for it.
    pub(super) fn begins(&mut self, pid: i32) {
        self.do_sleep = false;
        if fs::exists(format!("/proc/{pid}")).unwrap_or(false) && !is_in_state(pid, &['Z', 'X']) {
            self.tasks.insert(pid);
        }
    }

    pub(super) fn waits(&mut self, pid: i32) {
        self.waiting.insert(pid);
    }

    pub(super) fn is_stopped(&mut self, pid: i32) {
        self.stopped.insert(pid);
    }

    pub(super) fn ends(&mut self, pid: i32) {
        self.do_sleep = false;
        for of in [&mut self.tasks, &mut self.waiting, &mut self.stopped, &mut self.due] {
            of.remove(&pid);
        }
    }

    /// Returns whether the call of a task was interrupted because its time is up.
    pub(super) fn was_due(&mut self, pid: i32) -> bool {
        self.due.remove(&pid)
    }

    /// Returns whether something runs that stops for this thread in the end.
    pub(super) fn runs(&self) -> bool {
        let waits = |pid| self.waiting.contains(pid) || self.stopped.contains(pid);
        !self.due.is_empty() || !self.tasks.iter().all(waits)
    }

    /// All are in calls that wait. Returns whether all of them sleep: what has been woken runs until it stops for this
    /// thread, or waits again.
    pub(super) fn all_sleep(&mut self) -> bool {
        let sleeps = |pid: &i32| match self.stopped.contains(pid) {
            true => is_in_state(*pid, &['t', 'T']),
            false => is_blocked(*pid) && is_in_state(*pid, &['S']),
        };
        // Without an event, none of them is woken.
        self.do_sleep = self.do_sleep || self.tasks.iter().all(sleeps);
        self.do_sleep
    }

    /// All sleep, and `first` is when the first of their calls ends. Lets the player play once, or time pass until then.
    /// Returns the time, and whether those wake up whose time is up by then.
    pub(super) fn pass(&mut self, main: i32, now: Duration, first: Duration) -> (Duration, bool) {
        if self.player.answers(main) {
            self.do_sleep = false;
            return (now, false);
        }
        // After a time in which the program was frozen, the player comes first, too.
        if self.next > first.max(now) {
            return (first.max(now), true);
        }
        let at = self.next.max(now);
        let (now, next) = match self.player.tick(at, main) {
            Step::After(time) => (at, at + time),
            Step::Frozen(time) => (at + time, at + time),
            Step::Signal(signal, time) => {
                self.do_sleep = false;
                self.tasks.iter().for_each(|pid| send(*pid, signal));
                (at, at + time)
            }
        };
        self.next = next;
        (now, false)
    }

    /// The time of these is up.
    pub(super) fn wake(&mut self, due: &[i32]) {
        self.due.extend(due);
    }

    /// Returns those that wait, and that no signal has stopped.
    pub(super) fn waiting(&self) -> impl Iterator<Item = i32> {
        self.waiting.difference(&self.stopped).copied()
    }
}

/// Returns whether a task is in one of these states, by their letters.
fn is_in_state(pid: i32, states: &[char]) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(states))
}

/// Returns whether a task has left its processor. Its state does not tell: a call that waits declares that it sleeps before
/// it looks for what it waits for.
fn is_blocked(pid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall"));
    call.is_ok_and(|call| !call.starts_with("running"))
}

/// Returns whether a call waits without a timeout.
pub(super) fn is_endless(regs: &user_regs_struct) -> bool {
    const NO_HANG: u64 = libc::WNOHANG as u64;
    match regs.orig_rax as c_long {
        libc::SYS_poll => (regs.rdx as u32).cast_signed() < 0,
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (regs.r10 as u32).cast_signed() < 0,
        libc::SYS_ppoll | libc::SYS_rt_sigtimedwait => regs.rdx == 0,
        libc::SYS_pselect6 => regs.r8 == 0,
        libc::SYS_futex => {
            let is_wait = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET]
                .contains(&(regs.rsi as i32 & libc::FUTEX_CMD_MASK));
            is_wait && regs.r10 == 0
        }
        libc::SYS_wait4 => regs.rdx & NO_HANG == 0,
        libc::SYS_waitid => regs.r10 & NO_HANG == 0,
        libc::SYS_pause | libc::SYS_rt_sigsuspend => true,
        _ => false,
    }
}
