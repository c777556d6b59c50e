//! The state folder.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use super::reader::Reader;

/// Where it is, unless `state-dir` says otherwise.
pub const FOLDER: &str = "/run/rdma-init";

/// Whether this user may make the folder, where it is not there yet, and files in it.
pub fn is_writable(reader: &Reader) -> bool {
    let folder = reader.path(FOLDER);
    // The nearest that is there decides.
    let mut answers = folder.ancestors().map(may_make_files_in);
    answers.find(|answer| *answer != Err(Errno::ENOENT)).is_some_and(|answer| answer.is_ok())
}

/// As the effective user, who is the one to write. A file system that is mounted for
/// reading only says so here, too.
fn may_make_files_in(folder: &Path) -> nix::Result<()> {
    // What is no folder has no "." in it.
    let inside = folder.join(".");
    faccessat(AT_FDCWD, &inside, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_there_decides() {
        let root = tempfile::tempdir().unwrap();
        let is_writable = || is_writable(&Reader::new(root.path()));
        assert!(is_writable());
        fs::create_dir_all(root.path().join("run/rdma-init")).unwrap();
        assert!(is_writable());
        fs::remove_dir(root.path().join("run/rdma-init")).unwrap();
        fs::write(root.path().join("run/rdma-init"), "").unwrap();
        assert!(!is_writable());
        fs::remove_dir_all(root.path().join("run")).unwrap();
        // Nobody makes files there, root included.
        std::os::unix::fs::symlink("/proc/self", root.path().join("run")).unwrap();
        assert!(!is_writable());
    }
}
