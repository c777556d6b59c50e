//! Reads small kernel files below a root, without trusting them.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, access, gethostname};
use rustix::fs::RawDir;
use serde::{Deserialize, Serialize};

use super::attributes::AttributeFolder;
use super::kept_files::KeptFiles;
use super::natural::sort;

/// In bytes: no file that this reader reads is longer, so a longer file is not what its path suggests.
pub(crate) const LIMIT: u64 = 256 * 1024;

/// The most entries of a directory to examine; no kernel directory has as many.
const ENTRIES: usize = 65_536;

/// In bytes: how much of a directory one system call returns. The kernel's longest entry has 280 bytes.
const LISTED: usize = 8192;

/// In bytes: enough for nearly every file here, so that one system call reads it.
const USUAL: usize = 4096;

/// A path that exists but could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    pub path: PathBuf,
    /// A clause that follows a colon and has the path as its subject: `it is not a number`, or the kernel's
    /// error.
    pub error: String,
}

impl Unreadable {
    /// Returns whether the path belongs to RDMA devices.
    pub fn is_of_rdma(&self) -> bool {
        ["/sys/class/infiniband", "/dev/infiniband"].iter().any(|prefix| self.path.starts_with(prefix))
    }
}

/// Reads files below a root, and records what could not be read.
pub struct Reader {
    root: PathBuf,
    unreadable: RefCell<Vec<Unreadable>>,
    pub(super) kept: Option<KeptFiles>,
}

impl Reader {
    pub fn new(root: &Path) -> Reader {
        Reader { root: root.to_owned(), unreadable: RefCell::default(), kept: None }
    }

    /// Returns a reader that finds nothing.
    pub fn nowhere() -> Reader {
        Reader::new(Path::new("/proc/self/nowhere"))
    }

    /// Returns whether this reader reads this machine's own files, and not a copy of another machine's files.
    pub fn is_of_this_machine(&self) -> bool {
        // Comparing paths would compare them part by part, which takes longer.
        self.root.as_os_str() == "/"
    }

    pub fn into_unreadable(self) -> Vec<Unreadable> {
        self.unreadable.into_inner()
    }

    /// Returns the path below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        if self.is_of_this_machine() && path.is_absolute() {
            return path.to_owned();
        }
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the text of a file without trailing white space; `None` if the file is absent, or if it is
    /// unreadable, which is recorded.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        self.text_unless(path, &[])
    }

    /// Does the same as [`Reader::text`], but treats these errors as a missing file.
    pub fn text_unless(&self, path: impl AsRef<Path>, absent: &[Errno]) -> Option<String> {
        let path = self.path(path);
        self.unless_absent(&path, absent, read_regular(&path, LIMIT, Links::Followed)).map(clean)
    }

    /// Does the same as [`Reader::text_unless`], but keeps white space and control characters, because they
    /// count. Code that shows the text must replace them.
    pub fn exact_text_unless(&self, path: impl AsRef<Path>, absent: &[Errno]) -> Option<String> {
        let path = self.path(path);
        self.unless_absent(&path, absent, read_regular(&path, LIMIT, Links::Followed)).map(decoded)
    }

    /// Returns the bytes of a file that may be longer than other files, up to this limit; `None` in the same
    /// cases as [`Reader::text`].
    pub fn bytes(&self, path: impl AsRef<Path>, limit: u64) -> Option<Vec<u8>> {
        let path = self.path(path);
        self.unless_absent(&path, &[], read_regular(&path, limit, Links::Followed))
    }

    /// Opens a regular file, to read parts of it; `None` in the same cases as [`Reader::text`].
    pub fn regular(&self, path: impl AsRef<Path>) -> Option<File> {
        let path = self.path(path);
        self.unless_absent(&path, &[], open_regular(&path, OpenFor::Read, Links::Followed))
    }

    pub(super) fn unless_absent<T>(
        &self,
        path: &Path,
        absent: &[Errno],
        result: Result<T, ReadFailure>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(ReadFailure::Errno(Errno::ENOENT | Errno::ENOTDIR)) => None,
            Err(ReadFailure::Errno(errno)) if absent.contains(&errno) => None,
            Err(failure) => {
                self.remember(path, failure.to_string());
                None
            }
        }
    }

    /// Returns the text of an optional file. Does not record a file that does not exist or cannot be read.
    pub fn text_if_readable(&self, path: impl AsRef<Path>) -> Option<String> {
        self.long_text_if_readable(path, LIMIT)
    }

    /// Does the same as [`Reader::text_if_readable`] for a file that may be longer than other files, up to
    /// this limit.
    pub fn long_text_if_readable(&self, path: impl AsRef<Path>, limit: u64) -> Option<String> {
        read_regular(&self.path(path), limit, Links::Followed).ok().map(clean)
    }

    /// Returns the name of the host (gethostname(2)); `None` if it cannot be read.
    pub fn host_name(&self) -> Option<String> {
        match self.is_of_this_machine() {
            true => gethostname().ok().map(|name| clean(name.into_vec())),
            false => self.text_if_readable("/proc/sys/kernel/hostname"),
        }
    }

    /// Returns at most this many bytes from the start of a file. Does not record a file that does not exist
    /// or cannot be read.
    pub fn start_if_readable(&self, path: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
        let file = open_regular(&self.path(path), OpenFor::Read, Links::Followed).ok()?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the text of a kernel attribute that many devices have, with the fewest system calls: open,
    /// read, close.
    pub fn attribute(&self, path: &Path) -> Result<String, Errno> {
        self.attribute_of(|| path.to_owned(), || open(path, OpenFor::Read, Links::Followed))
    }

    /// Returns a directory with many attributes. If it does not exist, all of its attributes are missing.
    pub fn folder(&self, path: impl AsRef<Path>) -> AttributeFolder<'_> {
        AttributeFolder::new(self, self.path(path))
    }

    /// Returns the text of a file as a number. Records a text that is not a number as unreadable.
    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        let text = self.text(&path)?;
        self.parsed(&text, || self.path(path))
    }

    pub(super) fn parsed<T: std::str::FromStr>(
        &self,
        text: &str,
        path: impl FnOnce() -> PathBuf,
    ) -> Option<T> {
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.remember(&path(), format!("it is not a number: {text:?}"));
        }
        number
    }

    /// Returns the names in a directory in natural order (`mlx5_2` before `mlx5_10`); empty if the directory
    /// is absent or unreadable.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        self.sorted_names(&self.path(path))
    }

    pub(super) fn sorted_names(&self, path: &Path) -> Vec<String> {
        let mut names = Vec::new();
        self.each_name_at(path, &mut |name| names.push(name.to_owned()));
        sort(&mut names);
        names
    }

    /// Passes the names in a directory to `show`, unsorted: up to 65,536 names, or none if the directory is
    /// absent or unreadable.
    pub fn each_name(&self, path: impl AsRef<Path>, mut show: impl FnMut(&str)) {
        self.each_name_at(&self.path(path), &mut show);
    }

    fn each_name_at(&self, path: &Path, show: &mut dyn FnMut(&str)) {
        match list(path, ENTRIES, show) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => self.remember(path, describe(errno)),
        }
    }

    /// Does the same as [`Reader::each_name`] for the first `most` entries. Does not record a directory that
    /// does not exist or cannot be listed.
    pub fn each_name_if_listable(&self, path: impl AsRef<Path>, most: usize, mut show: impl FnMut(&str)) {
        let _ = list(&self.path(path), most, &mut show);
    }

    /// Returns whether every user may read a file, according to its mode and the modes of the directories
    /// above it; `false` if that cannot be determined.
    pub fn is_for_everybody(&self, path: impl AsRef<Path>) -> bool {
        let may = |path: &Path, bit: u32| fs::metadata(path).is_ok_and(|status| status.mode() & bit != 0);
        let (Ok(root), Ok(path)) = (fs::canonicalize(&self.root), fs::canonicalize(self.path(path))) else {
            return false;
        };
        let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(&root));
        // In a test, the root is a directory that only its user may enter.
        may(&path, 0o004) && folders.filter(|folder| *folder != root).all(|folder| may(folder, 0o001))
    }

    /// Returns whether a file exists here, or may exist, as far as this process can tell.
    pub fn may_be_there(&self, path: impl AsRef<Path>) -> bool {
        access(&self.path(path), AccessFlags::F_OK) != Err(Errno::ENOENT)
    }

    /// Returns whether a file exists here. A file that this process may not see counts as missing.
    pub fn is_there(&self, path: impl AsRef<Path>) -> bool {
        access(&self.path(path), AccessFlags::F_OK).is_ok()
    }

    pub fn is_directory(&self, path: impl AsRef<Path>) -> bool {
        fs::metadata(self.path(path)).is_ok_and(|status| status.is_dir())
    }

    /// Returns whether this process may open a file for reading. Does not open it.
    ///
    /// # Errors
    /// The error of access(2).
    pub fn may_read(&self, path: impl AsRef<Path>) -> Result<(), Errno> {
        access(&self.path(path), AccessFlags::R_OK)
    }

    /// Returns the last component of a link's target (`driver -> .../mlx5_core`).
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// Returns the path with all links resolved, below the root; `None` if the links cannot be resolved.
    pub fn resolved(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = self.path(path);
        let by_kernel = || {
            let file = nix::fcntl::open(&path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
            path_by_kernel(&file)
        };
        let found = if self.is_of_this_machine() { by_kernel() } else { None };
        found.or_else(|| self.canonical(&path))
    }

    /// Returns a path that includes the root with all links resolved, below the root.
    pub(super) fn canonical(&self, path: &Path) -> Option<String> {
        let path = fs::canonicalize(path).ok()?;
        let below = path.strip_prefix(fs::canonicalize(&self.root).ok()?).ok()?;
        Some(format!("/{}", below.to_str()?))
    }

    /// Records a path that cannot be read or understood.
    pub fn remember(&self, path: &Path, error: impl Into<String>) {
        let shown = path.strip_prefix(&self.root).map_or(path.to_owned(), |p| Path::new("/").join(p));
        let (new, mut all) = (Unreadable { path: shown, error: error.into() }, self.unreadable.borrow_mut());
        // Several readers may try the same file one after the other.
        if all.last() != Some(&new) {
            all.push(new);
        }
    }
}

/// Returns the path of an open file with all links resolved by the kernel, which takes fewer system calls than one for
/// each part; `None` if the file has been removed, or /proc does not show it.
pub(super) fn path_by_kernel(file: &impl AsRawFd) -> Option<String> {
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    // The kernel marks a path that is outside the root directory, or that has been removed.
    let resolved = link.to_str()?;
    (resolved.starts_with('/') && !resolved.ends_with(" (deleted)")).then(|| resolved.to_owned())
}

/// Why a file was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    Errno(Errno),
    NotRegular,
    TooLong(u64),
}

/// Whether to follow a symbolic link. If not, opening it fails with ELOOP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Followed,
    Refused,
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenFor {
    Read,
    Write,
}

impl std::fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            ReadFailure::Errno(errno) => f.write_str(&describe(*errno)),
            ReadFailure::NotRegular => f.write_str("it is not a regular file"),
            ReadFailure::TooLong(limit) => write!(f, "it is longer than {limit} bytes"),
        }
    }
}

/// Returns an error as text: `EACCES (Permission denied)`.
pub(crate) fn describe(errno: Errno) -> String {
    format!("{errno:?} ({})", errno.desc())
}

pub(super) fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// Opens a file without blocking, so that a FIFO in its place cannot hang the program.
fn open(path: &Path, access: OpenFor, links: Links) -> Result<File, Errno> {
    let no_links = if links == Links::Refused { libc::O_NOFOLLOW } else { 0 };
    OpenOptions::new()
        .read(access == OpenFor::Read)
        .write(access == OpenFor::Write)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | no_links)
        .open(path)
        .map_err(errno)
}

fn list(path: &Path, most: usize, show: &mut dyn FnMut(&str)) -> Result<(), Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    show_entries(nix::fcntl::open(path, flags, Mode::empty())?, most, show);
    Ok(())
}

/// A function of its own, so that the room for the entries is on the stack only if there is a directory.
#[inline(never)]
fn show_entries(folder: OwnedFd, most: usize, show: &mut dyn FnMut(&str)) {
    let mut buffer = [MaybeUninit::uninit(); LISTED];
    let mut entries = RawDir::new(folder, &mut buffer);
    for _ in 0..most {
        match entries.next() {
            Some(Ok(entry)) => match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => show(name),
            },
            Some(Err(_)) | None => break,
        }
    }
}

/// Opens an existing regular file. Does not open anything else with that name, such as a FIFO, a device, or a
/// directory, and never waits for it.
///
/// # Errors
/// The error of open(2), or the path is not a regular file.
pub(crate) fn open_regular(path: &Path, access: OpenFor, links: Links) -> Result<File, ReadFailure> {
    let file = open(path, access, links).map_err(ReadFailure::Errno)?;
    let metadata = file.metadata().map_err(|e| ReadFailure::Errno(errno(e)))?;
    if metadata.is_dir() {
        return Err(ReadFailure::Errno(Errno::EISDIR));
    }
    if !metadata.is_file() {
        return Err(ReadFailure::NotRegular);
    }
    Ok(file)
}

/// Returns the text of a kernel file, such as one about a process; `None` if it cannot be read, or is longer
/// than any such file.
pub(crate) fn of_kernel(path: impl AsRef<Path>) -> Option<String> {
    read_regular(path.as_ref(), LIMIT, Links::Followed).ok().map(decoded)
}

/// Returns all bytes of a regular file that has at most `limit` bytes.
///
/// # Errors
/// The errors of [`open_regular`], or the file is longer.
pub(crate) fn read_regular(path: &Path, limit: u64, links: Links) -> Result<Vec<u8>, ReadFailure> {
    let file = match is_made_by_kernel(path) {
        true => open(path, OpenFor::Read, links).map_err(ReadFailure::Errno)?,
        false => open_regular(path, OpenFor::Read, links)?,
    };
    read_all(file, limit)
}

/// Returns whether this is a path of the kernel's own file systems. None of their files is a FIFO or a
/// device, so the system call that would check this is not needed.
fn is_made_by_kernel(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    path.starts_with(b"/proc/") || path.starts_with(b"/sys/")
}

/// Returns all bytes of an open file that has at most `limit` bytes.
///
/// # Errors
/// The error of read(2), or the file is longer.
pub(crate) fn read_all(file: File, limit: u64) -> Result<Vec<u8>, ReadFailure> {
    let mut bytes = Vec::with_capacity(USUAL);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| ReadFailure::Errno(errno(e)))?;
    if bytes.len() as u64 > limit {
        return Err(ReadFailure::TooLong(limit));
    }
    Ok(bytes)
}

fn decoded(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Makes text safe to print: replaces bytes that are not UTF-8, and control characters except newlines and
/// tabs, and removes white space at the end.
pub(super) fn clean(bytes: Vec<u8>) -> String {
    let mut text = decoded(bytes);
    text.truncate(text.trim_end().len());
    // Nearly all kernel files are plain ASCII.
    if text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return text;
    }
    text.chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn absence_is_nothing_and_everything_else_is_remembered() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("good"), "4: ACTIVE\n").unwrap();
        fs::write(path("binary"), b"a\xff\x1b[31mb\n").unwrap();
        fs::write(path("huge"), vec![b'x'; LIMIT as usize + 1]).unwrap();
        fs::write(path("word"), "eleven\n").unwrap();
        fs::create_dir(path("folder")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        symlink("loop", path("loop")).unwrap();

        let reader = Reader::new(root.path());
        assert_eq!(reader.text("/good").as_deref(), Some("4: ACTIVE"));
        assert_eq!(reader.text("/binary").as_deref(), Some("a\u{fffd}\u{fffd}[31mb"));
        assert_eq!(reader.text("/missing"), None);
        assert_eq!(reader.text("/good/below-a-file"), None);
        assert_eq!(reader.names("/missing"), [""; 0]);
        assert!(reader.unreadable.borrow().is_empty());

        for name in ["/huge", "/folder", "/fifo", "/loop"] {
            assert_eq!(reader.text(name), None, "{name}");
        }
        assert_eq!(reader.number::<u32>("/word"), None);
        assert_eq!(reader.names("/good"), [""; 0]);
        let errors: Vec<_> = reader
            .into_unreadable()
            .into_iter()
            .map(|u| format!("{}: {}", u.path.display(), u.error))
            .collect();
        assert_eq!(
            errors,
            [
                "/huge: it is longer than 262144 bytes",
                "/folder: EISDIR (Is a directory)",
                "/fifo: it is not a regular file",
                "/loop: ELOOP (Too many symbolic links encountered)",
                "/word: it is not a number: \"eleven\"",
                "/good: ENOTDIR (Not a directory)",
            ]
        );
    }
}
