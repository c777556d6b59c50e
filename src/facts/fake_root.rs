//! A made-up root directory, for tests of readers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;

use super::Reader;

pub(crate) struct FakeRoot(TempDir);

impl FakeRoot {
    pub(crate) fn new() -> FakeRoot {
        FakeRoot(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::new(self.0.path())
    }

    pub(crate) fn folder(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    /// Writes a file, and creates the directories above it.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        fs::write(self.made(path), content).unwrap();
    }

    /// Writes several files below one directory.
    pub(crate) fn files(&self, folder: &str, files: &[(&str, &str)]) {
        for (path, text) in files {
            self.file(&format!("{folder}/{path}"), text);
        }
    }

    pub(crate) fn link(&self, target: impl AsRef<std::path::Path>, path: &str) {
        symlink(target, self.made(path)).unwrap();
    }

    fn made(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}
