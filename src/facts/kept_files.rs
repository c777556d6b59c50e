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
    /// The place of each file by its path, or why there is none. A path itself is compared part by part, which takes
    /// most of a look.
    paths: RefCell<BTreeMap<OsString, Result<usize, Errno>>>,
    open: RefCell<Vec<Option<OpenFile>>>,
    recording: RefCell<Option<Recording>>,
    most: usize,
}

struct OpenFile {
    file: File,
    /// What it contained when it was read last.
    text: Vec<u8>,
}

/// The files that are read meanwhile.
struct Recording {
    places: Vec<usize>,
    /// Whether these are all of them, and none of them has changed since it was read before.
    is_sound: bool,
}

impl KeptFiles {
    pub(super) fn new() -> KeptFiles {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        KeptFiles::at_most(usize::try_from((limit / PART).min(MOST)).unwrap_or_default())
    }

    fn at_most(most: usize) -> KeptFiles {
        KeptFiles { paths: RefCell::default(), open: RefCell::default(), recording: RefCell::default(), most }
    }

    /// Returns the text of the attribute at this path; see [`super::Reader::attribute`]. `open` opens it.
    pub(super) fn text(
        &self,
        path: PathBuf,
        open: impl FnOnce() -> Result<File, Errno>,
    ) -> Result<String, Errno> {
        let path = path.into_os_string();
        let mut paths = self.paths.borrow_mut();
        let mut files = self.open.borrow_mut();
        match paths.get(&path).copied() {
            Some(Ok(place)) => match self.read_again(&mut files, place) {
                // The device is gone, or another one has its name.
                Err(Errno::ENODEV) => {
                    files.get_mut(place).and_then(Option::take);
                    paths.remove(&path);
                }
                text => return text,
            },
            Some(Err(errno)) => return Err(errno),
            None => {}
        }
        let file = match open() {
            Ok(file) => file,
            Err(errno) => {
                if errno == Errno::ENOENT && !may_come_back(Path::new(&path)) {
                    paths.insert(path, Err(errno));
                } else {
                    self.record(None);
                }
                return Err(errno);
            }
        };
        let text = short_text(&file);
        self.record(None);
        if files.iter().flatten().count() < self.most {
            // A place that is free stays free: a list of places may still contain it.
            let place = files.len();
            files.push(Some(OpenFile { file, text: text.clone().unwrap_or_default() }));
            paths.insert(path, Ok(place));
        }
        text.map(clean)
    }

    fn read_again(&self, files: &mut [Option<OpenFile>], place: usize) -> Result<String, Errno> {
        let known = files.get_mut(place).and_then(Option::as_mut).ok_or(Errno::ENODEV)?;
        let text = short_text(&known.file).inspect_err(|_| self.record(None))?;
        if text == known.text {
            self.record(Some(place));
        } else {
            known.text.clone_from(&text);
            self.record(None);
        }
        Ok(clean(text))
    }

    /// Notes that a file was read that has not changed; `None` for any other one.
    fn record(&self, place: Option<usize>) {
        if let Some(recording) = self.recording.borrow_mut().as_mut() {
            recording.places.extend(place);
            recording.is_sound &= place.is_some();
        }
    }

    /// Returns the places of the files that `work` reads. `None` if one of them is not kept or cannot be read, or if
    /// one has changed.
    pub(super) fn read_by(&self, work: impl FnOnce()) -> Option<Vec<usize>> {
        *self.recording.borrow_mut() = Some(Recording { places: Vec::new(), is_sound: true });
        work();
        let recording = self.recording.borrow_mut().take()?;
        recording.is_sound.then_some(recording.places)
    }

    /// Returns whether these files contain what they did when they were read last. This takes one system call for each,
    /// and no memory.
    pub(super) fn are_unchanged(&self, places: &[usize]) -> bool {
        let files = self.open.borrow();
        let mut buffer = [0; LONGEST];
        places.iter().all(|place| {
            let Some(Some(known)) = files.get(*place) else { return false };
            let length = known.file.read_at(&mut buffer, 0);
            length.is_ok_and(|length| buffer.get(..length) == Some(known.text.as_slice()))
        })
    }

    /// Closes what is below this directory.
    pub(super) fn forget_below(&self, folder: &Path) {
        let mut files = self.open.borrow_mut();
        self.paths.borrow_mut().retain(|path, place| {
            let stays = !Path::new(path).starts_with(folder);
            if let (false, Ok(place)) = (stays, place) {
                files.get_mut(*place).and_then(Option::take);
            }
            stays
        });
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
            None => short_text(&open()?).map(clean),
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

/// Returns the bytes of an attribute from its start, wherever the last reading has ended.
fn short_text(file: &File) -> Result<Vec<u8>, Errno> {
    let mut buffer = [0; LONGEST];
    let length = file.read_at(&mut buffer, 0).map_err(errno)?;
    Ok(buffer.get(..length).unwrap_or_default().to_vec())
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
    fn files_are_compared_with_what_they_contained() {
        let root = FakeRoot::new();
        let kept = KeptFiles::at_most(3);
        let read = |name: &str| {
            let _ = kept.text(root.path(name), || File::open(root.path(name)).map_err(errno));
        };
        let both = || kept.read_by(|| ["a", "b"].iter().for_each(|name| read(name)));
        root.file("a", "1");
        root.file("b", "22");
        assert_eq!(both(), None, "they were not read before");
        let places = both().unwrap();
        assert_eq!((places.len(), kept.are_unchanged(&places)), (2, true));
        for text in ["2", "222", "22\n"] {
            root.file("b", text);
            assert!(!kept.are_unchanged(&places) && !kept.are_unchanged(&places), "{text}");
            assert_eq!(both(), None, "one has changed");
            assert_eq!((both().as_ref(), kept.are_unchanged(&places)), (Some(&places), true));
        }
        // One that may be there later, and one that is not kept open.
        assert_eq!(kept.read_by(|| read("port/state")), None);
        root.file("c", "3");
        root.file("d", "4");
        let all = || kept.read_by(|| ["a", "c", "d"].iter().for_each(|name| read(name)));
        assert_eq!((all(), all()), (None, None));
        assert_eq!(kept.read_by(|| read("no_counter")), Some(Vec::new()), "another driver's");
        kept.forget_below(&root.path("a"));
        assert!(!kept.are_unchanged(&places) && kept.are_unchanged(&places[1..]));
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
        assert_eq!(kept.open.borrow().iter().flatten().count(), 2);
        assert!(KeptFiles::new().most as u64 <= MOST && open_files() > 0);
    }
}
