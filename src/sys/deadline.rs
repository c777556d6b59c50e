//! The deadline of the preparation in place, where no PID 1 stands by.

use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::exec::Image;
use super::signals::{self, Disposition, Inherited};
use super::stdio::Stderr;

/// What the handler needs, leaked so that it outlives everything.
struct Rescue {
    image: Image,
    inherited: Inherited,
    disposition: Disposition,
    message: Vec<u8>,
    /// Made beforehand: a handler must not allocate.
    stderr: Stderr,
}

/// The code to refuse the command with instead; 0 to start it.
static REFUSE: AtomicI32 = AtomicI32::new(0);

static RESCUE: AtomicPtr<Rescue> = AtomicPtr::new(std::ptr::null_mut());

/// A running timer, until [`Deadline::cancel`].
pub struct Deadline {
    timer: libc::timer_t,
    started: Instant,
    inherited: Inherited,
    disposition: Disposition,
}

impl Deadline {
    /// After this time, unless cancelled, the process becomes `image`,
    /// whatever it is doing: a system call that hangs is interrupted, a loop left.
    ///
    /// A POSIX timer, because it ends with the exec, and because an interval timer
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
        // SAFETY: the handler calls only execve, sigaction, sigprocmask, poll, write,
        // clock_gettime and _exit, which are async-signal-safe. The structures are
        // plain data for the calls; sigevent is zeroed and then filled with what
        // SIGEV_SIGNAL reads.
        let (timer, disposition) = unsafe {
            // Not SIGALRM: an alarm that the parent left pending is the command's.
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
        let rescue = Box::new(Rescue {
            image,
            inherited,
            disposition,
            message: message.into_bytes(),
            stderr: Stderr::at_once(),
        });
        RESCUE.store(Box::into_raw(rescue), Ordering::SeqCst);
        let deadline = Deadline { timer, started: Instant::now(), inherited, disposition };
        deadline.set(Some(after));
        Ok(deadline)
    }

    /// Stops the timer and puts mask and disposition of its signal back, for the
    /// command to inherit.
    pub fn cancel(&self) {
        RESCUE.store(std::ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: the timer was created by `arm`, and is used no more.
        unsafe { libc::timer_delete(self.timer) };
        signals::give_back(&self.disposition);
        self.inherited.restore();
    }

    /// What happens when the time is up: the command is started (`None`), or not,
    /// and the process exits with this code.
    pub fn refuse(&self, code: Option<i32>) {
        REFUSE.store(code.unwrap_or(0), Ordering::SeqCst);
    }

    /// Another time, counted from the start; `None` for never.
    pub fn set(&self, after: Option<Duration>) {
        // A zero would stop the timer, so what is over already ends in a moment.
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
    let rescue = RESCUE.swap(std::ptr::null_mut(), Ordering::SeqCst);
    if rescue.is_null() {
        return;
    }
    // SAFETY: only `arm` stores a pointer, of a box that is never freed, and the
    // swap made this the only user.
    let rescue = unsafe { &mut *rescue };
    let refuse = REFUSE.load(Ordering::SeqCst);
    if refuse != 0 {
        rescue.stderr.put(
            b"rdma-init: the preparation did not finish in time (prepare-timeout). Refusing to start \
              the command, as require-rdma or memlock = \"enforce\" asks.\n",
        );
        super::fork::exit_now(refuse);
    }
    rescue.stderr.put(&rescue.message);
    rescue.disposition.restore();
    rescue.inherited.restore();
    let error = rescue.image.exec();
    rescue.stderr.put(b"rdma-init: the command could not be executed.\n");
    super::fork::exit_now(crate::exit::of_exec_error(error));
}
