//! The saved state of the start in memory that PID 1 holds for processes that enter the container later.
//! Other processes may be able to write to the files of the state, but none can change the memory of PID 1.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::MFdFlags;

use crate::state::pid1::{NAME, SEALS, is_sealed};
use crate::sys::memfd;

/// Memory that PID 1 and the preparing child share. The child fills and seals it. The command does not
/// inherit it.
pub(super) struct Sealed(File);

impl Sealed {
    /// Returns `None` before Linux 3.17, or if the kernel has no memory left.
    pub(super) fn new() -> Option<Sealed> {
        memfd::create(NAME, MFdFlags::MFD_ALLOW_SEALING).ok().map(|memory| Sealed(memory.into()))
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Writes these bytes, which are trusted only after the memory is sealed. Returns whether all were
    /// written.
    pub(super) fn fill(&self, bytes: &[u8]) -> bool {
        self.0.write_all_at(bytes, 0).is_ok()
    }

    /// Seals the memory, so that nothing can change its content any more.
    pub(super) fn seal(&self) {
        let _ = fcntl(&self.0, FcntlArg::F_ADD_SEALS(SEALS));
    }

    /// Returns whether the memory has content and is sealed.
    pub(super) fn is_sealed(&self) -> bool {
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
