//! Refers to processes by descriptor. Unlike a process ID, a descriptor never comes to mean another process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// A process, alive or dead.
pub(crate) struct Pidfd(OwnedFd);

/// poll(2) reports the descriptor as readable when the process has ended.
impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `PIDFD_SIGNAL_PROCESS_GROUP` (Linux 6.9), which libc does not name.
const PROCESS_GROUP: libc::c_uint = 1 << 2;

impl Pidfd {
    /// # Errors
    /// Fails with ESRCH if there is no such process, ENOSYS before Linux 5.3, or EMFILE.
    pub(crate) fn open(pid: Pid) -> Result<Pidfd, Errno> {
        // SAFETY: plain numbers; the result is a new descriptor that nothing else owns.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
            Errno::result(fd).map(|fd| Pidfd(OwnedFd::from_raw_fd(fd as i32)))
        }
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// Fails with ESRCH if the process has been reaped, or EPERM.
    pub(crate) fn kill(&self, signal: i32) -> Result<(), Errno> {
        self.send(signal, null(), 0)
    }

    /// Sends a signal, with the information that came with it, to the group that this process leads.
    ///
    /// # Errors
    /// Fails as [`Pidfd::kill`] does, and with EINVAL before Linux 6.9.
    pub(super) fn kill_group_with(&self, signal: i32, info: &libc::siginfo_t) -> Result<(), Errno> {
        self.send(signal, info, PROCESS_GROUP)
    }

    fn send(&self, signal: i32, info: *const libc::siginfo_t, flags: libc::c_uint) -> Result<(), Errno> {
        // SAFETY: `info` is null or complete, as the callers pass a pointer from a
        // reference.
        let result =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, flags) };
        Errno::result(result).map(drop)
    }
}
