//! Signal masks, dispositions and delivery, including real-time signals.
//!
//! This module uses raw system calls for signal sets. nix's `Signal` has no real-time signals, and glibc
//! reserves 32 and 33 for itself, so its sigprocmask would not give the command the inherited mask.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Pid, getpid, getppid};

use super::pidfd::Pidfd;

/// The largest signal number (the kernel's `_NSIG`).
pub const LARGEST: i32 = 64;

/// A set of signals in the kernel's format: bit n-1 for signal n.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mask(u64);

/// The size of the kernel's set, which its system calls require.
const SIZE: usize = size_of::<Mask>();

impl Mask {
    const FULL: Mask = Mask(u64::MAX);
    const EMPTY: Mask = Mask(0);

    fn of(signal: i32) -> Mask {
        Mask(1 << (signal - 1))
    }

    fn has(self, signal: i32) -> bool {
        self.0 & Mask::of(signal).0 != 0
    }

    /// Changes the thread's mask (`how` as in sigprocmask(2)) and returns the previous mask.
    fn change(self, how: libc::c_int) -> Mask {
        let mut old = Mask::EMPTY;
        // SAFETY: both sets are valid and of the size that is passed; the call
        // cannot fail with these.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const self, &raw mut old, SIZE) };
        old
    }

    /// Returns the signals that are pending for this thread or process.
    fn pending() -> Mask {
        let mut pending = Mask::EMPTY;
        // SAFETY: the set is valid and of the size that is passed.
        unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut pending, SIZE) };
        pending
    }

    /// Waits for a signal of the set, which must be blocked. With a timeout of zero, only checks whether one
    /// is pending. Returns `None` on a timeout, and also if the wait was interrupted.
    fn wait(self, timeout: Option<&libc::timespec>) -> Option<Received> {
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        let timeout: *const libc::timespec = timeout.map_or(std::ptr::null(), |t| t);
        // SAFETY: set, place and time are valid for the call; a null time means
        // to wait for ever.
        let signal = unsafe {
            libc::syscall(libc::SYS_rt_sigtimedwait, &raw const self, info.as_mut_ptr(), timeout, SIZE)
        };
        // SAFETY: the kernel filled it, as the positive result says.
        (signal > 0).then(|| Received { info: unsafe { info.assume_init() } })
    }
}

const NOW: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// The mask that the process was started with, which the command must get unchanged.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: Mask,
}

impl Inherited {
    /// Restores the mask, in a child or before an exec in this process.
    pub fn restore(&self) {
        self.mask.change(libc::SIG_SETMASK);
    }
}

/// Blocks every signal, so that none is lost or kills this process before the loop that forwards them runs. A
/// fault in this process still kills it: the kernel does not allow blocking a fault.
pub fn block_all() -> Inherited {
    Inherited { mask: Mask::FULL.change(libc::SIG_SETMASK) }
}

/// Unblocks every signal, for a command that is not the user's.
pub(crate) fn unblock_all() {
    Mask::EMPTY.change(libc::SIG_SETMASK);
}

/// A signal's inherited disposition, which is restored later.
#[derive(Clone, Copy)]
pub struct Disposition {
    signal: i32,
    action: libc::sigaction,
}

impl Disposition {
    pub(super) fn signal(&self) -> i32 {
        self.signal
    }

    pub(super) fn is_ignored(&self) -> bool {
        self.action.sa_sigaction == libc::SIG_IGN
    }

    pub fn restore(&self) {
        // SAFETY: the action came from the kernel for the same signal.
        unsafe { libc::sigaction(self.signal, &self.action, std::ptr::null_mut()) };
    }
}

/// Sets a signal to its default action. An init that inherited an ignored SIGCHLD would never see a zombie
/// and would hang.
pub fn set_default(signal: i32) -> Disposition {
    // SAFETY: a zeroed sigaction is SIG_DFL without flags; `old` is filled by the call.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, &mut old);
        Disposition { signal, action: old }
    }
}

/// A signal that was sent to this process.
pub struct Received {
    info: libc::siginfo_t,
}

impl Received {
    /// Returns the signal's number.
    pub fn signal(&self) -> i32 {
        self.info.si_signo
    }

    /// Sends this signal, or another one in its place, to the command, with the sender's value if there was
    /// one (sigqueue(3)): the kernel lets a process pass on exactly that kind.
    ///
    /// # Errors
    /// Fails with EPERM if the command has other credentials, or ESRCH if it is gone.
    pub fn forward(&self, to: Target, signal: i32) -> Result<Forwarded, Errno> {
        if self.info.si_code != libc::SI_QUEUE {
            return match to {
                Target::Process(pid) => kill(pid, signal),
                Target::Group(leader) => kill_group(leader, signal),
            }
            .map(|()| Forwarded::Whole);
        }
        let mut info = self.info;
        info.si_signo = signal;
        match to {
            // SAFETY: `info` is a complete siginfo from the kernel.
            Target::Process(pid) => Errno::result(unsafe {
                libc::syscall(libc::SYS_rt_sigqueueinfo, pid.as_raw(), signal, &raw const info)
            })
            .map(|_| Forwarded::Whole),
            Target::Group(leader) => {
                match Pidfd::open(leader).and_then(|leader| leader.kill_group_with(signal, &info)) {
                    Ok(()) => Ok(Forwarded::Whole),
                    Err(_) => kill_group(leader, signal).map(|()| Forwarded::WithoutValue),
                }
            }
        }
    }
}

impl Received {
    /// Returns whether it says that a process has ended that no wait for children sees.
    pub fn is_end_of_unseen(&self) -> bool {
        super::fork::is_end_of_unseen(self.info.si_signo, self.info.si_code)
    }

    /// Returns the value that this process has sent with it (sigqueue(3)).
    pub(super) fn value_from(&self, sender: Pid) -> Option<i32> {
        if self.info.si_code != libc::SI_QUEUE {
            return None;
        }
        // SAFETY: a signal of this kind has a sender and a value.
        let (process, value) = unsafe { (self.info.si_pid(), self.info.si_value()) };
        // The value is a union of a pointer and an int.
        (process == sender.as_raw()).then(|| value.sival_ptr.addr() as u32 as i32)
    }
}

/// Sends a signal with a value.
///
/// # Errors
/// Fails as [`kill`] does, and with EAGAIN if too many signals are queued.
pub(super) fn queue(pid: Pid, signal: i32, value: i32) -> Result<(), Errno> {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value as u32 as usize) };
    // SAFETY: sigqueue takes plain numbers; the value is not a pointer for either side.
    Errno::result(unsafe { libc::sigqueue(pid.as_raw(), signal, value) }).map(drop)
}

/// The recipient of a signal.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    Process(Pid),
    /// The group that this process leads.
    Group(Pid),
}

/// How much of the signal reached the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarded {
    Whole,
    /// The signal without the sender's value: before Linux 6.9, the kernel cannot pass the value on to a
    /// group.
    WithoutValue,
}

fn kill_group(leader: Pid, signal: i32) -> Result<(), Errno> {
    let group = kill(Pid::from_raw(-leader.as_raw()), signal);
    if group == Err(Errno::ESRCH) || has_left_its_group(leader) { kill(leader, signal) } else { group }
}

/// Returns whether the command has left its assigned group. Other processes may still be in that group.
fn has_left_its_group(leader: Pid) -> bool {
    nix::unistd::getpgid(Some(leader)).is_ok_and(|group| group != leader)
}

/// Waits until a blocked signal arrives or this time is reached; returns `None` on a timeout. Each call
/// returns one signal.
///
/// # Errors
/// Fails if the kernel does not let this process wait (a seccomp filter).
pub fn wait(until: Option<Instant>) -> Result<Option<Received>, Errno> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(timespec);
        if let Some(received) = Mask::FULL.wait(timeout.as_ref()) {
            return Ok(Some(received));
        }
        match Errno::last() {
            Errno::EINTR => {}
            Errno::EAGAIN if left.is_some_and(|left| left.is_zero()) => return Ok(None),
            Errno::EAGAIN => {}
            error => return Err(error),
        }
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Takes a pending blocked signal, if any.
///
/// # Errors
/// Fails as [`wait`] does.
pub fn take() -> Result<Option<Received>, Errno> {
    wait(Some(Instant::now()))
}

/// Returns a descriptor that is readable while a blocked signal is pending, for poll(2).
///
/// # Errors
/// Fails with EMFILE, ENFILE or ENOMEM.
pub fn pending_fd() -> Result<OwnedFd, Errno> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    let all = Mask::FULL;
    // SAFETY: the set is valid and of the size that is passed; the result is a new
    // descriptor that nothing else owns.
    unsafe {
        let fd = libc::syscall(libc::SYS_signalfd4, -1, &raw const all, SIZE, flags);
        Errno::result(fd).map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// The signals that a write may raise: if no process reads the pipe, or if the file has reached this
/// process's size limit.
const OF_WRITING: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Calls a function that writes, and discards the signals that its writes raise. rdma-init causes them, so
/// they must neither kill it nor be forwarded.
pub fn without_signals_of_writing<T>(run: impl FnOnce() -> T) -> T {
    let of_writing = Mask(OF_WRITING.iter().fold(0, |all, signal| all | Mask::of(*signal).0));
    let old = of_writing.change(libc::SIG_BLOCK);
    // A signal that was not blocked cannot have been pending.
    let before = if old.0 & of_writing.0 == 0 { Mask::EMPTY } else { Mask::pending() };
    let result = run();
    let raised = Mask(Mask::pending().0 & !before.0);
    for signal in OF_WRITING.into_iter().filter(|signal| raised.has(*signal)) {
        Mask::of(signal).wait(Some(&NOW));
    }
    old.change(libc::SIG_SETMASK);
    result
}

/// Makes a write to a file that has become too long (`ulimit -f`) fail with EFBIG from now on, instead of
/// ending this process. The command still gets the inherited disposition: an exec resets a signal with a
/// handler to its default, and an ignored signal stays ignored.
pub fn survive_limit_of_files() {
    // SAFETY: both actions are fully initialized; the handler does what signal-safety(7) allows.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut action);
        if action.sa_sigaction != libc::SIG_DFL {
            return;
        }
        action.sa_sigaction = file_is_too_long as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
    }
}

/// Handles SIGXFSZ. A signal that another process sent has the same effect as without the handler.
extern "C" fn file_is_too_long(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands over a complete siginfo; of its own signal it names this process
    // as the sender. The rest are system calls with plain numbers.
    unsafe {
        if (*info).si_pid() != libc::getpid() {
            set_default(signal);
            libc::kill(libc::getpid(), signal);
        }
    }
}

/// Returns `SIGTERM`, or `signal 42` for a real-time signal.
pub fn name(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => name.to_owned(),
        None => format!("signal {signal}"),
    }
}

/// Parses a signal: a name as in kill(1), with or without `SIG` and in any case, or a number.
pub fn parse(text: &str) -> Option<i32> {
    let text = text.trim().to_ascii_uppercase();
    if let Ok(number) = text.parse() {
        return (1..=LARGEST).contains(&number).then_some(number);
    }
    let bare = text.strip_prefix("SIG").unwrap_or(&text);
    let relative = |prefix: &str, base: i32, sign: i32| {
        let rest = bare.strip_prefix(prefix)?;
        let offset = if rest.is_empty() { 0 } else { sign * rest.parse::<i32>().ok()? };
        Some(base + offset).filter(|n| (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(n))
    };
    let known = |number: &i32| {
        let name = signal_hook::low_level::signal_name(*number);
        name.and_then(|name| name.strip_prefix("SIG")) == Some(bare)
    };
    (1..=31)
        .find(known)
        .or_else(|| relative("RTMIN", libc::SIGRTMIN(), 1))
        .or_else(|| relative("RTMAX", libc::SIGRTMAX(), 1))
}

/// Returns whether an init can receive this signal and forward it.
pub fn reaches_init(signal: i32) -> bool {
    ![libc::SIGKILL, libc::SIGSTOP, libc::SIGCHLD].contains(&signal)
}

/// Asks the kernel to send this signal to this process when its parent ends. That applies for the rest of its
/// life, even after an exec. If `parent` has already ended, sends the signal now.
pub fn on_parent_death(signal: i32, parent: Pid) {
    // SAFETY: the request takes a plain number; one that is not a signal is refused.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    if getppid() != parent {
        let _ = kill(getpid(), signal);
    }
}

/// Sends a signal.
///
/// # Errors
/// Fails with EPERM, ESRCH, or EINVAL for a number that is not a signal.
pub fn kill(pid: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes plain numbers.
    Errno::result(unsafe { libc::kill(pid.as_raw(), signal) }).map(drop)
}

/// Returns a real-time signal that is not pending. Using it for rdma-init therefore loses no signal for the
/// command.
pub(super) fn unused() -> i32 {
    let pending = Mask::pending();
    let mut signals = (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev();
    signals.find(|signal| !pending.has(*signal)).unwrap_or(libc::SIGRTMAX())
}

/// A signal handler, as sigaction(2) calls it with SA_SIGINFO.
pub(super) type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs a handler that no other signal interrupts. Returns the previous disposition.
///
/// # Safety
/// `handler` must do only what signal-safety(7) allows.
pub(super) unsafe fn catch(signal: i32, handler: Handler, flags: i32) -> Disposition {
    // SAFETY: both actions are fully initialized; the caller vouches for the handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(signal, &action, &mut old);
        Disposition { signal, action: old }
    }
}

/// Installs a handler for a signal and unblocks the signal. Returns the disposition to restore with
/// [`give_back`].
///
/// # Safety
/// `handler` must do only what signal-safety(7) allows.
pub(super) unsafe fn handle(signal: i32, handler: Handler) -> Disposition {
    // SAFETY: the caller vouches for the handler. It runs on the stack for crashes, if there is
    // one, as the usual one may have little room.
    let disposition = unsafe { catch(signal, handler, libc::SA_ONSTACK) };
    Mask::of(signal).change(libc::SIG_UNBLOCK);
    disposition
}

/// Unblocks a signal, unless one is pending, because that one is for the command. Returns whether the signal
/// was blocked and no longer is.
pub(super) fn unblock(signal: i32) -> bool {
    !Mask::pending().has(signal) && Mask::of(signal).change(libc::SIG_UNBLOCK).has(signal)
}

/// Undoes [`handle`], and discards signals that are still pending. The signal's source must have stopped, and
/// the caller restores the mask.
pub(super) fn give_back(old: &Disposition) {
    Mask::of(old.signal).change(libc::SIG_BLOCK);
    Mask::of(old.signal).wait(Some(&NOW));
    old.restore();
}
