//! A file that gets a final text from a process that may no longer be able to do much.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use nix::sys::uio::pread;
use nix::unistd::{ftruncate, write};

use super::fork::{NoAnswer, within};

/// The longest time that the write may delay the container's end if the file's disk or server does not
/// answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A text and its file, prepared in advance: writing the text allocates nothing, so a signal handler may do
/// so.
#[derive(Debug)]
pub struct LastWords {
    path: CString,
    file: FileKind,
    text: Vec<u8>,
}

/// Which file may get the text. A file with several names never gets it: one of the names may belong to
/// another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The file that the kubelet mounts for this purpose: its content may be overwritten. If the file does
    /// not exist, nothing is written, and that is not an error.
    Kubelets,
    /// The same file, but only if it is empty: the command itself may have written to it.
    KubeletsIfEmpty,
    /// A file that the user has named: it must be empty or begin like the text. If it does not
    /// exist, it is created.
    Users,
}

/// The number of leading bytes that a text must share with the text that it replaces.
const IN_COMMON: usize = 10;

/// The answer in the pipe for a file of another kind; all other answers are error numbers.
const NOT_FOR_THIS: u8 = 255;

/// Why the text was not written to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LastWordsError {
    #[error("{0}")]
    Errno(#[from] Errno),
    #[error("it took longer than {PATIENCE:?}")]
    InTime,
    #[error("the process that writes it could not be started: {0}")]
    NotStarted(Errno),
    #[error("the process that writes it ended before it had written anything")]
    Ended,
    #[error(
        "it is not a regular file with one name, or it contains text that is not rdma-init's, so rdma-init does not change it"
    )]
    NotForThis,
}

impl LastWords {
    pub fn new(path: &Path, file: FileKind, text: &str) -> LastWords {
        // No file name can contain a NUL byte; opening an empty name also fails.
        let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        LastWords { path, file, text: text.as_bytes().to_vec() }
    }

    /// Replaces the file's content with the text. A separate process does it, because open(2) may hang.
    ///
    /// # Errors
    /// Returns the error of open(2) or write(2), that this is not a file to write to, that the write took
    /// longer than [`PATIENCE`], or that no process could be started for it. A symbolic link results in
    /// ELOOP.
    pub fn leave(&self) -> Result<(), LastWordsError> {
        let answer = within(PATIENCE, || match self.write() {
            Ok(()) => 0,
            Err(LastWordsError::Errno(errno)) => u8::try_from(errno as i32).unwrap_or(NOT_FOR_THIS),
            Err(_) => NOT_FOR_THIS,
        });
        match answer {
            Ok(0) => Ok(()),
            Ok(NOT_FOR_THIS) => Err(LastWordsError::NotForThis),
            Ok(number) => Err(LastWordsError::Errno(Errno::from_raw(number.into()))),
            Err(NoAnswer::InTime) => Err(LastWordsError::InTime),
            Err(NoAnswer::Ended) => Err(LastWordsError::Ended),
            Err(NoAnswer::NotStarted(errno)) => Err(LastWordsError::NotStarted(errno)),
        }
    }

    fn write(&self) -> Result<(), LastWordsError> {
        // A FIFO without a reader must not make the container's end hang. A symbolic link is not followed:
        // the process that created it must not choose the file that is written.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let flags = match self.file {
            FileKind::Kubelets | FileKind::KubeletsIfEmpty => flags | OFlag::O_WRONLY,
            FileKind::Users => flags | OFlag::O_RDWR | OFlag::O_CREAT,
        };
        let file = match open(self.path.as_c_str(), flags, Mode::from_bits_truncate(0o644)) {
            Err(Errno::ENOENT) if self.file != FileKind::Users => return Ok(()),
            file => file?,
        };
        if !self.may_replace(&file)? {
            return Err(LastWordsError::NotForThis);
        }
        if self.file == FileKind::KubeletsIfEmpty && fstat(&file)?.st_size > 0 {
            return Ok(());
        }
        ftruncate(&file, 0)?;
        let mut left = &self.text[..];
        while !left.is_empty() {
            match write(&file, left) {
                Ok(0) => return Err(LastWordsError::Errno(Errno::EIO)),
                Ok(written) => left = &left[written.min(left.len())..],
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(LastWordsError::Errno(errno)),
            }
        }
        Ok(())
    }

    fn may_replace(&self, file: &OwnedFd) -> Result<bool, Errno> {
        let status = fstat(file)?;
        if status.st_mode & libc::S_IFMT != libc::S_IFREG || status.st_nlink > 1 {
            return Ok(false);
        }
        if self.file != FileKind::Users || status.st_size == 0 {
            return Ok(true);
        }
        let mut start = [0; IN_COMMON];
        let length = pread(file, &mut start, 0)?;
        Ok(length == IN_COMMON && self.text.starts_with(&start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_text_takes_the_place_of_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let words = |file| LastWords::new(&path, file, "rdma-init: why\n");
        assert_eq!(words(FileKind::Kubelets).leave(), Ok(()));
        assert!(!path.exists());
        assert_eq!(words(FileKind::Users).leave(), Ok(()));
        assert_eq!(fs::read_to_string(&path).unwrap(), "rdma-init: why\n");
        for (file, before) in [
            (FileKind::Kubelets, "something longer than that\n"),
            (FileKind::Users, "rdma-init: something else\n"),
        ] {
            fs::write(&path, before).unwrap();
            assert_eq!(words(file).leave(), Ok(()));
            assert_eq!(fs::read_to_string(&path).unwrap(), "rdma-init: why\n");
        }
    }

    #[test]
    fn what_the_command_has_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let left = || LastWords::new(&path, FileKind::KubeletsIfEmpty, "rdma-init: why\n").leave();
        assert_eq!(left(), Ok(()));
        assert!(!path.exists());
        for (before, after) in [("", "rdma-init: why\n"), ("Traceback\n", "Traceback\n")] {
            fs::write(&path, before).unwrap();
            assert_eq!(left(), Ok(()));
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn other_files_and_links_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("other"), "root:x:0:0\n").unwrap();
        fs::write(path("short"), "rdma").unwrap();
        fs::write(path("two names"), "").unwrap();
        fs::hard_link(path("two names"), path("second")).unwrap();
        symlink(path("other"), path("link")).unwrap();
        symlink(path("new"), path("link to nothing")).unwrap();
        let left = |name: &str, file| LastWords::new(&path(name), file, "rdma-init: why\n").leave();
        for name in ["other", "short", "two names"] {
            assert_eq!(left(name, FileKind::Users), Err(LastWordsError::NotForThis), "{name}");
        }
        for file in [FileKind::Users, FileKind::Kubelets] {
            assert_eq!(left("two names", file), Err(LastWordsError::NotForThis));
            for name in ["link", "link to nothing"] {
                assert_eq!(left(name, file), Err(LastWordsError::Errno(Errno::ELOOP)), "{name}");
            }
        }
        let texts = ["other", "short", "second"].map(|name| fs::read_to_string(path(name)).unwrap());
        assert_eq!(texts, ["root:x:0:0\n", "rdma", ""]);
        assert!(!path("new").exists());
    }

    #[test]
    fn what_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for (path, why) in [
            (fifo.as_path(), LastWordsError::NotForThis),
            (folder.path(), LastWordsError::Errno(Errno::EISDIR)),
            (Path::new("/dev/full"), LastWordsError::NotForThis),
            (Path::new("/no/such/folder/log"), LastWordsError::Errno(Errno::ENOENT)),
            (Path::new("a\0b"), LastWordsError::Errno(Errno::ENOENT)),
        ] {
            let left = LastWords::new(path, FileKind::Users, "why\n").leave();
            assert_eq!(left, Err(why), "{}", path.display());
        }
        assert_eq!(LastWordsError::Errno(Errno::ENXIO).to_string(), "ENXIO: No such device or address");
    }
}
