//! A file that is to get a last text, by a process that may not be able to do much any more.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::write;

use super::fork::within;

/// The container ends later by as much, where the file's disk or server does not answer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Everything is laid out beforehand: writing allocates nothing, so that it also works in
/// a signal handler.
#[derive(Debug)]
pub struct LastWords {
    path: CString,
    makes: bool,
    text: Vec<u8>,
}

/// Why they are not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    #[error("{0}")]
    Errno(Errno),
    #[error("it took longer than {PATIENCE:?}")]
    InTime,
}

impl LastWords {
    /// With `makes`, the file is made where it is not there; otherwise it is left at that,
    /// and that is no error.
    pub fn new(path: &Path, makes: bool, text: &str) -> LastWords {
        // A name with a NUL byte, which no file can have, is as good as an empty one.
        let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        LastWords { path, makes, text: text.as_bytes().to_vec() }
    }

    /// Puts them in place of what the file had: by a process of its own, as open(2) may hang.
    ///
    /// # Errors
    /// What open(2) or write(2) said, or that it took longer than [`PATIENCE`].
    pub fn leave(&self) -> Result<(), NotWritten> {
        let answer = within(PATIENCE, || {
            let number = self.write().map_or_else(|errno| errno as i32, |()| 0);
            u8::try_from(number).unwrap_or(u8::MAX)
        });
        match answer {
            Some(0) => Ok(()),
            Some(number) => Err(NotWritten::Errno(Errno::from_raw(number.into()))),
            None => Err(NotWritten::InTime),
        }
    }

    fn write(&self) -> Result<(), Errno> {
        // A FIFO without a reader must not hang the end.
        let mut flags =
            OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        flags.set(OFlag::O_CREAT, self.makes);
        let file = match open(self.path.as_c_str(), flags, Mode::from_bits_truncate(0o644)) {
            Err(Errno::ENOENT) if !self.makes => return Ok(()),
            file => file?,
        };
        let mut left = &self.text[..];
        while !left.is_empty() {
            match write(&file, left) {
                Ok(0) => return Err(Errno::EIO),
                Ok(written) => left = &left[written.min(left.len())..],
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_text_takes_the_place_of_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let words = |makes| LastWords::new(&path, makes, "why\n");
        assert_eq!(words(false).leave(), Ok(()));
        assert!(!path.exists());
        assert_eq!(words(true).leave(), Ok(()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "why\n");
        fs::write(&path, "something longer\n").unwrap();
        assert_eq!(words(false).leave(), Ok(()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "why\n");
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for (path, errno) in [
            (fifo.as_path(), Errno::ENXIO),
            (folder.path(), Errno::EISDIR),
            (Path::new("/dev/full"), Errno::ENOSPC),
            (Path::new("/no/such/folder/log"), Errno::ENOENT),
            (Path::new("a\0b"), Errno::ENOENT),
        ] {
            let left = LastWords::new(path, true, "why\n").leave();
            assert_eq!(left, Err(NotWritten::Errno(errno)), "{}", path.display());
        }
        assert_eq!(NotWritten::Errno(Errno::ENXIO).to_string(), "ENXIO: No such device or address");
    }
}
