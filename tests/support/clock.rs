//! A clock that a test can advance, for a program and all that it starts, so that a test need not wait for the program's
//! deadlines and intervals.
//!
//! The program is the unchanged binary. A seccomp filter stops it at the calls below, and a thread of the test traces
//! it (ptrace(2)) and answers or changes them. The vDSO, which tells the time without a call, is hidden from it.
//!
//! - Advanced: clock_gettime, gettimeofday and time, except for the clocks of processors.
//! - Over at once if the test lets their time pass: the timeouts of poll, ppoll, pselect6, epoll_wait, epoll_pwait,
//!   rt_sigtimedwait, nanosleep, clock_nanosleep, futex and timer_settime.
//! - Not changed: all else that knows time, such as the timeouts of a socket, alarm, setitimer, timerfd and absolute
//!   times of timers, the times of files, and what the kernel times by itself, such as TCP.
//!
//! Between these jumps, it is as fast as the real clock, so that no deadline comes early on a busy machine: a test leaves the
//! program an hour for what comes first, and then lets the hour pass ([`Clock::pass`]).
//!
//! The kernel shows a stopped process that is traced as "t (tracing stop)", and keeps the signals for a traced PID 1
//! that it otherwise drops, as well as crashes: tests of these need the real clock.

#[cfg(target_arch = "x86_64")]
mod steps;
#[cfg(target_arch = "x86_64")]
mod tracer;

use std::process::{Command, ExitStatus};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::hang::Hang;
use super::running::{Running, machine, start};

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3600);

/// A clock that several programs may share.
#[derive(Clone)]
pub struct Clock {
    start: Instant,
    passed: Arc<Mutex<Duration>>,
    /// What passes again and again until the program ends: see [`Clock::pass`].
    passes: Arc<Mutex<Duration>>,
    /// Whether programs are traced, so that they have this clock.
    traces: bool,
    /// Whether it stands still while the program runs, and the player of the first program that has this clock.
    has_steps: bool,
    player: Arc<Mutex<Option<Box<dyn Player>>>>,
}

/// What happens outside of a program whose time passes in steps: see [`Clock::stepped`].
pub trait Player: Send {
    /// Plays what happens at this time of the clock, when all of the program waits. `main` is its first process.
    fn tick(&mut self, at: Duration, main: i32) -> Step;

    /// Answers what the program waits for from outside, such as a server. Returns whether it has: then the program goes on
    /// before any time passes.
    fn answers(&mut self, _main: i32) -> bool {
        false
    }
}

/// When the player is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    After(Duration),
    /// For this time, nothing of the program runs, whatever its deadlines, as in a container that is frozen.
    Frozen(Duration),
    /// All processes of the program get this signal now, and the next tick is after this time.
    Signal(i32, Duration),
}

/// How a program ended that was started with a clock.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub status: ExitStatus,
    /// When it ended, on its clock.
    pub at: Duration,
    /// For how long it has waited in vain.
    pub waited: Duration,
}

impl Clock {
    /// Returns a clock that can be advanced. On a machine other than x86-64, or with a binary for another one, it is the
    /// real one: a test with it takes longer, but proves the same.
    pub fn advancing() -> Clock {
        Clock::new(can_trace())
    }

    pub fn real() -> Clock {
        Clock::new(false)
    }

    fn new(traces: bool) -> Clock {
        Clock {
            start: Instant::now(),
            passed: Arc::default(),
            passes: Arc::default(),
            traces,
            has_steps: false,
            player: Arc::default(),
        }
    }

    /// Returns a clock that stands still as long as any process of the program runs, and otherwise jumps to what comes
    /// first: the player's next tick, or the end of a call that waits. So a program lives through a day in seconds, and the
    /// same one on any machine. `None` where no program can be traced.
    ///
    /// A process waits in the calls below, and in wait4, waitid, pause and rt_sigsuspend. Time does not pass while one of
    /// them waits in another call. Timers (timer_settime) expire by the real clock.
    pub fn stepped(player: impl Player + 'static) -> Option<Clock> {
        let player: Box<dyn Player> = Box::new(player);
        let clock = Clock::advancing();
        (!clock.is_real()).then(|| Clock {
            has_steps: true,
            player: Arc::new(Mutex::new(Some(player))),
            ..clock
        })
    }

    /// Returns the player, once.
    #[cfg(target_arch = "x86_64")]
    fn take_player(&self) -> Option<Box<dyn Player>> {
        self.player.lock().unwrap().take()
    }

    /// Returns whether this is only the real clock.
    pub fn is_real(&self) -> bool {
        !self.traces
    }

    /// Chooses a time for which the program waits: `far` if this clock can let it pass at once, or else `near`.
    pub fn choose<T>(&self, far: T, near: T) -> T {
        if self.traces { far } else { near }
    }

    /// Lets this time pass, after which a deadline of the program is up: at once, except on the real clock. If the program
    /// has not begun to wait by then, it passes again while a test waits for the program's end.
    pub fn pass(&self, time: Duration) {
        self.advance(time);
        *self.passes.lock().unwrap() = time;
    }

    /// Lets this time pass once, which is not to end the program.
    pub fn advance(&self, time: Duration) {
        if self.traces {
            *self.passed.lock().unwrap() += time;
        } else {
            std::thread::sleep(time);
        }
    }

    /// Lets the time pass again that is to end the program.
    pub(super) fn pass_again(&self) {
        if self.traces {
            *self.passed.lock().unwrap() += *self.passes.lock().unwrap();
        }
    }

    /// Returns the time that has passed on this clock.
    pub fn elapsed(&self) -> Duration {
        let real = if self.has_steps { Duration::ZERO } else { self.start.elapsed() };
        real + *self.passed.lock().unwrap()
    }

    /// Does the same as [`super::running::as_pid_1`], by this clock.
    pub fn as_pid_1(&self, command: Command) -> Running {
        start(command, true, self.clone(), None::<fn()>)
    }

    /// Does the same as [`super::running::in_place`], by this clock.
    pub fn in_place(&self, command: Command) -> Running {
        start(command, false, self.clone(), None::<fn()>)
    }

    /// Does the same as [`super::running::hanging`], by this clock.
    pub fn hanging(&self, command: Command, as_pid_1: bool, hang: &Hang) -> Running {
        start(command, as_pid_1, self.clone(), Some(hang.filter()))
    }

    /// Prepares a command that this thread is going to start, and follows it from its start to its end. `None` if this
    /// is the real clock. This starts a thread, so this thread must not yet have left its PID namespace.
    pub(super) fn follow(&self, command: &mut Command) -> Option<Receiver<End>> {
        if self.is_real() {
            return None;
        }
        #[cfg(target_arch = "x86_64")]
        return Some(tracer::follow(self.clone(), command));
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("{command:?}: only the real clock is here");
    }
}

fn can_trace() -> bool {
    const EM_X86_64: u16 = 62;
    cfg!(target_arch = "x86_64") && machine() == Some(EM_X86_64)
}
