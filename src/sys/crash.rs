//! Handles the signals of a crash. The handlers run on a separate stack, because the usual stack may be
//! exhausted.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::signals::{self, Disposition};
use super::take_over::{Cause, take_over};

/// The signals that end a process because of its own fault. `abort` raises SIGABRT, including when the C
/// library calls it.
pub(super) const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

/// In bytes: what the handler needs in a debug build, plus the registers that the kernel saves on a large
/// processor (AT_MINSIGSTKSZ is some 12 KiB with AMX). Unused pages cost nothing.
const STACK: NonZeroUsize = NonZeroUsize::new(256 * 1024).unwrap();

/// The process whose crashes are handled. Its children inherit the handler.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Bit n is set if signal n was ignored before.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Bit n is set if signal n was blocked before.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// A process's crash handlers, until [`Handlers::remove`].
pub(super) struct Handlers {
    before: [Disposition; SIGNALS.len()],
    stack: NonNull<libc::c_void>,
}

impl Handlers {
    /// Makes a crash of this process lead to a [`take_over`] from now on.
    ///
    /// # Errors
    /// Fails with ENOMEM if there is no address space for the stack.
    pub(super) fn install() -> Result<Handlers, Errno> {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory
        // of ours, and stays until `remove` has taken it from the kernel. The handler does only
        // what signal-safety(7) allows, as `take_over` does.
        unsafe {
            let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_STACK;
            let stack = mmap_anonymous(None, STACK, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)?;
            let alternate = libc::stack_t { ss_sp: stack.as_ptr(), ss_flags: 0, ss_size: STACK.get() };
            if let Err(errno) = Errno::result(libc::sigaltstack(&raw const alternate, std::ptr::null_mut())) {
                let _ = munmap(stack, STACK.get());
                return Err(errno);
            }
            OWNER.store(libc::getpid(), Ordering::SeqCst);
            let before = SIGNALS.map(|signal| signals::catch(signal, crashed, libc::SA_ONSTACK));
            let ignored =
                before.iter().filter(|before| before.is_ignored()).map(|before| 1 << before.signal());
            IGNORED.store(ignored.sum(), Ordering::SeqCst);
            // The kernel kills a process if a fault's signal is blocked. The inherited mask of these signals
            // is restored together with that of all others.
            let blocked = SIGNALS.into_iter().filter(|signal| signals::unblock(*signal));
            BLOCKED.store(blocked.map(|signal| 1 << signal).sum(), Ordering::SeqCst);
            Ok(Handlers { before, stack })
        }
    }

    /// Returns the dispositions that the command inherits.
    pub(super) fn before(&self) -> [Disposition; SIGNALS.len()] {
        self.before
    }

    pub(super) fn remove(&self) {
        for before in &self.before {
            before.restore();
        }
        // SAFETY: no handler runs now, and none will, so nothing uses the stack, which is the
        // mapping of `install`.
        unsafe {
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            if libc::sigaltstack(&raw const none, std::ptr::null_mut()) == 0 {
                let _ = munmap(self.stack, STACK.get());
            }
        }
    }
}

/// Handles a signal. If the signal is not a crash of the owner, has the same effect as without the handler:
/// for a signal that another process sent, and for a crash of a child.
extern "C" fn crashed(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a complete siginfo; one with such a code names its sender. It
    // also hands over a complete ucontext, and restores the mask in it when the handler returns.
    // The rest are system calls with plain numbers.
    unsafe {
        let own = libc::getpid();
        let is_sent = (*info).si_code <= 0 && (*info).si_pid() != own;
        if !is_sent && OWNER.load(Ordering::SeqCst) == own {
            take_over(Cause::Signal(signal));
        }
        if is_sent && IGNORED.load(Ordering::SeqCst) & (1 << signal) != 0 {
            return;
        }
        if is_sent && BLOCKED.load(Ordering::SeqCst) & (1 << signal) != 0 {
            // The signal stays pending for the command.
            libc::sigaddset(&raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask, signal);
            libc::kill(own, signal);
            return;
        }
        // The kernel delivers it when the handler returns.
        signals::set_default(signal);
        libc::kill(own, signal);
    }
}
