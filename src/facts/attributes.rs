//! Kernel directories with many attributes. Each directory is opened once, so that the kernel does not look
//! up its path for every attribute: the lookup is most of the work of reading one.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, faccessat};

use super::reader::{ReadFailure, Reader, path_by_kernel};

pub struct AttributeFolder<'a> {
    reader: &'a Reader,
    path: PathBuf,
    /// Opened when the first attribute is, which may be open already.
    open: OnceCell<Result<OwnedFd, Errno>>,
}

impl<'a> AttributeFolder<'a> {
    /// `path` includes the reader's root.
    pub(super) fn new(reader: &'a Reader, path: PathBuf) -> AttributeFolder<'a> {
        AttributeFolder { reader, path, open: OnceCell::new() }
    }

    fn opened(&self) -> Result<&OwnedFd, Errno> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let open = || nix::fcntl::open(&self.path, flags, Mode::empty());
        self.open.get_or_init(open).as_ref().map_err(|errno| *errno)
    }

    /// Returns the path of an attribute.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns whether the directory was there when it was opened.
    pub fn is_there(&self) -> bool {
        self.opened().is_ok()
    }

    /// Returns whether the directory has an attribute of this name.
    pub fn has(&self, name: &str) -> bool {
        let there = |folder| faccessat(folder, name, AccessFlags::F_OK, AtFlags::empty());
        self.opened().is_ok_and(|folder| there(folder).is_ok())
    }

    /// Returns the last component of a link's target; see [`Reader::link_name`].
    pub fn link_name(&self, name: &str) -> Option<String> {
        let target = readlinkat(self.opened().ok()?, name).ok()?;
        Some(Path::new(&target).file_name()?.to_str()?.to_owned())
    }

    /// Returns the path with all links resolved; see [`Reader::resolved`].
    pub fn resolved(&self) -> Option<String> {
        let by_kernel = match self.opened() {
            Ok(folder) if self.reader.is_of_this_machine() => path_by_kernel(folder),
            _ => None,
        };
        by_kernel.or_else(|| self.reader.canonical(&self.path))
    }

    /// Returns the names in the directory; see [`Reader::names`].
    pub fn names(&self) -> Vec<String> {
        self.reader.sorted_names(&self.path)
    }

    /// Returns the text of an attribute; see [`Reader::attribute`].
    pub fn attribute(&self, name: &str) -> Result<String, Errno> {
        // The same flags with which the reader opens files.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let open = || Ok(openat(self.opened()?, name, flags, Mode::empty())?.into());
        self.reader.attribute_of(|| self.path(name), open)
    }

    /// Returns the text of an attribute; `None` in the same cases as [`Reader::text`].
    pub fn text(&self, name: &str) -> Option<String> {
        self.text_unless(name, &[])
    }

    /// Does the same as [`AttributeFolder::text`], but treats these errors as a missing attribute.
    pub fn text_unless(&self, name: &str, absent: &[Errno]) -> Option<String> {
        match self.attribute(name) {
            Ok(text) => Some(text),
            Err(errno) => self.reader.unless_absent(&self.path(name), absent, Err(ReadFailure::Errno(errno))),
        }
    }

    /// Returns an attribute as a number. Records a text that is not a number as unreadable.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        let text = self.text(name)?;
        self.reader.parsed(&text, || self.path(name))
    }
}
