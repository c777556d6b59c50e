//! Attributes that stay open between looks. Most of the work of reading one is to look up its path and to open it; an
//! open one is read again from its start.
//!
//! An attribute of a device that is gone says so (ENODEV), even if another device has its name by now.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};

use super::Reader;
use super::reader::{clean, errno};

/// In bytes: attributes are not longer, and the rest of one that is does not count.
const LONGEST: usize = 256;

/// The most files to keep open, and the part of the limit of open files for them: the watcher of node 0 needs one for
/// each other node. Further files are opened at each look.
const MOST: u64 = 512;
const PART: u64 = 4;

pub(super) struct KeptFiles {
    /// Each file by its path, or why there is none. A path itself is compared part by part, which takes most of a look.
    files: RefCell<BTreeMap<OsString, Result<File, Errno>>>,
    most: usize,
}

impl KeptFiles {
    pub(super) fn new() -> KeptFiles {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        KeptFiles::at_most(usize::try_from((limit / PART).min(MOST)).unwrap_or_default())
    }

    fn at_most(most: usize) -> KeptFiles {
        KeptFiles { files: RefCell::default(), most }
    }

    /// Returns the text of the attribute at this path; see [`super::Reader::attribute`]. `open` opens it.
    pub(super) fn text(
        &self,
        path: PathBuf,
        open: impl FnOnce() -> Result<File, Errno>,
    ) -> Result<String, Errno> {
        let path = path.into_os_string();
        let mut files = self.files.borrow_mut();
        match files.get(&path) {
            Some(Ok(file)) => match short_text(file) {
                // The device is gone, or another one has its name.
                Err(Errno::ENODEV) => drop(files.remove(&path)),
                text => return text,
            },
            Some(Err(errno)) => return Err(*errno),
            None => {}
        }
        let file = match open() {
            Ok(file) => file,
            Err(errno) => {
                if errno == Errno::ENOENT && !may_come_back(Path::new(&path)) {
                    files.insert(path, Err(errno));
                }
                return Err(errno);
            }
        };
        let text = short_text(&file);
        if files.len() < self.most {
            files.insert(path, Ok(file));
        }
        text
    }

    /// Closes what is below this directory.
    pub(super) fn forget_below(&self, folder: &Path) {
        self.files.borrow_mut().retain(|path, _| !Path::new(path).starts_with(folder));
    }
}

impl Reader {
    /// Returns a reader that keeps open what [`Reader::attribute`] and the attributes of a [`Reader::folder`] read.
    pub(super) fn keeping(root: &Path) -> Reader {
        let mut reader = Reader::new(root);
        reader.kept = Some(KeptFiles::new());
        reader
    }

    /// Closes the attributes below this directory, whose path includes the root.
    pub(super) fn forget_below(&self, folder: &Path) {
        if let Some(kept) = &self.kept {
            kept.forget_below(folder);
        }
    }

    /// Returns the text of the attribute at this path, which `open` opens unless it is open already.
    pub(super) fn attribute_of(
        &self,
        path: impl FnOnce() -> PathBuf,
        open: impl FnOnce() -> Result<File, Errno>,
    ) -> Result<String, Errno> {
        match &self.kept {
            Some(kept) => kept.text(path(), open),
            None => short_text(&open()?),
        }
    }
}

/// Returns whether an attribute that is not there may be there at the next look: the others are those of other drivers.
fn may_come_back(path: &Path) -> bool {
    let is_named = |path: &Path, names: &[&str]| {
        path.file_name().is_some_and(|name| names.iter().any(|other| name == *other))
    };
    is_named(path, &["state", "rate"])
        || path.parent().is_some_and(|folder| is_named(folder, &["gids", "types", "ndevs"]))
}

/// Returns the text of an attribute from its start, wherever the last reading has ended.
fn short_text(file: &File) -> Result<String, Errno> {
    let mut buffer = [0; LONGEST];
    let length = file.read_at(&mut buffer, 0).map_err(errno)?;
    Ok(clean(buffer.get(..length).unwrap_or_default().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    fn open_files() -> usize {
        std::fs::read_dir("/proc/thread-self/fd").unwrap().count()
    }

    #[test]
    fn a_file_is_opened_once_and_read_again_from_its_start() {
        let root = FakeRoot::new();
        root.file("port/state", "4: ACTIVE\n");
        let reader = Reader::keeping(&root.path(""));
        let state = |reader: &Reader| {
            let folder = reader.folder("/port");
            assert_eq!(reader.attribute(&reader.path("/port/state")), folder.attribute("state"));
            folder.attribute("state")
        };
        assert_eq!(state(&reader), Ok("4: ACTIVE".to_owned()));
        // In place, as the kernel does.
        root.file("port/state", "1: DOWN\n");
        assert_eq!(state(&reader), Ok("1: DOWN".to_owned()));
        // Another file of this name is not opened.
        std::fs::remove_file(root.path("port/state")).unwrap();
        root.file("port/state", "4: ACTIVE\n");
        assert_eq!(state(&reader), Ok("1: DOWN".to_owned()));
        reader.forget_below(&root.path("por"));
        assert_eq!(state(&reader), Ok("1: DOWN".to_owned()), "that is another directory");
        reader.forget_below(&root.path("port"));
        assert_eq!(state(&reader), Ok("4: ACTIVE".to_owned()));
    }

    #[test]
    fn a_file_that_is_not_there_is_not_looked_for_again() {
        let root = FakeRoot::new();
        let kept = KeptFiles::new();
        let text = |opened: Result<File, Errno>| kept.text(root.path("x"), || opened);
        assert_eq!(text(Err(Errno::EACCES)), Err(Errno::EACCES));
        assert_eq!(text(Err(Errno::ENOENT)), Err(Errno::ENOENT), "a refusal may be over");
        root.file("x", "1");
        assert_eq!(text(File::open(root.path("x")).map_err(errno)), Err(Errno::ENOENT));
        kept.forget_below(&root.path(""));
        assert_eq!(text(File::open(root.path("x")).map_err(errno)), Ok("1".to_owned()));
    }

    #[test]
    fn what_every_port_has_is_looked_for_again() {
        let root = FakeRoot::new();
        let kept = KeptFiles::new();
        for (name, found) in [
            ("p/state", true),
            ("p/rate", true),
            ("p/gids/3", true),
            ("p/gid_attrs/types/3", true),
            ("p/hw_counters/x", false),
        ] {
            let text = || kept.text(root.path(name), || File::open(root.path(name)).map_err(errno));
            assert_eq!(text(), Err(Errno::ENOENT));
            root.file(name, "1");
            assert_eq!(text().is_ok(), found, "{name}");
        }
    }

    #[test]
    fn no_more_files_stay_open_than_allowed() {
        let root = FakeRoot::new();
        let kept = KeptFiles::at_most(2);
        for name in ["a", "b", "c", "d"] {
            root.file(name, "1");
        }
        for text in ["1", "2"] {
            for name in ["a", "b", "c", "d"] {
                root.file(name, text);
                let open = || File::open(root.path(name)).map_err(errno);
                assert_eq!(kept.text(root.path(name), open), Ok(text.to_owned()));
            }
        }
        assert_eq!(kept.files.borrow().len(), 2);
        assert!(KeptFiles::new().most as u64 <= MOST && open_files() > 0);
    }
}
