//! Memory that processes share through a descriptor (memfd_create(2)).

use std::os::fd::OwnedFd;

use nix::NixPath;
use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Creates memory that an exec closes and from which no program can be executed.
///
/// # Errors
/// Fails as memfd_create(2) does, and with ENOSYS before Linux 3.17.
pub(crate) fn create<P: NixPath + ?Sized>(name: &P, flags: MFdFlags) -> Result<OwnedFd, Errno> {
    // A machine may require this flag: with vm.memfd_noexec = 2, Linux 6.3 to 6.5 return EACCES without it.
    let no_program = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    match memfd_create(name, flags | MFdFlags::MFD_CLOEXEC | no_program) {
        // A kernel before 6.3 does not support the flag.
        Err(Errno::EINVAL) => memfd_create(name, flags | MFdFlags::MFD_CLOEXEC),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::filter::{Which, refuse};
    use std::thread;

    #[test]
    fn kernels_that_require_the_flag_and_kernels_without_it_give_memory() {
        for (errno, which) in [
            (Errno::EACCES, Which::Without(libc::MFD_NOEXEC_SEAL)),
            (Errno::EINVAL, Which::With(libc::MFD_NOEXEC_SEAL)),
        ] {
            let made = thread::spawn(move || {
                refuse(libc::SYS_memfd_create, errno, which);
                create(c"test", MFdFlags::MFD_ALLOW_SEALING).map(drop)
            });
            assert_eq!(made.join().unwrap(), Ok(()), "{which:?}");
        }
    }
}
