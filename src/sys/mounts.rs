//! Determines the mount that a file is on.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::libc;

/// Returns the ID of the mount that an open file is on (statx(2), `STATX_MNT_ID`); `None` before Linux 5.8,
/// or if a sandbox hides it.
pub(crate) fn of(file: impl AsFd) -> Option<u64> {
    ask(file.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// Returns the ID of the root directory's mount.
pub(crate) fn of_root() -> Option<u64> {
    ask(libc::AT_FDCWD, c"/", 0)
}

fn ask(folder: RawFd, path: &CStr, flags: libc::c_int) -> Option<u64> {
    // SAFETY: the structure is plain numbers, which may all be zero.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and the structure is valid for the call, which fills it.
    let result = unsafe { libc::statx(folder, path.as_ptr(), flags, libc::STATX_MNT_ID, &raw mut status) };
    let is_told = result == 0 && status.stx_mask & libc::STATX_MNT_ID != 0;
    // QEMU's user mode claims to report the ID but leaves it at 0.
    Some(status.stx_mnt_id).filter(|number| is_told && *number != 0)
}
