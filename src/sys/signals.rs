//! Signal masks, dispositions and delivery, real-time signals included.
//!
//! Raw libc throughout: nix's `Signal` has no real-time signals, and an init
//! has to carry those too.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// A set of signals.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl Mask {
    fn full() -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset initialises the whole set.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Mask(set.assume_init())
        }
    }

    fn of(signal: i32) -> Mask {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the whole set; sigaddset rejects a bad number.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), signal);
            Mask(set.assume_init())
        }
    }

    /// Makes this the mask of the calling thread.
    pub fn install(&self) {
        // SAFETY: the set is initialised; SIG_SETMASK with a valid set cannot fail.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// What the process was started with, to be given to the command unchanged.
#[derive(Clone, Copy)]
pub struct Inherited {
    mask: Mask,
}

impl Inherited {
    /// Puts the mask back, in a child or before an exec in place.
    pub fn restore(&self) {
        self.mask.install();
    }
}

/// Blocks every signal, so that none is lost or kills before the loop that
/// forwards them runs. A fault of our own still kills: the kernel does not
/// let a fault be blocked.
pub fn block_all() -> Inherited {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both sets are valid for the call, which fills `old`.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, &Mask::full().0, old.as_mut_ptr());
        Inherited { mask: Mask(old.assume_init()) }
    }
}

/// A disposition that was inherited, to be put back.
#[derive(Clone, Copy)]
pub struct Disposition {
    signal: i32,
    action: libc::sigaction,
}

impl Disposition {
    pub fn restore(&self) {
        // SAFETY: the action came from the kernel for the same signal.
        unsafe { libc::sigaction(self.signal, &self.action, std::ptr::null_mut()) };
    }
}

/// Sets a signal to its default action. An init that inherited an ignored
/// SIGCHLD would never see a zombie, and hang.
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
    /// The signal's number.
    pub fn signal(&self) -> i32 {
        self.info.si_signo
    }

    /// Sends the same signal to `pid`, with the sender's value where it had one
    /// (sigqueue(3)): the kernel lets a process pass on exactly that kind.
    ///
    /// # Errors
    /// EPERM when the child has other credentials, ESRCH when it is gone.
    pub fn forward(&self, pid: Pid) -> Result<(), Errno> {
        let signal = self.signal();
        // SAFETY: `info` is a complete siginfo from the kernel; kill takes plain numbers.
        let result = unsafe {
            if self.info.si_code == libc::SI_QUEUE {
                libc::syscall(libc::SYS_rt_sigqueueinfo, pid.as_raw(), signal, &raw const self.info) as i32
            } else {
                libc::kill(pid.as_raw(), signal)
            }
        };
        Errno::result(result).map(drop)
    }
}

/// Waits until a blocked signal arrives. Signals in a burst come one by one.
pub fn wait() -> Received {
    loop {
        let mut info = MaybeUninit::uninit();
        // SAFETY: the set is valid and `info` is a valid place for one siginfo.
        let signal = unsafe { libc::sigwaitinfo(&Mask::full().0, info.as_mut_ptr()) };
        if signal > 0 {
            // SAFETY: the kernel filled it, as the positive result says.
            return Received { info: unsafe { info.assume_init() } };
        }
    }
}

/// Takes a pending blocked signal, if there is one.
pub fn take() -> Option<Received> {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut info = MaybeUninit::uninit();
    // SAFETY: set and time are valid for the call and `info` is a valid place.
    let signal = unsafe { libc::sigtimedwait(&Mask::full().0, info.as_mut_ptr(), &now) };
    // SAFETY: the kernel filled it, as the positive result says.
    (signal > 0).then(|| Received { info: unsafe { info.assume_init() } })
}

/// A descriptor that is readable while a blocked signal is pending, for poll(2).
///
/// # Errors
/// EMFILE, ENFILE or ENOMEM.
pub fn pending_fd() -> Result<OwnedFd, Errno> {
    // SAFETY: the set is valid; the result is a new descriptor that nobody else owns.
    unsafe {
        let fd = libc::signalfd(-1, &Mask::full().0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        Errno::result(fd).map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Sends a signal.
///
/// # Errors
/// EPERM, ESRCH, or EINVAL for a number that is no signal.
pub fn kill(pid: Pid, signal: i32) -> Result<(), Errno> {
    // SAFETY: kill takes plain numbers.
    Errno::result(unsafe { libc::kill(pid.as_raw(), signal) }).map(drop)
}

/// Takes a signal for ourselves: installs a handler and unblocks the signal.
/// Returns what to put back with [`give_back`].
///
/// # Safety
/// `handler` must do only what signal-safety(7) allows.
pub(super) unsafe fn handle(signal: i32, handler: extern "C" fn(i32)) -> Disposition {
    // SAFETY: both actions are fully initialised; the caller vouches for the handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut old: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_mask = Mask::full().0;
        libc::sigaction(signal, &action, &mut old);
        libc::sigprocmask(libc::SIG_UNBLOCK, &Mask::of(signal).0, std::ptr::null_mut());
        Disposition { signal, action: old }
    }
}

/// Undoes [`handle`], dropping what is still on the way. The source of the signal
/// must have stopped, and the mask is the caller's to restore.
pub(super) fn give_back(old: &Disposition) {
    let mask = Mask::of(old.signal);
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: set and time are valid for the calls.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, &mask.0, std::ptr::null_mut());
        libc::sigtimedwait(&mask.0, std::ptr::null_mut(), &now);
    }
    old.restore();
}
