//! What the start has left, as PID 1 holds it for whoever enters the container later.
//! Files can lie where others may write to; into PID 1 nobody else can put anything.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::state::pid1::{NAME, SEALS, is_sealed};

/// Memory of PID 1 and the child that prepares, which the child fills and seals. The
/// command does not get it.
pub struct Sealed(File);

impl Sealed {
    /// `None` before Linux 3.17, or where there is no memory.
    pub fn new() -> Option<Sealed> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        // A machine may ask for it (vm.memfd_noexec), and one before Linux 6.3 not know it.
        let no_program = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
        let made: Result<OwnedFd, Errno> =
            memfd_create(NAME, flags | no_program).or_else(|_| memfd_create(NAME, flags));
        made.ok().map(|memory| Sealed(memory.into()))
    }

    pub fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Puts this into it; it counts once it is sealed. Gives whether it is all there.
    pub fn fill(&self, bytes: &[u8]) -> bool {
        self.0.write_all_at(bytes, 0).is_ok()
    }

    /// Nothing can change what is in it from now on.
    pub fn seal(&self) {
        let _ = fcntl(&self.0, FcntlArg::F_ADD_SEALS(SEALS));
    }

    /// Whether something counts that is in it.
    pub fn is_sealed(&self) -> bool {
        is_sealed(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_it_stays() {
        let memory = Sealed::new().unwrap();
        assert!(memory.fill(b"first") && !memory.is_sealed());
        memory.seal();
        assert!(memory.is_sealed() && !memory.fill(b"second"));
        assert!(memory.0.set_len(0).is_err() && memory.0.write_all_at(b"x", 0).is_err());
        let mut text = [0; 5];
        memory.0.read_exact_at(&mut text, 0).unwrap();
        assert_eq!((&text, memory.0.metadata().unwrap().len()), (b"first", 5));
    }
}
