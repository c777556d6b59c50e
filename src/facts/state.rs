//! Whether rdma-init can create the state directory.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};

use super::reader::Reader;

/// The state directory, unless `state-dir` names another one.
pub const FOLDER: &str = "/run/rdma-init";

/// Returns whether this user may create files in the state directory, and the directory itself if it does not
/// exist.
pub(crate) fn is_writable(reader: &Reader) -> bool {
    may_be_made(&reader.path(FOLDER))
}

/// Returns the same for any directory.
pub(crate) fn may_be_made(folder: &Path) -> bool {
    // The nearest directory that exists decides.
    let mut answers = folder.ancestors().map(may_make_files_in);
    answers.find(|answer| *answer != Err(Errno::ENOENT)).is_some_and(|answer| answer.is_ok())
}

/// Checks access for the effective user, because that user writes the files. The check also fails on a
/// read-only mount.
fn may_make_files_in(folder: &Path) -> nix::Result<()> {
    // Only a directory has an entry ".", so any other file causes an error.
    let inside = folder.join(".");
    faccessat(AT_FDCWD, &inside, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn existing_files_decide_whether_the_state_is_writable() {
        let root = tempfile::tempdir().unwrap();
        let is_writable = || is_writable(&Reader::new(root.path()));
        assert!(is_writable());
        fs::create_dir_all(root.path().join("run/rdma-init")).unwrap();
        assert!(is_writable());
        fs::remove_dir(root.path().join("run/rdma-init")).unwrap();
        fs::write(root.path().join("run/rdma-init"), "").unwrap();
        assert!(!is_writable());
        fs::remove_dir_all(root.path().join("run")).unwrap();
        // No user may create files there, not even root.
        std::os::unix::fs::symlink("/proc/self", root.path().join("run")).unwrap();
        assert!(!is_writable());
    }
}
