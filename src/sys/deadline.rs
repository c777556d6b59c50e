//! The deadline of the preparation in a process without an init, where no PID 1 watches.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::exec::Image;
use super::last_words::LastWords;
use super::signals::{self, Disposition, Inherited};
use super::stdio::Stderr;

/// What the handler needs, leaked so that it outlives everything.
struct Rescue {
    image: Image,
    inherited: Inherited,
    disposition: Disposition,
    message: Vec<u8>,
    /// Made in advance: a handler must not allocate.
    stderr: Stderr,
}

/// What is done instead of starting the command.
pub struct Refused {
    /// The code to exit with.
    pub code: i32,
    /// The message for standard error.
    pub message: String,
    pub words: LastWords,
    /// The message for standard error if the words cannot be left.
    pub failed: String,
}

/// The command as it is started with what was decided.
pub struct Decided {
    pub image: Image,
    pub message: String,
}

/// Something that the handler gets. It is made in advance; null means that there is none.
struct Given<T>(AtomicPtr<T>);

impl<T> Given<T> {
    const fn nothing() -> Given<T> {
        Given(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value before is leaked, because the handler may be about to use it. There are few.
    fn give(&self, value: Option<T>) {
        let new = value.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)));
        self.0.store(new, Ordering::SeqCst);
    }

    fn take(&self) -> Option<&'static mut T> {
        let pointer = self.0.swap(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: only `give` stores a pointer, of a box that is never freed, and the swap
        // makes this the only user.
        unsafe { pointer.as_mut() }
    }
}

static REFUSED: Given<Refused> = Given::nothing();
static DECIDED: Given<Decided> = Given::nothing();
static RESCUE: Given<Rescue> = Given::nothing();

/// A running timer, until [`Deadline::cancel`].
pub struct Deadline {
    timer: libc::timer_t,
    started: Instant,
    inherited: Inherited,
    disposition: Disposition,
}

impl Deadline {
    /// After this time, unless cancelled, the process becomes `image`, whatever it is doing: a
    /// system call that hangs is interrupted, and a loop is left.
    ///
    /// This is a POSIX timer, because that ends with the exec, and because an interval timer
    /// that was inherited belongs to the command.
    ///
    /// # Errors
    /// EAGAIN when the kernel has no timer left.
    pub fn arm(
        after: Duration,
        image: Image,
        inherited: Inherited,
        message: String,
    ) -> Result<Deadline, Errno> {
        // SAFETY: the handler calls only execve, sigaction, sigprocmask, pipe2, _Fork, open,
        // fstat, pread, ftruncate, poll, read, write, kill, waitpid, clock_gettime and _exit,
        // which are async-signal-safe. The structures are plain data for the calls; sigevent is
        // zeroed and then filled with what SIGEV_SIGNAL reads.
        let (timer, disposition) = unsafe {
            // Not SIGALRM: an alarm that the parent left pending belongs to the command.
            let signal = signals::unused();
            let disposition = signals::handle(signal, take_over);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signal;
            let mut timer: libc::timer_t = std::mem::zeroed();
            let created = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
            if let Err(error) = Errno::result(created) {
                signals::give_back(&disposition);
                inherited.restore();
                return Err(error);
            }
            (timer, disposition)
        };
        RESCUE.give(Some(Rescue {
            image,
            inherited,
            disposition,
            message: message.into_bytes(),
            stderr: Stderr::at_once(),
        }));
        let deadline = Deadline { timer, started: Instant::now(), inherited, disposition };
        deadline.set(Some(after));
        Ok(deadline)
    }

    /// Stops the timer, and restores the mask and the disposition of its signal, which the
    /// command inherits.
    pub fn cancel(&self) {
        RESCUE.give(None);
        // SAFETY: the timer was created by `arm`, and is used no more.
        unsafe { libc::timer_delete(self.timer) };
        signals::give_back(&self.disposition);
        self.inherited.restore();
    }

    /// Sets what happens when the time is up: this refusal, or with `None` the command is
    /// started.
    pub fn refuse(&self, refused: Option<Refused>) {
        REFUSED.give(refused);
    }

    /// From now on, the command is started like this when the time is up, whatever was set
    /// before.
    pub fn decide(&self, decided: Decided) {
        DECIDED.give(Some(decided));
    }

    /// Sets another deadline, counted from the start; `None` for no deadline.
    pub fn set(&self, after: Option<Duration>) {
        // A zero would stop the timer, so a deadline that is over already gets a moment.
        let left = after.map_or(Duration::ZERO, |after| {
            after.saturating_sub(self.started.elapsed()).max(Duration::from_millis(1))
        });
        // SAFETY: the timer was created by `arm`; the time is plain data.
        unsafe {
            let mut time: libc::itimerspec = std::mem::zeroed();
            time.it_value.tv_sec = left.as_secs().try_into().unwrap_or(libc::time_t::MAX);
            time.it_value.tv_nsec = left.subsec_nanos().into();
            libc::timer_settime(self.timer, 0, &time, std::ptr::null_mut());
        }
    }
}

extern "C" fn take_over(_signal: i32) {
    let Some(rescue) = RESCUE.take() else { return };
    let restore = || {
        rescue.disposition.restore();
        rescue.inherited.restore();
    };
    if let Some(decided) = DECIDED.take() {
        rescue.stderr.put(decided.message.as_bytes());
        restore();
        let error = decided.image.exec();
        // The command may fit without the variables, so the next steps may still start it.
        if error != Errno::E2BIG {
            fail(&rescue.stderr, error);
        }
    }
    if let Some(refused) = REFUSED.take() {
        rescue.stderr.put(refused.message.as_bytes());
        if refused.words.leave().is_err() {
            rescue.stderr.put(refused.failed.as_bytes());
        }
        super::fork::exit_now(refused.code);
    }
    rescue.stderr.put(&rescue.message);
    restore();
    let error = rescue.image.exec();
    fail(&rescue.stderr, error);
}

fn fail(stderr: &Stderr, error: Errno) -> ! {
    stderr.put(b"rdma-init: the command could not be executed.\n");
    super::fork::exit_now(crate::exit::of_exec_error(error))
}
