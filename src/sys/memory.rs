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
/// # Errors
/// ENOMEM or EPERM from the lock when the memory may not be pinned.
pub fn pin_probe(size: usize) -> Result<(), Errno> {
    let size = NonZeroUsize::new(size).ok_or(Errno::EINVAL)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice
    // touches no memory of ours, and it is unmapped before the function ends.
    unsafe {
        let memory = mmap_anonymous(
            None,
            size,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
        )?;
        let locked = Errno::result(libc::mlock2(memory.as_ptr(), size.get(), libc::MLOCK_ONFAULT));
        let _ = munmap(memory, size.get());
        locked.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_be_pinned_and_nothing_cannot() {
        assert_eq!(pin_probe(4096), Ok(()));
        assert_eq!(pin_probe(0), Err(Errno::EINVAL));
    }
}
