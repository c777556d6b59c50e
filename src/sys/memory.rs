//! Whether memory can be pinned, tried for real.

use std::num::NonZeroUsize;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Locks `size` bytes of fresh memory and releases them.
///
/// The kernel asks the same of mlock as of a memory registration: the limit, or
/// `capable(CAP_IPC_LOCK)` in the initial user namespace (`mm/mlock.c`,
/// `ib_umem_get`). With MLOCK_ONFAULT it asks without touching a page, so that
/// even a large size costs microseconds and no memory.
///
/// `None` when it could not be tried: no address space (RLIMIT_AS, overcommit), or
/// no such system call in a sandbox.
pub fn can_pin(size: usize) -> Option<bool> {
    let size = NonZeroUsize::new(size)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice
    // touches no memory of ours, and it is unmapped before the function ends.
    unsafe {
        let memory = mmap_anonymous(
            None,
            size,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
        )
        .ok()?;
        let locked = Errno::result(libc::mlock2(memory.as_ptr(), size.get(), libc::MLOCK_ONFAULT));
        let _ = munmap(memory, size.get());
        match locked {
            Ok(_) => Some(true),
            Err(Errno::ENOMEM | Errno::EPERM | Errno::EAGAIN) => Some(false),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_be_pinned_and_what_cannot_be_tried_is_not_judged() {
        assert_eq!(can_pin(4096), Some(true));
        assert_eq!(can_pin(0), None);
        // More than there are addresses.
        assert_eq!(can_pin(usize::MAX / 2), None);
    }
}
