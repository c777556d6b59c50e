//! The preparation's deadline in a process without an init, which no PID 1 watches.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::signals::{self, Disposition};
use super::take_over::{Cause, take_over};

/// A timer that triggers a [`take_over`] when it expires, until [`Timer::stop`].
///
/// This is a POSIX timer, because the exec removes it, and because an inherited interval timer belongs to the
/// command.
pub(super) struct Timer {
    timer: libc::timer_t,
    started: Instant,
    disposition: Disposition,
}

impl Timer {
    /// Creates a timer that is not running yet, and unblocks its signal.
    ///
    /// # Errors
    /// Fails with EAGAIN if the kernel has no timer left.
    pub(super) fn new() -> Result<Timer, Errno> {
        // SAFETY: the handler does only what signal-safety(7) allows, as `take_over` does. The
        // structures are plain data for the calls; sigevent is zeroed and then filled with what
        // SIGEV_SIGNAL reads.
        unsafe {
            // SIGALRM is unsuitable: an alarm that the parent left pending belongs to the command.
            let signal = signals::unused();
            let disposition = signals::handle(signal, time_is_up);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signal;
            let mut timer: libc::timer_t = std::mem::zeroed();
            let created = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
            if let Err(error) = Errno::result(created) {
                signals::give_back(&disposition);
                return Err(error);
            }
            Ok(Timer { timer, started: Instant::now(), disposition })
        }
    }

    /// Returns the disposition that the command inherits.
    pub(super) fn before(&self) -> Disposition {
        self.disposition
    }

    /// Stops the timer, and restores the disposition of its signal. The caller restores the mask.
    pub(super) fn stop(&self) {
        // SAFETY: the timer was created by `new`, and is used no more.
        unsafe { libc::timer_delete(self.timer) };
        signals::give_back(&self.disposition);
    }

    /// Sets another deadline, counted from the start; `None` for no deadline.
    pub(super) fn set(&self, after: Option<Duration>) {
        // Zero would stop the timer, so a deadline that has already passed becomes a short delay.
        let left = after.map_or(Duration::ZERO, |after| {
            after.saturating_sub(self.started.elapsed()).max(Duration::from_millis(1))
        });
        // SAFETY: the timer was created by `new`; the time is plain data.
        unsafe {
            let mut time: libc::itimerspec = std::mem::zeroed();
            time.it_value.tv_sec = left.as_secs().try_into().unwrap_or(libc::time_t::MAX);
            time.it_value.tv_nsec = left.subsec_nanos().into();
            libc::timer_settime(self.timer, 0, &time, std::ptr::null_mut());
        }
    }
}

extern "C" fn time_is_up(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    take_over(Cause::Late);
}
