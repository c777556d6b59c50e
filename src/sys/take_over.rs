//! What a process without an init does instead of the rest of its preparation, because there is no PID 1 to
//! do it: if the time expires, or after a crash, it becomes the command anyway or refuses to.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use super::children;
use super::crash::{self, Handlers};
use super::deadline::Timer;
use super::exec::PreparedExec;
use super::last_words::LastWords;
use super::signals::{Disposition, Inherited};
use super::stdio::Stderr;

/// Why the preparation does not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The time expired.
    Late,
    /// The preparation crashed with this signal.
    Signal(i32),
}

impl Cause {
    const ALL: [Cause; 1 + crash::SIGNALS.len()] = {
        let [segv, bus, abort, ill, fpe] = crash::SIGNALS;
        [
            Cause::Late,
            Cause::Signal(segv),
            Cause::Signal(bus),
            Cause::Signal(abort),
            Cause::Signal(ill),
            Cause::Signal(fpe),
        ]
    };
}

/// A value for each cause, created in advance: a handler must not allocate.
#[derive(Debug)]
pub(crate) struct ForEach<T>([T; Cause::ALL.len()]);

impl<T> ForEach<T> {
    pub(crate) fn cause(make: impl Fn(Cause) -> T) -> ForEach<T> {
        ForEach(Cause::ALL.map(make))
    }

    fn get(&self, cause: Cause) -> Option<&T> {
        Cause::ALL.iter().zip(&self.0).find(|(known, _)| **known == cause).map(|(_, value)| value)
    }
}

/// What the handlers need. It is leaked so that it is never freed.
struct Rescue {
    image: PreparedExec,
    inherited: Inherited,
    timer: Option<Disposition>,
    crash: Option<[Disposition; crash::SIGNALS.len()]>,
    messages: ForEach<String>,
    stderr: Stderr,
}

/// What happens instead of starting the command.
pub(crate) struct Refused {
    /// The code to exit with.
    pub code: i32,
    pub reasons: ForEach<Reason>,
    /// The message for standard error if the last words cannot be written.
    pub failed: String,
}

/// How to report a refusal.
#[derive(Debug)]
pub(crate) struct Reason {
    /// The message for standard error.
    pub message: String,
    pub words: LastWords,
}

/// The command, prepared with the decided values.
pub(crate) struct Decided {
    pub image: PreparedExec,
    pub messages: ForEach<String>,
}

/// A value for the handlers. It is created in advance; null means that there is none.
struct Given<T>(AtomicPtr<T>);

impl<T> Given<T> {
    const fn nothing() -> Given<T> {
        Given(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Leaks the previous value, because a handler may be about to use it. There are few such values.
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

/// A process that is taken over if its time expires or it crashes, until [`Guarded::cancel`].
pub(crate) struct Guarded {
    /// If there is no timer, or no handlers, the rest still works.
    timer: Option<Timer>,
    crash: Option<Handlers>,
    inherited: Inherited,
}

impl Guarded {
    /// Makes the process become `image` after this time or after a crash, unless canceled, whatever it is
    /// doing: the take-over interrupts a hanging system call and leaves a loop.
    pub(crate) fn start(
        after: Duration,
        image: PreparedExec,
        inherited: Inherited,
        messages: ForEach<String>,
    ) -> Guarded {
        let timer = Timer::new().ok();
        let crash = Handlers::install().ok();
        if timer.is_none() {
            inherited.restore();
        }
        RESCUE.give(Some(Rescue {
            image,
            inherited,
            timer: timer.as_ref().map(Timer::before),
            crash: crash.as_ref().map(Handlers::before),
            messages,
            stderr: Stderr::at_once(),
        }));
        children::remember_all(true);
        let guarded = Guarded { timer, crash, inherited };
        guarded.set(Some(after));
        guarded
    }

    /// Stops the timer, and restores the signal mask and the dispositions, which the command inherits.
    pub(crate) fn cancel(&self) {
        RESCUE.give(None);
        children::remember_all(false);
        if let Some(timer) = &self.timer {
            timer.stop();
        }
        if let Some(crash) = &self.crash {
            crash.remove();
        }
        self.inherited.restore();
    }

    /// Sets what a take-over does: this refusal, or with `None`, starting the command.
    pub(crate) fn refuse(&self, refused: Option<Refused>) {
        REFUSED.give(refused);
    }

    /// Makes a take-over start the command in this form from now on, regardless of earlier settings.
    pub(crate) fn decide(&self, decided: Decided) {
        DECIDED.give(Some(decided));
    }

    /// Sets another deadline, counted from the start; `None` for no deadline.
    pub(crate) fn set(&self, after: Option<Duration>) {
        if let Some(timer) = &self.timer {
            timer.set(after);
        }
    }
}

/// Becomes the command or ends the process. Returns only if there is nothing to take over.
///
/// Signal handlers call this. It does only what signal-safety(7) allows, on memory that was allocated in
/// advance: execve, sigaction, sigprocmask, pipe2, _Fork, open, fstat, pread, ftruncate, poll, read, write,
/// kill, waitpid, clock_gettime, nanosleep and _exit; and mmap, munmap, pwritev2 and vmsplice, which are mere
/// system calls.
pub(super) fn take_over(cause: Cause) {
    let Some(rescue) = RESCUE.take() else { return };
    children::end();
    let restore = || {
        rescue.timer.iter().chain(rescue.crash.iter().flatten()).for_each(Disposition::restore);
        rescue.inherited.restore();
    };
    let say = |message: Option<&String>| {
        rescue.stderr.put(message.map_or(&b""[..], |message| message.as_bytes()));
    };
    if let Some(decided) = DECIDED.take() {
        say(decided.messages.get(cause));
        restore();
        let error = decided.image.exec();
        // The command may fit without the variables, so the next steps may still start it.
        if error != Errno::E2BIG {
            fail(&rescue.stderr, error);
        }
    }
    if let Some(refused) = REFUSED.take() {
        let reason = refused.reasons.get(cause);
        say(reason.map(|reason| &reason.message));
        if reason.is_none_or(|reason| reason.words.leave().is_err()) {
            say(Some(&refused.failed));
        }
        super::fork::exit_now(refused.code);
    }
    say(rescue.messages.get(cause));
    restore();
    let error = rescue.image.exec();
    fail(&rescue.stderr, error);
}

fn fail(stderr: &Stderr, error: Errno) -> ! {
    stderr.put(b"rdma-init: the command could not be executed.\n");
    super::fork::exit_now(crate::exit::of_exec_error(error))
}

#[cfg(test)]
mod tests;
