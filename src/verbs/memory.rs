//! Protection domains, and memory that a device may use.

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::libc::c_void;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rdma_sys::{ibv_access_flags, ibv_alloc_pd, ibv_dealloc_pd, ibv_dereg_mr, ibv_mr, ibv_pd, ibv_reg_mr};

use super::device::OpenDevice;
use super::failure::{Failure, made};

/// A protection domain.
pub(crate) struct Domain<'a> {
    domain: NonNull<ibv_pd>,
    _device: PhantomData<&'a OpenDevice>,
}

impl<'a> Domain<'a> {
    /// # Errors
    /// ENOMEM, and the driver's own errors (ibv_alloc_pd(3)).
    pub(crate) fn new(device: &'a OpenDevice) -> Result<Domain<'a>, Failure> {
        // SAFETY: the device is open.
        made(unsafe { ibv_alloc_pd(device.raw()) }).map(|domain| Domain { domain, _device: PhantomData })
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: the domain is freed only here. Everything made from it borrows from this object, and
        // is already gone.
        unsafe { ibv_dealloc_pd(self.raw()) };
    }
}

/// Zeroed memory of this process. Its pages have not been touched yet.
pub(crate) struct Buffer {
    start: NonNull<c_void>,
    size: NonZeroUsize,
}

impl Buffer {
    /// Maps the memory.
    ///
    /// # Errors
    /// ENOMEM if there is no address space, EINVAL for a size of 0.
    pub(crate) fn new(size: usize) -> Result<Buffer, Failure> {
        let size = NonZeroUsize::new(size).ok_or(Errno::EINVAL)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps no memory of
        // the process.
        let start = unsafe { mmap_anonymous(None, size, protection, MapFlags::MAP_PRIVATE) }?;
        Ok(Buffer { start, size })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped by `new`. A region that uses the buffer owns it, and is
        // destroyed before it.
        let _ = unsafe { munmap(self.start, self.size.get()) };
    }
}

/// A buffer that the device reads and writes.
pub(crate) struct Region<'a> {
    region: NonNull<ibv_mr>,
    buffer: Buffer,
    _domain: PhantomData<&'a Domain<'a>>,
}

impl<'a> Region<'a> {
    /// Pins the buffer and makes it known to the device (ibv_reg_mr(3)).
    ///
    /// # Errors
    /// ENOMEM if RLIMIT_MEMLOCK is too low (`ib_umem_get`, drivers/infiniband/core/umem.c) or
    /// the device has no room.
    pub(crate) fn new(domain: &'a Domain, buffer: Buffer) -> Result<Region<'a>, Failure> {
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        Region::with(domain, buffer, access)
    }

    /// Does the same as [`Region::new`], but allows only the device itself to write. Every device
    /// grants that, even one without reliable connections.
    ///
    /// # Errors
    /// As for [`Region::new`].
    pub(crate) fn local(domain: &'a Domain, buffer: Buffer) -> Result<Region<'a>, Failure> {
        Region::with(domain, buffer, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE)
    }

    fn with(domain: &'a Domain, buffer: Buffer, access: ibv_access_flags) -> Result<Region<'a>, Failure> {
        // SAFETY: the domain outlives the region, by the lifetime. The buffer lives as long as
        // the region, which owns it.
        let region = made(unsafe {
            ibv_reg_mr(domain.raw(), buffer.start.as_ptr(), buffer.size.get(), access.0.cast_signed())
        })?;
        Ok(Region { region, buffer, _domain: PhantomData })
    }

    pub(crate) fn size(&self) -> usize {
        self.buffer.size.get()
    }

    pub(super) fn address(&self, offset: usize) -> u64 {
        self.buffer.start.as_ptr() as u64 + offset as u64
    }

    /// Returns the key for this end's requests and the key for the other end's requests.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: `ibv_reg_mr` has filled the structure, which is alive.
        unsafe { (self.region.as_ref().lkey, self.region.as_ref().rkey) }
    }

    fn range(&self, offset: usize, length: usize) -> Result<*mut u8, Failure> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size() => {
                // SAFETY: the offset is inside the mapping.
                Ok(unsafe { self.buffer.start.as_ptr().cast::<u8>().add(offset) })
            }
            _ => Err(Errno::EFAULT.into()),
        }
    }

    /// Writes bytes into the region.
    ///
    /// # Errors
    /// EFAULT if they would reach beyond the end.
    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let to = self.range(offset, bytes.len())?;
        // SAFETY: the range is inside the mapping, to which no Rust reference points.
        // Completions order what the device does there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Reads bytes from the region.
    ///
    /// # Errors
    /// EFAULT if they would reach beyond the end.
    pub(crate) fn get(&self, offset: usize, length: usize) -> Result<Vec<u8>, Failure> {
        let from = self.range(offset, length)?;
        let mut bytes = vec![0; length];
        // SAFETY: as for `put`.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length) };
        Ok(bytes)
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // SAFETY: the region is deregistered only here, before the buffer is dropped.
        unsafe { ibv_dereg_mr(self.region.as_ptr()) };
    }
}
