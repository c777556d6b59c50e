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
//! Between the steps, it is as fast as the real clock, so that no deadline comes early on a busy machine: a test leaves the
//! program an hour for what comes first, and then lets the hour pass ([`Clock::pass`]).
//!
//! The kernel shows a stopped process that is traced as "t (tracing stop)", and keeps the signals for a traced PID 1
//! that it otherwise drops, as well as crashes: tests of these need the real clock.

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
        Clock { start: Instant::now(), passed: Arc::default(), passes: Arc::default(), traces }
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
        self.start.elapsed() + *self.passed.lock().unwrap()
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
        return Some(x86_64::follow(self.clone(), command));
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("{command:?}: only the real clock is here");
    }
}

fn can_trace() -> bool {
    const EM_X86_64: u16 = 62;
    cfg!(target_arch = "x86_64") && machine() == Some(EM_X86_64)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::collections::HashMap;
    use std::io;
    use std::mem::zeroed;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Command, ExitStatus};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    use nix::libc::{self, c_long, user_regs_struct};

    use super::{Clock, End};
    use crate::support::hang::filter;
    use crate::support::poll_until;
    use crate::support::running::children_of_thread;

    const CALLS: [c_long; 14] = [
        libc::SYS_clock_gettime,
        libc::SYS_gettimeofday,
        libc::SYS_time,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_futex,
        libc::SYS_timer_settime,
        // The kernel goes on with another call by this one, after a signal that has no handler.
        libc::SYS_restart_syscall,
    ];

    const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_EXITKILL;

    pub(super) fn follow(clock: Clock, command: &mut Command) -> Receiver<End> {
        let mut program = filter(&CALLS, libc::SECCOMP_RET_TRACE);
        // SAFETY: the closure makes system calls only, with memory of its own.
        unsafe {
            command.pre_exec(move || {
                let len = u16::try_from(program.len()).unwrap_or(u16::MAX);
                let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
                if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == -1 {
                    return Err(io::Error::last_os_error());
                }
                // Until the tracer is there, these calls fail.
                let mut now: libc::timespec = zeroed();
                while libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &mut now) == -1 {
                    libc::sched_yield();
                }
                Ok(())
            });
        }
        let (send, end) = channel();
        // A thread that starts a program waits until the program's exec, so it cannot trace it until then.
        let (process, parent) = (std::process::id().cast_signed(), nix::unistd::gettid().as_raw());
        thread::spawn(move || {
            let main = poll_until("the program has been forked", || {
                children_of_thread(process, parent).first().copied()
            });
            trace(libc::PTRACE_SEIZE, main, OPTIONS as usize).expect("the program can be traced");
            let (waited, timers) = (Duration::ZERO, HashMap::new());
            let mut tracer = Tracer { clock, main, waited, timers, changed: HashMap::new(), end: send };
            while tracer.serve() {}
        });
        end
    }

    fn trace(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
        // SAFETY: these requests take a number, or a place that the callers below give.
        match unsafe { libc::ptrace(request, pid, 0, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    struct Tracer {
        clock: Clock,
        main: i32,
        /// The sum of the main process's timeouts that have expired.
        waited: Duration,
        /// The timer of each process that has one.
        timers: HashMap<i32, Timeout>,
        /// The last call of each process, if it was changed.
        changed: HashMap<i32, Changed>,
        end: Sender<End>,
    }

    /// A call whose arguments this thread has changed.
    struct Changed {
        before: user_regs_struct,
        timeout: Timeout,
        /// Where the program looks for the time that is left.
        left: Option<u64>,
        /// Whether the call is made again, because its time was not up.
        is_made_again: bool,
    }

    /// A timeout, on the program's clock.
    #[derive(Clone, Copy, Default)]
    struct Timeout {
        all: Duration,
        until: Duration,
    }

    /// How long a call waits at once, so that a jump of the clock soon takes effect.
    const AT_ONCE: Duration = Duration::from_millis(50);

    impl Tracer {
        /// Waits for one event. Returns `false` if no traced process is left.
        fn serve(&mut self) -> bool {
            let mut status = 0;
            // SAFETY: the status is a valid place. The flags keep the children of other threads out.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
            if pid == -1 {
                return io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            }
            if !libc::WIFSTOPPED(status) {
                self.changed.remove(&pid);
                if pid == self.main {
                    let (at, waited) = (self.clock.elapsed(), self.waited);
                    let _ = self.end.send(End { status: ExitStatus::from_raw(status), at, waited });
                }
                return true;
            }
            if self.go_on(pid, libc::WSTOPSIG(status), status >> 16).is_err() {
                // A call with a bad address goes on as it is. If the process was killed meanwhile, its end comes next.
                let _ = trace(libc::PTRACE_CONT, pid, 0);
            }
            true
        }

        fn go_on(&mut self, pid: i32, signal: i32, event: i32) -> io::Result<()> {
            let is_stop = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
            match event {
                libc::PTRACE_EVENT_STOP if is_stop => return trace(libc::PTRACE_LISTEN, pid, 0),
                libc::PTRACE_EVENT_SECCOMP if self.change(pid)? => {
                    return trace(libc::PTRACE_SYSCALL, pid, 0);
                }
                libc::PTRACE_EVENT_EXEC => {
                    self.timers.remove(&pid);
                    hide_vdso(pid)?;
                }
                0 if signal == libc::SIGTRAP | 0x80 => self.restore(pid)?,
                0 if is_timer(pid) && self.is_untimely(pid) => {}
                0 => return trace(libc::PTRACE_CONT, pid, signal as usize),
                _ => {}
            }
            trace(libc::PTRACE_CONT, pid, 0)
        }

        /// Answers a call for the time, or shortens the timeout of a call. Returns whether the call has to be restored
        /// at its end.
        fn change(&mut self, pid: i32) -> io::Result<bool> {
            let before = registers(pid)?;
            if before.orig_rax as c_long == libc::SYS_restart_syscall {
                return Ok(self.changed.contains_key(&pid));
            }
            let earlier = self.changed.remove(&pid).filter(|call| call.is_made_again);
            let earlier = earlier.map(|call| call.timeout);
            let mut regs = before;
            // Below the part of the stack that a function may use without taking it.
            let scratch = (regs.rsp - 512) & !15;
            let (mut timeout, mut left) = (Timeout::default(), None);
            match regs.orig_rax as c_long {
                libc::SYS_clock_gettime => {
                    let Some(now) = self.now(regs.rdi as i32) else { return Ok(false) };
                    write(pid, regs.rsi, &pair(now))?;
                    return answer(pid, regs, 0);
                }
                libc::SYS_gettimeofday if regs.rdi != 0 => {
                    let now = self.now(libc::CLOCK_REALTIME).unwrap_or_default();
                    write(pid, regs.rdi, &[now.as_secs(), now.subsec_micros().into()])?;
                    return answer(pid, regs, 0);
                }
                libc::SYS_time => {
                    let now = self.now(libc::CLOCK_REALTIME).unwrap_or_default().as_secs();
                    if regs.rdi != 0 {
                        write(pid, regs.rdi, &[now])?;
                    }
                    return answer(pid, regs, now);
                }
                call @ (libc::SYS_poll | libc::SYS_epoll_wait | libc::SYS_epoll_pwait) => {
                    let place = if call == libc::SYS_poll { &mut regs.rdx } else { &mut regs.r10 };
                    // A negative number is no timeout.
                    let Ok(milliseconds @ 1..) = u32::try_from(*place as i32) else { return Ok(false) };
                    timeout =
                        earlier.unwrap_or_else(|| self.timeout(Duration::from_millis(milliseconds.into())));
                    *place = self.real(timeout).as_nanos().div_ceil(1_000_000).max(1) as u64;
                }
                libc::SYS_rt_sigtimedwait => timeout = self.shorten(pid, &mut regs.rdx, scratch, earlier)?,
                libc::SYS_ppoll => {
                    left = Some(regs.rdx);
                    timeout = self.shorten(pid, &mut regs.rdx, scratch, earlier)?;
                }
                libc::SYS_pselect6 => {
                    left = Some(regs.r8);
                    timeout = self.shorten(pid, &mut regs.r8, scratch, earlier)?;
                }
                libc::SYS_nanosleep => {
                    left = Some(regs.rsi);
                    timeout = self.shorten(pid, &mut regs.rdi, scratch, earlier)?;
                    regs.rsi = scratch + 16;
                }
                libc::SYS_clock_nanosleep if regs.rsi & libc::TIMER_ABSTIME as u64 == 0 => {
                    left = Some(regs.r10);
                    timeout = self.shorten(pid, &mut regs.rdx, scratch, earlier)?;
                    regs.r10 = scratch + 16;
                }
                libc::SYS_clock_nanosleep => {
                    timeout = self.bring_forward(pid, regs.rdi as i32, &mut regs.rdx, scratch, earlier)?;
                }
                libc::SYS_futex => match regs.rsi as i32 & libc::FUTEX_CMD_MASK {
                    libc::FUTEX_WAIT => timeout = self.shorten(pid, &mut regs.r10, scratch, earlier)?,
                    libc::FUTEX_WAIT_BITSET => {
                        let is_real = regs.rsi as i32 & libc::FUTEX_CLOCK_REALTIME != 0;
                        let clock = if is_real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
                        timeout = self.bring_forward(pid, clock, &mut regs.r10, scratch, earlier)?;
                    }
                    _ => {}
                },
                libc::SYS_timer_settime if regs.rsi == 0 => {
                    let (interval, first) = (time(pid, regs.rdx)?, time(pid, regs.rdx + 16)?);
                    // The timers of the program expire once. Meanwhile, they let this thread look at the clock.
                    self.timers.remove(&pid);
                    if interval.is_zero() && !first.is_zero() {
                        let timer = self.timeout(first);
                        self.timers.insert(pid, timer);
                        write(pid, scratch, &pair(AT_ONCE))?;
                        write(pid, scratch + 16, &pair(self.real(timer)))?;
                        regs.rdx = scratch;
                    }
                }
                _ => {}
            }
            if arguments(&mut regs) == arguments(&mut before.clone()) {
                return Ok(false);
            }
            set_registers(pid, &regs)?;
            self.changed.insert(pid, Changed { before, timeout, left, is_made_again: false });
            Ok(true)
        }

        /// Gives the program its arguments back after a call that was changed. If the time of the call is not up, the
        /// program makes it again.
        fn restore(&mut self, pid: i32) -> io::Result<()> {
            const RESTART: i64 = -516;
            const RESTART_WITHOUT_HANDLER: i64 = -514;
            let now = self.clock.elapsed();
            let Some(call) = self.changed.get_mut(&pid) else { return Ok(()) };
            let mut regs = registers(pid)?;
            let result = regs.rax as i64;
            let expired = match call.before.orig_rax as c_long {
                libc::SYS_futex => -i64::from(libc::ETIMEDOUT),
                libc::SYS_rt_sigtimedwait => -i64::from(libc::EAGAIN),
                _ => 0,
            };
            if result == expired && now < call.timeout.until {
                call.is_made_again = true;
                // A system call takes two bytes.
                regs =
                    user_regs_struct { rip: call.before.rip - 2, rax: call.before.orig_rax, ..call.before };
                return set_registers(pid, &regs);
            }
            if pid == self.main && result == expired {
                self.waited += call.timeout.all;
            }
            let is_interrupted =
                [-i64::from(libc::EINTR), RESTART, RESTART_WITHOUT_HANDLER].contains(&result);
            if let Some(place) = call.left.filter(|place| *place != 0 && is_interrupted) {
                // The kernel, too, does without it if this cannot be written.
                let _ = write(pid, place, &pair(call.timeout.until.saturating_sub(now)));
            }
            let mut before = call.before;
            for (argument, before) in arguments(&mut regs).into_iter().zip(arguments(&mut before)) {
                *argument = *before;
            }
            set_registers(pid, &regs)
        }

        /// Returns what a clock shows to the program; `None` for the clock of a processor or a process.
        fn now(&self, id: libc::clockid_t) -> Option<Duration> {
            if id < 0 || [libc::CLOCK_PROCESS_CPUTIME_ID, libc::CLOCK_THREAD_CPUTIME_ID].contains(&id) {
                return None;
            }
            Some(real_now(id)? + *self.clock.passed.lock().unwrap())
        }

        /// Returns whether the timer of a process has sent its signal before its time, or once more.
        fn is_untimely(&mut self, pid: i32) -> bool {
            let now = self.clock.elapsed();
            let Some(timer) = self.timers.get_mut(&pid) else { return false };
            if now < timer.until {
                return true;
            }
            timer.until = Duration::MAX;
            self.waited += if pid == self.main { timer.all } else { Duration::ZERO };
            false
        }

        fn timeout(&self, all: Duration) -> Timeout {
            Timeout { all, until: self.clock.elapsed() + all }
        }

        /// Returns for how long a call has to wait now.
        fn real(&self, timeout: Timeout) -> Duration {
            let left = timeout.until.saturating_sub(self.clock.elapsed());
            left.clamp(Duration::from_nanos(1), AT_ONCE)
        }

        /// Shortens a timeout, if there is one.
        fn shorten(
            &self,
            pid: i32,
            place: &mut u64,
            scratch: u64,
            earlier: Option<Timeout>,
        ) -> io::Result<Timeout> {
            if *place == 0 {
                return Ok(Timeout::default());
            }
            let timeout = match earlier {
                Some(timeout) => timeout,
                None => self.timeout(time(pid, *place)?),
            };
            // The program only asks.
            if timeout.all.is_zero() {
                return Ok(timeout);
            }
            write(pid, scratch, &pair(self.real(timeout)))?;
            *place = scratch;
            Ok(timeout)
        }

        /// Turns a time on the program's clock into the same moment on the real one.
        fn bring_forward(
            &self,
            pid: i32,
            id: libc::clockid_t,
            place: &mut u64,
            scratch: u64,
            earlier: Option<Timeout>,
        ) -> io::Result<Timeout> {
            let Some(now) = self.now(id).filter(|_| *place != 0) else { return Ok(Timeout::default()) };
            let timeout = match earlier {
                Some(timeout) => timeout,
                None => self.timeout(time(pid, *place)?.saturating_sub(now)),
            };
            write(pid, scratch, &pair(real_now(id).unwrap_or_default() + self.real(timeout)))?;
            *place = scratch;
            Ok(timeout)
        }
    }

    fn real_now(id: libc::clockid_t) -> Option<Duration> {
        // SAFETY: the structure is plain data, which the kernel fills.
        unsafe {
            let mut now: libc::timespec = zeroed();
            (libc::clock_gettime(id, &mut now) == 0)
                .then(|| Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32))
        }
    }

    /// Makes the kernel skip a call, which returns this.
    fn answer(pid: i32, mut regs: user_regs_struct, result: u64) -> io::Result<bool> {
        (regs.orig_rax, regs.rax) = (u64::MAX, result);
        set_registers(pid, &regs)?;
        Ok(false)
    }

    /// The registers that hold a timeout in one of the calls.
    fn arguments(regs: &mut user_regs_struct) -> [&mut u64; 5] {
        [&mut regs.rdi, &mut regs.rsi, &mut regs.rdx, &mut regs.r10, &mut regs.r8]
    }

    fn registers(pid: i32) -> io::Result<user_regs_struct> {
        // SAFETY: the structure is plain data, which the kernel fills.
        unsafe {
            let mut regs: user_regs_struct = zeroed();
            trace(libc::PTRACE_GETREGS, pid, (&raw mut regs).addr())?;
            Ok(regs)
        }
    }

    fn set_registers(pid: i32, regs: &user_regs_struct) -> io::Result<()> {
        trace(libc::PTRACE_SETREGS, pid, std::ptr::from_ref(regs).addr())
    }

    /// Returns whether the signal that a process is about to get comes from a timer that it has set.
    fn is_timer(pid: i32) -> bool {
        // SAFETY: as above.
        unsafe {
            let mut info: libc::siginfo_t = zeroed();
            let got = trace(libc::PTRACE_GETSIGINFO, pid, (&raw mut info).addr());
            got.is_ok() && info.si_code == libc::SI_TIMER
        }
    }

    fn pair(time: Duration) -> [u64; 2] {
        [time.as_secs(), time.subsec_nanos().into()]
    }

    fn time(pid: i32, place: u64) -> io::Result<Duration> {
        let [seconds, nanoseconds] = read(pid, place)?;
        // The kernel refuses more nanoseconds, and gets what the program has given.
        let nanoseconds = u32::try_from(nanoseconds).ok().filter(|nanoseconds| *nanoseconds < 1_000_000_000);
        Ok(Duration::new(seconds, nanoseconds.ok_or(io::ErrorKind::InvalidInput)?))
    }

    fn read<const N: usize>(pid: i32, from: u64) -> io::Result<[u64; N]> {
        let mut words = [0; N];
        let here = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
        let there = libc::iovec { iov_base: from as *mut _, iov_len: here.iov_len };
        // SAFETY: the kernel writes into the array.
        whole(unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) }, here.iov_len)?;
        Ok(words)
    }

    fn write(pid: i32, to: u64, words: &[u64]) -> io::Result<()> {
        let here = libc::iovec { iov_base: words.as_ptr().cast_mut().cast(), iov_len: size_of_val(words) };
        let there = libc::iovec { iov_base: to as *mut _, iov_len: here.iov_len };
        // SAFETY: the kernel reads the words, and writes into the other process.
        whole(unsafe { libc::process_vm_writev(pid, &here, 1, &there, 1, 0) }, here.iov_len)
    }

    fn whole(moved: isize, length: usize) -> io::Result<()> {
        if moved == length.cast_signed() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Takes the address of the vDSO from the auxiliary vector of a program that is about to start. The vector follows
    /// the arguments and the environment on the stack.
    fn hide_vdso(pid: i32) -> io::Result<()> {
        let mut place = registers(pid)?.rsp;
        let [arguments] = read(pid, place)?;
        place += 8 * (arguments + 2);
        while read(pid, place)? != [0] {
            place += 8;
        }
        place += 8;
        loop {
            let [kind] = read(pid, place)?;
            match kind {
                libc::AT_NULL => return Ok(()),
                libc::AT_SYSINFO_EHDR => return write(pid, place, &[libc::AT_IGNORE]),
                _ => place += 16,
            }
        }
    }
}
