//! The image's file tree. It resolves links below the reader's root and lists each directory only once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use crate::facts::natural::sort;
use crate::facts::reader::Reader;

/// The most links to follow in a path, the same as the kernel's limit (`include/linux/namei.h`,
/// `MAXSYMLINKS`).
const LINKS: usize = 40;

/// The most entries of a directory to examine. A directory of `PYTHONPATH` may contain a data set.
const ENTRIES: usize = 65_536;

/// The most names to keep from all directories, and the most paths. An image has a few hundred.
const NAMES: usize = 4096;

/// In bytes: the longest list of a package's files. PyTorch's has 1.3 million.
const LIST: u64 = 4 * 1024 * 1024;

/// What is known about paths. The keys are plain strings, because hashing a path hashes each component separately.
type Known<T> = RefCell<HashMap<OsString, T>>;

/// A path with links resolved, and how many links that took.
#[derive(Clone)]
struct Real {
    path: PathBuf,
    links: usize,
}

/// What a path without links leads to.
#[derive(Clone)]
enum Entry {
    /// Nothing, or it cannot be looked up.
    Nothing,
    LinkTo(PathBuf),
    Other,
}

pub struct Tree<'a> {
    reader: &'a Reader,
    /// Returns whether to keep a name.
    matters: &'a dyn Fn(&str) -> bool,
    listed: RefCell<HashMap<OsString, Rc<Vec<String>>>>,
    /// The paths that were looked up, with links resolved: each library is looked up under many names and
    /// ways.
    looked_up: Known<Option<Real>>,
    /// The path prefixes on the way to those paths: most paths start with the same few directories.
    on_the_way: Known<Entry>,
    /// How many more names may be kept.
    room: Cell<usize>,
}

impl<'a> Tree<'a> {
    pub fn new(reader: &'a Reader, matters: &'a dyn Fn(&str) -> bool) -> Tree<'a> {
        Tree {
            reader,
            matters,
            listed: RefCell::default(),
            looked_up: Known::default(),
            on_the_way: Known::default(),
            room: Cell::new(NAMES),
        }
    }

    /// Returns the path with links resolved, like realpath(3); `None` if the path does not exist or is not
    /// UTF-8. Resolves a link to `/x` to `/x` below the root, which the kernel would not do.
    pub fn real(&self, path: &Path) -> Option<PathBuf> {
        if let Some(real) = self.looked_up.borrow().get(path.as_os_str()) {
            return real.as_ref().map(|real| real.path.clone());
        }
        let real = match (path.parent().filter(|folder| folder.parent().is_some()), path.file_name()) {
            // Most paths are in the same few directories.
            (Some(folder), Some(name)) => {
                self.folder(folder).and_then(|folder| self.walk(folder, Path::new(name)))
            }
            _ => self.walk(Real::root(), path),
        };
        let found = real.as_ref().map(|real| real.path.clone());
        keep(&self.looked_up, path, real);
        found
    }

    /// Returns a directory's path with links resolved.
    fn folder(&self, path: &Path) -> Option<Real> {
        if let Some(real) = self.looked_up.borrow().get(path.as_os_str()) {
            return real.clone();
        }
        let real = self.walk(Real::root(), path);
        keep(&self.looked_up, path, real.clone());
        real
    }

    /// Resolves the rest of a path one component at a time.
    fn walk(&self, mut real: Real, rest: &Path) -> Option<Real> {
        let mut pending = Vec::new();
        push_reversed(&mut pending, rest);
        while let Some(part) = pending.pop() {
            if part == ".." {
                real.path.pop();
                continue;
            }
            real.path.push(part);
            match self.entry(&real.path) {
                Entry::LinkTo(target) => {
                    real.links += 1;
                    if real.links > LINKS {
                        return None;
                    }
                    real.path.pop();
                    if target.is_absolute() {
                        real.path = PathBuf::from("/");
                    }
                    push_reversed(&mut pending, &target);
                }
                Entry::Other => {}
                Entry::Nothing => return None,
            }
        }
        real.path.to_str().is_some().then_some(real)
    }

    fn entry(&self, path: &Path) -> Entry {
        if let Some(entry) = self.on_the_way.borrow().get(path.as_os_str()) {
            return entry.clone();
        }
        let entry = match fs::read_link(self.reader.path(path)) {
            Ok(target) => Entry::LinkTo(target),
            // The entry exists but is not a link.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Entry::Other,
            Err(_) => Entry::Nothing,
        };
        keep(&self.on_the_way, path, entry.clone());
        entry
    }

    /// Returns the names in a directory that matter, in natural order; an empty list if there is no
    /// directory.
    pub fn names(&self, folder: &Path) -> Rc<Vec<String>> {
        let Some(real) = self.real(folder) else { return Rc::default() };
        if let Some(names) = self.listed.borrow().get(real.as_os_str()) {
            return Rc::clone(names);
        }
        let mut names = Vec::new();
        self.reader.each_name_if_listable(&real, ENTRIES, |name| {
            if names.len() < self.room.get() && (self.matters)(name) {
                names.push(name.to_owned());
            }
        });
        self.room.set(self.room.get() - names.len());
        sort(&mut names);
        let names = Rc::new(names);
        self.listed.borrow_mut().insert(real.into_os_string(), Rc::clone(&names));
        names
    }

    /// Returns all names in a directory, given its path with links resolved.
    pub fn all_names(&self, real: &Path) -> Vec<String> {
        self.reader.names(real)
    }

    /// Opens a regular file, given its path with links resolved.
    pub fn open(&self, real: &Path) -> Option<File> {
        self.reader.regular(real)
    }

    /// Returns the text of a file that only saves work; see [`Reader::text_if_readable`].
    pub fn text(&self, path: &Path) -> Option<String> {
        self.reader.text_if_readable(self.real(path)?)
    }

    /// Does the same as [`Tree::text`] for a file as long as a large package's file list.
    pub fn list(&self, path: &Path) -> Option<String> {
        self.reader.long_text_if_readable(self.real(path)?, LIST)
    }

    pub fn is_there(&self, path: &Path) -> bool {
        self.real(path).is_some()
    }

    /// Records a file that could not be interpreted.
    pub fn remember(&self, real: &Path, error: &str) {
        self.reader.remember(&self.reader.path(real), error);
    }
}

impl Real {
    fn root() -> Real {
        Real { path: PathBuf::from("/"), links: 0 }
    }
}

fn keep<T>(known: &Known<T>, path: &Path, value: T) {
    let mut known = known.borrow_mut();
    if known.len() < NAMES {
        known.insert(path.as_os_str().to_owned(), value);
    }
}

/// Pushes the last component first, so that the first one is popped first.
fn push_reversed(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        _ => None,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_more_names_are_kept_than_an_image_has() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a", "b"] {
            fs::create_dir(root.path().join(folder)).unwrap();
            for number in 0..NAMES / 2 + 1 {
                symlink("x", root.path().join(folder).join(format!("liba{number}"))).unwrap();
            }
        }
        let reader = Reader::new(root.path());
        let tree = Tree::new(&reader, &|_| true);
        let kept = ["/a", "/b", "/a"].map(|folder| tree.names(Path::new(folder)).len());
        assert_eq!(kept, [NAMES / 2 + 1, NAMES / 2 - 1, NAMES / 2 + 1]);
    }

    #[test]
    fn links_lead_below_the_root_and_not_in_circles() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("usr/lib/x86")).unwrap();
        fs::write(path("usr/lib/x86/liba.so.1.2"), "").unwrap();
        symlink("usr/lib", path("lib")).unwrap();
        symlink("/lib/x86/liba.so.1.2", path("usr/lib/x86/liba.so.1")).unwrap();
        symlink("../../../../../../usr/lib/x86/liba.so.1", path("usr/lib/x86/liba.so")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("/nowhere", path("broken")).unwrap();
        let reader = Reader::new(root.path());
        let tree = Tree::new(&reader, &|name| name.starts_with("liba"));
        let real = |path: &str| tree.real(Path::new(path)).map(|p| p.to_str().unwrap().to_owned());
        for name in ["/lib/x86/liba.so", "/usr/lib/../lib/x86/./liba.so.1", "/lib/x86/liba.so.1.2"] {
            assert_eq!(real(name).as_deref(), Some("/usr/lib/x86/liba.so.1.2"), "{name}");
        }
        for name in ["/loop", "/broken", "/missing", "/lib/x86/liba.so.1.2/below", "/loop/x"] {
            assert_eq!(real(name), None, "{name}");
        }
        assert_eq!(*tree.names(Path::new("/lib/x86")), ["liba.so", "liba.so.1", "liba.so.1.2"]);
        assert_eq!(*tree.names(Path::new("/usr/lib")), [""; 0]);
        // The tree lists a directory only once, so it does not see a file that is created later.
        fs::write(path("usr/lib/x86/liba.so.9"), "").unwrap();
        assert_eq!(tree.names(Path::new("/usr/lib/x86")).len(), 3);
    }
}
