//! The thread that traces a program, and answers or changes its calls for time.

use std::collections::HashMap;
use std::io;
use std::mem::zeroed;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::libc::{self, c_long, user_regs_struct};

use super::steps::{FAR, Steps, WAITS, is_endless};
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
    let player = clock.take_player();
    let calls = if player.is_some() { [&CALLS[..], &WAITS].concat() } else { CALLS.to_vec() };
    let mut program = filter(&calls, libc::SECCOMP_RET_TRACE);
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
        let steps = player.map(|player| Steps::new(player, main));
        // From here on, a clock of steps stands still until all wait.
        let began = std::array::from_fn(|id| real_now(id as libc::clockid_t));
        let mut tracer =
            Tracer { clock, main, waited, timers, changed: HashMap::new(), steps, began, end: send };
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
    /// If the time passes in steps.
    steps: Option<Steps>,
    /// What each of the kernel's clocks showed at first.
    began: [Option<Duration>; CLOCKS],
    end: Sender<End>,
}

/// How many clocks the kernel has (`MAX_CLOCKS` in its `time.h`, by their largest number).
const CLOCKS: usize = 12;

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
        // The flags keep the children of other threads out.
        let mut flags = libc::__WALL | libc::__WNOTHREAD;
        // Before it asks: what stops for this thread in between is an event.
        let all_sleep = match self.steps.as_mut().filter(|steps| !steps.runs()) {
            Some(steps) => {
                flags |= libc::WNOHANG;
                steps.all_sleep()
            }
            None => false,
        };
        // SAFETY: the status is a valid place.
        let pid = unsafe { libc::waitpid(-1, &mut status, flags) };
        if pid == 0 {
            match all_sleep {
                true => self.pass(),
                false => thread::yield_now(),
            }
            return true;
        }
        if pid == -1 {
            return io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        }
        if !libc::WIFSTOPPED(status) {
            self.changed.remove(&pid);
            if let Some(steps) = &mut self.steps {
                steps.ends(pid);
            }
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

    /// All sleep, and nothing has happened: lets the player play, or time pass.
    fn pass(&mut self) {
        let Some(steps) = &mut self.steps else { return };
        let until = |pid: &i32| self.changed.get(pid).map_or(Duration::MAX, |call| call.timeout.until);
        let first = steps.waiting().map(|pid| until(&pid)).min().unwrap_or(Duration::MAX);
        let (now, wakes) = steps.pass(self.main, self.clock.elapsed(), first);
        *self.clock.passed.lock().unwrap() = now;
        let due: Vec<i32> = steps.waiting().filter(|pid| wakes && until(pid) <= now).collect();
        steps.wake(&due);
        for pid in due {
            // One that was killed meanwhile ends.
            let _ = trace(libc::PTRACE_INTERRUPT, pid, 0);
        }
    }

    fn go_on(&mut self, pid: i32, signal: i32, event: i32) -> io::Result<()> {
        if let Some(steps) = &mut self.steps {
            steps.goes_on(pid);
        }
        let is_stop = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal);
        match event {
            libc::PTRACE_EVENT_STOP if is_stop => {
                self.steps.iter_mut().for_each(|steps| steps.is_stopped(pid));
                return trace(libc::PTRACE_LISTEN, pid, 0);
            }
            libc::PTRACE_EVENT_SECCOMP if self.change(pid)? => {
                self.steps.iter_mut().for_each(|steps| steps.waits(pid));
                return trace(libc::PTRACE_SYSCALL, pid, 0);
            }
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let mut child: libc::c_ulong = 0;
                trace(libc::PTRACE_GETEVENTMSG, pid, (&raw mut child).addr())?;
                self.steps.iter_mut().for_each(|steps| steps.begins(child as i32));
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
                if let Ok(milliseconds @ 1..) = u32::try_from(*place as i32) {
                    timeout =
                        earlier.unwrap_or_else(|| self.timeout(Duration::from_millis(milliseconds.into())));
                    *place = self.real(timeout).as_nanos().div_ceil(1_000_000).max(1) as u64;
                }
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
            libc::SYS_timer_settime if regs.rsi == 0 && self.steps.is_none() => {
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
            if self.steps.is_none() || !is_endless(&before) {
                return Ok(false);
            }
            timeout.until = Duration::MAX;
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
        const RESTART_ALWAYS: i64 = -512;
        let now = self.clock.elapsed();
        let Some(call) = self.changed.get_mut(&pid) else { return Ok(()) };
        let mut regs = registers(pid)?;
        let mut result = regs.rax as i64;
        let is_interrupted =
            [-i64::from(libc::EINTR), RESTART, RESTART_WITHOUT_HANDLER, RESTART_ALWAYS].contains(&result);
        let expired = match call.before.orig_rax as c_long {
            libc::SYS_futex => -i64::from(libc::ETIMEDOUT),
            libc::SYS_rt_sigtimedwait => -i64::from(libc::EAGAIN),
            _ => 0,
        };
        if self.steps.as_mut().is_some_and(|steps| steps.was_due(pid)) && is_interrupted {
            (result, regs.rax) = (expired, expired.cast_unsigned());
        }
        if result == expired && now < call.timeout.until && self.steps.is_none() {
            call.is_made_again = true;
            // A system call takes two bytes.
            regs = user_regs_struct { rip: call.before.rip - 2, rax: call.before.orig_rax, ..call.before };
            return set_registers(pid, &regs);
        }
        if pid == self.main && result == expired {
            self.waited += call.timeout.all;
        }
        if let Some(place) = call.left.filter(|place| *place != 0 && is_interrupted && result != expired) {
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
        let began = if self.steps.is_some() { *self.began.get(id as usize)? } else { real_now(id) };
        Some(began? + *self.clock.passed.lock().unwrap())
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
        Timeout { all, until: self.clock.elapsed().saturating_add(all) }
    }

    /// Returns for how long a call has to wait now.
    fn real(&self, timeout: Timeout) -> Duration {
        let left = timeout.until.saturating_sub(self.clock.elapsed());
        if self.steps.is_some() { FAR } else { left.clamp(Duration::from_nanos(1), AT_ONCE) }
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
