//! Checks whether memory can be pinned, and returns unused memory to the kernel.

use std::num::NonZeroUsize;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Locks `size` bytes of fresh memory and releases them.
///
/// mlock has the same requirements as a memory registration: the limit, or `capable(CAP_IPC_LOCK)` in the
/// initial user namespace (`mm/mlock.c`, `ib_umem_get`). With MLOCK_ONFAULT, the kernel checks them without
/// touching a page, so that even a large size costs microseconds and no memory.
///
/// Returns `None` if it could not try: there is no address space (RLIMIT_AS, overcommit), or a sandbox
/// refuses the system call, for example with the same error as the limit.
pub(crate) fn can_pin(size: usize) -> Option<bool> {
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
            Err(Errno::ENOMEM | Errno::EPERM | Errno::EAGAIN) if kernel_answers_mlock2() => Some(false),
            Err(_) => None,
        }
    }
}

/// Returns whether mlock2(2) reaches the kernel instead of a filter (seccomp). The kernel checks the flags
/// first; the filter checks only the call's number.
fn kernel_answers_mlock2() -> bool {
    const NO_FLAGS: libc::c_uint = !0;
    // SAFETY: no memory is named, and the kernel refuses the flags.
    let refused = unsafe { libc::mlock2(std::ptr::null(), 0, NO_FLAGS) };
    Errno::result(refused).err() == Some(Errno::EINVAL)
}

/// Returns the pages of the program's own code and constants to the kernel: after its start, a process that
/// only waits needs few of them, and the kernel can reload those from its cache. In a container, no other
/// process maps the file, so otherwise all pages that the start touched would count as PID 1's memory.
pub(crate) fn forget_own_code() {
    let page = page_size();
    let segments = own_segments();
    if !is_at_its_address(segments) {
        return;
    }
    for segment in segments {
        let read_only = segment.p_flags & libc::PF_W == 0;
        if segment.p_type != libc::PT_LOAD || !read_only {
            continue;
        }
        // The pages in which a writable segment begins or ends are kept, because they may differ from the
        // file.
        let start = (segment.p_vaddr as usize).next_multiple_of(page);
        let end = (segment.p_vaddr + segment.p_memsz) as usize / page * page;
        if start < end {
            // SAFETY: the range is mapped from the file, and never written to, as it is
            // read-only: what is touched again comes back as it was.
            unsafe {
                libc::madvise(std::ptr::without_provenance_mut(start), end - start, libc::MADV_DONTNEED)
            };
        }
    }
}

/// Returns the unused pages of the heap to the kernel: a process that allocates much for a moment, again and again,
/// otherwise holds all that it ever held.
pub(crate) fn give_back_heap() {
    // SAFETY: it only releases pages that hold nothing.
    unsafe { libc::malloc_trim(0) };
}

/// Returns the program headers with which the kernel loaded this program.
fn own_segments() -> &'static [libc::Elf64_Phdr] {
    // SAFETY: the auxiliary vector says where the kernel mapped this table and how many
    // entries it has; it stays there, read-only, as long as the program runs.
    unsafe {
        let table = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        let length = libc::getauxval(libc::AT_PHNUM) as usize;
        if table.is_null() { &[] } else { std::slice::from_raw_parts(table, length) }
    }
}

/// Returns whether the program headers contain the actual addresses in memory: if so, their table is in one
/// of the segments. A position-independent program's addresses start at zero.
fn is_at_its_address(segments: &[libc::Elf64_Phdr]) -> bool {
    let table = segments.as_ptr().addr() as u64;
    segments.iter().any(|segment| {
        segment.p_type == libc::PT_LOAD
            && (segment.p_vaddr..segment.p_vaddr.saturating_add(segment.p_memsz)).contains(&table)
    })
}

/// Returns the page size in bytes. On arm64, it is 4, 16 or 64 KiB.
fn page_size() -> usize {
    // SAFETY: the auxiliary vector is read.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::filter::{Which, refuse};

    #[test]
    fn a_page_can_be_pinned_and_what_cannot_be_tried_is_not_judged() {
        assert_eq!(can_pin(4096), Some(true));
        assert_eq!(can_pin(0), None);
        // This is more than the address space.
        assert_eq!(can_pin(usize::MAX / 2), None);
    }

    #[test]
    fn what_a_filter_refuses_tells_nothing_of_the_limit() {
        for errno in [Errno::EPERM, Errno::ENOMEM, Errno::ENOSYS] {
            let tried = std::thread::spawn(move || {
                refuse(libc::SYS_mlock2, errno, Which::All);
                can_pin(4096)
            });
            assert_eq!(tried.join().unwrap(), None, "{errno}");
        }
        assert!(kernel_answers_mlock2());
    }

    /// An arm64 kernel with pages of 64 KiB does not start a program whose segments share a page.
    #[test]
    fn each_segment_has_pages_of_its_own() {
        let largest = if cfg!(target_arch = "aarch64") { 64 * 1024 } else { 4096 };
        let mut last = 0;
        for segment in own_segments().iter().filter(|segment| segment.p_type == libc::PT_LOAD) {
            assert!(segment.p_align >= largest, "{:#x}", segment.p_align);
            assert!(segment.p_vaddr / largest >= last, "{:#x}", segment.p_vaddr);
            last = (segment.p_vaddr + segment.p_memsz).div_ceil(largest);
        }
        assert!(last > 0);
    }

    #[test]
    fn forgotten_pages_are_read_back() {
        static CONSTANT: [u64; 1024] = [7; 1024];
        assert!(is_at_its_address(own_segments()), "a static program that is not position-independent");
        forget_own_code();
        assert_eq!(std::hint::black_box(&CONSTANT).iter().sum::<u64>(), 7 * 1024);
    }
}
